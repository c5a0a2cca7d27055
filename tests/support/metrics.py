"""The metrics that docs/metrics.md lists: what dashboards and alerts may rely on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
_ROW: Final = re.compile(r"^\| `([a-z_]+)(?:\{[a-z,]+\})?` \| (\w+) \| ([a-z ]+) \|", re.MULTILINE)


def documented() -> dict[str, tuple[str, str]]:
    """(kind, exported by) of every metric in the table."""
    page = _PAGE.read_text(encoding="utf-8")
    return {name: (kind, by) for name, kind, by in _ROW.findall(page)}
