"""No majority is equal: each member applies its log once more, and one that differs was wrong."""

from __future__ import annotations

import pytest

from node.raft import limits
from node.raft.configuration import Change
from node.raft.node import RaftNode
from tests.node.raft.scenarios import Rule, as_tests
from tests.node.raft.test_equality import OTHER, RIGHT, WRONG, differing, kept_wrong, mark
from tests.node.raft.test_members import joining, make
from tests.node.raft.test_snapshot_hazards import compacting
from tests.support import doubt_mutants as mutants
from tests.support.raft_world import SimNode, World

pytestmark = pytest.mark.slow

NodeClass = type[RaftNode]


def doubtful(
    node_class: NodeClass, names: str = "abc", /, **replays: int
) -> tuple[World, SimNode, int]:
    """(world, leader, index): all states differ there; the log of those named gives another hash
    when it is applied once more."""
    world = compacting(1, node_class, names)
    kept_wrong(world)
    leader = world.elect("a")
    for _ in range(6):
        world.commit(leader, 5, 100)
        world.run(0.3)
    world.run_until(world.converged)
    for name, found in replays.items():
        world.nodes[name].replays_as = found
    index = leader.node.applied_index
    assert leader.journal is not None
    assert leader.journal.base is not None, "not all is applied again, but what lies behind it"
    mark(world, index, **dict(zip(names, (RIGHT, WRONG, OTHER), strict=False)))
    world.run(3.0)
    return world, leader, index


def who_differs_from_itself_was_wrong(node_class: NodeClass = RaftNode) -> None:
    world, leader, _ = doubtful(node_class, b=RIGHT, c=RIGHT)
    assert differing(world) == {"b", "c"}
    assert leader.node.is_leader
    world.network.intercept = None
    world.run_until(lambda: not differing(world), 20.0)
    world.run_until(world.converged)


def a_leader_that_differs_from_itself_hands_over(node_class: NodeClass = RaftNode) -> None:
    """To the one that is right, which then looks again, and finds the same."""
    world, leader, _ = doubtful(node_class, a=OTHER, c=WRONG)
    world.run_until(lambda: world.nodes["b"].node.is_leader, 10.0)
    world.run(5.0)
    assert differing(world) == {"a", "c"}
    assert not leader.node.is_leader
    said = [one.name for one in leader.node.status().peers if one.differs_index]
    assert not said, "what it knew of the others ended with its leadership"
    world.commit(world.nodes["b"], 3)


def nothing_is_accepted_where_none_can_be_believed(node_class: NodeClass = RaftNode) -> None:
    """Each would be the same again: their programs differ, or their machines."""
    world, leader, index = doubtful(node_class)
    assert leader.node.undecided
    assert leader.roles[-1] == ("follower", leader.node.term)
    assert not leader.node.is_leader
    assert leader.node.lease_until() == 0.0
    assert leader.node.status().differs_index == index
    assert world.leaders == [leader], "no election follows"
    refused = world.submit(leader, world.payload())
    world.run(1.0)
    assert refused.outcomes[0][0].name == "NOT_LEADER"


def two_members_are_told_apart(node_class: NodeClass = RaftNode) -> None:
    """Of two, neither is a majority: the one that is the same again is right."""
    world, leader, _ = doubtful(node_class, "ab", b=RIGHT)
    assert differing(world) == {"b"}
    assert leader.node.is_leader


def a_member_that_is_down_is_waited_for(node_class: NodeClass = RaftNode) -> None:
    """The word of each counts: it is asked again when it is back."""
    world = compacting(1, node_class)
    kept_wrong(world)
    leader = world.elect("a")
    world.commit(leader, 20, 100)
    world.run_until(world.converged)
    world.nodes["c"].replays_as = world.nodes["b"].replays_as = RIGHT
    world.network.intercept = lambda frame: (
        "drop" if frame.message()["type"] in ("state_wanted", "rechecked") else "pass"
    )
    mark(world, leader.node.applied_index, a=RIGHT, b=WRONG, c=OTHER)
    world.run(2.0)
    assert not differing(world)
    kept_wrong(world)
    world.run(limits.DOUBT_ASK_SECONDS + 1.0)
    assert differing(world) == {"b", "c"}


def amid_a_change(node_class: NodeClass) -> tuple[World, SimNode]:
    """(world, leader): d is still a learner, and only the state of a will be right."""
    world = make(1, node_class)
    leader = world.elect("a")
    world.commit(leader, 5)
    added = joining(world, "d")
    lost = {("next_node_idx", "d"), *(("state_wanted", name) for name in "abc")}
    world.network.intercept = lambda frame: (
        "drop" if (frame.message()["type"], frame.source) in lost else "pass"
    )
    leader.node.change_members(Change(added))
    world.run(1.0)
    world.nodes["b"].replays_as = world.nodes["c"].replays_as = RIGHT
    return world, leader


def a_member_without_a_mark_is_not_in_doubt(node_class: NodeClass = RaftNode) -> None:
    """Its word is that it does not know, for it has just joined: that decides nothing."""
    world, leader = amid_a_change(node_class)
    mark(world, leader.node.applied_index, a=RIGHT, b=WRONG, c=OTHER)
    world.run(limits.DOUBT_ASK_SECONDS + 1.0)
    assert not leader.node.undecided
    assert differing(world) == {"b", "c"}


def a_member_without_a_mark_is_not_waited_for(node_class: NodeClass = RaftNode) -> None:
    """A machine that joins and is down has nothing to say."""
    world, leader = amid_a_change(node_class)
    world.nodes["d"].kill()
    mark(world, leader.node.applied_index, a=RIGHT, b=WRONG, c=OTHER)
    world.run(limits.DOUBT_ASK_SECONDS + 1.0)
    assert differing(world) == {"b", "c"}


RULES: tuple[Rule, ...] = (
    (who_differs_from_itself_was_wrong, mutants.AppliesNothingAgain),
    (a_leader_that_differs_from_itself_hands_over, mutants.BelievesTheLeader),
    (nothing_is_accepted_where_none_can_be_believed, mutants.GoesOnInDoubt),
    (two_members_are_told_apart, mutants.AppliesNothingAgain),
    (a_member_that_is_down_is_waited_for, mutants.AsksOnce),
    (a_member_without_a_mark_is_not_in_doubt, mutants.CountsEachWord),
    (a_member_without_a_mark_is_not_waited_for, mutants.CountsEachWord),
)

test_the_rule_holds, test_the_rule_shows = as_tests(RULES)
