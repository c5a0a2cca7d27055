"""Holds of bodies: what could be read when one began is read until it ends, and gone soon after."""

from __future__ import annotations

import pytest

from node.journal.journal import Journal
from node.testing.disk import SimStorage
from tests.node.journal.test_shortage import shrink
from tests.node.journal.test_snapshots import filled, names, reopened
from tests.support.journals import command
from tests.support.snapshots import take


def clean(journal: Journal) -> None:
    """Release what no snapshot and no hold needs."""
    shrink(journal, short=False)


def readable(journal: Journal, index: int) -> bool:
    return journal._snapshots.entries.locate(index) is not None


def test_what_the_newest_snapshot_needs_stays_through_later_ones() -> None:
    journal = filled(SimStorage(), 60)
    take(journal, [2, 20], index=30)
    clean(journal)
    hold = journal.hold()
    for index in (40, 50, 58):
        take(journal, [], index=index)
        clean(journal)
    assert journal.log.read(20) == command(20, 60)
    assert journal.log.read(31) == command(31, 60)
    hold.end()
    hold.end()
    clean(journal)
    assert not readable(journal, 20)
    assert not readable(journal, 31)


def test_without_a_snapshot_the_whole_log_stays() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    one, other = journal.hold(), journal.hold()
    for index in (40, 50, 58):
        take(journal, [], index=index)
        clean(journal)
    one.end()
    clean(journal)
    assert journal.log.read(2) == command(2, 60)
    segments = len(names(storage, ".segment"))
    other.end()
    clean(journal)
    assert not readable(journal, 2)
    assert len(names(storage, ".segment")) < segments


def pinned(journal: Journal) -> int:
    return journal.stats().snapshots.pinned_bytes


def test_what_a_hold_keeps_on_the_disk_is_counted_until_it_ends() -> None:
    journal = filled(SimStorage(), 60)
    take(journal, [2, 20], index=30)
    clean(journal)
    assert pinned(journal) == 0
    hold = journal.hold()
    kept_bytes = journal.log.span_bytes(31, 50)
    take(journal, [], index=40)
    clean(journal)
    assert pinned(journal) == 0, "two snapshots stay all the same"
    for index in (50, 58):
        take(journal, [], index=index)
        clean(journal)
    assert pinned(journal) >= kept_bytes > 0
    hold.end()
    clean(journal)
    assert pinned(journal) == 0


@pytest.mark.parametrize("snapshot", [0, 30])
def test_a_short_disk_ends_holds_first(snapshot: int) -> None:
    journal = filled(SimStorage(), 60)
    if snapshot:
        take(journal, [2, 20], index=snapshot)
    hold = journal.hold()
    take(journal, [20], index=58)
    shrink(journal)
    assert hold.ended
    assert not readable(journal, 2)
    assert journal.log.read(20) == command(20, 60)


def test_a_hold_ends_with_the_process() -> None:
    storage = SimStorage()
    journal = filled(storage, 60)
    take(journal, [2, 20], index=30)
    journal.hold()
    for index in (40, 50, 58):
        take(journal, [20], index=index)
        clean(journal)
    again = reopened(storage)
    clean(again)
    assert again.log.read(20) == command(20, 60)
    assert not readable(again, 2)
