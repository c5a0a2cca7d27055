"""Random faults over a simulated cluster: whatever happens, what must hold holds.

A failure names its seed; `tests.support.raft_schedule.run(seed, ...)` repeats it exactly.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support import raft_mutants as mutants
from tests.support import raft_schedule

if TYPE_CHECKING:
    from node.raft.core import Core

pytestmark = pytest.mark.slow


SEEDS = range(1000, 1060)
"""Fixed, so that an unrelated change is never refused by a fresh seed."""


@pytest.mark.parametrize("base", range(0, len(SEEDS), 10))
def test_random_faults_break_nothing(base: int) -> None:
    for seed in SEEDS[base : base + 10]:
        names = "abcde" if seed % 4 == 3 else "abc"
        raft_schedule.run(seed, names=names, late=seed % 2 == 1)


def test_of_the_fresh_seeds_some_lose_journals() -> None:
    plans = [raft_schedule.plan_of(seed) for seed in range(40)]
    lost = [any(fault.kind == "lose_disk" for fault in plan.faults) for plan in plans]
    assert [plan.losses for plan in plans].count(True) == len(plans) // raft_schedule.LOSING_SEEDS
    assert sum(lost) >= 8
    assert all(plan.losses for plan, loses in zip(plans, lost, strict=True) if loses)


def test_a_single_node_survives_power_losses_in_the_middle_of_everything() -> None:
    for seed in range(20):
        faults = [
            fault
            for fault in raft_schedule.draw(seed, "ab")
            if fault.kind in ("submit", "kill", "power", "power_in_turn", "restart", "power_all")
        ]
        alone = [
            raft_schedule.Fault(fault.at, fault.kind, "a", "a", fault.number) for fault in faults
        ]
        raft_schedule.run(seed, names="a", faults=alone)


FOUND_BY = {
    mutants.Truncates: 0,
    mutants.AnswersAtOnce: 0,
    mutants.CallbackDisturbs: 3,
    mutants.BelievesInItself: 5,
    mutants.NoPreVote: 0,
}
"""A seed by which random faults alone find a stock behaviour that was put back. More of them:
`python -m tests.node.raft --mutants 60`."""


@pytest.mark.parametrize("core", FOUND_BY, ids=lambda core: core.__name__)
def test_random_faults_find_a_stock_behaviour_that_is_put_back(core: type[Core]) -> None:
    plan = raft_schedule.plan_of(FOUND_BY[core])
    with pytest.raises((AssertionError, ZeroDivisionError)):
        raft_schedule.run_plan(plan, mutants.node_with(core))


def trace_of(seed: int, hash_seed: str) -> str:
    """The trace of a schedule, run by another interpreter with another hash seed."""
    code = (
        "from tests.support import raft_schedule as s;"
        f"print(s.run({seed}, names='abcde', late=True).trace)"
    )
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    finished = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return finished.stdout


def test_one_seed_gives_one_trace_under_any_hash_seed() -> None:
    traces = {trace_of(7, "0"), trace_of(7, "1")}
    assert len(traces) == 1
    assert trace_of(8, "0") not in traces
