"""`python -m tests.sim`: replay one seed, run many, cut a failing plan, or score the mutants."""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from functools import partial
from typing import Final

from tests.sim import held_locks
from tests.sim.mutants import SEARCHES, found_by
from tests.sim.plan import PLANS, Plan, cut
from tests.sim.run import run
from tests.sim.world import World
from tests.support.many_seeds import Ran, add_jobs_option, many

HELD: Final = "held"
"""The plan of a worker with renewed locks and one fault of the leader."""


def main() -> int:
    """Returns the process's exit code: 1 where something does not hold."""
    options = _options()
    if options.mutants:
        return _score(options.mutants)
    if options.seeds:
        first = random.SystemRandom().randrange(10**6, 10**9) if options.fresh else options.seed
        repeat = f"python -m tests.sim --plan {options.plan} --seed {{seed}} --cut"
        seeds = range(first, first + options.seeds)
        return many(partial(_ran, options.plan), seeds, jobs=options.jobs, repeat=repeat)
    if options.plan == HELD:
        broken = held_locks.any_fault(options.seed)
        print(broken or "no lock was lost")
        return 1 if broken else 0
    return _one(PLANS[options.plan](options.seed), tracing=options.trace, cutting=options.cut)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="which run (default 0)")
    parser.add_argument(
        "--plan", choices=[*PLANS, HELD], default="drawn", help="which plan of the seed"
    )
    parser.add_argument("--trace", action="store_true", help="print what happens, and the history")
    parser.add_argument("--cut", action="store_true", help="leave out the faults it fails without")
    parser.add_argument("--seeds", type=int, metavar="N", help="run N seeds from --seed on")
    parser.add_argument("--fresh", action="store_true", help="with --seeds: seeds never run before")
    add_jobs_option(parser)
    parser.add_argument("--mutants", type=int, metavar="N", help="score each mutant on N seeds")
    return parser.parse_args()


def _one(plan: Plan, *, tracing: bool, cutting: bool) -> int:
    seen: list[World] = []
    error = None
    try:
        run(plan, tracing=tracing, prepare=seen.append)
    except AssertionError as failed:
        error = failed
    world = seen[0]
    if tracing:
        for line in world.history.lines():
            print(line)
    print(f"seed={plan.seed} trace={world.trace:08x} seconds={world.loop.now:.1f}")
    if error is None:
        return 0
    if cutting:
        plan = cut(plan, _fails)
        print("faults it needs:", *plan.faults, sep="\n  ")
    print(error)
    return 1


def _fails(plan: Plan) -> bool:
    try:
        run(plan)
    except AssertionError:
        return True
    return False


def _ran(plan: str, seed: int) -> Ran:
    """The result of one seed of many."""
    if plan == HELD:
        return Ran(seed, held_locks.any_fault(seed), 0.0, Counter())
    seen: list[World] = []
    error = None
    try:
        run(PLANS[plan](seed), prepare=seen.append)
    except Exception as raised:  # whatever breaks: nothing may
        error = f"{type(raised).__name__}: {raised}"
    counts = Counter(seen[0].counts)
    return Ran(seed, error, seen[0].loop.now, counts)


def _score(seeds: int) -> int:
    survived = 0
    for breaks, switch, search in SEARCHES:
        found = [seed for seed in range(seeds) if found_by(switch, search, seed) is not None]
        first = found[0] + 1 if found else None
        print(f"{breaks}: {len(found)} of {seeds} seeds, the first after {first}", flush=True)
        survived += not found
    print(f"{len(SEARCHES) - survived} of {len(SEARCHES)} mutants found")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
