"""Upgrades at length: `make upgrade`, several workloads and faults beside nodes that are swapped.

Owns which plans it is made of, and the exit code: 0 only where nothing is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.jepsen.run import Plan, all_faults, run, skipped
from tests.upgrade.test_rolling import OLD

SECONDS = 45.0
"""Of swaps in one run: all nodes go there, back, and there again."""

PLANS = (
    ("queue", "swap"),
    ("lock", "swap kill"),
    ("key", "swap pause"),
    ("single_active", "swap transfer"),
    ("delay", "swap partition"),
    ("dedup", "swap lossy client_cut"),
    ("dead_letter", "swap client_kill client_pause"),
    ("get", "swap power"),
)
"""Workloads, and what happens beside each."""


def plans(seed: int) -> Iterator[Plan]:
    """Each workload once, with other faults beside the swaps, where they are possible here."""
    known = all_faults()
    for place, (workload, faults) in enumerate(PLANS):
        chosen = tuple(faults.split())
        if unknown := [name for name in chosen if name not in known]:
            print(f"skipped: {workload} with {', '.join(unknown)}: {'; '.join(skipped())}")
            continue
        yield Plan(workload, chosen, seed + place, SECONDS, release=OLD)


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
