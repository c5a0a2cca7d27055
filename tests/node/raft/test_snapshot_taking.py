"""When a node takes a snapshot: as the log grows, or in time where much is kept before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node.raft import limits
from tests.support.raft_world import World

if TYPE_CHECKING:
    from tests.support.raft_world import SimNode

SNAPSHOT_BYTES = 40_000
LOOK_SECONDS = 20.0


def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time in which a simulated node can be watched."""
    monkeypatch.setattr(limits, "SNAPSHOT_LOOK_SECONDS", 1.0)
    monkeypatch.setattr(limits, "SNAPSHOT_REST_SECONDS", LOOK_SECONDS)
    monkeypatch.setattr(limits, "SNAPSHOT_REST_SECONDS_SHORT", LOOK_SECONDS / 5)


def kept_bytes(node: SimNode) -> int:
    """Number of bytes kept before the log because something in them is said to be live."""
    assert node.journal is not None
    return node.journal.stats().snapshots.held_bytes


def taken(world: World) -> list[int]:
    return [node.node.status().counters.snapshots_taken_total for node in world.nodes.values()]


def drained(world: World) -> SimNode:
    """Large entries that small ones have let die since; the leader."""
    leader = world.elect("a")
    for _ in range(12):
        world.commit(leader, 5, 3_000)
    for _ in range(12):
        world.commit(leader, 5, 1)
    world.run(1.0)
    return leader


@pytest.mark.slow
def test_space_freed_by_few_entries_is_reclaimed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)
    world = World("abc", seed=4, snapshot_bytes=SNAPSHOT_BYTES).start()
    leader = drained(world)
    before = [kept_bytes(node) for node in world.nodes.values()]
    assert min(before) > 2 * SNAPSHOT_BYTES
    by_growth = taken(world)

    # The base is the older of two snapshots: the second one lets go of what the first found dead.
    for _ in range(2):
        world.commit(leader, 1)
        world.run(LOOK_SECONDS + 1.0)
    assert taken(world) == [count + 2 for count in by_growth]
    assert all(kept_bytes(node) < SNAPSHOT_BYTES for node in world.nodes.values())

    world.commit(leader, 1)
    world.run(3 * LOOK_SECONDS)
    assert taken(world) == [count + 2 for count in by_growth], "there is nothing more to give back"
    world.checks.at_rest()


@pytest.mark.slow
def test_an_idle_node_that_keeps_much_takes_no_second_snapshot_of_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    often(monkeypatch)
    world = World("abc", seed=4, snapshot_bytes=SNAPSHOT_BYTES).start()
    drained(world)
    by_growth = taken(world)
    world.run(4 * LOOK_SECONDS)
    assert taken(world) == [count + 1 for count in by_growth]


def test_where_room_is_short_it_is_given_back_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    often(monkeypatch)
    world = World("abc", seed=4, snapshot_bytes=SNAPSHOT_BYTES).start()
    leader = drained(world)
    by_growth = taken(world)[0]
    assert kept_bytes(leader) > 2 * SNAPSHOT_BYTES
    free_bytes = kept_bytes(leader) // 2
    monkeypatch.setattr(leader.storage, "free_bytes", lambda: free_bytes)
    for _ in range(2):
        world.commit(leader, 1)
        world.run(LOOK_SECONDS / 5 + 1.5)
    assert taken(world) == [by_growth + 2, *taken(world)[1:]]
    assert kept_bytes(leader) < SNAPSHOT_BYTES
    assert min(kept_bytes(node) for node in world.nodes.values()) < SNAPSHOT_BYTES
    assert max(kept_bytes(node) for node in world.nodes.values()) > 2 * SNAPSHOT_BYTES, "no hurry"
    world.checks.at_rest()
