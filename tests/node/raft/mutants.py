"""The mutants of Raft and the journal: each faulty behaviour with the scenarios that notice it.

Owns the pairing. The behaviours are classes of `tests/support/raft_mutants.py`, by replacing the
core, and switches of `tests/support/raft_switches.py`, below the core; the scenarios are those of
the tests named here, and random schedules.
"""

from __future__ import annotations

from functools import partial
from itertools import chain

from node.raft.core import Core
from node.raft.node import RaftNode
from tests.mutants.hunting import Hunt, Mutant, scenario, seeds
from tests.mutants.switch import replaced
from tests.node.raft import (
    test_doubts,
    test_elections,
    test_equality,
    test_hazards,
    test_identity,
    test_members,
    test_recover,
    test_repairs,
    test_room,
    test_skipping,
    test_slow_disk,
    test_snapshot_hazards,
    test_switches,
    test_transfer,
    test_wrong_state,
)
from tests.support import raft_schedule
from tests.support.raft_switches import SWITCHES

SCHEDULES = 60
"""Random schedules for each: those that chance finds at all are found by the first."""

_TABLES = (
    test_hazards.SCENARIOS,
    test_snapshot_hazards.SCENARIOS,
    test_elections.RULES,
    test_transfer.RULES,
    test_slow_disk.RULES,
    test_recover.RULES,
    test_repairs.RULES,
    test_equality.RULES,
    test_identity.RULES,
    test_members.RULES,
    test_wrong_state.RULES,
    test_room.RULES,
    test_skipping.RULES,
    test_doubts.RULES,
)
_WITH_LOSSES = {core for _, core in test_recover.RULES}


def _fails_on_a_schedule(seed: int, *, losses: bool) -> str | None:
    """The failure of a random schedule; with `losses`, lost journals are among its faults."""
    try:
        raft_schedule.run_plan(raft_schedule.plan_of(seed, losses=losses))
    except Exception as error:  # any failure counts: without the bug nothing fails
        return repr(error)
    return None


def _below_the_core() -> list[Mutant]:
    return [
        Mutant("raft", name, breaks, switch, (scenario(work, work.__name__),))
        for work, name in test_switches.SCENARIOS
        for breaks, switch in (SWITCHES[name],)
    ]


def _in_the_core() -> list[Mutant]:
    directed: dict[type[Core], list[Hunt]] = {}
    for work, core in chain.from_iterable(_TABLES):
        directed.setdefault(core, []).append(scenario(work, work.__name__))
    return [
        Mutant(
            "raft",
            core.__name__,
            (core.__doc__ or core.__name__).split("\n")[0].rstrip("."),
            replaced(RaftNode, "core_class", core),
            (*hunts, _on_schedules(losses=core in _WITH_LOSSES)),
        )
        for core, hunts in directed.items()
    ]


def _on_schedules(*, losses: bool) -> Hunt:
    run = partial(_fails_on_a_schedule, losses=losses)
    return seeds(run, "raft schedules", SCHEDULES, "schedules")


MUTANTS: tuple[Mutant, ...] = (*_below_the_core(), *_in_the_core())
