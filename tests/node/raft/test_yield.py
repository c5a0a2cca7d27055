"""A leader that an operator had hand over does not lead again soon, unless no other can."""

from __future__ import annotations

import pytest

from node.raft import limits
from tests.support.raft_world import SimNode, World


def handed_over(seed: int, *, yields: bool = True) -> tuple[World, SimNode]:
    """A world in which c led, and handed over to b as an operator has it do."""
    world = World("abc", seed=seed, drifting=True).start()
    leader = world.elect("c")
    world.commit(leader, 3)
    world.run_until(world.converged)
    leader.node.transfer("b", lambda why: None, yields=yields)
    world.run_until(lambda: world.nodes["b"].node.is_leader, 0.5)
    world.run(0.3)
    return world, leader


def next_leader(world: World) -> str:
    """The member that leads after b is killed."""
    world.nodes["b"].kill()
    world.run_until(lambda: bool([one for one in world.leaders if one.name != "b"]))
    return world.leaders[0].name


@pytest.mark.slow
def test_a_leader_that_handed_over_lets_the_others_stand_first() -> None:
    """Whichever lost its connection first: eight times of eight."""
    found = []
    for seed in range(8):
        world, leader = handed_over(seed)
        assert leader.node.status().yield_seconds > limits.YIELD_SECONDS - 2
        assert world.nodes["a"].node.status().yield_seconds == 0
        found.append(next_leader(world))
        world.checks.at_rest()
    assert found == ["a"] * 8
    free = {next_leader(handed_over(seed, yields=False)[0]) for seed in range(8)}
    assert "c" in free, "of equal logs the greater name leads"


def test_it_leads_after_all_where_no_other_can() -> None:
    world, leader = handed_over(1)
    world.network.isolate("a")
    world.commit(world.nodes["b"], 3)  # a has none of it, so that it cannot lead
    world.run_until(lambda: leader.node.applied_index == world.nodes["b"].node.applied_index)
    world.nodes["b"].kill()
    world.network.heal()
    world.run_until(lambda: leader.node.is_leader)
    assert leader.node.status().yield_seconds == 0, "it leads: it yields to none any more"
    world.run_until(world.converged)
    world.checks.at_rest()


def test_it_is_let_go_by_being_handed_the_leadership_by_a_restart_and_by_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, leader = handed_over(2)
    world.nodes["b"].node.transfer("c", lambda why: None)
    world.run_until(lambda: leader.node.is_leader, 0.5)
    assert leader.node.status().yield_seconds == 0
    world, leader = handed_over(3)
    leader.kill()
    leader.start()
    world.run(0.5)
    assert leader.node.status().yield_seconds == 0
    monkeypatch.setattr(limits, "YIELD_SECONDS", 1.0)
    world, leader = handed_over(4)
    assert leader.node.status().yield_seconds > 0
    world.run(1.0)
    assert leader.node.status().yield_seconds == 0


def test_a_transfer_that_fails_leaves_it_as_it_was() -> None:
    world = World("abc", seed=5).start()
    leader = world.elect("a")
    world.run(0.3)
    world.nodes["b"].pause()
    world.commit(leader, 3)
    leader.node.transfer("b", lambda why: None, yields=True)
    world.run(2.0)
    assert leader.node.is_leader
    assert leader.node.status().yield_seconds == 0
