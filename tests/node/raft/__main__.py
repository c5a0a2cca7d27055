"""`python -m tests.node.raft`: random schedules by their seeds, one, many, or against the mutants.

Owns the command line. What a seed decides: `tests/support/raft_schedule.py`.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter
from dataclasses import replace

from node.raft.node import RaftNode
from tests.support import raft_mutants
from tests.support.many_seeds import Ran, add_jobs_option, many
from tests.support.raft_schedule import Fault, Plan, plan_of, run_plan
from tests.support.shrinking import shortest


def main() -> int:
    """Returns the process's exit code: 1 where something does not hold, or a mutant survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.node.raft", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="which run, or the first (default 0)")
    parser.add_argument("--cut", action="store_true", help="leave out the faults it fails without")
    parser.add_argument("--seeds", type=int, metavar="N", help="run N seeds from --seed on")
    parser.add_argument("--fresh", action="store_true", help="with --seeds: seeds never run before")
    add_jobs_option(parser)
    parser.add_argument("--mutants", type=int, metavar="N", help="score each mutant on N seeds")
    parser.add_argument("--only", metavar="NAME", help="with --mutants: this one")
    options = parser.parse_args()
    logging.disable()  # Nodes whose disks fail and whose callbacks raise have much to say.
    if options.mutants:
        return score(options.mutants, options.only)
    if options.seeds:
        first = random.SystemRandom().randrange(10**6, 10**9) if options.fresh else options.seed
        seeds = range(first, first + options.seeds)
        return many(ran, seeds, jobs=options.jobs, repeat="python -m tests.node.raft")
    return one(plan_of(options.seed), cutting=options.cut)


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


def score(seeds: int, only: str | None = None) -> int:
    """The first seed that finds each mutant; how many were found."""
    wanted = {name: core for name, core in raft_mutants.CORES.items() if only in (None, name)}
    survived = 0
    for name, core in wanted.items():
        node_class = raft_mutants.node_with(core)
        first = next(
            (seed for seed in range(seeds) if failure(plan_of(seed), node_class) is not None), None
        )
        found = "not found" if first is None else f"found by seed {first}"
        print(f"{name}: {found}", flush=True)
        survived += first is None
    print(f"{len(wanted) - survived} of {len(wanted)} mutants found within {seeds} seeds")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
