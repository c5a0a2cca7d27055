"""A disk short of room: one snapshot stays, more is compacted, and a crash harms nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from node.journal.limits import MIB, SEGMENT_BYTES, JournalLimits
from node.testing.disk import PowerCut, SimStorage
from tests.node.journal.test_snapshots import filled, names, reopened
from tests.support.journals import SMALL, command, open_journal
from tests.support.snapshots import take

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.journal import Journal


def shrink(journal: Journal, *, short: bool = True) -> None:
    """Remove all that a short disk does not have room for."""
    journal.release(short=short)
    while journal.compact_step(1):
        pass


def cut_after(storage: SimStorage, last: int) -> Callable[[str, str], None]:
    """A hook that ends the process behind operation `last`."""

    def hook(_operation: str, _name: str) -> None:
        if storage.operations > last:
            raise PowerCut

    return hook


def test_where_room_is_short_the_newest_snapshot_alone_stays() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    take(journal, [2, 20], index=30)
    take(journal, [20], index=50)
    assert journal.releases
    before = journal.held_bytes
    shrink(journal)
    assert not journal.releases
    assert len(names(storage, ".snapshot")) == 1
    assert journal.held_bytes < before / 2
    assert journal.log.first_whole_index == 51
    again = reopened(storage)
    assert again.log.read(20) == command(20, 60)


def test_one_snapshot_of_a_log_from_entry_1_is_enough_where_room_is_short() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    take(journal, [], index=58)
    assert journal.releases
    shrink(journal)
    assert len(names(storage, ".segment")) <= 2
    assert not journal.releases


def test_files_that_are_half_empty_are_compacted_where_room_is_short() -> None:
    held = []
    for short in (False, True):
        journal = filled(SimStorage(), 60)
        for index in (58, 59):
            take(journal, range(2, 50, 2), index=index)
        shrink(journal, short=short)
        assert [journal.log.read(index) for index in (2, 48)] == [command(2, 60), command(48, 60)]
        held.append(journal.held_bytes)
    assert held[1] < 0.75 * held[0]


def test_no_copy_takes_the_last_room_of_a_short_disk() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    for index in (58, 59):
        take(journal, range(2, 50, 2), index=index)
    storage.free_bytes = lambda: 2 * SMALL.segment_bytes - 1  # type: ignore[method-assign]
    shrink(journal)
    assert not names(storage, ".kept")


def test_a_power_loss_while_the_older_snapshot_goes_loses_nothing() -> None:
    rng = random.Random(1)
    reached = 0
    for number in range(40):
        storage = SimStorage()
        journal = filled(storage, 60)
        take(journal, [2, 20], index=30)
        take(journal, [20], index=50)
        storage.hook = cut_after(storage, storage.operations + number)
        try:
            shrink(journal)
        except PowerCut:
            reached += 1
        storage.power_loss(rng)
        again = open_journal(storage)
        assert again.log.last_index == 60
        assert again.log.read(20) == command(20, 60)
    assert 3 < reached < 40, "every operation of it, and the end"


def test_files_are_sized_to_the_disk() -> None:
    sizes = {
        disk: JournalLimits.of_disk(disk << 20).segment_bytes // MIB for disk in (96, 480, 900)
    }
    assert sizes == {96: 4, 480: 15, 900: 28}
    assert JournalLimits.of_disk(2 << 30).segment_bytes == SEGMENT_BYTES
    assert JournalLimits.of_disk(1 << 40).segment_bytes == SEGMENT_BYTES


def test_the_low_mark_is_at_most_a_quarter_of_the_disk() -> None:
    storage = SimStorage(capacity_bytes=480 * MIB)
    journal = open_journal(storage)
    assert journal.low_bytes(256 * MIB) == 120 * MIB
    assert journal.low_bytes(64 * MIB) == 64 * MIB
