"""A benchmark on processes of its own: a folder, children, Ctrl-C, and nothing left in the end.

Owns how such a run begins and ends, and with which exit code. Knows nothing of what is measured.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import fifo
from bench.interrupts import EXIT_CODE, Interrupts
from bench.loopback import ClusterFailed
from bench.processes import Household

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

T = TypeVar("T")

FAILURES: tuple[type[Exception], ...] = (ClusterFailed, fifo.FifoError, TimeoutError)
"""Failure of a cluster under measurement: one line for the user, no traceback."""


def measured(
    name: str,
    work: Callable[[Household, Path], Coroutine[Any, Any, T]],
    *,
    within: Path | None = None,
) -> T:
    """Run `work(household, folder)`; its folder is made in `within`, else among temporary files.

    Afterwards no child and no file of it is left. Raises SystemExit, with one line on stderr, where
    it was interrupted or one of FAILURES ended it.
    """
    interrupts = Interrupts()
    with interrupts.caught():
        folder = Path(tempfile.mkdtemp(prefix=f"fifo-{name}-", dir=within))
        household = Household(folder / "logs")
        try:
            return interrupts.run(work(household, folder))
        except asyncio.CancelledError:
            print("interrupted", file=sys.stderr)
            raise SystemExit(EXIT_CODE) from None
        except FAILURES as error:
            print(f"the benchmark failed: {error}", file=sys.stderr)
            raise SystemExit(1) from None
        finally:
            household.end(hurry=interrupts.hurry)
            shutil.rmtree(folder, ignore_errors=True)
