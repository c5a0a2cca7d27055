"""The reserve: when it goes, what fits in its room, and when it is there again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from node.journal.errors import JournalFailed
from node.journal.io.storage import OsStorage
from node.journal.journal import Journal
from node.journal.limits import RESERVE_ROOM_PARTS, RESERVE_STOPPED_PARTS
from node.journal.reserve import RESERVE_NAME
from node.testing.disk import SimStorage
from tests.support.journals import SMALL, fill, open_journal
from tests.support.snapshots import take

RESERVE_BYTES = 2_000
LIMITS = replace(SMALL, reserve_bytes=RESERVE_BYTES)
BALLAST = "ballast.tmp"
"""Another program's file."""


def reserved(capacity_bytes: int = 40 * RESERVE_BYTES) -> tuple[SimStorage, Journal]:
    """A journal with a reserve on a small disk."""
    storage = SimStorage(capacity_bytes=capacity_bytes)
    journal = open_journal(storage, limits=LIMITS)
    fill(journal, 5)
    journal.log.sync()
    assert holds_one(storage)
    return storage, journal


def holds_one(storage: SimStorage) -> bool:
    return RESERVE_NAME in storage.listdir()


def leave(storage: SimStorage, free_bytes: int) -> None:
    """Another program takes all but this."""
    storage.remove(BALLAST)
    storage.replace(BALLAST, bytes(storage.free_bytes() - free_bytes))


def test_the_reserve_takes_its_room_from_the_start() -> None:
    storage, journal = reserved()
    assert len(storage.content(RESERVE_NAME)) == RESERVE_BYTES
    assert journal.room_bytes == storage.free_bytes()


def test_no_reserve_is_made_where_little_is_free() -> None:
    storage = SimStorage(capacity_bytes=RESERVE_ROOM_PARTS * RESERVE_BYTES)
    journal = open_journal(storage, limits=LIMITS)
    assert not holds_one(storage)
    assert journal.room_bytes == storage.free_bytes() - RESERVE_BYTES


def test_a_full_disk_takes_on_in_the_room_of_the_reserve() -> None:
    storage, journal = reserved()
    leave(storage, 0)
    fill(journal, 3)
    journal.log.sync()
    assert not holds_one(storage)
    fill(journal, 3)
    journal.log.sync()
    last = journal.log.last_index
    storage.crash()
    assert open_journal(storage, limits=LIMITS).log.last_index == last


def test_a_disk_that_is_full_again_without_a_reserve_ends_the_journal() -> None:
    storage, journal = reserved()
    for _ in range(2):
        leave(storage, 0)
        fill(journal, 3)
        if holds_one(storage):
            journal.log.sync()
    with pytest.raises(JournalFailed, match="no room left on the disk"):
        journal.log.sync()


def test_a_segment_that_finds_no_room_is_made_in_that_of_the_reserve() -> None:
    storage, journal = reserved()
    fill(journal, 30, size=60)

    def hook(operation: str, name: str) -> None:
        if operation == "create" and holds_one(storage):
            leave(storage, 0)

    storage.hook = hook
    journal.log.sync()
    assert not holds_one(storage)
    fill(journal, 3)
    journal.log.sync()


def test_a_start_on_a_full_disk_has_the_room_of_the_reserve() -> None:
    storage, journal = reserved()
    last = journal.log.last_index
    leave(storage, 0)
    storage.crash()
    again = open_journal(storage, limits=LIMITS)
    assert not holds_one(storage)
    assert storage.free_bytes() >= RESERVE_BYTES
    assert again.log.last_index == last


def test_a_snapshot_that_lacks_room_has_that_of_the_reserve() -> None:
    storage, journal = reserved()
    leave(storage, 100)
    take(journal, [])
    assert not holds_one(storage)


def test_the_room_of_a_missing_reserve_is_not_free() -> None:
    storage, journal = reserved()
    leave(storage, 0)
    fill(journal, 3)
    journal.log.sync()
    assert journal.room_bytes <= 0 < storage.free_bytes()


def test_the_reserve_is_made_again_where_there_is_plenty_of_room() -> None:
    storage, journal = reserved()
    leave(storage, 0)
    fill(journal, 3)
    journal.log.sync()
    leave(storage, RESERVE_ROOM_PARTS * RESERVE_BYTES - 1)
    assert journal.making_reserve() is None
    leave(storage, RESERVE_ROOM_PARTS * RESERVE_BYTES)
    job = journal.making_reserve()
    assert job is not None
    job.run()
    assert holds_one(storage)
    assert journal.making_reserve() is None
    assert journal.room_bytes == storage.free_bytes()


def test_a_node_that_stops_holds_nothing_back_of_a_disk_with_much_room() -> None:
    for free_bytes, stays in (
        (RESERVE_STOPPED_PARTS * RESERVE_BYTES, False),
        (RESERVE_BYTES, True),
    ):
        storage, journal = reserved()
        leave(storage, free_bytes)
        journal.close()
        assert holds_one(storage) == stays


def test_a_real_folder_holds_a_reserve_with_room_for_every_byte(tmp_path: Path) -> None:
    storage = OsStorage(tmp_path / "data")
    journal = open_journal(storage, limits=replace(LIMITS, reserve_bytes=1 << 20))
    found = (tmp_path / "data" / RESERVE_NAME).stat()
    assert (found.st_size, found.st_blocks * 512) == (1 << 20, 1 << 20)
    journal.close()
    assert not (tmp_path / "data" / RESERVE_NAME).exists()
