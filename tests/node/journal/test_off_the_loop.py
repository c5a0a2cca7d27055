"""Work of a slow disk that does not stop the loop: new segments, snapshots, compaction.

And what must not count meanwhile: nothing that stands on such work, before it is done.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from node.journal.errors import JournalFailed
from node.raft.node import RaftNode
from node.testing.disk import PowerCut, SimStorage
from tests.support import raft_probe
from tests.support.journals import SMALL, command, fill, journal_with, open_journal
from tests.support.raft_world import SimNode, World

if TYPE_CHECKING:
    from node.journal.journal import Journal

NodeClass = type[RaftNode]

ROUNDS = 12
"""Groups of two entries of 100 bytes, in segments of 512: every other one fills its segment."""


def segments(storage: SimStorage) -> list[str]:
    return [name for name in storage.listdir() if name.endswith(".segment")]


# --- the journal's side ---


def fly(journal: Journal, rounds: int = ROUNDS) -> None:
    """Groups that take off and land, each with an entry that is added while they are in the air
    and goes with the next."""
    for _ in range(rounds):
        fill(journal, 1, size=100)
        job = journal.log.begin_sync()
        assert job is not None
        fill(journal, 1, size=100)
        job.run()
        journal.log.finish_sync(job)


def sweep_of_a_new_segment() -> None:
    """Power lost at any operation of groups in the air: whatever had landed is there."""
    seen: list[str] = []
    whole = SimStorage()
    whole.hook = lambda operation, name: seen.append(operation)
    fly(open_journal(whole))
    assert len(segments(whole)) > 4
    for number in range(len(seen)):
        for seed in range(3):
            storage = SimStorage()
            operations = 0

            def hook(operation: str, name: str, number: int = number) -> None:
                nonlocal operations
                operations += 1
                if operations > number:
                    raise PowerCut

            storage.hook = hook
            landed = 0
            try:
                journal = open_journal(storage)
                try:
                    fly(journal)
                finally:
                    landed = journal.log.synced_index
            except PowerCut:
                pass
            storage.power_loss(random.Random(f"{number} {seed}"))
            again = open_journal(storage)
            assert again.log.last_index >= landed
            for index in range(1, again.log.last_index + 1):
                assert again.log.read(index) == command(index, 100)
            fly(again, 2)


@pytest.mark.slow
def test_a_power_loss_in_the_turn_to_a_new_segment_loses_nothing_that_landed() -> None:
    sweep_of_a_new_segment()


def test_a_new_segment_is_begun_by_the_thread_that_syncs_the_old_one() -> None:
    storage, journal = journal_with(5, size=100, synced=False)
    before = segments(storage)
    job = journal.log.begin_sync()
    assert job is not None
    assert segments(storage) == before, "nothing of it is done on this thread"
    end = journal.log.gathered_end
    assert journal.log.covered_end == end
    # What comes meanwhile is read from memory, and goes to the new segment.
    fill(journal, 5, size=100)
    assert journal.log.synced_index == 0
    assert [entry[0] for entry in journal.log.entries(1, 1 << 20)] == [
        command(index, 100) for index in range(1, 11)
    ]
    job.run()
    assert len(segments(storage)) == len(before) + 1
    assert journal.log.synced_index == 0
    journal.log.finish_sync(job)
    assert (journal.log.synced_index, journal.log.synced_end) == (5, end)
    journal.log.sync()
    assert [journal.log.read(index) for index in range(1, 11)] == [
        command(index, 100) for index in range(1, 11)
    ]
    storage.power_loss(random.Random(1))
    assert open_journal(storage).log.last_index == 10


def test_a_truncation_reaches_back_into_the_segment_on_its_way() -> None:
    storage, journal = journal_with(5, size=100, synced=False)
    job = journal.log.begin_sync()
    assert job is not None
    journal.log.truncate(3)
    journal.log.set_term(2, "beta")
    journal.log.finish_sync(job)
    fill(journal, 2, size=80, term=2)
    journal.log.sync()
    storage.power_loss(random.Random(1))
    again = open_journal(storage)
    assert [again.log.term_at(index) for index in range(1, 6)] == [1, 1, 1, 2, 2]
    assert (again.log.term, again.log.voted_for) == (2, "beta")


def test_a_segment_that_cannot_be_begun_ends_the_journal() -> None:
    storage, journal = journal_with(5, size=100, synced=False)
    job = journal.log.begin_sync()
    assert job is not None

    def hook(operation: str, name: str) -> None:
        if operation == "create":
            raise OSError(28, "No space left on device")

    storage.hook = hook
    job.run()
    with pytest.raises(JournalFailed, match="no room left on the disk"):
        journal.log.finish_sync(job)
    assert journal.log.synced_index == 0
    journal.close()
    storage.crash()
    assert open_journal(storage, limits=SMALL).log.last_index == 5


# --- the node's side ---


class OnLoop:
    """The syncs and reads of a node, and the removing of its files, that its loop waited for."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self.found: list[tuple[str, str]] = []
        self.beside: list[tuple[str, str]] = []
        node.storage.hook = self._note
        node.storage.read_hook = lambda name: self._note("read", name)

    def _note(self, operation: str, name: str) -> None:
        if operation in ("sync", "sync_folder", "unlink", "read"):
            (self.beside if self._node.beside_loop else self.found).append((operation, name))


def busy(world: World, leader: SimNode, rounds: int) -> None:
    """Entries that fill segments and let snapshots come, most of which die soon."""
    for _ in range(rounds):
        world.commit(leader, 5, 900)
        world.run(0.3)


def keeps_syncs_off_the_loop(node_class: NodeClass = RaftNode) -> None:
    """A leader with a slow disk takes snapshots, begins segments and compacts, and never waits."""
    world = World("abc", seed=7, node_class=node_class, snapshot_bytes=40_000).start()
    leader = world.elect("a")
    leader.sync_seconds = 0.1
    busy(world, leader, 3)
    assert raft_probe.syncs_off_loop(leader.node)
    waits = OnLoop(leader)
    taken = leader.node.status().counters.snapshots_taken_total
    busy(world, leader, 60)
    assert leader.node.status().counters.snapshots_taken_total > taken + 3
    assert not waits.found
    seen = {(operation, name.partition(".")[2]) for operation, name in waits.beside}
    written = {("sync", ending) for ending in ("segment.tmp", "snapshot.tmp", "kept.tmp")}
    cleaned_up = {("read", "snapshot"), ("read", "segment"), ("read", "kept")}
    assert written | cleaned_up | {("unlink", "segment")} <= seen
    world.run(5.0)
    world.checks.at_rest()


@pytest.mark.slow
def test_a_slow_disk_stops_the_loop_for_no_segment_and_no_snapshot() -> None:
    keeps_syncs_off_the_loop()


def test_a_slow_disk_stops_no_loop_for_a_vote() -> None:
    world = World("abc", seed=9).start()
    leader = world.elect("a")
    for node in world.nodes.values():
        node.sync_seconds = 0.1
    busy(world, leader, 5)
    assert all(raft_probe.syncs_off_loop(node.node) for node in world.nodes.values())
    waits = [OnLoop(node) for node in world.nodes.values()]
    for target in "bca":
        leader.node.transfer(target, lambda _: None)
        world.run_until(lambda: world.nodes[target].node.is_leader)  # noqa: B023  # called at once
        leader = world.nodes[target]
        world.commit(leader, 3)
    assert [wait.found for wait in waits] == [[], [], []]
    assert all(wait.beside for wait in waits)


def snapshots_wait_for_their_disk(node_class: NodeClass = RaftNode) -> None:
    """Power lost by all nodes while their disks take their time: what is let go behind a snapshot
    or a compaction is not needed, for what replaces it is there."""
    for seed in range(3):
        world = World("abc", seed=seed, node_class=node_class, snapshot_bytes=20_000).start()
        for _ in range(4):
            leader = world.elect()
            for node in world.nodes.values():
                node.sync_seconds = 0.2
            busy(world, leader, 10)
            world.run(world.rng.uniform(0.0, 1.0))
            for node in world.nodes.values():
                node.kill(power=True)
                node.sync_seconds = 0.0
            world.start()
        world.commit(world.elect(), 1)
        world.run_until(world.converged)
        world.checks.at_rest()


@pytest.mark.slow
def test_snapshots_wait_for_their_disk() -> None:
    snapshots_wait_for_their_disk()
