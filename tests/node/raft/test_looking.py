"""The checks of the simulated cluster look at what a step touched, and miss nothing by that.

Held against checks that look at every node after every step: these find the same, in the same step,
and see nothing change in a node that nothing was done to.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Any

import pytest

from tests.node.raft.test_schedules import FOUND_BY
from tests.support import raft_mutants as mutants
from tests.support import raft_probe, raft_world
from tests.support.raft_checks import Checks
from tests.support.raft_schedule import plan_of, run_plan

if TYPE_CHECKING:
    from node.raft.core import Core
    from node.raft.node import RaftNode
    from tests.support.raft_world import SimNode

pytestmark = pytest.mark.slow


SCALARS = (bool, int, float, str, bytes, type(None))


class Everywhere(Checks):
    """Looks at every node after every step."""

    def after_step(self) -> None:
        for node in self._world.nodes.values():
            node.touched = True
        super().after_step()


class Distrustful(Checks):
    """Looks at what was touched, and holds against each other node what it was before."""

    def __init__(self, world: raft_world.World) -> None:
        super().__init__(world)
        self._before: dict[str, dict[str, Any]] = {}
        self.left_alone = 0

    def after_step(self) -> None:
        for node in self._world.nodes.values():
            now, before = everything_of(node), self._before.get(node.name)
            if not node.touched:
                assert now == before, f"{node.name} changed, and nothing was done to it"
                self.left_alone += 1
            self._before[node.name] = now
        super().after_step()


def everything_of(node: SimNode) -> dict[str, Any]:
    """All that is a number or a text in a node's parts, and how much is in what holds many."""
    found: dict[str, Any] = {"paused": node.paused, "names": node.storage.listdir()}
    if not node.alive or node.journal is None:
        return found
    core = raft_probe.core(node.node)
    for name, value in raft_probe.fields(node.node).items():
        if isinstance(value, SCALARS):
            found[name] = value
        elif isinstance(value, Sized):
            found[name] = len(value)
    del (
        found["Journal._cache"],
        found["DurableLog._cache"],
    )  # The check at the end reads, by no step.
    found["log"] = (
        node.journal.log.first_index,
        node.journal.log.last_index,
        node.journal.snapshot,
    )
    found["answers"] = dict(core.last_response)
    found["waiting"] = raft_probe.waiting_indexes(node.node)
    found["left"] = raft_probe.left_indexes(node.node)
    found["announced"] = (node.node.role, node.node.is_leader, core.failure)
    return found


@pytest.mark.parametrize("seed", [1000, 1001, 1002, 1006])
def test_a_node_that_was_left_alone_is_unchanged(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_world, "Checks", Distrustful)
    checks = run_plan(plan_of(seed)).checks
    assert isinstance(checks, Distrustful)
    assert checks.left_alone > 1_000


def outcome(seed: int, node_class: type[RaftNode]) -> str:
    """End of a run: its trace, or what did not hold and when."""
    try:
        return f"{run_plan(plan_of(seed), node_class).trace:x}"
    except (AssertionError, ZeroDivisionError) as error:
        return repr(error)


@pytest.mark.parametrize("core", FOUND_BY, ids=lambda core: core.__name__)
def test_looking_at_every_node_after_every_step_finds_no_more_and_nothing_sooner(
    core: type[Core], monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, node_class = FOUND_BY[core], mutants.node_with(core)
    found = outcome(seed, node_class)
    monkeypatch.setattr(raft_world, "Checks", Everywhere)
    assert outcome(seed, node_class) == found
    assert f"seed {seed}" in found or "ZeroDivisionError" in found


def test_a_leader_that_was_paused_while_no_other_node_ran_has_its_time_to_step_down() -> None:
    world = raft_world.World().start()
    leader = world.elect()
    for node in world.nodes.values():
        if node is not leader:
            node.kill(power=True)
    leader.pause()
    world.run(2.0)  # Nothing happens, so nothing is looked at.
    world.at(world.now, leader.resume)
    world.run(1.0)
    assert leader.node.role != "leader"
