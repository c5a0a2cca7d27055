"""Consecutive entries: read in runs, the same bytes and the same checks as one by one."""

from __future__ import annotations

import pytest

from node.journal import limits, records
from node.journal.errors import JournalDamaged, JournalFailed
from node.journal.journal import Journal
from node.journal.limits import JournalLimits
from node.journal.segments import segment_name
from node.testing.disk import SimStorage
from tests.support.journals import (
    NO_ROOM,
    ONE_SEGMENT,
    SMALL,
    busy_script,
    command,
    fill,
    open_journal,
)
from tests.support.snapshots import kept_entry, take

EVERYTHING = 1 << 30
FIRST_SEGMENT = segment_name(1, 1)


def commands(journal: Journal, first: int = 1, count: int | None = None) -> list[bytes]:
    return [entry[0] for entry in journal.log.entries(first, EVERYTHING, count)]


def in_groups(journal: Journal, groups: int, *, of: int, size: int) -> None:
    for _ in range(groups):
        fill(journal, of, size=size)
        journal.log.sync()


@pytest.mark.parametrize("journal_limits", [SMALL, ONE_SEGMENT], ids=["segments", "one segment"])
def test_every_range_equals_single_reads(journal_limits: JournalLimits) -> None:
    """Over the borders of segments, over votes, hints and entries that were replaced."""
    journal = open_journal(SimStorage(), limits=journal_limits)
    for step in busy_script(journal):
        step()
    journal.log.sync()
    singly = journal.log[:]
    assert len(singly) == 15
    for first in range(1, 16):
        for count in range(1, 17):
            assert journal.log.entries(first, EVERYTHING, count) == singly[first - 1 :][:count]


def test_one_read_serves_many_entries_of_many_groups() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=ONE_SEGMENT)
    in_groups(journal, 100, of=10, size=100)
    reads, read_bytes = storage.reads, storage.read_bytes
    assert commands(journal) == [command(index, 100) for index in range(1, 1001)]
    assert storage.reads - reads == 1
    assert storage.read_bytes - read_bytes < 1000 * (100 + records.RECORD_BYTES) * 1.1


def test_a_run_is_bounded_and_an_entry_beyond_the_bound_is_read_alone() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=ONE_SEGMENT)
    large = limits.RUN_BYTES + 1
    # Ten of these make one run, but not eleven.
    sizes = [limits.RUN_BYTES // 10 - 100] * 20 + [large, 10, 10, large]
    for index, size in enumerate(sizes, 1):
        journal.log.add(command(index, size), index, 1)
    journal.log.sync()
    reads = storage.reads
    assert list(map(len, commands(journal))) == sizes
    assert storage.reads - reads == 5
    assert storage.largest_read_bytes == large + records.RECORD_BYTES


def test_a_run_ends_with_its_segment() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=JournalLimits(segment_bytes=4096, cache_bytes=0))
    in_groups(journal, 30, of=5, size=100)
    segments = journal.stats().segments
    assert segments > 4
    reads = storage.reads
    assert commands(journal) == [command(index, 100) for index in range(1, 151)]
    assert 0 <= segments - (storage.reads - reads) <= 1, "the newest may hold no entry yet"


def test_cached_entries_are_not_read_and_unwritten_entries_are_cached() -> None:
    """Old entries on the disk, one of them in memory, others on the way, the newest gathered."""
    storage = SimStorage()
    journal = open_journal(storage, limits=JournalLimits(cache_bytes=1000))
    in_groups(journal, 1, of=20, size=100)
    assert journal.log.read(5) == command(5, 100)
    fill(journal, 5, size=100)
    job = journal.log.begin_sync()
    assert job is not None
    fill(journal, 5, size=100)
    reads, read_bytes = storage.reads, storage.read_bytes
    assert commands(journal) == [command(index, 100) for index in range(1, 31)]
    assert storage.reads - reads == 2, "entries 1 to 4, and those from 6 on"
    assert storage.read_bytes - read_bytes < 20 * (100 + records.RECORD_BYTES)
    job.run()
    journal.log.finish_sync(job)
    journal.log.sync()
    assert commands(journal) == [command(index, 100) for index in range(1, 31)]


def test_catching_up_through_old_entries_leaves_the_fresh_ones_in_memory() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=JournalLimits(cache_bytes=20_000))
    in_groups(journal, 50, of=10, size=100)
    held = journal.stats().cached_bytes
    for first in range(1, 401, 100):
        commands(journal, first, 100)
    assert journal.stats().cached_bytes == held
    reads = storage.reads
    assert commands(journal, 470) == [command(index, 100) for index in range(470, 501)]
    assert storage.reads == reads


def test_sending_a_snapshot_leaves_the_fresh_entries_in_memory() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=JournalLimits(cache_bytes=20_000))
    in_groups(journal, 40, of=10, size=100)
    take(journal, range(2, 301))
    in_groups(journal, 1, of=10, size=100)
    for index in range(2, 301):
        assert kept_entry(journal, index) == (command(index, 100), index, 1)
    reads = storage.reads
    assert commands(journal, 380) == [command(index, 100) for index in range(380, 411)]
    assert storage.reads == reads


def damage_of(content: bytes, journal_limits: JournalLimits, *, singly: bool) -> str:
    """Read the six entries of `run_of_six`; return the text of the error, empty without one."""
    storage, journal = run_of_six(journal_limits)
    storage.rot(FIRST_SEGMENT, content)
    try:
        for index in range(1, 7) if singly else ():
            journal.log.read(index)
        found = commands(journal)
    except JournalDamaged as damage:
        with pytest.raises(JournalFailed):
            commands(journal)
        return str(damage)
    assert found == [command(index) for index in range(1, 7)]
    return ""


def run_of_six(journal_limits: JournalLimits) -> tuple[SimStorage, Journal]:
    storage = SimStorage()
    journal = open_journal(storage, limits=journal_limits)
    in_groups(journal, 2, of=3, size=20)
    return storage, journal


@pytest.mark.slow
def test_b07_each_bad_byte_of_a_run_is_found_as_in_a_single_read() -> None:
    content = run_of_six(NO_ROOM)[0].content(FIRST_SEGMENT)
    found = set()
    for at in range(content.index(records.MAGIC), len(content)):
        rotten = content[:at] + bytes((content[at] ^ 0x40,)) + content[at + 1 :]
        in_a_run = damage_of(rotten, NO_ROOM, singly=False)
        assert in_a_run == damage_of(rotten, NO_ROOM, singly=True)
        found.add(in_a_run)
    # Beside the six entries there are heads of groups, which are not read here.
    assert len(found) == 7
    assert sum("is not what was written" in problem for problem in found) == 6


@pytest.mark.slow
def test_b07_a_run_that_is_cut_off_is_damage_of_the_first_entry_that_is_not_whole() -> None:
    content = run_of_six(NO_ROOM)[0].content(FIRST_SEGMENT)
    for size in range(content.index(command(1)), len(content)):
        in_a_run = damage_of(content[:size], NO_ROOM, singly=False)
        assert in_a_run == damage_of(content[:size], NO_ROOM, singly=True) != ""


def test_b07_an_entry_of_another_place_in_a_run_is_refused() -> None:
    """The disk returns one entry's sector where another's belongs: each is whole alone."""
    content = run_of_six(NO_ROOM)[0].content(FIRST_SEGMENT)
    whole_bytes = records.RECORD_BYTES + 20
    second, third = (content.index(command(index)) - records.RECORD_BYTES for index in (2, 3))
    record = content[third : third + whole_bytes]
    swapped = content[:second] + record + content[second + whole_bytes :]
    assert "entry 2 is not what was written" in damage_of(swapped, NO_ROOM, singly=False)
