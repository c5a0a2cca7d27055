"""A state that is known as wrong stays so until it is replaced, and nothing is made of it."""

from __future__ import annotations

import logging

import pytest

from node.journal.wrong_state import WRONG_STATE_NAME
from node.raft import Mark, limits
from node.raft.node import RaftNode
from tests.node.raft.scenarios import Rule, as_tests
from tests.node.raft.test_equality import RIGHT, WRONG, differing, kept_wrong, mark
from tests.node.raft.test_snapshot_hazards import commit_past, compacting
from tests.support import state_mutants as mutants
from tests.support.raft_network import Frame
from tests.support.raft_world import SimNode, World

pytestmark = pytest.mark.slow

NodeClass = type[RaftNode]


def with_wrong_state(node_class: NodeClass) -> tuple[World, SimNode, SimNode]:
    """(world, leader, a member that is known to differ): it has snapshots of its wrong state."""
    world = compacting(1, node_class)
    kept_wrong(world)
    leader, wrong = world.elect("a"), world.nodes["c"]
    world.commit(leader, 60, 100)
    world.run_until(world.converged, 20.0)
    mark(world, 1_024, a=RIGHT, b=RIGHT, c=WRONG)
    assert differing(world) == {"c"}
    return world, leader, wrong


def restarted(wrong: SimNode, *, power: bool) -> None:
    """End the process, and start another on its disk."""
    wrong.kill(power=power)
    wrong.start()


def a_restart_knows_that_its_state_is_wrong(node_class: NodeClass = RaftNode) -> None:
    """As before, nothing is applied, and another member leads."""
    world, leader, wrong = with_wrong_state(node_class)
    applied_index = wrong.node.applied_index
    world.commit(leader, 10, 100)
    restarted(wrong, power=False)
    world.run(2.0)
    assert differing(world) == {"c"}
    assert wrong.node.applied_index <= applied_index < leader.node.applied_index
    world.network.isolate("a")
    world.run_until(lambda: world.nodes["b"].node.is_leader, 20.0)
    assert not wrong.node.is_leader


def a_power_cut_takes_back_no_note(node_class: NodeClass = RaftNode) -> None:
    """The note is on the disk before any snapshot or entry could follow it."""
    world, _, wrong = with_wrong_state(node_class)
    restarted(wrong, power=True)
    world.run(1.0)
    assert differing(world) == {"c"}


def nothing_of_a_wrong_state_is_left_behind_its_replacement(
    node_class: NodeClass = RaftNode,
) -> None:
    """The older of two snapshots too would be started from where the newer one is damaged."""
    world, leader, wrong = with_wrong_state(node_class)
    applied_index = wrong.node.applied_index
    world.commit(leader, 10, 100)
    world.network.intercept = None
    world.run_until(lambda: not wrong.node.differs, 20.0)
    world.run_until(lambda: WRONG_STATE_NAME not in wrong.storage.listdir(), 20.0)
    assert wrong.journal is not None
    kept = wrong.journal._snapshots.catalog.snapshots
    assert min(one.meta.index for one in kept) > applied_index
    restarted(wrong, power=True)
    world.run_until(world.converged, 20.0)
    assert not differing(world)


def a_leader_that_differs_sends_no_state(node_class: NodeClass = RaftNode) -> None:
    """A member that lacks the log's head gets its snapshot from the next leader."""
    world = compacting(1, node_class)
    leader, behind = world.elect("a"), world.nodes["c"]
    world.network.isolate("c")
    commit_past(world, leader, behind)
    offered = []

    def watch(frame: Frame) -> str:
        message = frame.message()
        if message["type"] == "snapshot_offer":
            offered.append(frame.source)
        return "drop" if message["type"] == "timeout_now" else "pass"

    leader.node._core._differs(1_024)
    world.network.intercept = watch
    world.network.heal()
    world.run(0.5)
    assert "a" not in offered
    world.network.intercept = None
    world.run_until(lambda: behind.node.status().counters.snapshots_installed_total > 0, 20.0)


def a_leader_that_differs_promises_nothing(node_class: NodeClass = RaftNode) -> None:
    """Until it has handed over: neither renewals of locks nor answers come from its memory."""
    world = compacting(1, node_class)
    leader = world.elect("a")
    world.run(1.0)
    assert leader.node.lease_until() > leader.clock()
    assert leader.node.led_at() > 0
    world.network.intercept = lambda frame: (
        "drop" if frame.message()["type"] == "timeout_now" else "pass"
    )
    leader.node._core._differs(1_024)
    world.run(0.2)
    assert leader.node.is_leader
    assert leader.node.lease_until() == 0.0
    assert leader.node.led_at() < 0


def an_idle_cluster_replaces_a_wrong_state_too(node_class: NodeClass = RaftNode) -> None:
    """Nothing is submitted: the leader itself goes one entry further."""
    world, leader, wrong = with_wrong_state(node_class)
    before = leader.node.last_index
    world.network.intercept = None
    world.run_until(lambda: not wrong.node.differs, 20.0)
    assert leader.node.last_index == before + 1
    assert wrong.applied == leader.applied


def whole(world: World, index: int, /, **states: int) -> None:
    """Have members come to the digest of their whole state at an index, later than to its hash."""
    for name, found in states.items():
        digest = found.to_bytes(8, "little")
        world.nodes[name].node.note_mark(Mark.of_state(index, 1, digest))
    world.run(3 * limits.HEARTBEAT_SECONDS)


def a_whole_state_that_differs_is_found(
    node_class: NodeClass = RaftNode,
) -> None:
    """A field that no entry touched: the running hashes of later entries are equal."""
    world = compacting(1, node_class)
    kept_wrong(world)
    leader = world.elect("a")
    mark(world, 2_048, a=RIGHT, b=RIGHT, c=RIGHT)
    whole(world, 2_000, a=RIGHT, b=RIGHT)
    assert [one.whole_index for one in leader.node.status().peers] == [2_000, 0]
    whole(world, 2_000, c=WRONG)
    assert differing(world) == {"c"}
    mark(world, 3_072, a=RIGHT, b=RIGHT, c=RIGHT)
    (found,) = [one.differs_index for one in leader.node.status().peers if one.name == "c"]
    assert found == 2_000


def many_hashes_do_not_crowd_out_a_digest(node_class: NodeClass = RaftNode) -> None:
    """Made in slices while entries go on, a digest is the oldest mark of all in the end."""
    world = compacting(1, node_class)
    kept_wrong(world)
    world.elect("a")
    for place in range(2, limits.MARKS_KEPT + 4):
        mark(world, 1_024 * place, a=RIGHT, b=RIGHT, c=RIGHT)
    whole(world, 1_000, a=RIGHT, b=RIGHT, c=WRONG)
    assert differing(world) == {"c"}


def a_state_that_was_replaced_is_not_judged_by_what_it_was(
    node_class: NodeClass = RaftNode,
) -> None:
    """Else it is replaced again with each member of five that is slower, and never leads."""
    world = compacting(1, node_class, "abcde")
    leader, wrong = world.elect("a"), world.nodes["c"]
    world.commit(leader, 20, 100)
    whole(world, 2_000, a=RIGHT, b=RIGHT, c=WRONG, d=RIGHT)
    world.commit(leader, 5, 100)
    world.run_until(lambda: not wrong.node.differs, 20.0)
    world.run(1.0)
    whole(world, 2_000, e=RIGHT)
    assert not differing(world)
    leader.node.transfer("c", lambda why: None)
    world.run_until(lambda: wrong.node.is_leader, 5.0)


def doubtful_answers_are_named(node_class: NodeClass = RaftNode) -> None:
    """By the entries that a leader answered since it was equal last, and by it alone."""
    world = compacting(1, node_class)
    kept_wrong(world)
    leader = world.elect("a")
    world.commit(leader, 20)
    mark(world, 8, a=RIGHT, b=RIGHT, c=RIGHT)
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("node.raft.rebuilding")
    logger.addHandler(handler)
    try:
        mark(world, 16, a=WRONG, b=RIGHT, c=RIGHT)
        mark(world, 18, b=RIGHT, c=WRONG)
    finally:
        logger.removeHandler(handler)
    last = leader.node.applied_index
    found = [line.split(" advice")[0] for line in said if "answers_doubtful" in line]
    assert found == [f"event=answers_doubtful first=8 last={last}"]


RULES: list[Rule] = [
    (a_whole_state_that_differs_is_found, mutants.BelievesTheRunningHash),
    (many_hashes_do_not_crowd_out_a_digest, mutants.MixesMarks),
    (a_state_that_was_replaced_is_not_judged_by_what_it_was, mutants.RemembersReplacedStates),
    (a_restart_knows_that_its_state_is_wrong, mutants.ForgetsItsNote),
    (a_power_cut_takes_back_no_note, mutants.NotesNothing),
    (nothing_of_a_wrong_state_is_left_behind_its_replacement, mutants.KeepsWrongSnapshots),
    (doubtful_answers_are_named, mutants.KeepsDoubtsToItself),
    (a_leader_that_differs_sends_no_state, mutants.SendsItsWrongState),
    (a_leader_that_differs_promises_nothing, mutants.PromisesThoughItDiffers),
    (an_idle_cluster_replaces_a_wrong_state_too, mutants.WaitsForAnEntry),
]

test_the_rule_holds, test_the_rule_taken_out_shows = as_tests(RULES)
