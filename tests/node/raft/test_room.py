"""The room of members: who reports it to whom, and which reports a leader goes by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from node.raft import limits
from node.raft.node import RaftNode
from tests.node.raft.scenarios import Rule, as_tests
from tests.node.raft.test_slow_disk import make_slow
from tests.support import raft_mutants as mutants
from tests.support import raft_probe
from tests.support.raft_world import SimNode, World

pytestmark = pytest.mark.slow

NodeClass = type[RaftNode]

CAPACITY_BYTES = 1_000_000
LOW_BYTES = 300_000


def led(node_class: NodeClass, names: str = "abc", **settings: Any) -> tuple[World, SimNode]:
    """A group that `a` leads."""
    world = World(names, seed=5, node_class=node_class, **settings).start()
    leader = world.elect("a")
    world.commit(leader, 3)
    return world, leader


def a_leader_hears_what_each_member_has_left(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    small = world.nodes["c"]
    small.storage.capacity_bytes = CAPACITY_BYTES
    small.node.tell_room(low_bytes=LOW_BYTES, held_bytes=7, high_bytes=11)
    world.run(2 * limits.ROOM_REPORT_SECONDS)
    rooms = leader.node.peer_rooms()
    assert sorted(rooms) == ["b", "c"]
    assert rooms["b"].free_bytes > CAPACITY_BYTES
    assert rooms["c"].free_bytes == small.storage.free_bytes()
    assert (rooms["c"].low_bytes, rooms["c"].held_bytes, rooms["c"].high_bytes) == (
        LOW_BYTES,
        7,
        11,
    )
    (of_c,) = [peer for peer in leader.node.status().peers if peer.name == "c"]
    assert of_c.room == rooms["c"]
    assert small.node.peer_rooms() == {}, "a follower goes by no report"


def an_old_report_does_not_count(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    world.run(2 * limits.ROOM_REPORT_SECONDS)
    world.nodes["c"].kill()
    world.run(limits.ROOM_REPORT_SECONDS_MAX / 2)
    assert sorted(leader.node.peer_rooms()) == ["b", "c"]
    world.run(limits.ROOM_REPORT_SECONDS_MAX)
    assert sorted(leader.node.peer_rooms()) == ["b"]


def a_member_that_recovers_does_not_count(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class, names="abcde")
    lost = world.nodes["c"]
    lost.lose_disk()
    world.nodes["b"].kill()  # The recovery waits for every member: it lasts as long as this.
    lost.start()
    world.run(limits.ROOM_REPORT_SECONDS_MAX + 1.0)
    assert lost.recovering
    assert sorted(leader.node.peer_rooms()) == ["d", "e"]


def a_report_of_an_earlier_leadership_does_not_count(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    world.run(2 * limits.ROOM_REPORT_SECONDS)
    world.network.intercept = lambda frame: "drop" if frame.message()["type"] == "room" else "pass"
    for source, target in (("a", "b"), ("b", "a")):
        world.nodes[source].node.transfer(target, failed=lambda why: None)
        world.run_until(lambda: world.nodes[target].node.is_leader)  # noqa: B023  # called at once
        world.run(0.5)
    assert world.now < limits.ROOM_REPORT_SECONDS_MAX
    assert leader.node.peer_rooms() == {}


def a_hanging_disk_is_reported_while_it_hangs(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    sick = world.nodes["b"]
    make_slow(world, sick, 0.5)
    sick.sync_seconds = 1_000.0
    world.commit(leader, 3)
    world.run(4.0)
    assert sick.journal is not None
    assert sick.journal.log.syncing
    assert "b" in leader.node.peer_rooms()
    assert leader.node.peer_rooms()["b"].sync_ms >= 2_000
    assert leader.node.peer_rooms()["c"].sync_ms < 100


def a_disk_that_fills_fast_is_reported_in_time(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    world.run(2 * limits.ROOM_REPORT_SECONDS)
    small = world.nodes["c"]
    small.storage.capacity_bytes = 100 << 20
    began_at = world.now
    world.commit(leader, 12, 1 << 20)
    world.run(0.05)
    assert world.now - began_at < limits.ROOM_REPORT_SECONDS / 2
    reported = leader.node.peer_rooms()["c"].free_bytes
    assert abs(reported - small.storage.free_bytes()) <= 2 * limits.ROOM_REPORT_BYTES


def what_a_member_lacks_comes_to_its_disk_too(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    small = world.nodes["c"]
    small.storage.capacity_bytes = 100 << 20
    world.run(2 * limits.ROOM_REPORT_SECONDS)
    before = leader.node.peer_rooms()["c"].free_bytes
    small.pause()
    world.commit(leader, 30, 1 << 20)
    assert leader.node.peer_rooms()["c"].free_bytes < before - (30 << 20)


def hanging(world: World, node: SimNode) -> None:
    """The node's disk is slow, and then a sync does not return for very long."""
    make_slow(world, node, 0.01)
    world.run(1.0)
    node.sync_seconds = 1_000.0
    world.submit(node, world.payload())
    journal = node.journal
    assert journal is not None
    world.run_until(lambda: journal.log.syncing, 0.5)


def a_leader_leaves_a_disk_that_hangs(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    hanging(world, leader)
    world.commit(leader, 5)
    assert leader.node.is_leader, "it serves until an election timeout has passed"
    world.run_until(lambda: bool(world.leaders) and world.leaders[0] is not leader, 5.0)
    world.commit(world.elect(), 5)
    assert not leader.node.is_leader


def asked_to_stand(leader: SimNode) -> list[str]:
    """The members that the leader would hand over to; none of it happens."""
    targets: list[str] = []
    core = raft_probe.core(leader.node)

    def noted(name: str, failed: Callable[[str], None], *, yields: bool = False) -> None:
        targets.append(name)

    core.begin_transfer = noted  # type: ignore[method-assign]
    return targets


def a_disk_that_hangs_is_not_left_for_another_that_hangs(
    node_class: NodeClass = RaftNode,
) -> None:
    world, leader = led(node_class)
    sick = world.nodes["b"]
    make_slow(world, sick, 0.5)
    sick.sync_seconds = 1_000.0
    world.commit(leader, 1)
    world.run(2 * limits.ROOM_REPORT_SECONDS)
    targets = asked_to_stand(leader)
    hanging(world, leader)
    world.nodes["c"].kill()
    world.run(3.0)
    assert leader.node.is_leader
    assert targets == []


def a_disk_that_hangs_is_left_once_in_30_s(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class)
    targets = asked_to_stand(leader)
    hanging(world, leader)
    world.run(25.0)
    assert len(targets) == 1
    world.run(20.0)
    assert len(targets) == 2


def what_waits_for_a_hanging_disk_is_bounded(node_class: NodeClass = RaftNode) -> None:
    world, leader = led(node_class, unsynced_bytes_max=100_000)
    asked_to_stand(leader)
    hanging(world, leader)
    for _ in range(20):
        for _ in range(5):
            world.submit(leader, world.payload(10_000))
        world.run(0.1)
    assert 100_000 <= raft_probe.core(leader.node).unsynced_bytes < 200_000


UNSYNCED_BYTES = 100_000
FRAME_BYTES = 20_000


def flooded(node_class: NodeClass, *, alone: bool = False) -> tuple[World, SimNode, SimNode]:
    """A leader, and a follower whose disk hangs and that was sent more than it may keep. Where it
    is `alone`, no other follower is left that could commit anything."""
    world, leader = led(node_class, unsynced_bytes_max=UNSYNCED_BYTES, batch_bytes=FRAME_BYTES)
    sick = world.nodes["b"]
    make_slow(world, sick, 0.01)
    world.run(1.0)
    sick.hangs = True
    if alone:
        world.nodes["c"].kill()
    for _ in range(50):
        world.submit(leader, world.payload(10_000))
        world.run(0.01)
    assert sick.journal is not None
    assert sick.journal.log.syncing
    return world, leader, sick


def what_a_follower_keeps_for_its_hanging_disk_is_bounded(
    node_class: NodeClass = RaftNode,
) -> None:
    world, leader, sick = flooded(node_class)
    world.run(3.0)
    kept_bytes = raft_probe.core(sick.node).unsynced_bytes
    assert UNSYNCED_BYTES <= kept_bytes < UNSYNCED_BYTES + 2 * FRAME_BYTES
    assert leader.node.commit_index == leader.node.last_index


def a_follower_that_takes_no_more_is_not_taken_for_dead(
    node_class: NodeClass = RaftNode,
) -> None:
    world, leader, sick = flooded(node_class, alone=True)
    assert raft_probe.core(sick.node).unsynced_bytes >= UNSYNCED_BYTES
    term = leader.node.term
    for _ in range(50):
        world.run(0.1)
        assert leader.node.lease_until() > leader.clock()
    assert (leader.node.is_leader, leader.node.term) == (True, term)


def a_follower_acknowledges_nothing_that_it_did_not_take(
    node_class: NodeClass = RaftNode,
) -> None:
    world, leader, sick = flooded(node_class, alone=True)
    world.run(3.0)
    assert sick.journal is not None
    assert leader.node.commit_index <= sick.journal.log.synced_index < leader.node.last_index


def a_follower_that_took_no_more_goes_on_once_its_disk_does(
    node_class: NodeClass = RaftNode,
) -> None:
    world, leader, sick = flooded(node_class, alone=True)
    assert leader.node.commit_index < leader.node.last_index
    sick.hangs = False
    world.run_until(lambda: leader.node.commit_index == leader.node.last_index, 5.0)
    world.commit(leader, 3)
    world.start()
    world.run_until(world.converged)


def a_deposed_leader_that_holds_enough_takes_no_more(node_class: NodeClass = RaftNode) -> None:
    """Bytes of its own leadership count like those that it is sent afterwards."""
    world, leader = led(node_class, unsynced_bytes_max=UNSYNCED_BYTES, batch_bytes=FRAME_BYTES)
    make_slow(world, leader, 0.01)
    world.run(1.0)
    leader.hangs = True
    for _ in range(20):
        world.submit(leader, world.payload(10_000))
        world.run(0.01)
    world.run_until(lambda: bool(world.leaders) and world.leaders[0] is not leader, 5.0)
    follower, leader = leader, world.elect()
    for _ in range(20):
        world.commit(leader, 1, 10_000)
    kept_bytes = raft_probe.core(follower.node).unsynced_bytes
    assert UNSYNCED_BYTES <= kept_bytes < 2 * UNSYNCED_BYTES
    follower.hangs = False
    world.run_until(world.converged)


RULES: list[Rule] = [
    (a_leader_hears_what_each_member_has_left, mutants.TellsNoRoom),
    (an_old_report_does_not_count, mutants.BelievesOldReports),
    (a_member_that_recovers_does_not_count, mutants.CountsTheRecovering),
    (a_report_of_an_earlier_leadership_does_not_count, mutants.KeepsReports),
    (a_hanging_disk_is_reported_while_it_hangs, mutants.ReportsAfterTheSync),
    (a_disk_that_fills_fast_is_reported_in_time, mutants.ReportsBySecondsOnly),
    (what_a_member_lacks_comes_to_its_disk_too, mutants.ForgetsWhatIsLacking),
    (a_leader_leaves_a_disk_that_hangs, mutants.StaysOnItsDisk),
    (a_disk_that_hangs_is_not_left_for_another_that_hangs, mutants.LeavesForAnyDisk),
    (a_disk_that_hangs_is_left_once_in_30_s, mutants.LeavesAgainAndAgain),
    (what_waits_for_a_hanging_disk_is_bounded, mutants.HoardsUnsynced),
    (what_a_follower_keeps_for_its_hanging_disk_is_bounded, mutants.HoardsUnsynced),
    (a_follower_that_takes_no_more_is_not_taken_for_dead, mutants.RefusesWithoutRoom),
    (a_follower_acknowledges_nothing_that_it_did_not_take, mutants.AcknowledgesTheUntaken),
    (a_follower_that_took_no_more_goes_on_once_its_disk_does, mutants.NeverShowsTheGap),
    (a_deposed_leader_that_holds_enough_takes_no_more, mutants.HoardsUnsynced),
]

test_the_rule_holds, test_the_rule_taken_out_shows = as_tests(RULES)
