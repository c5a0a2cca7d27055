"""Entries for a peer that is far behind, or applied late: read off the event loop, in order,
bounded, and of the log as it is; only their reader waits."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from node.journal.errors import JournalFailed
from node.journal.io.jobs import Inline
from node.journal.io.readers import LogReader
from node.journal.limits import JournalLimits
from node.peers.message import PeerNode
from node.raft import limits
from node.raft.config import RaftConfig, RaftCounters
from node.raft.environment import RaftEnvironment
from node.raft.node import RaftNode
from node.raft.replication import Replication
from node.testing.disk import SimStorage
from tests.node.journal.test_body_fetcher import Disk
from tests.node.journal.test_off_the_loop import OnLoop
from tests.support.journals import SMALL, command, fill, open_journal
from tests.support.raft_world import CLUSTER, World
from tests.support.snapshots import clean_up, take

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.journal import Journal
    from node.journal.records import Entry
    from tests.support.raft_world import SimNode

NodeClass = type[RaftNode]
EVERYTHING = 1 << 30


class Reader:
    """A feed over a log whose old entries are on the disk only."""

    def __init__(self, journal_limits: JournalLimits = SMALL, entries: int = 60) -> None:
        self.storage = SimStorage()
        self.journal = open_journal(self.storage, limits=journal_limits)
        for _ in range(0, entries, 5):
            fill(self.journal, 5, size=60)
            self.journal.log.sync()
        self.disk = Disk()
        self.wakes = 0
        self.feed = LogReader(
            self.journal.log, self.disk, self._wake, lambda: self.journal.log.last_index
        )

    def _wake(self) -> None:
        self.wakes += 1

    def take(self, first: int, count: int = 1000) -> list[int]:
        """The entries, by index; what is taken is what was written."""
        found = self.feed.take(first, EVERYTHING, count)
        assert all(
            entry == (command(index, 60), index, 1) for index, entry in enumerate(found, first)
        )
        return [index for _, index, _ in found]

    def land(self) -> None:
        """End a read, and begin the one that follows it."""
        work, done = self.disk.works.pop(0)
        work()
        done(None)


def test_entries_come_in_order_and_none_is_read_on_the_loop() -> None:
    reader = Reader()
    reads = reader.storage.reads
    found: list[int] = []
    while len(found) < 60:
        first = len(found) + 1
        some = reader.take(first)
        found += some
        if not some:
            assert reader.feed.waits(first)
            assert reader.storage.reads == reads
            reader.land()
            reads = reader.storage.reads
    assert found == list(range(1, 61))
    assert reader.take(61) == []
    assert not reader.disk.works
    assert reader.storage.open_files <= 3, "the journal's own, and none of a read"


def test_a_piece_is_read_ahead_and_no_more() -> None:
    reader = Reader()
    assert reader.take(1) == []
    assert len(reader.disk.works) == 1
    reader.land()
    assert reader.wakes == 1
    assert not reader.disk.works, "not before the first is taken"
    first = reader.take(1)
    assert len(reader.disk.works) == 1
    assert reader.take(1) == first, "as often as they are asked for, until the next are"
    assert reader.take(2, 1) == [2]
    reader.land()
    assert not reader.disk.works
    assert reader.take(len(first) + 1)


def test_cached_entries_are_not_read() -> None:
    reader = Reader(JournalLimits(cache_bytes=2_000))
    first = next(i for i in range(1, 61) if reader.journal.read_cached(i) is not None)
    assert first > 20
    assert reader.take(first) == list(range(first, 61))
    assert not reader.disk.works
    assert reader.take(first - 10) == []
    reader.land()
    # More than the ten may have been read; what was in memory stays there.
    assert reader.take(first - 10)[:10] == list(range(first - 10, first))
    assert reader.take(first) == list(range(first, 61))


def test_a_reader_that_goes_elsewhere_waits_for_no_old_read() -> None:
    reader = Reader()
    assert reader.take(1) == []
    assert reader.take(30) == []
    assert not reader.feed.waits(1)
    assert reader.feed.waits(30)
    reader.land()
    assert reader.wakes == 0, "a dropped read wakes no reader"
    reader.land()
    assert reader.wakes == 1
    assert reader.take(30)[0] == 30
    reader.feed.stop()
    assert not reader.feed.waits(30)


def test_a_failed_read_is_raised_once_and_is_final() -> None:
    reader = Reader()
    assert reader.take(1) == []
    reader.storage.read_hook = _fail_with_eio
    reader.land()
    with pytest.raises(JournalFailed):
        reader.take(1)
    with pytest.raises(JournalFailed):
        reader.journal.log.sync()


def flip(reader: Reader, entry: int) -> None:
    """Flip a bit of an entry on the disk, or flip it back."""
    for name in reader.storage.listdir():
        content = bytearray(reader.storage.content(name))
        at = content.find(command(entry, 60)[1:])
        if name.endswith(".segment") and at >= 0:
            content[at] ^= 1
            reader.storage.rot(name, bytes(content))
            return
    raise AssertionError(f"no segment has entry {entry}")


@pytest.mark.parametrize("damaged", [1, 3])
def test_a_damaged_entry_is_noted_and_waited_for_and_what_lies_before_it_is_read(
    damaged: int,
) -> None:
    reader = Reader()
    name = next(name for name in reader.storage.listdir() if name.endswith(".segment"))
    whole = reader.storage.content(name)
    flip(reader, damaged)
    assert reader.take(1) == []
    reader.land()
    assert reader.take(1) == list(range(1, damaged))
    assert list(reader.journal.damages.entries) == [damaged]
    assert reader.take(damaged) == []
    assert reader.feed.waits(damaged)
    assert not reader.disk.works, "it is not read again before it is whole"
    reader.storage.rot(name, whole)
    reader.journal.rewritten(reader.journal.damaged_entries()[0])
    assert not reader.feed.waits(damaged)
    assert reader.take(damaged) == []
    reader.land()
    assert reader.take(damaged)[0] == damaged


def test_a_damaged_entry_is_noted_where_one_alone_is_read() -> None:
    """Not final: it is read when it is whole again."""
    reader = Reader()
    log = reader.journal.log
    name = next(name for name in reader.storage.listdir() if name.endswith(".segment"))
    whole = reader.storage.content(name)
    flip(reader, 3)
    assert log.read_or_note(3) is None
    assert log.read_or_note(3) is None
    assert reader.journal.damages.found_total == 1
    assert log.read_or_note(2) == command(2, 60)
    reader.storage.rot(name, whole)
    reader.journal.rewritten(reader.journal.damaged_entries()[0])
    assert log.read_or_note(3) == command(3, 60)


def _fail_with_eio(_: str) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_segment_that_goes_while_it_is_to_be_read_ends_nothing() -> None:
    reader = Reader()
    assert reader.take(1) == []
    for index in (40, 50):
        take(reader.journal, [], index=index)
    clean_up(reader.journal)
    assert reader.journal.log.first_whole_index == 41
    reader.land()
    with pytest.raises(IndexError):
        reader.take(1)
    assert reader.take(41) == []
    reader.land()
    assert reader.take(41)[0] == 41


def test_a_file_that_is_gone_and_should_not_be_is_final() -> None:
    reader = Reader()
    assert reader.take(1) == []
    reader.storage.remove(next(n for n in reader.storage.listdir() if n.endswith(".segment")))
    reader.land()
    with pytest.raises(JournalFailed, match="No such file"):
        reader.take(1)


def test_reads_that_end_at_once_wake_no_reader() -> None:
    reader = Reader()
    feed = LogReader(reader.journal.log, Inline(), reader._wake, lambda: 60)
    found: list[Entry] = []
    while len(found) < 60:
        found += feed.take(len(found) + 1, EVERYTHING, 1000)
    assert reader.wakes == 0


# --- the leader ---


class Peer:
    """A leader's side towards one peer, with nothing in memory and a disk that waits."""

    def __init__(self, journal: Journal) -> None:
        self.sent: list[dict[str, Any]] = []
        self.disk = Disk()
        self.node = PeerNode("b")
        config = RaftConfig(
            name="a",
            peers={"b": ("127.0.0.1", 1)},
            bind=("127.0.0.1", 2),
            cluster_id=CLUSTER,
            batch_bytes=150,
        )
        self.replication = Replication(
            [self.node],
            config,
            journal,
            self,
            clock=lambda: 0.0,
            counters=RaftCounters(),
            worker=self.disk,
            wake=lambda: None,
        )

    def send(self, node: PeerNode, message: dict[str, Any]) -> bool:
        self.sent.append(message)
        return True

    def lead(self, term: int, match_index: int) -> None:
        """A new leadership, in which the peer has the log up to there."""
        self.replication.begin(term * 10)
        self.replication.connected(self.node, term * 10)
        progress = self.replication.peers[self.node]
        progress.probing = False
        progress.match_index = match_index
        progress.next_index = match_index + 1

    def round(self, term: int) -> None:
        self.replication.send(term, 1, term * 10 + 1, heartbeat=False)


def nothing_old_is_sent() -> None:
    """Entries that were read for an earlier leadership are not the log any more."""
    journal = Reader(entries=5).journal
    journal.log.set_term(1, "a")
    fill(journal, 3, size=60)
    journal.log.sync()
    peer = Peer(journal)
    peer.lead(1, 5)
    peer.round(1)
    peer.disk.go_on()
    journal.log.truncate(6 - journal.log.first_index)
    journal.log.set_term(3, "a")
    for index in (6, 7, 8):
        journal.log.add(command(index, 70), index, 3)
    journal.log.sync()
    peer.lead(3, 5)
    peer.round(3)
    peer.disk.go_on()
    peer.round(3)
    entries = [entry for message in peer.sent for entry in message["entries"]]
    assert entries
    assert entries == journal.log.entries(6, EVERYTHING)


def test_nothing_that_was_read_for_an_earlier_leadership_is_sent() -> None:
    nothing_old_is_sent()


# --- the node ---


class Patient(RaftNode):
    """A node whose reads end when the test says so."""

    def __init__(self, config: RaftConfig, environment: RaftEnvironment) -> None:
        self.disk = Disk()
        workers = replace(environment.workers, reads=self.disk)
        super().__init__(config, replace(environment, workers=workers))


def behind(world: World, name: str, rounds: int = 20) -> None:
    """Entries that a node misses, far beyond what is kept in memory."""
    world.network.isolate(name)
    leader = world.elect()
    for _ in range(rounds):
        world.commit(leader, 5, 900)
    world.network.heal()


def disk_of(node: SimNode) -> Disk:
    assert isinstance(node.node, Patient)
    return node.node.disk


def run_with_reads(world: World, until: Callable[[], bool]) -> None:
    """Run the world until a condition holds, with all reads done as they come."""

    def done() -> bool:
        for node in world.nodes.values():
            disk_of(node).go_on()
        return until()

    world.run_until(done, 30.0)


@pytest.mark.parametrize("snapshot_bytes", [limits.SNAPSHOT_BYTES, 20_000], ids=["log", "snapshot"])
def test_a_hanging_disk_delays_only_the_follower_that_is_behind(snapshot_bytes: int) -> None:
    world = World("abc", seed=3, node_class=Patient, snapshot_bytes=snapshot_bytes).start()
    leader = world.elect("a")
    run_with_reads(world, lambda: leader.node.is_leader)
    world.network.isolate("c")
    for _ in range(20):
        found = [world.submit(leader, world.payload(900)) for _ in range(5)]
        run_with_reads(world, lambda: all(one.outcomes for one in found))  # noqa: B023  # at once
    run_with_reads(world, lambda: leader.node.applied_index == leader.node.last_index)
    world.network.heal()
    world.run(1.0)
    term, has = leader.node.term, world.nodes["c"].node.last_index
    assert disk_of(leader).works, "it waits for the disk"
    turns = leader._turn_number
    for _ in range(10):
        world.commit(leader, 1)
        world.run(0.2)
    assert (leader.node.term, leader.node.is_leader) == (term, True)
    assert world.nodes["c"].node.last_index == has
    assert len(disk_of(leader).works) == 1, "one read, however long it takes"
    assert leader._turn_number - turns < 600, "no turns while it waits"
    run_with_reads(world, world.converged)
    world.checks.at_rest()


def keeps_reads_off_the_loop(node_class: NodeClass = RaftNode) -> None:
    """A leader sends a follower the log, and another one a snapshot, and reads nothing itself."""
    for snapshot_bytes in (limits.SNAPSHOT_BYTES, 40_000):
        world = World("abc", seed=5, node_class=node_class, snapshot_bytes=snapshot_bytes).start()
        leader = world.elect("a")
        leader.sync_seconds = 0.05
        behind(world, "c")
        waits = OnLoop(leader)
        world.run_until(world.converged, 60.0)
        assert not waits.found
        read = {name.partition(".")[2] for operation, name in waits.beside if operation == "read"}
        assert read >= ({"snapshot"} if snapshot_bytes == 40_000 else {"segment"})
        world.checks.at_rest()


def test_a_follower_that_is_far_behind_stops_no_loop() -> None:
    keeps_reads_off_the_loop()


def test_a_former_leader_holds_nothing_for_a_peer() -> None:
    world = World("abc", seed=6, node_class=Patient, snapshot_bytes=20_000).start()
    leader = world.elect("a")
    world.network.isolate("c")
    for _ in range(20):
        found = [world.submit(leader, world.payload(900)) for _ in range(5)]
        run_with_reads(world, lambda: all(one.outcomes for one in found))  # noqa: B023  # at once
    world.network.heal()
    assert leader.journal is not None
    pins = leader.journal._snapshots._pins
    world.run_until(lambda: bool(pins))
    world.run(0.5)
    leader.node.transfer("b", lambda _: None)
    run_with_reads(world, lambda: world.nodes["b"].node.is_leader)
    world.run(0.1)
    assert not pins
    run_with_reads(world, world.converged)
    world.checks.at_rest()
