"""Snapshots of the journal: what they hold, what they let go, what they keep."""

from __future__ import annotations

import pytest

from node.raft.journal import PLACEHOLDER, Journal
from tests.support.journals import command, fill, open_journal, state_of
from tests.support.simdisk import SimStorage
from tests.support.snapshots import carry, clean_up, state_at, take


def filled(storage: SimStorage, count: int = 30, size: int = 60) -> Journal:
    """A journal of `count` entries over several segments, all synced."""
    journal = open_journal(storage)
    journal.setCurrentTerm(1, "alpha")
    for _ in range(0, count, 3):
        fill(journal, 3, size=size)
        journal.sync()
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
        assert list(journal.live_entries(meta)) == [3, 5, 20]
        assert journal.kept_entry(5) == (command(5, 60), 5, 1)
        journal = reopened(storage)


def test_the_first_snapshot_lets_nothing_go_the_second_what_the_first_does_not_need() -> None:
    storage = SimStorage()
    journal = filled(storage)
    segments = names(storage, ".segment")
    take(journal, [2], index=12)
    clean_up(journal)
    assert names(storage, ".segment") == segments
    assert (journal.first_index, journal.first_whole_index) == (1, 1)
    take(journal, [2, 20], index=24)
    clean_up(journal)
    assert (journal.first_index, journal.first_whole_index) == (11, 13)
    left = names(storage, ".segment")
    assert len(left) < len(segments)
    for journal in (journal, reopened(storage)):  # noqa: B020
        assert journal.first_index == 11
        assert [journal.term_at(index) for index in (11, 12, 13)] == [1, 1, 1]
        assert journal.read(2) == command(2, 60)
        assert journal.read(11) == journal.read(12) == PLACEHOLDER
        assert journal[0] == (PLACEHOLDER, 11, 1)
        assert [journal.read(index) for index in range(13, 31)] == [
            command(index, 60) for index in range(13, 31)
        ]
        with pytest.raises(IndexError):
            journal.read(3)
        with pytest.raises(IndexError):
            journal.entries(12, 1000)
        assert journal.entries(13, 0)[0] == (command(13, 60), 13, 1)


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
            assert journal.read(index) == command(index, 60)
            assert journal.kept_entry(index) == (command(index, 60), index, 1)
        clean_up(journal)
        assert storage.listdir() == before
    # Later most of them die, and what holds them goes.
    fill(journal, 20, size=60)
    take(journal, [22], index=60)
    take(journal, [22], index=70)
    clean_up(journal)
    assert len(names(storage, ".kept")) == 1
    assert journal.read(22) == reopened(storage).read(22) == command(22, 60)


def test_an_install_replaces_the_log_of_a_follower_and_survives_a_restart() -> None:
    source = filled(SimStorage(), 40)
    live = [4, 17, 30]
    meta = take(source, live, index=35)
    storage = SimStorage()
    target = open_journal(storage)
    fill(target, 3)
    target.setCurrentTerm(4, "beta")
    assert carry(source, target, meta) is False
    for _ in range(2):
        assert (target.first_index, target.last_index, target.last_term) == (34, 35, 1)
        assert target.first_whole_index == 36
        assert (target.getCurrentTerm(), target.getVotedForNodeId()) == (4, "beta")
        assert target.getRaftCommitIndex() == 35
        assert target.snapshot == meta
        assert target.read_state(meta, 0, 1000) == state_at(35)
        assert [target.read(index) for index in live] == [command(index, 60) for index in live]
        with pytest.raises(IndexError):
            target.read(1)
        clean_up(target)
        assert len(names(storage, ".segment")) == 1
        target = reopened(storage)
    fill(target, 5, term=4)
    expected = state_of(target)
    target.close()
    assert state_of(open_journal(storage)) == expected


def test_an_install_keeps_the_tail_of_a_log_that_has_the_entry() -> None:
    storage = SimStorage()
    source, target = filled(SimStorage(), 40), filled(storage, 45)
    meta = take(source, [4, 17], index=35)
    assert carry(source, target, meta) is True
    for _ in range(2):
        assert (target.first_index, target.last_index) == (1, 45)
        assert target.snapshot == meta
        assert target.read(17) == command(17, 60)
        target = reopened(storage)
    assert names(storage, ".kept") == []
