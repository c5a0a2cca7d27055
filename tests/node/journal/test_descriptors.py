"""The journal's descriptors: reserved from its start, and no lack of them is a failed disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from node.journal import limits
from node.journal.io.seats import Seats
from node.journal.io.storage import OsStorage
from node.journal.limits import JournalLimits
from tests.support.descriptors import no_descriptor_left
from tests.support.journals import fill, open_journal, state_of
from tests.support.snapshots import clean_up, live_entries, take

SMALL_FILES = JournalLimits(segment_bytes=4096, cache_bytes=0)


def test_a_journal_goes_on_while_its_process_has_no_descriptor_left(tmp_path: Path) -> None:
    """New segments, synced folders, snapshots, compaction, and reads of files long closed."""
    journal = open_journal(OsStorage(tmp_path), limits=SMALL_FILES)
    with no_descriptor_left():
        for _ in range(100):
            fill(journal, 5, size=900)
            journal.log.sync()
        meta = take(journal, [2, 3, 450], index=450, size=100_000)
        clean_up(journal)
        assert list(live_entries(journal, meta)) == [2, 3, 450]
        assert journal.log.read(3)
    expected = state_of(journal)
    journal.close()
    again = open_journal(OsStorage(tmp_path), limits=SMALL_FILES)
    assert state_of(again) == expected
    again.close()


def test_a_journal_gives_all_of_its_descriptors_back(tmp_path: Path) -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    journal = open_journal(OsStorage(tmp_path), limits=SMALL_FILES)
    fill(journal, 50, size=900)
    journal.log.sync()
    held = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        fill(journal, 50, size=900)
        journal.log.sync()
    assert len(os.listdir("/proc/self/fd")) == held == len(before) + 1 + limits.DESCRIPTORS
    journal.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_a_file_is_opened_once_the_system_has_a_descriptor_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A lack of the whole system passes too, and is logged once."""
    tries: list[int] = []
    pauses: list[float] = []

    def opened() -> int:
        tries.append(1)
        if len(tries) <= 10:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        return os.dup(0)

    holder = os.dup(0)
    seats = Seats(pauses.append)
    seats.reserve(holder, 3)
    descriptor = seats.take(opened)
    assert repr(seats) == "<Seats 2 free, 1 occupied>"
    assert pauses == [limits.DESCRIPTOR_RETRY_SECONDS] * 8  # each seat first, then a wait
    words = [record.getMessage() for record in caplog.records]
    assert words == [
        "event=descriptors_exhausted error=Too many open files in system",
        "event=descriptors_available",
    ]
    seats.leave(descriptor)
    seats.give_up()
    os.close(holder)


def test_a_file_that_cannot_be_opened_costs_no_seat(tmp_path: Path) -> None:
    disk = OsStorage(tmp_path)
    disk.lock()
    held = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            disk.open("nothing")
    assert len(os.listdir("/proc/self/fd")) == held
    disk.unlock()
