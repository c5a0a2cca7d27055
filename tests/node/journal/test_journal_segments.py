"""Segments: when a new one begins, what it repeats, and positions beyond 32 bits."""

from __future__ import annotations

import pytest

from node.journal.limits import JournalLimits
from node.journal.records import seed_of
from node.journal.segments import Preamble, SegmentHeader, parse_segment_name, segment_name
from node.testing.disk import SimStorage
from tests.support.journals import (
    CLUSTER,
    NODE,
    ONE_SEGMENT,
    SMALL,
    command,
    decode_segment_header,
    fill,
    journal_with,
    open_journal,
    state_of,
)


def segments_of(storage: SimStorage) -> list[str]:
    return [name for name in storage.listdir() if parse_segment_name(name)]


def headers_of(storage: SimStorage) -> list[SegmentHeader]:
    return [decode_segment_header(storage.content(name))[0] for name in segments_of(storage)]


def test_the_sync_that_fills_a_segment_begins_the_next() -> None:
    storage, journal = journal_with(2, size=200, synced=False)
    assert len(segments_of(storage)) == 1
    journal.log.sync()
    assert segments_of(storage) == [segment_name(1, 1), segment_name(2, 3)]
    assert not journal.log.dirty
    fill(journal, 1)
    journal.log.sync()
    assert len(segments_of(storage)) == 2


def test_a_new_segment_and_its_name_are_durable_before_it_is_used() -> None:
    storage = SimStorage()
    open_journal(storage).close()
    journal = open_journal(storage)
    seen: list[tuple[str, str]] = []
    storage.hook = lambda operation, name: seen.append((operation, name))
    fill(journal, 2, size=200)
    journal.log.sync()
    first, second = segment_name(1, 1), segment_name(2, 3)
    assert seen == [
        ("write", first),
        ("sync", first),
        ("create", second + ".tmp"),
        ("write", second + ".tmp"),
        ("sync", second + ".tmp"),
        ("rename", second),
        ("sync_folder", ""),
    ]


def test_segments_follow_each_other_without_gaps_and_name_their_beginning() -> None:
    storage = SimStorage()
    journal = open_journal(storage)
    for term in range(1, 9):
        fill(journal, 3, size=120, term=term)
        journal.log.sync()
    headers = headers_of(storage)
    assert [header.sequence for header in headers] == list(range(1, len(headers) + 1))
    position = 0
    for header, name in zip(headers, segments_of(storage), strict=True):
        assert header.base == position
        assert (header.cluster_id, header.node) == (CLUSTER, NODE)
        assert header.previous_term == journal.log.term_at(header.first_index - 1)
        position += len(storage.content(name))


def test_a_segment_that_begins_at_the_same_index_as_an_earlier_one_keeps_its_order() -> None:
    storage, journal = journal_with(1, synced=False)
    for term in range(1, 6):
        fill(journal, 4, size=150, term=term)
        journal.log.sync()
        journal.log.truncate(1)
    fill(journal, 2, term=9)
    expected = state_of(journal)
    journal.close()
    firsts = [header.first_index for header in headers_of(storage)]
    assert len(firsts) > 4
    assert len(set(firsts)) < len(firsts)
    assert state_of(open_journal(storage)) == expected


def test_a_truncation_reaches_back_over_segments() -> None:
    storage = SimStorage()
    journal = open_journal(storage)
    for _ in range(10):
        fill(journal, 3, size=150)
        journal.log.sync()
    assert len(segments_of(storage)) >= 10
    journal.log.truncate(4)
    fill(journal, 2, term=2)
    assert [entry[1:] for entry in journal.log[3:]] == [(4, 1), (5, 2), (6, 2)]
    expected = state_of(journal)
    journal.close()
    assert state_of(open_journal(storage)) == expected


@pytest.mark.parametrize("end", [1 << 31, 1 << 32, 1 << 33, 1 << 40, 1 << 63])
def test_b14_positions_have_64_bits(end: int) -> None:
    """The log crosses the boundary with small segments, and inside a single one."""
    for limits in (SMALL, ONE_SEGMENT):
        storage = SimStorage()
        base = end - 700
        header = SegmentHeader(1, base, 1, 0, CLUSTER, NODE)
        start = header.encode()
        opening = Preamble(0, None, 0).encode(base + len(start), base, seed_of(start))
        storage.replace(segment_name(1, 1), start + opening)
        journal = open_journal(storage, limits=limits)
        for _ in range(10):
            fill(journal, 2, size=90)
            journal.log.sync()
        journal.log.truncate(17)
        fill(journal, 5, size=90, term=2)
        expected = state_of(journal)
        assert [entry[0] for entry in expected[0]] == [command(i, 90) for i in range(1, 23)]
        journal.close()
        again = open_journal(storage, limits=limits)
        assert state_of(again) == expected
        assert base < end < base + again.stats().disk_bytes, "the boundary was crossed"


def test_an_entry_larger_than_a_segment_and_than_a_read_still_fits() -> None:
    limits = JournalLimits(segment_bytes=512, cache_bytes=0, replay_chunk_bytes=1)
    storage = SimStorage()
    journal = open_journal(storage, limits=limits)
    for index in range(1, 6):
        journal.log.add(command(index, 10_000), index, 1)
    journal.log.sync()
    expected = state_of(journal)
    journal.close()
    assert state_of(open_journal(storage, limits=limits)) == expected


@pytest.mark.parametrize("chunk", [1, 36, 37, 64, 1000, 1 << 20])
def test_the_read_size_of_an_opening_changes_nothing(chunk: int) -> None:
    storage = SimStorage()
    journal = open_journal(storage)
    for _ in range(6):
        fill(journal, 5, size=77)
        journal.log.sync()
    expected = state_of(journal)
    journal.close()
    limits = JournalLimits(segment_bytes=512, replay_chunk_bytes=chunk)
    assert state_of(open_journal(storage, limits=limits)) == expected


def test_opening_reads_every_byte_about_once() -> None:
    storage = SimStorage()
    limits = JournalLimits(segment_bytes=20_000, replay_chunk_bytes=4096)
    journal = open_journal(storage, limits=limits)
    for _ in range(20):
        fill(journal, 50, size=100)
        journal.log.sync()
    journal.close()
    total = sum(len(storage.content(name)) for name in storage.listdir())
    storage.read_bytes = 0
    open_journal(storage, limits=limits)
    assert total <= storage.read_bytes < 1.1 * total
