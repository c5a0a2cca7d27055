"""Running `fifo bench` as a process of a household and reading what it prints.

Owns one call of it. Knows no workload and no table.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from bench.cluster import ClusterFailed

if TYPE_CHECKING:
    from pathlib import Path

    from bench.processes import Household

POLL_S = 0.1
_numbers = itertools.count(1)


async def fifo_bench(
    household: Household, folder: Path, *options: str, limit_s: float
) -> dict[str, Any]:
    """The report of `fifo bench --json` with these options. Raises `ClusterFailed` where it fails
    or takes longer than `limit_s`."""
    name = f"bench-{next(_numbers)}"
    output = folder / f"{name}.json"
    child = household.start(
        name, *(sys.executable, "-m", "node", "bench", "--json", *options), stdout=output
    )
    deadline = time.monotonic() + limit_s
    while (code := child.exit_code()) is None:
        if time.monotonic() > deadline:
            raise ClusterFailed(f"fifo bench {' '.join(options)} does not end")
        await asyncio.sleep(POLL_S)
    if code != 0:
        raise ClusterFailed(f"fifo bench {' '.join(options)}: {child.last_lines()}")
    return dict(json.loads(output.read_text()))
