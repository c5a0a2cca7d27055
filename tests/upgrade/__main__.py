"""Upgrades at length: `make upgrade`, several workloads and faults beside nodes that are swapped.

Owns which plans it is made of, and the exit code: 0 only where nothing is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.jepsen.run import Plan, run
from tests.upgrade.test_rolling import OLD

SECONDS = 45.0
"""Of swaps in one run: all nodes go there, back, and there again."""

WORKLOADS = ("queue", "lock", "key", "single_active")
"""Settlements, locks, order by key, and order of one consumer."""

FAULTS = (("swap",), ("swap", "kill"), ("swap", "pause"), ("swap", "transfer"))


def plans(seed: int) -> Iterator[Plan]:
    """Each workload once, with other faults beside the swaps."""
    for place, (workload, faults) in enumerate(zip(WORKLOADS, FAULTS, strict=True)):
        yield Plan(workload, faults, seed + place, SECONDS, release=OLD)


def main() -> int:
    """Carry out all plans, and say what they came to."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides the schedules")
    parser.add_argument("--folder", type=Path, default=Path("jepsen-runs"), help="where runs lie")
    options = parser.parse_args()
    good = True
    for plan in plans(options.seed):
        where = (options.folder / f"upgrade-{plan.workload}-{plan.seed}").absolute()
        result = asyncio.run(run(plan, where))
        swaps = sum(one["f"] == "swapped" for one in result.events)
        print(f"{result.text()}, {swaps} swaps", flush=True)
        good &= result.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
