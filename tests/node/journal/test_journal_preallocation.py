"""Preallocation, the zeros ahead of the log in its last segment: what it saves, when it goes.

Nothing in it is ever read as data, whatever a power cut or the disk made of it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from itertools import product

import pytest

from node.journal import limits, records
from node.journal.errors import JournalDamaged, JournalFailed
from node.journal.segments import MARK_NAME, segment_name
from node.testing.disk import SECTOR_BYTES, SimStorage
from tests.node.raft import stranger
from tests.support.journals import (
    CLUSTER,
    NODE,
    ONE_SEGMENT,
    command,
    decode_segment_header,
    fill,
    journal_with,
    open_journal,
    state_of,
)
from tests.support.snapshot_script import leader
from tests.support.snapshots import carry

FIRST_SEGMENT = segment_name(1, 1)
ROOM = replace(ONE_SEGMENT, preallocation_bytes=8192)
LARGE = 2 * limits.PREALLOCATION_GROUP_BYTES // 3 + 100
"""Bytes of a command: two are a small group no more."""


def size_of(storage: SimStorage) -> int:
    return len(storage.content(FIRST_SEGMENT))


def test_a_small_group_takes_zeros_along_and_the_next_are_written_into_them() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=ROOM)
    seen: list[str] = []
    storage.hook = lambda operation, name: seen.append(operation)
    sizes = set()
    for _ in range(20):
        fill(journal, 2, size=100)
        journal.log.sync()
        sizes.add(size_of(storage))
    assert seen == ["write", "sync"] * 20, "nothing more is done than without room"
    (size,) = sizes
    used = journal.stats().disk_bytes
    assert used < size, "the figures count what is written"
    assert not any(storage.content(FIRST_SEGMENT)[used:])
    journal.close()
    assert size_of(storage) == used, "an orderly end leaves no room"


def test_a_large_group_adds_no_preallocation_and_uses_the_existing() -> None:
    storage, journal = journal_with(2, limits=ROOM, size=LARGE)
    assert size_of(storage) == journal.stats().disk_bytes
    fill(journal, 1)
    journal.log.sync()
    assert size_of(storage) == journal.stats().disk_bytes + ROOM.preallocation_bytes
    fill(journal, 2, size=LARGE)
    journal.log.sync()
    assert size_of(storage) == journal.stats().disk_bytes
    expected = state_of(journal)
    storage.crash()
    assert state_of(open_journal(storage, limits=ROOM)) == expected


def test_a_segment_ends_with_its_last_record_before_an_installed_snapshot_begins_another() -> None:
    the_log_goes_on_where_its_records_end()


def the_log_goes_on_where_its_records_end() -> None:
    """Preallocation is cut, and the cut is synced, before a segment follows that is not full."""
    source, meta = leader()
    storage = SimStorage()
    journal = open_journal(storage, limits=ROOM)
    journal.log.set_term(3, None)
    fill(journal, 5)
    journal.log.sync()
    used = journal.stats().disk_bytes
    assert size_of(storage) > used
    seen: list[tuple[str, str]] = []
    # An open file goes by the name that it had when it was made.
    storage.hook = lambda operation, name: seen.append((operation, name.removesuffix(".tmp")))
    assert carry(source, journal, meta) is False
    second = segment_name(2, meta.index + 1)
    begins = seen.index(("create", second))
    assert seen[begins - 2 : begins] == [("truncate", FIRST_SEGMENT), ("sync", FIRST_SEGMENT)]
    assert decode_segment_header(storage.content(second))[0].base == used
    storage.crash()
    assert open_journal(storage, limits=ROOM).log.last_index == meta.index


def test_a_full_segment_has_no_room() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=replace(ROOM, segment_bytes=2048))
    while journal.stats().segments < 4:
        fill(journal, 1, size=90)
        journal.log.sync()
        assert size_of(storage) < 2048 + 200
    headers = [
        decode_segment_header(storage.content(name))[0]
        for name in storage.listdir()
        if name.endswith(".segment")
    ]
    assert headers[1].base == size_of(storage)


def after_a_kill() -> SimStorage:
    """Three groups, the last not marked, and room behind them."""
    storage = SimStorage()
    journal = open_journal(storage, limits=ONE_SEGMENT)
    for _ in range(3):
        fill(journal, 2)
        journal.log.sync()
    storage.crash()
    assert not any(storage.content(FIRST_SEGMENT)[-1000:])
    return storage


def test_a_start_drops_the_room_and_does_not_call_it_a_torn_tail() -> None:
    storage = after_a_kill()
    room = len(storage.content(FIRST_SEGMENT).rstrip(b"\0"))
    journal = open_journal(storage, limits=ONE_SEGMENT)
    assert (journal.log.last_index, journal.cut_bytes) == (6, 0)
    assert size_of(storage) == room


def test_a_reader_of_the_page_ends_where_the_room_begins() -> None:
    storage = after_a_kill()
    files = {name: storage.content(name) for name in storage.listdir()}
    assert len(stranger.read_journal(files, CLUSTER, NODE).entries) == 6


@pytest.mark.slow
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_b07_a_flipped_bit_in_the_room_is_cut_and_changes_nothing(mask: int) -> None:
    whole = after_a_kill()
    content = whole.content(FIRST_SEGMENT)
    expected = state_of(open_journal(whole, limits=ONE_SEGMENT))
    used = size_of(whole)
    for offset in range(used, len(content)):
        storage = after_a_kill()
        storage.replace(FIRST_SEGMENT, content[:offset] + bytes((mask,)) + content[offset + 1 :])
        journal = open_journal(storage, limits=ONE_SEGMENT)
        assert state_of(journal) == expected
        assert journal.cut_bytes == offset + 1 - used
        assert size_of(storage) == used


def test_b18_any_sectors_of_a_torn_group_may_be_on_the_disk() -> None:
    """Every subset of them: what remains is a beginning of the group, and nothing acknowledged is
    missing."""
    storage, journal = journal_with(3, limits=ROOM)
    before = storage.content(FIRST_SEGMENT)
    fill(journal, 14, size=200)
    entries = state_of(journal)[0]
    journal.log.sync()
    after = storage.content(FIRST_SEGMENT)
    assert len(before) == len(after)
    sectors = [
        at for at in range(0, len(after), SECTOR_BYTES) if before[at:][:512] != after[at:][:512]
    ]
    assert len(sectors) == 8
    lengths = set()
    for kept in product((True, False), repeat=len(sectors)):
        content = bytearray(after)
        for at, there in zip(sectors, kept, strict=True):
            if not there:
                content[at : at + SECTOR_BYTES] = before[at : at + SECTOR_BYTES]
        disk = SimStorage()
        disk.replace(FIRST_SEGMENT, bytes(content))
        again = open_journal(disk, limits=ROOM)
        found = state_of(again)[0]
        assert len(found) >= 3
        assert found == entries[: len(found)]
        assert len(found) == len(entries) or not all(kept)
        assert size_of(disk) == again.stats().disk_bytes
        lengths.add(len(found))
    assert len(lengths) > 6


def test_a_lost_sector_with_another_group_behind_it_is_damage() -> None:
    b07_lost_sector_of_a_synced_group()


def b07_lost_sector_of_a_synced_group() -> None:
    """The sector was there once: the next group is only written after the sync."""
    storage, journal = journal_with(1, limits=ROOM)
    fill(journal, 10, size=200)
    journal.log.sync()
    second = journal.stats().disk_bytes
    fill(journal, 1)
    journal.log.sync()
    content = storage.content(FIRST_SEGMENT)
    for lost in range(SECTOR_BYTES, second - SECTOR_BYTES, SECTOR_BYTES):
        disk = SimStorage()
        disk.replace(
            FIRST_SEGMENT, content[:lost] + bytes(SECTOR_BYTES) + content[lost + SECTOR_BYTES :]
        )
        with pytest.raises(JournalDamaged, match=f"a valid record follows at byte {second}"):
            open_journal(disk, limits=ROOM)


@pytest.mark.slow
def test_damage_in_the_last_group_is_no_lost_sector() -> None:
    """Every flipped byte of a record in the room with another of its group behind it."""
    storage, journal = journal_with(1, limits=ROOM)
    fill(journal, 8, size=200)
    journal.log.sync()
    storage.crash()
    storage.remove(MARK_NAME)
    content = storage.content(FIRST_SEGMENT)
    begin = content.index(command(2, 200)) - records.RECORD_BYTES
    following = content.index(command(9, 200)) - records.RECORD_BYTES
    for offset in range(begin, following):
        storage.replace(
            FIRST_SEGMENT,
            content[:offset] + bytes((content[offset] ^ 0x20,)) + content[offset + 1 :],
        )
        with pytest.raises(JournalDamaged, match="a valid record follows at byte"):
            open_journal(storage, limits=ROOM)


def stale_records_behind_a_cut_tail() -> None:
    """Whole records of a group that lost its first sector never come back behind a new one that
    ends where they begin."""
    wide = replace(ROOM, preallocation_bytes=limits.PREALLOCATION_BYTES)
    storage, journal = journal_with(1, limits=wide)
    end = journal.stats().disk_bytes
    fill(journal, 3, size=2 * LARGE)
    journal.log.sync()
    storage.crash()
    content = storage.content(FIRST_SEGMENT)
    sector_end = (end // SECTOR_BYTES + 1) * SECTOR_BYTES
    storage.replace(FIRST_SEGMENT, content[:end] + bytes(sector_end - end) + content[sector_end:])
    journal = open_journal(storage, limits=wide)
    assert (journal.log.last_index, journal.cut_bytes > 0) == (1, True)
    another = b"another".ljust(2 * LARGE, b"?")
    journal.log.add(another, 2, 1)
    journal.log.sync()
    storage.crash()
    found = open_journal(storage, limits=wide).log[:]
    assert [entry[0] for entry in found] == [command(1), another]


def test_stale_records_never_come_back_behind_a_cut_tail() -> None:
    stale_records_behind_a_cut_tail()


def test_b15_a_disk_without_room_to_spare_is_written_to_the_end() -> None:
    """The write that fails is done again without zeros, and none are asked for in this segment."""
    storage = SimStorage(capacity_bytes=6_000)
    journal = open_journal(storage, limits=ROOM)
    seen: list[str] = []
    storage.hook = lambda operation, name: seen.append(operation)
    fill(journal, 3, size=100)
    journal.log.sync()
    assert seen == ["write", "write", "truncate", "sync"]
    assert size_of(storage) == journal.stats().disk_bytes
    seen.clear()
    acknowledged = 0
    with pytest.raises(JournalFailed, match="no room left on the disk"):  # noqa: PT012
        while True:
            fill(journal, 1, size=100)
            journal.log.sync()
            acknowledged = journal.log.last_index
    assert set(seen) == {"write", "sync"}
    assert journal.stats().free_bytes == 0
    storage.crash()
    assert open_journal(storage, limits=ROOM).log.last_index >= acknowledged


def test_b15_another_error_of_the_same_write_is_final() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=ROOM)
    attempts: list[str] = []

    def fail(operation: str, name: str) -> None:
        attempts.append(operation)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    storage.hook = fail
    fill(journal, 3)
    with pytest.raises(JournalFailed, match="the disk failed"):
        journal.log.sync()
    assert attempts == ["write"]
