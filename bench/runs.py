"""Running `fifo bench` as a process of a household and reading what it prints.

Owns one call of it. Knows no workload and no table.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import TYPE_CHECKING, Any

from bench.loopback import ended

if TYPE_CHECKING:
    from pathlib import Path

    from bench.processes import Household

_numbers = itertools.count(1)


async def fifo_bench(
    household: Household, folder: Path, *options: str, limit_s: float
) -> dict[str, Any]:
    """The report of `fifo bench --json` with these options. Raises `ClusterFailed` where it fails
    or takes longer than `limit_s`."""
    name = f"fifo-bench-{next(_numbers)}"
    output = folder / f"{name}.json"
    child = household.start(
        name, *(sys.executable, "-m", "node", "bench", "--json", *options), stdout=output
    )
    await ended(child, limit_s)
    return dict(json.loads(output.read_text()))
