"""Members whose states differ: who finds it, who is believed, and what such a member may not do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.raft import Mark, RaftStatus, limits
from node.raft.core import Core
from node.raft.equality import Comparison, Equality
from node.raft.errors import RaftError
from node.raft.node import RaftNode
from tests.node.raft.scenarios import Rule, as_tests
from tests.node.raft.test_snapshot_hazards import compacting
from tests.support import raft_mutants as mutants
from tests.support.raft_world import SimNode, World

pytestmark = pytest.mark.slow

NodeClass = type[RaftNode]

RIGHT, WRONG, OTHER = 7, 8, 9


def led(node_class: NodeClass, names: str = "abc") -> tuple[World, SimNode]:
    """A group that `a` leads."""
    world = World(names, seed=5, node_class=node_class).start()
    leader = world.elect("a")
    world.commit(leader, 3)
    return world, leader


def mark(world: World, index: int, version: int = 1, /, **hashes: int) -> None:
    """Have members come to a mark of their state, and to talk to their leader."""
    for name, found in hashes.items():
        world.nodes[name].node.note_mark(Mark(index, version, found))
    world.run(3 * limits.HEARTBEAT_SECONDS)


def kept_wrong(world: World) -> None:
    """No member gets the state of another from here on."""
    world.network.intercept = lambda frame: (
        "drop" if frame.message()["type"] == "state_wanted" else "pass"
    )


def differing(world: World) -> set[str]:
    """Members that know that they differ."""
    return {name for name, one in world.nodes.items() if one.runs and one.node.differs}


def known(leader: SimNode) -> dict[str, tuple[int, int]]:
    """The leader's knowledge of its peers: up to where equal, since when not."""
    return {one.name: (one.equal_index, one.differs_index) for one in leader.node.status().peers}


def equal_members_are_known_to_be_equal(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    mark(world, 1_024, a=RIGHT, b=RIGHT, c=RIGHT)
    mark(world, 2_048, a=OTHER, b=OTHER)
    assert known(leader) == {"b": (2_048, 0), "c": (1_024, 0)}
    assert not differing(world)


def a_follower_that_differs_is_found_and_does_not_lead(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    kept_wrong(world)
    mark(world, 1_024, a=RIGHT, b=RIGHT, c=WRONG)
    assert known(leader) == {"b": (1_024, 0), "c": (0, 1_024)}
    assert differing(world) == {"c"}
    with pytest.raises(RaftError, match="is not that of the majority: wait until it is replaced"):
        leader.node.transfer("c", lambda why: None)
    world.network.isolate("a")
    for _ in range(20):
        world.run(0.5)
        assert not world.nodes["c"].node.is_leader
    assert world.nodes["b"].node.is_leader, "it is elected with the vote of c"
    world.commit(world.nodes["b"], 3)


def a_leader_that_differs_hands_over(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    kept_wrong(world)
    mark(world, 1_024, a=WRONG, b=RIGHT, c=RIGHT)
    world.run_until(lambda: not leader.node.is_leader, 5.0)
    assert leader.node.status().differs_index == 1_024
    world.run(2.0)
    (now_leads,) = [one for one in world.nodes.values() if one.node.is_leader]
    assert now_leads is not leader
    assert differing(world) == {"a"}
    world.commit(now_leads, 3)


def without_a_majority_no_member_is_blamed(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    mark(world, 1_024, a=RIGHT, b=WRONG, c=OTHER)
    assert not differing(world)
    assert known(leader) == {"b": (0, 1_024), "c": (0, 1_024)}
    assert leader.node.is_leader


def marks_of_another_version_are_not_compared(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    world.nodes["c"].node.note_mark(Mark(1_024, 2, WRONG))
    mark(world, 1_024, a=RIGHT, b=RIGHT)
    assert known(leader) == {"b": (1_024, 0), "c": (0, 0)}


def a_new_leader_hears_the_marks_of_before(node_class: NodeClass = RaftNode) -> None:
    world, _ = led(node_class)
    kept_wrong(world)
    mark(world, 1_024, a=RIGHT, b=RIGHT, c=WRONG)
    world.nodes["a"].kill()
    world.run_until(lambda: world.nodes["b"].node.is_leader, 5.0)
    world.nodes["a"].start()
    world.nodes["a"].node.note_mark(Mark(1_024, 1, RIGHT))
    world.run(2.0)
    assert known(world.nodes["b"]) == {"a": (1_024, 0), "c": (0, 1_024)}


def replaced(node_class: NodeClass) -> tuple[World, SimNode, SimNode]:
    """(world, leader, a member whose state was replaced while nothing was committed without it)."""
    world = compacting(1, node_class)
    leader, wrong = world.elect("a"), world.nodes["c"]
    world.commit(leader, 20, 100)
    mark(world, 1_024, a=RIGHT, b=RIGHT, c=WRONG)
    world.network.isolate("b")
    world.commit(leader, 5, 100)
    world.run_until(lambda: not wrong.node.differs, 20.0)
    world.network.heal()
    world.run_until(world.converged, 20.0)
    return world, leader, wrong


def a_state_that_differs_is_replaced(node_class: NodeClass = RaftNode) -> None:
    """By that of the leader, beside the entries."""
    _, leader, wrong = replaced(node_class)
    assert wrong.node.status().counters.snapshots_installed_total == 1
    assert wrong.applied == leader.applied


def who_differs_asks_for_another_state(node_class: NodeClass = RaftNode) -> None:
    """Each second, of any leader."""
    replaced(node_class)


def a_log_that_is_further_is_no_reason_against_a_state(node_class: NodeClass = RaftNode) -> None:
    """The log of the member stays."""
    _, leader, wrong = replaced(node_class)
    assert (wrong.node.term, wrong.node.last_index) == (leader.node.term, leader.node.last_index)


def another_state_has_another_history(node_class: NodeClass = RaftNode) -> None:
    """Its marks of before count no more, and it may lead."""
    world, leader, wrong = replaced(node_class)
    mark(world, 2_048, a=OTHER, b=OTHER, c=OTHER)
    assert known(leader)["c"] == (2_048, 0)
    leader.node.transfer("c", lambda why: None)
    world.run_until(lambda: wrong.node.is_leader, 5.0)


def fenced(node_class: NodeClass) -> tuple[SimNode, SimNode, RaftStatus]:
    """(leader, a member that differs, its status when that was found). Much was committed since."""
    world = compacting(1, node_class)
    kept_wrong(world)
    leader, wrong = world.elect("a"), world.nodes["c"]
    world.commit(leader, 3)
    mark(world, 1_024, a=RIGHT, b=RIGHT, c=WRONG)
    before = replace(wrong.node.status(), counters=replace(wrong.node.status().counters))
    world.commit(leader, 60, 100)
    world.run(1.0)
    assert leader.node.status().counters.snapshots_taken_total > 1
    return leader, wrong, before


def nothing_is_applied_to_a_state_that_differs(node_class: NodeClass = RaftNode) -> None:
    """The member waits for another one."""
    leader, wrong, before = fenced(node_class)
    now = wrong.node.status()
    assert now.applied_index == before.applied_index < now.commit_index == leader.node.commit_index


def no_snapshot_is_taken_of_a_state_that_differs(node_class: NodeClass = RaftNode) -> None:
    """Such a snapshot would be there at the next start."""
    _, wrong, before = fenced(node_class)
    taken = wrong.node.status().counters.snapshots_taken_total
    assert taken == before.counters.snapshots_taken_total


RULES: list[Rule] = [
    (equal_members_are_known_to_be_equal, mutants.TellsNoMarks),
    (a_follower_that_differs_is_found_and_does_not_lead, mutants.LeadsThoughItDiffers),
    (a_leader_that_differs_hands_over, mutants.LeadsOnThoughItDiffers),
    (without_a_majority_no_member_is_blamed, mutants.BelievesItself),
    (marks_of_another_version_are_not_compared, mutants.ComparesAnyVersion),
    (a_new_leader_hears_the_marks_of_before, mutants.TellsEachMarkOnce),
    (a_state_that_differs_is_replaced, mutants.SendsNoState),
    (who_differs_asks_for_another_state, mutants.AsksForNoState),
    (a_log_that_is_further_is_no_reason_against_a_state, mutants.OfferedStatesAreOld),
    (another_state_has_another_history, mutants.KeepsItsMarks),
    (nothing_is_applied_to_a_state_that_differs, mutants.AppliesOn),
    (no_snapshot_is_taken_of_a_state_that_differs, mutants.TakesSnapshotsOfIt),
]

test_the_rule_holds, test_the_rule_taken_out_shows = as_tests(RULES)


def comparisons(one: Equality, *marks: tuple[str, int]) -> list[Comparison | None]:
    """The findings of the leader n1 as marks of one index come in."""
    found = [one.note(Mark(1_024, 1, RIGHT))]
    return found + [one.reported(name, Mark(1_024, 1, value)) for name, value in marks]


def test_of_five_members_three_are_believed() -> None:
    one = Equality("n1", frozenset({"n1", "n2", "n3", "n4", "n5"}))
    found = comparisons(one, ("n2", WRONG), ("n3", WRONG), ("n4", RIGHT), ("n5", RIGHT))
    assert found[:4] == [None, None, None, None], "more may be heard"
    agreed, others = frozenset({"n1", "n4", "n5"}), frozenset({"n2", "n3"})
    assert found[4] == Comparison(1_024, agreed, others)


def test_of_two_members_that_differ_none_is_believed() -> None:
    one = Equality("n1", frozenset({"n1", "n2"}))
    assert comparisons(one, ("n2", WRONG))[1] == Comparison(
        1_024, frozenset(), frozenset({"n1", "n2"})
    )


def test_a_bounded_number_of_marks_is_kept() -> None:
    one = Equality("n1", frozenset({"n1", "n2", "n3"}))
    for at in range(1, 3 * limits.MARKS_KEPT):
        one.note(Mark(at * limits.MARK_ENTRIES, 1, at))
    sent = list(one.unsent("n2", 5))
    assert len(sent) == limits.MARKS_KEPT
    assert list(one.unsent("n2", 5)) == []
    assert list(one.unsent("n3", 6)) == sent
    assert one.reported("n2", Mark(limits.MARK_ENTRIES, 1, 9)) is None, "too old to be compared"


def test_a_word_that_another_than_the_leader_sends_is_none() -> None:
    world, _ = led(RaftNode)
    core = world.nodes["c"].node._core
    assert isinstance(core, Core)
    by_name = {node.id: node for node in core.nodes}
    word = {"type": "differs", "term": core.term, "index": 1_024}
    core.receive(by_name["b"], word)
    core.receive(by_name["a"], word | {"term": core.term - 1})
    assert not world.nodes["c"].node.differs
    core.receive(by_name["a"], word)
    assert world.nodes["c"].node.differs
