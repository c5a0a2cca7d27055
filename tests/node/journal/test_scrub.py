"""The scrub: what it reads, what it calls damaged, and repairs that leave nothing of the damage."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from node.journal import limits
from node.journal.errors import SnapshotFailed
from node.journal.io.jobs import Job
from node.testing.disk import SimStorage
from tests.support.journals import SMALL, command, fill, open_journal
from tests.support.snapshots import at_once, clean_up, flipped, take

if TYPE_CHECKING:
    from node.journal.journal import Journal
    from node.journal.locations import EntryLocation

pytestmark = pytest.mark.slow

ENTRIES = 120
OLD = (2, 20, 33)
"""Entries that the snapshots need, from before the log."""


def with_all_files() -> tuple[SimStorage, Journal]:
    """A journal with old segments, a compacted file, two snapshots and a log of some segments."""
    storage = SimStorage()
    journal = open_journal(storage, limits=SMALL)
    for last in (60, 80, ENTRIES):
        while journal.log.last_index < last:
            fill(journal, 5, size=60)
            journal.log.sync()
        if last < ENTRIES:
            take(journal, OLD, index=last)
            clean_up(journal)
    journal._cache.clear()
    names = " ".join(storage.listdir())
    assert ".kept" in names
    assert names.count(".snapshot") == 2
    return storage, journal


def place_of(journal: Journal, index: int) -> tuple[str, EntryLocation]:
    """The file of an entry, and where it lies there."""
    store = journal._snapshots.entries
    location = store.locate(index)
    assert location is not None
    return store.file_of(location).name, location


def rot(storage: SimStorage, journal: Journal, index: int) -> tuple[str, bytes, EntryLocation]:
    """Flip a bit of an entry's body; its file, what was in it, and where the entry lies there."""
    name, location = place_of(journal, index)
    whole = storage.content(name)
    storage.rot(name, flipped(whole, location.offset + 40))
    return name, whole, location


def scrubbed(journal: Journal) -> int:
    """Make a pass; the bytes that it has read."""
    read_bytes = 0
    for piece in journal.scrubbing():
        if isinstance(piece, Job):
            piece.run()
        else:
            read_bytes += piece.read_bytes
            assert piece.records <= limits.SCRUB_ENTRIES
    return read_bytes


def rewritten(journal: Journal, index: int) -> None:
    """Write a damaged entry again, as a node does with what another member sent."""
    location = journal.damages.entries[index]
    job = journal.rewriting(location, command(index, 60))
    assert job is not None
    assert job.result()
    journal.rewritten(location)


def test_a_whole_journal_is_found_whole_and_read_once() -> None:
    storage, journal = with_all_files()
    before = storage.read_bytes
    read_bytes = scrubbed(journal)
    assert not journal.damages.entries
    assert not journal.damages.doubts
    store = journal._snapshots.entries
    logged = sum(one.size for one in store.segments) - sum(one.size for one in store.below_log())
    snapshots = sum(one.size for one in journal._snapshots.catalog.snapshots)
    assert read_bytes >= logged + snapshots
    assert storage.read_bytes - before >= read_bytes


def test_each_byte_of_a_live_entry_and_of_the_log_counts() -> None:
    """Flipped one by one: an entry is named and written again as it was, anything else makes its
    file one in doubt."""
    storage, journal = with_all_files()
    kinds = set()
    for index in (*OLD, ENTRIES - 30, ENTRIES):
        name, location = place_of(journal, index)
        whole = storage.content(name)
        for at in range(location.offset, location.offset + 36 + location.size):
            storage.rot(name, flipped(whole, at))
            scrubbed(journal)
            assert list(journal.damages.entries) == [index], at
            assert not journal.damages.doubts
            rewritten(journal, index)
            assert storage.content(name) == whole
        kinds.add(name.rpartition(".")[2])
    assert kinds == {"kept", "segment"}
    assert journal.damages.repaired_total == journal.damages.found_total > 400


def test_what_is_no_entry_makes_its_file_one_in_doubt() -> None:
    """A header, a group record, a piece of a snapshot: what follows is read all the same."""
    storage, journal = with_all_files()
    store = journal._snapshots.entries
    old = {one.name for one in store.below_log()}
    segment = next(one for one in store.segments if one.name not in old)
    newest = journal.snapshot
    assert newest is not None
    for name, at in (
        (segment.name, 20),
        (segment.name, segment.header_bytes + 5),
        (newest.name, 99),
    ):
        whole = storage.content(name)
        storage.rot(name, flipped(whole, at))
        scrubbed(journal)
        assert list(journal.damages.doubts) == [name]
        assert not journal.damages.entries
        storage.rot(name, whole)
        scrubbed(journal)
        assert not journal.damages.doubts


def test_damage_to_what_nothing_needs_is_no_damage() -> None:
    """An entry of an old segment that no snapshot needs."""
    storage, journal = with_all_files()
    store = journal._snapshots.entries
    for segment in store.below_log():
        content = storage.content(segment.name)
        live = [store.locate(index) for index in OLD]
        spans = [
            range(one.offset, one.offset + 36 + one.size)
            for one in live
            if one is not None and one.file == segment.header.sequence
        ]
        dead = next(
            at
            for at in range(segment.header_bytes, segment.size)
            if not any(at in span for span in spans)
        )
        storage.rot(segment.name, flipped(content, dead))
    scrubbed(journal)
    assert not journal.damages.entries
    assert not journal.damages.doubts


def test_a_sector_that_does_not_read_is_damage_of_the_entries_in_it() -> None:
    storage, journal = with_all_files()
    bad, _ = place_of(journal, 20)

    def hook(name: str) -> None:
        if name == bad:
            raise OSError(errno.EIO, "as the test says")

    storage.read_hook = hook
    scrubbed(journal)
    assert 20 in journal.damages.entries
    storage.read_hook = None
    rewritten(journal, 20)


@pytest.mark.parametrize("reads", [0, 1])
def test_a_segment_that_does_not_read_ends_no_pass(reads: int) -> None:
    """Neither its header nor what follows: the pass goes on with the other files."""
    storage, journal = with_all_files()
    store = journal._snapshots.entries
    old = {one.name for one in store.below_log()}
    bad = next(one for one in store.segments if one.name not in old).name
    left = [reads]

    def hook(name: str) -> None:
        if name == bad:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.EIO, "as the test says")

    storage.read_hook = hook
    scrubbed(journal)
    assert bad in journal.damages.doubts or journal.damages.entries
    newest = journal.snapshot
    assert newest is not None
    assert newest.name not in journal.damages.doubts


def test_a_compaction_waits_for_a_repair() -> None:
    """A copy checks what it reads: the journal goes on, and copies what is whole again."""
    storage = SimStorage()
    journal = open_journal(storage, limits=SMALL)
    for _ in range(12):
        fill(journal, 5, size=60)
        journal.log.sync()
    for index in (40, 50):
        take(journal, OLD, index=index)
    journal._cache.clear()
    name, _, _ = rot(storage, journal, 20)
    with pytest.raises(SnapshotFailed, match="entry 20 is damaged"):
        clean_up(journal)
    assert name in storage.listdir()
    rewritten(journal, 20)
    clean_up(journal)
    assert name not in storage.listdir()
    assert at_once(journal.reading_entries([20]))[0][0] == command(20, 60)


def test_entries_for_a_peer_end_before_a_damaged_one() -> None:
    storage, journal = with_all_files()
    rot(storage, journal, 20)
    assert [index for _, index, _ in at_once(journal.reading_entries(OLD))] == [2]
    assert list(journal.damages.entries) == [20]
    rewritten(journal, 20)
    assert [index for _, index, _ in at_once(journal.reading_entries(OLD))] == list(OLD)


def test_an_entry_that_does_not_fit_is_not_written() -> None:
    storage, journal = with_all_files()
    _, _, location = rot(storage, journal, 20)
    scrubbed(journal)
    assert journal.rewriting(location, command(20, 61)) is None
    other = location._replace(offset=location.offset + 1)
    assert journal.rewriting(other, command(20, 60)) is None


@pytest.mark.parametrize("operations", range(1, 4))
def test_a_power_cut_in_a_repair_leaves_an_entry_damaged_or_whole(operations: int) -> None:
    """Each other byte of the file is as it was."""
    storage, journal = with_all_files()
    name, whole, location = rot(storage, journal, 20)
    scrubbed(journal)
    job = journal.rewriting(location, command(20, 60))
    assert job is not None
    left = iter(range(operations - 1))

    def hook(operation: str, name: str) -> None:
        if next(left, None) is None:
            raise OSError(errno.EIO, f"power: {operation} of {name}")

    storage.hook = hook
    job.run()
    storage.hook = None
    after = storage.content(name)
    span = range(location.offset, location.offset + 36 + location.size)
    assert all(after[at] == whole[at] for at in range(len(whole)) if at not in span)
