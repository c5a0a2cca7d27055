"""The hazards of the stock library that need snapshots, by id: see `test_hazards.py`.

Each scenario holds on ours and goes red when the faulty behaviour is put back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from node.raft.config import Outcome
from node.raft.errors import RaftError, RaftStopped
from node.raft.node import RaftNode
from tests.node.raft.test_hazards import has_entries, outcome
from tests.support import raft_mutants as mutants
from tests.support.raft_network import Frame
from tests.support.raft_schedule import power_in_turn
from tests.support.raft_world import SimNode, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.raft.core import Core

NodeClass = type[RaftNode]


def compacting(seed: int, node_class: NodeClass, names: str = "abc", **settings: Any) -> World:
    """A world whose nodes take a snapshot every few entries, and send it in small pieces."""
    small = {
        "snapshot_bytes": 2_000,
        "snapshot_chunk_bytes": 300,
        "slice_steps": 4,
        "batch_bytes": 2_000,
        "window_bytes": 1_000,
    }
    return World(names, seed=seed, node_class=node_class, **(small | settings)).start()


def first_index(node: SimNode) -> int:
    """Where a node's log begins."""
    assert node.journal is not None
    return node.journal.log.first_index


def commit_past(world: World, leader: SimNode, behind: SimNode) -> None:
    """Commit until the leader has none of the entries left that `behind` lacks."""
    for _ in range(60):
        if first_index(leader) > behind.node.last_index + 1:
            return
        world.commit(leader, 5, 100)
        world.run(0.05)
    pytest.fail("the leader lets go of nothing")


def b01_commit_on_the_way(node_class: NodeClass = RaftNode) -> None:
    """While a snapshot comes in, nothing of this node's own uncommitted tail is committed."""
    world = compacting(1, node_class)
    old = world.elect("a")
    world.commit(old, 3)
    world.run(0.2)
    world.network.isolate("a")
    lost = [world.submit(old, world.payload()) for _ in range(3)]
    world.run(5.0)  # Every connection to it ends, and what waited on them.
    new = world.elect()
    commit_past(world, new, old)
    pieces: list[Frame] = []

    def one_per_turn(frame: Frame) -> str:
        if frame.message()["type"] != "snapshot_state":
            return "pass"
        pieces.append(frame)
        world.after(0.06 * len(pieces), lambda: world.network.deliver(frame))
        return "hold"

    world.network.intercept = one_per_turn
    world.network.heal()
    world.run_until(world.converged)
    assert len(pieces) > 5
    assert old.node.status().counters.snapshots_installed_total == 1
    assert all(outcome(submitted) is not Outcome.COMMITTED for submitted in lost)
    world.checks.at_rest()


def b02_snapshot_before_the_tail(node_class: NodeClass = RaftNode) -> None:
    """Entries committed after a snapshot survive a crash at any instant behind it."""
    world = compacting(2, node_class)
    leader = world.elect()
    world.commit(leader, 30, 100)
    world.run(0.5)
    assert all(node.node.status().snapshot_index for node in world.nodes.values())
    last = world.commit(leader, 10, 20)
    world.run(0.2)
    for node in world.nodes.values():
        assert node.node.last_index > node.node.status().snapshot_index
        node.kill(power=True)
    world.start()
    leader = world.elect()
    world.commit(leader, 1)
    world.run_until(world.converged)
    world.checks.at_rest()
    assert all(submitted.payload in [p for _, _, p in leader.applied] for submitted in last)


def b03_crash_in_compaction(node_class: NodeClass = RaftNode) -> None:
    """Power lost in any disk operation of a snapshot, and of what is let go behind it."""
    for operations in range(1, 40, 3):
        world = compacting(3, node_class, "a", snapshot_bytes=9_000)
        node = world.elect()
        for _ in range(4):
            world.commit(node, 10, 600)
        power_in_turn(world, node, operations)
        submitted = [world.submit(node, world.payload(600)) for _ in range(40)]
        world.run(0.5)
        if not node.alive:
            node.start()
        node.storage.hook = None
        world.elect()
        world.run(0.5)
        applied = [payload for _, _, payload in node.applied]
        for each in world.submitted:
            if each.outcomes and each.outcomes[0][0] is Outcome.COMMITTED:
                assert applied.count(each.payload) == 1
        assert len(submitted) == 40


def b10_state_that_is_gone(node_class: NodeClass = RaftNode) -> None:
    """A log that begins behind a snapshot, and none that can be read: the node does not start."""
    world = compacting(10, node_class)
    leader = world.elect("a")
    world.commit(leader, 90, 900)
    world.run(0.5)
    node = world.nodes["b"]
    node.kill()
    assert not [n for n in node.storage.listdir() if n.startswith("0000000001-")], "all is there"
    whole = {name: node.storage.content(name) for name in node.storage.listdir()}
    for name in whole:
        if name.endswith(".snapshot"):
            node.storage.remove(name)
    with pytest.raises(RaftError):
        node.start()
    for name, content in whole.items():
        node.storage.replace(name, content)
    node.storage.crash()
    node.unreadable = True
    with pytest.raises(RaftError):
        node.start()


def b22_late_snapshot(node_class: NodeClass = RaftNode) -> None:
    """A snapshot that arrives again, long after, takes nothing back."""
    world = compacting(22, node_class)
    leader = world.elect("a")
    behind = world.nodes["c"]
    world.network.isolate("c")
    commit_past(world, leader, behind)
    copies: list[Frame] = []

    def copy(frame: Frame) -> str:
        if frame.target == "c" and frame.message()["type"].startswith("snapshot_"):
            copies.append(frame)
        return "pass"

    world.network.intercept = copy
    world.network.heal()
    world.run_until(world.converged)
    world.network.intercept = None
    world.commit(leader, 40, 100)
    world.run_until(world.converged)
    index = behind.node.applied_index
    assert len(copies) > 5
    for frame in copies:
        world.network.deliver(frame)
        world.run(0.02)
    assert behind.node.applied_index >= index
    leader.kill()
    world.elect("c")
    leader.start()
    world.run_until(world.converged)
    world.checks.at_rest()


def b22_jumped_callbacks(node_class: NodeClass = RaftNode) -> None:
    """A caller that waits for an index that a snapshot jumped over gets an unknown outcome."""
    world = compacting(23, node_class, submit_seconds=1_000.0)
    old = world.elect("a")
    world.commit(old, 3)
    world.network.isolate("a")
    waiting = [world.submit(old, world.payload()) for _ in range(3)]
    world.run(1.5)
    new = world.elect()
    commit_past(world, new, old)
    world.network.heal()
    world.run_until(world.converged)
    world.run(0.5)
    assert [outcome(submitted) for submitted in waiting] == [Outcome.UNKNOWN] * 3


def b27_late_frame_behind_compaction(node_class: NodeClass = RaftNode) -> None:
    """A late copy of a frame from before the log's head changes nothing, and empties nothing."""
    world = compacting(27, node_class)
    leader = world.elect("a")
    copies: list[Frame] = []

    def copy(frame: Frame) -> str:
        if has_entries(frame, "a", "b"):
            copies.append(frame)
        return "pass"

    world.network.intercept = copy
    world.commit(leader, 5)
    world.network.intercept = None
    follower = world.nodes["b"]
    world.commit(leader, 60, 100)
    world.run(0.5)
    assert first_index(follower) > copies[0].message()["prevLogIdx"]
    end = follower.node.last_index
    for frame in copies:
        world.network.deliver(frame)
        world.run(0.05)
    assert follower.node.last_index >= end
    world.commit(leader, 3)
    world.run_until(world.converged)
    world.checks.at_rest()


SCENARIOS: list[tuple[Callable[..., None], type[Core]]] = [
    (b01_commit_on_the_way, mutants.CommitsOnSnapshotPath),
    (b02_snapshot_before_the_tail, mutants.ClearsTail),
    (b03_crash_in_compaction, mutants.RewritesOnCompaction),
    (b10_state_that_is_gone, mutants.IgnoresLoadError),
    (b22_late_snapshot, mutants.RollsBack),
    (b22_jumped_callbacks, mutants.ForgetsJumped),
    (b27_late_frame_behind_compaction, mutants.Truncates),
]
IDS = [scenario.__name__ for scenario, _ in SCENARIOS]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [scenario for scenario, _ in SCENARIOS], ids=IDS)
def test_the_hazard_does_not_show(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "core"), SCENARIOS, ids=IDS)
def test_the_hazard_shows_when_the_faulty_behaviour_is_put_back(
    scenario: Callable[[NodeClass], None], core: type[Core]
) -> None:
    with pytest.raises((AssertionError, RaftError, pytest.fail.Exception)):
        scenario(mutants.node_with(core))


def test_scenarios_expect_no_stop_by_accident() -> None:
    assert issubclass(RaftStopped, RaftError)
