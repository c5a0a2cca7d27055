"""The runs that have to find the bugs of `mutants`, each within so many seeds.

Owns the plans, their limits, the records of the mutants and the score.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tests.jepsen import rooted
from tests.jepsen.run import ON_DISKS, Plan, Result, run
from tests.mutants.hunting import Mutant, seeds
from tests.upgrade.releases import OLD


@dataclass(frozen=True, slots=True)
class Hunt:
    """A mutant, the plan that finds it (other seeds follow on its own), and in how many runs."""

    plan: Plan
    rules: frozenset[str]
    limit: int

    @property
    def needs_power(self) -> bool:
        """Whether the plan cuts the power."""
        return bool({*self.plan.faults} & ON_DISKS.keys())


def _hunt(
    mutant: str,
    workload: str,
    faults: str,
    rules: str,
    limit: int,
    seconds: float = 6.0,
    **more: Any,
) -> Hunt:
    plan = Plan(workload, tuple(faults.split()), 1, seconds, mutant=mutant, **more)
    return Hunt(plan, frozenset(rules.split()), limit)


HUNTS = (
    _hunt("nothing_synced", "queue", "power_all", "S1", 1),
    _hunt("counts_reset", "delay", "kill", "S6", 3),
    _hunt("token_not_compared", "lock", "client_pause", "S3 S4 S5 L", 3),
    _hunt("confirms_early", "queue", "partition pause_then_kill", "S1", 5),
    _hunt("due_late", "lock", "", "S8 S9", 2, 12.0),
    _hunt("removed_unanswered", "queue", "replace", "V1", 3, 8.0),
    _hunt("copies_heard", "queue", "clone clone_disk", "S1 V1", 8, 15.0),
    _hunt("members_change_early", "queue", "swap", "V1", 3, release=OLD),
    _hunt("images_count", "queue", "swap", "V1 S1", 2, release=OLD, after=("image",)),
    _hunt("no_floors", "long", "kill pause_then_kill", "S4 S9 L", 5, 16.0),
)


def broken(hunt: Hunt, seed: int, folder: Path) -> set[str]:
    """Which of the rules that its mutant breaks a run with this seed saw broken. One that could not
    be carried out to its end broke V1 alone: messages are missing then that no drain waited for."""
    plan = replace(hunt.plan, seed=seed)
    result: Result = asyncio.run(run(plan, folder / f"mutant-{plan.mutant}-{seed}"))
    if result.failed:
        return {"V1"} & hunt.rules
    return {violation.rule for violation in result.violations} & hunt.rules


def _one_run(hunt: Hunt, seed: int) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        return " ".join(sorted(broken(hunt, seed + 1, Path(folder)))) or None


def _mutant(hunt: Hunt) -> Mutant:
    """The record of a bug that real nodes put back themselves: nothing is switched on here."""
    name = str(hunt.plan.mutant)
    caught_by = seeds(partial(_one_run, hunt), "fault suite", hunt.limit)
    unable = rooted.why_not() if hunt.needs_power else None
    breaks = name.replace("_", " ")
    return Mutant("processes", name, breaks, nullcontext, (caught_by,), unable)


MUTANTS: tuple[Mutant, ...] = tuple(map(_mutant, HUNTS))


def score(folder: Path) -> bool:
    """Hunt all, print what found each; whether all were found."""
    missed = 0
    for hunt in HUNTS:
        name = str(hunt.plan.mutant)
        if hunt.needs_power and (reason := rooted.why_not()):
            print(f"skipped  {name}: {reason}")
            continue
        for seed in range(1, hunt.limit + 1):
            found = broken(hunt, seed, folder)
            if found:
                print(f"caught   {name} by {' '.join(sorted(found))}, seed {seed}", flush=True)
                break
        else:
            missed += 1
            print(f"MISSED   {name} in {hunt.limit} runs: {hunt.plan.again}", flush=True)
    print(f"{len(HUNTS) - missed} of {len(HUNTS)}")
    return not missed
