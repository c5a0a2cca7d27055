"""Snapshots of the journal: what they hold, what they let go, what they keep."""

from __future__ import annotations

import errno
import os
import random
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from node.journal import limits
from node.journal.errors import JournalDamaged, JournalFailed, JournalRefused, SnapshotFailed
from node.journal.io.jobs import Job
from node.journal.journal import Journal
from node.journal.log import PLACEHOLDER
from node.raft.errors import RaftStopped
from node.raft.pysyncobj.library import LibraryLog
from node.testing.disk import SimStorage
from tests.support.journals import command, fill, journal_with, open_journal
from tests.support.snapshots import clean_up, flipped, kept_entry, live_entries, state_at, take


def filled(storage: SimStorage, count: int = 30, size: int = 60) -> Journal:
    """A journal of `count` entries over several segments, all synced."""
    journal = open_journal(storage)
    journal.log.set_term(1, "alpha")
    for _ in range(0, count, 3):
        fill(journal, 3, size=size)
        journal.log.sync()
    return journal


def names(storage: SimStorage, ending: str) -> list[str]:
    return [name for name in storage.listdir() if name.endswith(ending)]


def reopened(storage: SimStorage) -> Journal:
    storage.crash()
    return open_journal(storage)


def test_a_snapshot_is_read_back_in_any_pieces_also_after_a_restart() -> None:
    storage = SimStorage()
    journal = filled(storage)
    meta = take(journal, [3, 5, 20], index=25, size=700_000)
    assert (meta.index, meta.term, meta.previous_term, meta.live_count) == (25, 1, 1, 3)
    for _ in range(2):
        assert journal.snapshot == meta
        whole = state_at(25, 700_000)
        assert journal.read_state(meta, 0, 1 << 30) == whole
        for offset, size in [(0, 1), (262_143, 2), (300_000, 300_000), (699_999, 5), (700_000, 1)]:
            assert journal.read_state(meta, offset, size) == whole[offset : offset + size]
        assert list(live_entries(journal, meta)) == [3, 5, 20]
        assert kept_entry(journal, 5) == (command(5, 60), 5, 1)
        journal = reopened(storage)


def test_live_entries_are_read_in_pieces_on_demand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A million at the start of a transfer would hold up the loop for as long as an election."""
    monkeypatch.setattr(limits, "LOCATIONS_PER_RECORD", 10)
    storage = SimStorage()
    journal = filled(storage, 300)
    live = list(range(2, 242))
    meta = take(journal, live, index=250)
    reads = storage.reads
    indexes = live_entries(journal, meta)
    assert storage.reads == reads
    assert [next(indexes) for _ in range(10)] == live[:10]
    assert storage.reads - reads <= 2
    assert list(indexes) == live[10:]


def test_the_second_snapshot_frees_what_the_first_does_not_need() -> None:
    storage = SimStorage()
    journal = filled(storage)
    segments = names(storage, ".segment")
    take(journal, [2], index=12)
    clean_up(journal)
    assert names(storage, ".segment") == segments
    assert (journal.log.first_index, journal.log.first_whole_index) == (1, 1)
    take(journal, [2, 20], index=24)
    clean_up(journal)
    assert (journal.log.first_index, journal.log.first_whole_index) == (11, 13)
    left = names(storage, ".segment")
    assert len(left) < len(segments)
    for journal in (journal, reopened(storage)):  # noqa: B020
        assert journal.log.first_index == 11
        assert [journal.log.term_at(index) for index in (11, 12, 13)] == [1, 1, 1]
        assert journal.log.read(2) == command(2, 60)
        assert journal.log.read(11) == journal.log.read(12) == PLACEHOLDER
        assert journal.log[0] == (PLACEHOLDER, 11, 1)
        assert [journal.log.read(index) for index in range(13, 31)] == [
            command(index, 60) for index in range(13, 31)
        ]
        with pytest.raises(IndexError):
            journal.log.read(3)
        with pytest.raises(IndexError):
            journal.log.entries(12, 1000)
        assert journal.log.entries(13, 0)[0] == (command(13, 60), 13, 1)


def test_live_entries_move_out_of_nearly_empty_segments() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    live = [2, 9, 21, 22, 23, 24, 25, 26, 35]
    take(journal, live, index=40)
    take(journal, live, index=50)
    clean_up(journal)
    assert names(storage, ".kept")
    before = storage.listdir()
    for journal in (journal, reopened(storage)):  # noqa: B020
        for index in live:
            assert journal.log.read(index) == command(index, 60)
            assert kept_entry(journal, index) == (command(index, 60), index, 1)
        clean_up(journal)
        assert storage.listdir() == before
    # Later most of them die, and what holds them goes.
    fill(journal, 20, size=60)
    take(journal, [22], index=60)
    take(journal, [22], index=70)
    clean_up(journal)
    assert len(names(storage, ".kept")) == 1
    assert journal.log.read(22) == reopened(storage).log.read(22) == command(22, 60)


def test_live_entries_are_read_from_any_of_them_on_without_those_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transfer that is resumed far into a snapshot costs no more than one that begins."""
    monkeypatch.setattr(limits, "LOCATIONS_PER_RECORD", 4)
    storage = SimStorage()
    journal = filled(storage, 60)
    live = list(range(2, 52))
    meta = take(journal, live, index=55)
    for first in range(len(live) + 1):
        reads = storage.reads
        assert next(live_entries(journal, meta, first), None) == dict(enumerate(live)).get(first)
        assert storage.reads - reads == (first < len(live))
        assert list(live_entries(journal, meta, first)) == live[first:]


def test_a_snapshot_of_unsynced_entries_syncs_them_first() -> None:
    storage, journal = journal_with(5, synced=False)
    take(journal, [2], index=4)
    assert journal.log.synced_index == 5
    storage.power_loss(random.Random(1))
    assert open_journal(storage).log.read(2) == command(2)


def test_b27_entries_in_a_snapshot_are_never_truncated() -> None:
    journal = filled(SimStorage())
    writer = journal.begin_snapshot(20, 1, array("Q", [3]))
    for finish in (writer.abort, lambda: take(journal, [3], index=20)):
        with pytest.raises(JournalRefused, match="entries up to 20 stay"):
            journal.log.truncate(19)
        finish()
    journal.log.truncate(20)
    assert journal.log.last_index == 20
    for refused in (
        LibraryLog(journal.log).clear,
        lambda: LibraryLog(journal.log).deleteEntriesTo(3),
    ):
        with pytest.raises(RaftStopped):
            refused()


def test_a_truncation_that_reaches_below_the_first_segment_of_the_log_is_replayed() -> None:
    """The segment where the log begins truncates entries whose segments are gone."""
    storage = SimStorage()
    journal = filled(storage, 30)
    journal.log.truncate(20)
    fill(journal, 2, size=60, term=2)
    journal.log.sync()
    for index in (21, 22):
        take(journal, [4], index=index)
        fill(journal, 1, size=60, term=2)
        journal.log.sync()
    expected = (journal.log.last_index, journal.log.last_term)
    clean_up(journal)
    journal = reopened(storage)
    assert journal.log.first_index == 20
    assert (journal.log.last_index, journal.log.last_term) == expected
    assert [journal.log.term_at(index) for index in (20, 21)] == [1, 2]
    assert journal.log.read(4) == command(4, 60)


def test_a_snapshot_that_cannot_be_is_refused() -> None:
    journal = filled(SimStorage())
    live = array("Q", [3])
    for index, term in [(1, 1), (31, 1), (20, 2)]:
        with pytest.raises(
            JournalRefused, match=f"entry {index} of term {term}: it is not in this log"
        ):
            journal.begin_snapshot(index, term, live)
    with pytest.raises(JournalRefused, match="entry 30 cannot be live"):
        journal.begin_snapshot(20, 1, array("Q", [3, 30]))
    take(journal, [3], index=20)
    with pytest.raises(SnapshotFailed, match="there is a snapshot of entry 20"):
        journal.begin_snapshot(20, 1, live)
    writer = journal.begin_snapshot(25, 1, live)
    with pytest.raises(SnapshotFailed, match="another snapshot is being written"):
        journal.begin_snapshot(26, 1, live)
    writer.abort()
    writer.abort()
    with pytest.raises(SnapshotFailed, match="has already ended"):
        writer.write(b"x")
    take(journal, [3], index=25)
    clean_up(journal)
    writer = journal.begin_snapshot(28, 1, array("Q", [4]))
    with pytest.raises(JournalRefused, match="entry 4 is live but not in the journal"):
        writer.write(b"state")
    for wrong in ([27, 27], [27, 26], [4, 3]):
        writer = journal.begin_snapshot(28, 1, array("Q", wrong))
        with pytest.raises(JournalRefused, match=r"out of order|is live but not in"):
            writer.finish()
    take(journal, [3], index=28)


def test_a_snapshot_that_leaves_no_room_for_the_log_is_refused() -> None:
    storage = SimStorage(capacity_bytes=20_000)
    journal = filled(storage)
    with pytest.raises(SnapshotFailed, match="no room for a snapshot of 20028 bytes"):
        journal.begin_snapshot(20, 1, array("Q", [3]), state_bytes_hint=20_000)
    journal.begin_snapshot(20, 1, array("Q", [3]), state_bytes_hint=1_000).abort()
    assert not [name for name in storage.listdir() if "snapshot" in name]


def test_a_pinned_snapshot_stays_with_all_it_needs_until_it_is_unpinned() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    pinned = take(journal, [2, 3, 4], index=10)
    journal.pin(pinned)
    journal.pin(pinned)
    for index in (20, 30, 40):
        take(journal, [2], index=index)
        clean_up(journal)
    journal.unpin(pinned)
    clean_up(journal)
    assert list(live_entries(journal, pinned)) == [2, 3, 4]
    assert journal.read_state(pinned, 0, 100) == state_at(10)
    assert kept_entry(journal, 3) == (command(3, 60), 3, 1)
    journal.unpin(pinned)
    clean_up(journal)
    assert len(names(storage, ".snapshot")) == 2
    with pytest.raises(SnapshotFailed, match="is not kept any more"):
        journal.read_state(pinned, 0, 100)
    with pytest.raises(SnapshotFailed, match="is not kept any more"):
        journal.pin(pinned)
    with pytest.raises(IndexError):
        kept_entry(journal, 3)
    assert kept_entry(journal, 2) == kept_entry(reopened(storage), 2)


def until_it_syncs(storage: SimStorage, journal: Journal) -> Job[Any]:
    """Cleans up until the file of a compaction has to come to the disk."""
    journal.release()
    while True:
        assert journal.compact_step(1)
        work = journal.blocking_work()
        if work is not None and any(map(storage.content, names(storage, ".kept.tmp"))):
            return work


def test_an_unneeded_file_is_removed_on_another_thread() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    for index in (40, 50):
        take(journal, [2, 20], index=index)
    before = storage.listdir()
    journal.release()
    while storage.listdir() == before:
        assert journal.compact_step(1)
        work = journal.blocking_work()
        assert work is None or storage.listdir() == before
        if work is not None:
            work.run()
    [gone] = set(before) - set(storage.listdir())
    assert gone.endswith(".segment")
    clean_up(journal)
    assert [journal.log.read(index) for index in (2, 20)] == [command(2, 60), command(20, 60)]


def reads_by(storage: SimStorage, work: Callable[[], object]) -> int:
    """Number of disk reads that the work took."""
    before = storage.reads
    work()
    return storage.reads - before


def test_the_reads_of_a_cleanup_run_on_another_thread() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    for index in (40, 50):
        take(journal, [2, 20], index=index)
    journal._snapshots.retire()
    here = beside = 0
    more = True
    while more:
        work = journal.blocking_work()
        beside += reads_by(storage, work.run) if work is not None else 0
        before = storage.reads
        more = journal.compact_step(1)
        here += storage.reads - before
    assert (here, beside) == (0, 3), "the places, and two entries far from each other"
    assert names(storage, ".kept")
    assert storage.open_files <= 3, "the journal's own, and none of the cleaning up"
    assert [journal.log.read(index) for index in (2, 20)] == [command(2, 60), command(20, 60)]


def test_damaged_places_that_cleaning_up_reads_on_another_thread_end_the_journal() -> None:
    """Damaged entries do not: `test_scrub.py`."""
    storage = SimStorage()
    journal = filled(storage, 60)
    metas = [take(journal, [2, 20], index=index) for index in (40, 50)]
    journal._snapshots.retire()
    # The last record but one of the snapshot is its places.
    name = metas[0].name
    at = len(storage.content(name)) - 120
    storage.rot(name, flipped(storage.content(name), at))
    with pytest.raises(JournalDamaged, match=name):
        go_on_beside(journal)
    with pytest.raises(JournalFailed):
        journal.log.sync()


def go_on_beside(journal: Journal) -> None:
    """Cleans up as a node does, with all that blocks done on another thread."""
    while journal.compact_step(1):
        work = journal.blocking_work()
        if work is not None:
            work.run()


def test_a_disk_that_does_not_read_for_cleaning_up_ends_the_journal() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    for index in (40, 50):
        take(journal, [2, 20], index=index)
    storage.read_hook = lambda name: _fail_with(errno.EIO)
    with pytest.raises(JournalFailed, match="the disk failed"):
        clean_up(journal)


def test_a_journal_that_ends_while_entries_are_copied_leaves_nothing_open() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    for index in (40, 50):
        take(journal, [2, 20], index=index)
    journal.release()
    while not names(storage, ".kept.tmp") or journal.blocking_work() is None:
        assert journal.compact_step(1)
    work = journal.blocking_work()
    assert work is not None
    journal.close()
    work.run()
    assert not names(storage, ".kept.tmp")
    assert storage.open_files == 0
    clean_up(reopened(storage))
    assert len(names(storage, ".kept")) == 1


def test_a_compaction_waits_for_its_sync_on_another_thread() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    for index in (40, 50):
        take(journal, [2, 20], index=index)
    work = until_it_syncs(storage, journal)
    syncs = storage.syncs
    assert not names(storage, ".kept")
    work.run()
    assert storage.syncs == syncs + 1
    assert len(names(storage, ".kept")) == 1
    assert journal.stats().snapshots.compacted_files == 0, "it counts once it has landed"
    while journal.compact_step(1):
        pass
    assert len(names(storage, ".kept")) == 1
    assert journal.log.read(20) == command(20, 60)


def test_a_sync_that_fails_on_another_thread_gives_the_compaction_up() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    for index in (40, 50):
        take(journal, [2, 20], index=index)
    work = until_it_syncs(storage, journal)
    storage.hook = lambda operation, name: _fail_with(errno.EIO)
    work.run()
    storage.hook = None
    with pytest.raises(SnapshotFailed, match="the compaction was given up: the disk failed"):
        journal.compact_step(1)
    assert not journal.compact_step(1)
    clean_up(journal)
    assert len(names(storage, ".kept")) == 1


def _fail_with(code: int) -> None:
    raise OSError(code, os.strerror(code))


def test_a_snapshot_that_begins_while_entries_move_finds_them_after_a_restart() -> None:
    """However far the cleaning up is when it begins, and when it ends."""
    storage = SimStorage()
    steps = 1
    for begins in range(100):
        if begins >= steps:
            break
        storage = SimStorage()
        journal = filled(storage, 60)
        live = [2, 3, 20, 33]
        for index in (40, 50):
            take(journal, live, index=index)
        journal._snapshots.retire()
        steps = 0
        writer = None
        while journal.compact_step(1):
            if steps == begins:
                writer = journal.begin_snapshot(55, 1, array("Q", live))
                writer.write(b"12345678")
            steps += 1
        if writer is None:
            break
        writer.write(b"and the rest")
        writer.finish()
        clean_up(journal)
        take(journal, live, index=58)
        clean_up(journal)
        for later in (journal, reopened(storage)):
            assert [later.log.read(index) for index in live] == [command(i, 60) for i in live]
    assert steps > 10


def test_cleaning_up_comes_in_pieces() -> None:
    storage = SimStorage()
    journal = filled(storage, 120)
    for index in (90, 100):
        take(journal, range(2, 80, 7), index=index)
    worst = 0
    journal.release()
    more = True
    while more:
        before = storage.operations
        more = journal.compact_step(1)
        worst = max(worst, storage.operations - before)
    assert worst <= 6, "the publishing of one file, with the sync before it"


def test_the_metrics_show_what_snapshots_retain() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    grown = journal.stats().bytes_since_snapshot
    assert grown == journal.stats().disk_bytes
    assert journal.stats().snapshots.live_ratio == 1.0
    for index in (40, 50):
        take(journal, [1, 2, 20], index=index)
    clean_up(journal)
    stats = journal.stats()
    assert 0 < stats.bytes_since_snapshot < grown
    figures = stats.snapshots
    assert (figures.count, figures.index, figures.state_bytes) == (2, 50, 60)
    assert (figures.entries, figures.live_bytes) == (3, 3 * 96)
    assert figures.disk_bytes == sum(len(storage.content(n)) for n in names(storage, ".snapshot"))
    assert figures.compacted_files == len(names(storage, ".kept"))
    assert figures.segments + figures.compacted_files >= 1
    assert 0 < figures.live_ratio < 1
    assert reopened(storage).stats().snapshots == figures


@pytest.mark.parametrize("ending", [".snapshot", ".kept", ".segment"])
def test_a_read_that_fails_is_final(ending: str) -> None:
    """Unreadable bytes may be bytes that the disk lost: the node has to stop."""
    storage = SimStorage()
    journal = filled(storage, 60)
    for index in (40, 50):
        meta = take(journal, [1, 2, 3, 20], index=index)
    clean_up(journal)
    for name in names(storage, ending):
        storage.remove(name)
    journal._snapshots.files.close()
    with pytest.raises(JournalFailed, match="the disk failed"):  # noqa: PT012
        journal.read_state(meta, 0, 1)
        for index in (1, 20):
            journal.log.read(index)
    with pytest.raises(JournalFailed):
        journal.log.add(b"x", 61, 1)


def test_a_file_that_cannot_be_removed_is_reported_and_removed_at_the_next_start() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    for index in (40, 50):
        take(journal, [2], index=index)

    def refuse(operation: str, name: str) -> None:
        if operation == "unlink":
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    storage.hook = refuse
    before = len(names(storage, ".segment"))
    with pytest.raises(SnapshotFailed, match=r"could not remove 0000000002-.* and 12 more"):
        clean_up(journal)
    assert len(names(storage, ".segment")) == before
    fill(journal, 2)
    journal.log.sync()
    storage.hook = None
    journal = reopened(storage)
    clean_up(journal)
    assert len(names(storage, ".segment")) < before
    assert journal.log.read(2) == command(2, 60)


def test_opening_reads_no_segment_below_the_log() -> None:
    storage = SimStorage()
    journal = filled(storage, 300)
    live = range(1, 270)
    for index in (280, 290):
        take(journal, live, index=index)
    clean_up(journal)
    journal.close()
    total = sum(len(storage.content(name)) for name in names(storage, ".segment"))
    storage.read_bytes = 0
    journal = open_journal(storage)
    snapshots = sum(len(storage.content(name)) for name in names(storage, ".snapshot"))
    headers = len(names(storage, ".segment")) * 400
    assert storage.read_bytes < headers + 2 * snapshots + 40 * 100
    assert total > 90 * 300
    assert journal.log.read(100) == command(100, 60)
