"""The requirements of the data source: PySpark and PyArrow, and their minimum versions.

Owns the oldest versions, and what is said where they are not met. Update with it: the extra `spark`
in `pyproject.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Final

OLDEST: Final = {"pyspark": (4, 2), "pyarrow": (18, 0)}
"""PySpark 4.2 was the first to let a Python source limit what a batch takes."""

REMEDY: Final = "pip install 'fifo-quorum[spark]', on the executors too"


def check(load: Callable[[str], ModuleType] = import_module) -> None:
    """Raise ImportError, in one line that says what to do, unless both are there and new enough."""
    for name, oldest in OLDEST.items():
        wanted = f"{name} {oldest[0]}.{oldest[1]} or newer"
        try:
            found = str(load(name).__version__)
        except ImportError:
            raise ImportError(f"fifo.spark needs {wanted}: {REMEDY}") from None
        if version(found) < oldest:
            raise ImportError(f"fifo.spark needs {wanted}, this is {found}: {REMEDY}")


def version(text: str) -> tuple[int, int]:
    """The first two numbers of a version."""
    major, minor, *_ = [*map(int, re.findall(r"\d+", text)), 0, 0]
    return major, minor
