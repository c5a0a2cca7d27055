"""A snapshot on its way: what interruptions cost, what newer ones change, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from node.raft import limits
from node.raft.node import RaftNode
from tests.node.journal.test_off_the_loop import OnLoop
from tests.node.raft.test_snapshot_hazards import commit_past, compacting
from tests.support import raft_probe

if TYPE_CHECKING:
    from tests.support.raft_network import Frame
    from tests.support.raft_world import SimNode, World


class Watch:
    """Counts what the leader sends of snapshots."""

    def __init__(self, world: World) -> None:
        self.bytes_sent = 0
        self.frames = 0
        self.offers: list[int] = []
        self.on_piece: Any = None
        world.network.intercept = self._see

    def _see(self, frame: Frame) -> str:
        message = frame.message()
        if message["type"] == "snapshot_offer":
            self.offers.append(message["index"])
        elif message["type"] in ("snapshot_state", "snapshot_entries"):
            self.frames += 1
            self.bytes_sent += len(frame.content)
            if self.on_piece is not None:
                self.on_piece()
        return "pass"


def one_behind(seed: int, **settings: Any) -> tuple[World, SimNode, SimNode]:
    """(world, leader, a follower that lacks entries which the leader has no more)."""
    world = compacting(seed, RaftNode, **settings)
    leader = world.elect("a")
    behind = world.nodes["c"]
    world.network.isolate("c")
    commit_past(world, leader, behind)
    world.commit(leader, 60, 100)
    world.run(5.0)
    return world, leader, behind


def test_an_interrupted_transfer_goes_on_where_it_was() -> None:
    world, _, behind = one_behind(1)
    watch = Watch(world)
    cuts = iter((5, 14, 23))  # further apart than what is on its way
    cut_at = next(cuts)

    def cut() -> None:
        nonlocal cut_at
        if watch.frames == cut_at:
            cut_at = next(cuts, 0)
            world.after(0.003, lambda: world.network.break_link("a", "c"))

    watch.on_piece = cut
    world.network.heal()
    world.run_until(world.converged, 20.0)
    assert cut_at == 0
    assert len(watch.offers) == 4
    assert behind.journal is not None
    assert behind.journal.snapshot is not None
    # Each cut costs at most what was on its way.
    most = behind.journal.snapshot.state_bytes + 3_000
    assert watch.bytes_sent < 2 * most
    world.checks.at_rest()


def test_a_transfer_survives_newer_snapshots_of_its_sender() -> None:
    world, leader, behind = one_behind(2)
    watch = Watch(world)
    first = leader.node.status().snapshot_index

    def newer() -> None:
        if watch.frames == 4:
            world.network.isolate("c")
            for _ in range(60):
                world.submit(leader, world.payload(200))
            world.after(1.0, world.network.heal)

    watch.on_piece = newer
    world.network.heal()
    world.run_until(world.converged, 20.0)
    assert leader.node.status().counters.snapshots_taken_total >= 3
    assert set(watch.offers) == {first}
    assert behind.node.status().counters.snapshots_installed_total >= 1
    world.checks.at_rest()


def test_a_change_of_leader_in_the_middle_of_a_transfer_costs_time_only() -> None:
    world, leader, behind = one_behind(3)
    watch = Watch(world)
    had: list[int] = []

    def change() -> None:
        if watch.frames == 8:
            had.append(raft_probe.received_state_bytes(behind.node))
            world.after(0.0, leader.kill)  # Not in the middle of the turn that sends.

    watch.on_piece = change
    world.network.heal()
    world.elect("b")
    leader.start()
    world.run_until(world.converged, 20.0)
    assert had[0] > 0
    assert len(watch.offers) >= 2
    assert behind.node.status().counters.snapshots_installed_total == 1
    world.checks.at_rest()


@pytest.mark.slow
def test_a_follower_that_dies_while_it_installs_begins_again() -> None:
    for power in (False, True):
        world, _, behind = one_behind(4)
        watch = Watch(world)

        def die(watch: Watch = watch, world: World = world, power: bool = power) -> None:
            if watch.frames in (6, 25):
                world.after(0.002, lambda: world.nodes["c"].kill(power=power))
                world.after(0.3, world.nodes["c"].start)

        watch.on_piece = die
        world.network.heal()
        world.run_until(lambda w=world, b=behind: b.alive and w.converged(), 20.0)  # type: ignore[misc]
        assert len(watch.offers) >= 2
        world.checks.at_rest()


def test_a_slow_disk_blocks_no_loop_after_an_installation() -> None:
    world, leader, behind = one_behind(5)
    behind.sync_seconds = 0.2
    waits = OnLoop(behind)
    world.network.heal()
    world.run_until(world.converged, 30.0)
    assert behind.node.status().counters.snapshots_installed_total == 1
    endings = [".".join(name.split(".")[1:]) for _, name in waits.beside]
    assert endings.count("kept.tmp") >= 1
    assert endings.count("snapshot.tmp") >= 1
    waited = [name for operation, name in waits.found if operation == "sync"]
    assert not [name for name in waited if "kept" in name]
    # Its end alone, which names the place where the log restarts.
    assert len([name for name in waited if "snapshot" in name]) == 1
    assert leader.node.is_leader
    world.checks.at_rest()


@pytest.mark.slow
def test_a_follower_that_dies_while_its_disk_installs_begins_again_or_has_it() -> None:
    had = set()
    for seed in range(12):
        world, _, behind = one_behind(seed)
        behind.sync_seconds = 0.1
        world.network.heal()
        world.run_until(lambda node=behind: raft_probe.install_waits(node.node))  # type: ignore[misc]
        world.run(world.rng.uniform(0.0, 0.5))
        behind.kill(power=seed % 2 == 0)
        behind.start()
        had.add(behind.node.status().snapshot_index > 20)
        world.run_until(world.converged, 30.0)
        world.checks.at_rest()
    assert len(had) == 2, "some had it, and some had not"


@pytest.mark.slow
def test_a_snapshot_that_no_peer_takes_any_more_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_PIN_SECONDS", 3.0)
    world, leader, _ = one_behind(5)
    watch = Watch(world)
    watch.on_piece = lambda: world.network.isolate("c")
    world.network.heal()
    world.run(1.0)
    sent = leader.node.status().peers[1].snapshot
    assert sent is not None
    assert sent.index > 0
    assert sent.sent_bytes <= sent.state_bytes
    assert sent.sent_entries <= sent.entries
    world.run(limits.SNAPSHOT_PIN_SECONDS + 6.0)
    assert leader.node.status().peers[1].snapshot is None
    world.network.intercept = None
    world.network.heal()
    world.run_until(world.converged, 20.0)
    world.checks.at_rest()


def test_a_follower_that_installs_does_not_stand_for_election() -> None:
    world, leader, behind = one_behind(6, slice_steps=1)
    world.network.heal()
    world.run_until(lambda: raft_probe.core(behind.node).snapshots.restoring, 20.0)
    raft_probe.core(behind.node).election_deadline = 0.0
    terms = leader.node.term
    world.run_until(lambda: not raft_probe.core(behind.node).snapshots.restoring, 20.0)
    assert leader.node.term == terms
    world.run_until(world.converged, 20.0)


@pytest.mark.parametrize("damage", ["state", "digest"])
def test_a_snapshot_other_than_the_offered_one_is_not_installed(damage: str) -> None:
    world, _, behind = one_behind(7)
    core = raft_probe.core(behind.node)
    receive, wrong = core.snapshots.received, [True]

    def damaged(message: dict[str, Any], has_index: int, *, replaces: bool = False) -> Any:
        if wrong[0] and damage == "state" and message["type"] == "snapshot_state":
            wrong[0] = False
            message = message | {"data": bytes(len(message["data"]))}
        return receive(message, has_index)

    core.snapshots.received = damaged  # type: ignore[method-assign]  # a look from outside
    if damage == "digest":

        def lie(frame: Frame) -> str:
            if frame.message()["type"] == "snapshot_offer" and wrong[0]:
                wrong[0] = False
                digest = frame.message()["digest"]
                frame.content = frame.content.replace(digest, bytes(32))
            return "pass"

        world.network.intercept = lie
    world.network.heal()
    world.run_until(world.converged, 30.0)
    assert behind.node.status().counters.snapshots_refused_total == 1
    assert behind.node.status().counters.snapshots_installed_total == 1
    world.checks.at_rest()
