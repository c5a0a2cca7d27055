"""`python -m tests.node.raft`: random schedules by their seeds, one, many, or against the mutants.

Owns the command line. What a seed decides: `tests/support/raft_schedule.py`, and where members
change `tests/support/member_schedule.py`.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from node.raft.node import RaftNode
from tests.support import member_mutants, member_schedule, raft_mutants
from tests.support.many_seeds import Ran, add_jobs_option, many
from tests.support.raft_schedule import Fault, Plan, plan_of, run_plan
from tests.support.shrinking import shortest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from node.raft.core import Core


def main() -> int:
    """Returns the process's exit code: 1 where something does not hold, or a mutant survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.node.raft", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="which run, or the first (default 0)")
    parser.add_argument("--cut", action="store_true", help="leave out the faults it fails without")
    parser.add_argument("--seeds", type=int, metavar="N", help="run N seeds from --seed on")
    parser.add_argument("--fresh", action="store_true", help="with --seeds: seeds never run before")
    parser.add_argument("--members", action="store_true", help="members change amid the faults")
    add_jobs_option(parser)
    parser.add_argument("--mutants", type=int, metavar="N", help="score each mutant on N seeds")
    parser.add_argument("--only", metavar="NAME", help="with --mutants: this one")
    options = parser.parse_args()
    if options.members and options.cut:
        parser.error("--cut needs faults that are drawn ahead; with --members they are not")
    logging.disable()  # Nodes whose disks fail and whose callbacks raise have much to say.
    kind = MEMBERS if options.members else FAULTS
    if options.only is not None and options.only not in kind.mutants:
        parser.error(f"no mutant is named {options.only}; there are {', '.join(kind.mutants)}")
    if options.mutants:
        return score(kind, options.mutants, options.only)
    if options.seeds:
        first = random.SystemRandom().randrange(10**6, 10**9) if options.fresh else options.seed
        seeds = range(first, first + options.seeds)
        return many(kind.ran, seeds, jobs=options.jobs, repeat=kind.repeat)
    return one(plan_of(options.seed), cutting=options.cut) if kind is FAULTS else said(options.seed)


class Kind(NamedTuple):
    """A kind of schedule: how a seed of it is run and repeated, and which mutants are for it."""

    ran: Callable[[int], Ran]
    failure: Callable[[int, type[RaftNode]], str | None]
    mutants: Mapping[str, type[Core]]
    repeat: str
    """The command that repeats seed `{seed}`."""


def failure(plan: Plan, node_class: type[RaftNode] = RaftNode) -> str | None:
    """Return what does not hold in a run; None where everything does."""
    try:
        run_plan(plan, node_class)
    except Exception as error:  # whatever breaks: nothing may
        return f"{type(error).__name__}: {error}"
    return None


def one(plan: Plan, *, cutting: bool) -> int:
    """Run a plan and say how it went."""
    size = f"{len(plan.names)} nodes, late={plan.late} slow={plan.slow} losses={plan.losses}"
    print(f"seed={plan.seed} {size} snapshots={plan.snapshots} faults={len(plan.faults)}")
    error = failure(plan)
    if error is None:
        return 0
    if cutting:

        def fails(faults: tuple[Fault, ...]) -> bool:
            return failure(replace(plan, faults=faults)) is not None

        faults = shortest(plan.faults, fails)
        error = failure(replace(plan, faults=faults))
        print("faults it needs:", *faults, sep="\n  ")
    print(error)
    return 1


def ran(seed: int) -> Ran:
    """Run one seed of many; return its outcome."""
    plan = plan_of(seed)
    slow, lost = ", slow disks" * plan.slow, ", lost journals" * plan.losses
    kind = f"{len(plan.names)} nodes{slow}{lost}"
    return Ran(seed, failure(plan), plan.faults[-1].at, Counter([kind]))


def score(kind: Kind, seeds: int, only: str | None = None) -> int:
    """The first seed that finds each mutant; how many were found."""
    wanted = {name: core for name, core in kind.mutants.items() if only in (None, name)}
    survived = 0
    for name, core in wanted.items():
        node_class = raft_mutants.node_with(core)
        first = next(
            (seed for seed in range(seeds) if kind.failure(seed, node_class) is not None), None
        )
        found = "not found" if first is None else f"found by seed {first}"
        print(f"{name}: {found}", flush=True)
        survived += first is None
    print(f"{len(wanted) - survived} of {len(wanted)} mutants found within {seeds} seeds")
    return 1 if survived else 0


# --- where members change ---


def said(seed: int) -> int:
    """Run a seed whose members change, and say how it went."""
    ran = ran_members(seed)
    print(f"seed={seed}", *(f"{what}={times}" for what, times in sorted(ran.counts.items())))
    if ran.error is not None:
        print(ran.error)
    return 1 if ran.error is not None else 0


def ran_members(seed: int, node_class: type[RaftNode] = RaftNode) -> Ran:
    """Run one seed of many whose members change; return its outcome."""
    run = member_schedule.Run(seed, node_class)
    error = None
    try:
        run.run()
    except Exception as failed:  # whatever breaks: nothing may
        error = f"{type(failed).__name__}: {failed}"
    return Ran(seed, error, run.world.now, Counter(run.world.counts))


FAULTS = Kind(
    ran,
    lambda seed, node_class: failure(plan_of(seed), node_class),
    raft_mutants.CORES,
    "python -m tests.node.raft --seed {seed} --cut",
)
MEMBERS = Kind(
    ran_members,
    lambda seed, node_class: ran_members(seed, node_class).error,
    member_mutants.CORES,
    "python -m tests.node.raft --members --seed {seed}",
)

if __name__ == "__main__":
    sys.exit(main())
