"""Upgrades at length: `make upgrade`, several workloads and faults beside nodes that are swapped.

Disks go wrong beside the swaps as far as 0.1.0 has an answer (`--recover` while all others are up);
what only identities find, and changes of the members, come right behind the finish.

Owns which plans it is made of, and the exit code: 0 only where nothing is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tests.jepsen.run import Plan, all_faults, run, skipped
from tests.upgrade.releases import OLD

SECONDS = 45.0
"""Of swaps in one run: all nodes go there, back, and there again."""

SECONDS_EACH = 30.0
"""The same, and again behind the finish, where there are faults behind it."""

PLANS = (
    ("queue", "swap", ""),
    ("lock", "swap kill", ""),
    ("key", "swap pause", ""),
    ("single_active", "swap transfer", ""),
    ("delay", "swap partition", ""),
    ("dedup", "swap lossy client_cut", ""),
    ("dead_letter", "swap client_kill client_pause", ""),
    ("get", "swap power", ""),
    ("queue", "swap wipe", "image wipe kill"),
    ("dedup", "swap corrupt", "image restore lies corrupt"),
    ("lock", "swap too_early kill", "add remove replace move kill"),
    ("key", "swap too_early", "replace add remove move too_late pause"),
    ("delay", "swap wipe too_early", "move replace add restore wipe too_late"),
)
"""Workloads, what happens beside the swaps, and behind the finish: the first of that at once."""


def plans(seed: int) -> Iterator[Plan]:
    """Each of them, where its faults are possible here."""
    known = all_faults()
    for place, (workload, faults, later) in enumerate(PLANS):
        chosen, after = tuple(faults.split()), tuple(later.split())
        if unknown := [name for name in (*chosen, *after) if name not in known]:
            print(f"skipped: {workload} with {', '.join(unknown)}: {'; '.join(skipped())}")
            continue
        seconds = SECONDS_EACH if after else SECONDS
        yield Plan(workload, chosen, seed + place, seconds, release=OLD, after=after)


def main() -> int:
    """Carry out all plans, and say what they came to."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="decides the schedules")
    parser.add_argument("--first", type=int, default=1, help="begin with this one of the plans")
    parser.add_argument("--folder", type=Path, default=Path("jepsen-runs"), help="where runs lie")
    options = parser.parse_args()
    good = True
    for plan in islice(plans(options.seed), options.first - 1, None):
        where = (options.folder / f"upgrade-{plan.workload}-{plan.seed}").absolute()
        result = asyncio.run(run(plan, where))
        swaps = sum(one["f"] == "swapped" for one in result.events)
        print(f"{result.text()}, {swaps} swaps", flush=True)
        good &= result.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
