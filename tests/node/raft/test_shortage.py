"""A group whose disks are short of room: what is dead comes back at once, as often as it helps."""

from __future__ import annotations

import pytest

from node.raft import limits
from tests.support.raft_state import KEPT_ENTRIES, SimState
from tests.support.raft_world import SimNode, World

CAPACITY_BYTES = 600_000
LOW_BYTES = CAPACITY_BYTES // 4
BODY_BYTES = 5_000
NEVER = 1 << 40


class Emptied(SimState):
    """A state whose dead payloads take no room in a snapshot."""

    compresses = True


def small_disks(snapshot_bytes: int = NEVER) -> tuple[World, SimNode]:
    """Three nodes with small disks, of which one leads."""
    world = World("abc", seed=3, snapshot_bytes=snapshot_bytes, disk_low_bytes=LOW_BYTES)
    for node in world.nodes.values():
        node.storage.capacity_bytes = CAPACITY_BYTES
        node.state_class = Emptied
    world.start()
    return world, world.elect("a")


def publish(world: World, leader: SimNode) -> None:
    """An entry whose payload stays in the log, and dies with as many entries after it."""
    while (leader.node.last_index + 1) % 3 or (leader.node.last_index + 1) % 9 == 0:
        world.commit(leader, 1)
    world.commit(leader, 1, BODY_BYTES)


def fill(world: World, leader: SimNode) -> None:
    """Publish until the leader's disk is low."""
    while leader.storage.free_bytes() >= LOW_BYTES:
        publish(world, leader)


def settle(world: World, leader: SimNode) -> None:
    """Everything is dead with so many small entries."""
    world.commit(leader, KEPT_ENTRIES)


def taken(world: World) -> list[int]:
    return [node.node.status().counters.snapshots_taken_total for node in world.nodes.values()]


def enough(world: World) -> bool:
    """Whether every disk has room again, past both marks."""
    back = LOW_BYTES + LOW_BYTES // limits.SHORT_BACK_PARTS
    return all(node.storage.free_bytes() >= back for node in world.nodes.values())


@pytest.mark.slow
def test_an_emptied_group_has_room_again_within_30_s_and_idle() -> None:
    world, leader = small_disks()
    fill(world, leader)
    world.run(5.0)
    settle(world, leader)
    world.run(30.0)
    assert enough(world)
    # The published come to a rest: room that is back is no reason for another snapshot.
    before = taken(world)
    world.run(60.0)
    assert taken(world) == before
    world.checks.at_rest()


@pytest.mark.slow
def test_a_queue_that_is_filled_again_and_again_gets_its_room_back_each_time() -> None:
    world, leader = small_disks()
    for _ in range(3):
        fill(world, leader)
        settle(world, leader)
        world.run(30.0)
        assert enough(world)
    world.checks.at_rest()


@pytest.mark.slow
def test_the_older_of_two_snapshots_goes_where_nothing_new_was_applied() -> None:
    world, leader = small_disks(snapshot_bytes=CAPACITY_BYTES // 3)
    fill(world, leader)
    settle(world, leader)
    world.run(30.0)
    assert enough(world)
    world.checks.at_rest()


@pytest.mark.slow
def test_what_others_wrote_on_the_disk_is_no_reason_for_a_snapshot() -> None:
    world, leader = small_disks()
    world.commit(leader, 10)
    for node in world.nodes.values():
        node.storage.replace("ballast", bytes(CAPACITY_BYTES - LOW_BYTES))
    for _ in range(5):
        world.commit(leader, 3)
        world.run(20.0)
    assert taken(world) == [0, 0, 0]


@pytest.mark.slow
def test_live_messages_on_a_short_disk_cost_a_snapshot_now_and_then() -> None:
    world, leader = small_disks()
    fill(world, leader)
    for _ in range(60):
        world.commit(leader, 1)
        world.run(1.0)
        if enough(world):
            break
    assert max(taken(world)) <= 60 / limits.SHORT_REST_SECONDS + 2
