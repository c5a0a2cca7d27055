"""When a node takes a snapshot: as the log grows, or in time where much is kept before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.raft import limits
from tests.support.raft_world import World

if TYPE_CHECKING:
    import pytest

    from tests.support.raft_world import SimNode

SNAPSHOT_BYTES = 40_000
LOOK_SECONDS = 20.0


def kept_bytes(node: SimNode) -> int:
    """What lies before the log because something in it is said to be live."""
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


def test_what_few_entries_settled_is_given_back_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_LOOK_SECONDS", LOOK_SECONDS)
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


def test_an_idle_node_that_keeps_much_takes_no_second_snapshot_of_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_LOOK_SECONDS", LOOK_SECONDS)
    world = World("abc", seed=4, snapshot_bytes=SNAPSHOT_BYTES).start()
    drained(world)
    by_growth = taken(world)
    world.run(4 * LOOK_SECONDS)
    assert taken(world) == [count + 1 for count in by_growth]
