"""Installing another node's snapshot: the log is replaced, or kept where it is the same."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import replace

import pytest

from node.journal.errors import JournalRefused, SnapshotFailed
from node.journal.limits import JournalLimits
from node.testing.disk import SimStorage
from tests.node.journal.test_snapshots import filled, names, reopened
from tests.support.journals import command, fill, open_journal, state_of
from tests.support.snapshots import at_once, carry, clean_up, kept_entry, state_at, take


def test_an_install_replaces_the_log_of_a_follower_and_survives_a_restart() -> None:
    source = filled(SimStorage(), 40)
    live = [4, 17, 30]
    meta = take(source, live, index=35)
    storage = SimStorage()
    target = open_journal(storage)
    fill(target, 3)
    target.log.set_term(4, "beta")
    assert carry(source, target, meta) is False
    for _ in range(2):
        assert (target.log.first_index, target.log.last_index, target.log.last_term) == (34, 35, 1)
        assert target.log.first_whole_index == 36
        assert (target.log.term, target.log.voted_for) == (4, "beta")
        assert target.log.commit_hint() == 35
        assert target.snapshot == meta
        assert target.read_state(meta, 0, 1000) == state_at(35)
        assert [target.log.read(index) for index in live] == [command(index, 60) for index in live]
        with pytest.raises(IndexError):
            target.log.read(1)
        clean_up(target)
        assert len(names(storage, ".segment")) == 1
        target = reopened(storage)
    fill(target, 5, term=4)
    expected = state_of(target)
    target.close()
    assert state_of(open_journal(storage)) == expected


def test_the_first_entry_behind_an_install_can_be_cut_off_and_replaced() -> None:
    """Another leader's takes its place; a restart reads that, as often as it happens."""
    source, storage = filled(SimStorage(), 40), SimStorage()
    target = open_journal(storage)
    target.log.set_term(1, None)
    carry(source, target, take(source, [4], index=35))
    for term in (2, 3):
        target.log.set_term(term, None)
        fill(target, 3, term=term)
        target.log.truncate(36 - target.log.first_index)
        target.log.sync()
        target = reopened(storage)
        assert (target.log.last_index, target.log.last_term) == (35, 1)
    target.log.set_term(4, None)
    fill(target, 2, term=4)
    target.log.sync()
    expected = state_of(target)
    target.close()
    assert state_of(open_journal(storage)) == expected


def test_an_install_keeps_the_tail_of_a_log_that_has_the_entry() -> None:
    storage = SimStorage()
    source, target = filled(SimStorage(), 40), filled(storage, 45)
    meta = take(source, [4, 17], index=35)
    assert carry(source, target, meta) is True
    for _ in range(2):
        assert (target.log.first_index, target.log.last_index) == (1, 45)
        assert target.snapshot == meta
        assert target.log.read(17) == command(17, 60)
        target = reopened(storage)
    assert names(storage, ".kept") == []


def test_no_step_of_an_install_beside_a_growing_log_waits_for_the_disk() -> None:
    storage = SimStorage()
    source, target = filled(SimStorage(), 40), filled(storage, 33)
    meta = take(source, [4, 17], index=35)
    writer = target.begin_install(meta)
    writer.add_state(source.read_state(meta, 0, meta.state_bytes))
    for index in (4, 17):
        writer.add_entry(*kept_entry(source, index))
    fill(target, 3, size=60)
    steps = writer.finishing()
    syncs, jobs = storage.syncs, 0
    for job in steps:
        assert storage.syncs == syncs
        fill(target, 1, size=60)
        job.run()
        syncs, jobs = storage.syncs, jobs + 1
    assert storage.syncs == syncs
    assert jobs >= 3
    assert target.snapshot == meta
    assert target.log.synced_index >= 35
    target = reopened(storage)
    assert target.snapshot == meta
    assert target.log.read(35) == command(35, 60)


def test_an_install_replaces_a_longer_log_of_another_term() -> None:
    source = filled(SimStorage(), 40)
    meta = take(source, [4], index=35)
    storage = SimStorage()
    target = open_journal(storage, limits=JournalLimits(segment_bytes=512, cache_bytes=1 << 20))
    fill(target, 10, size=60)
    fill(target, 40, size=30, term=2)
    target.log.set_term(5, None)
    meta = replace(meta)
    assert carry(source, target, meta) is False
    assert (target.log.first_index, target.log.last_index, target.log.last_term) == (34, 35, 1)
    for index in (1, 30, 36):
        with pytest.raises(IndexError):
            target.log.read(index)
    assert target.log.read(4) == command(4, 60)
    assert target.log[-1][1:] == (35, 1)
    fill(target, 3, term=5)
    assert target.log.read(36) == command(36)


def test_an_install_over_entries_that_were_not_synced_survives_a_power_loss() -> None:
    for seed in range(20):
        source = filled(SimStorage(), 40)
        meta = take(source, [4], index=35)
        storage = SimStorage()
        target = open_journal(storage)
        target.log.set_term(2, None)
        fill(target, 5, size=60)
        carry(source, target, meta)
        if seed:
            storage.power_loss(random.Random(seed))
            target = open_journal(storage)
        assert (target.log.last_index, target.snapshot) == (35, meta)
        fill(target, 2, term=2)
        target.log.sync()
        assert reopened(storage).log.last_index == 37


def test_an_install_that_differs_from_its_announcement_is_abandoned_and_can_be_repeated() -> None:
    source = filled(SimStorage(), 40)
    meta = take(source, [4, 17], index=35)
    storage = SimStorage()
    target = open_journal(storage)
    target.log.set_term(1, None)
    fill(target, 3)
    target.log.sync()
    before = storage.listdir(), state_of(target)
    for wrong in (
        replace(meta, digest=bytes(32)),
        replace(meta, live_count=3),
        replace(meta, state_bytes=59),
    ):
        writer = target.begin_install(wrong)
        writer.add_state(source.read_state(meta, 0, 100))
        for index in (4, 17):
            writer.add_entry(*kept_entry(source, index))
        assert (writer.state_bytes, writer.entries) == (60, 2)
        with pytest.raises(SnapshotFailed, match="which are not those of snapshot"):
            at_once(writer.finishing())
        assert (storage.listdir(), state_of(target)) == before
    writer = target.begin_install(meta)
    writer.add_entry(*kept_entry(source, 17))
    for entry in (kept_entry(source, 4), (b"x", 36, 1), (b"x", 20, 2)):
        with pytest.raises(SnapshotFailed, match=r"cannot follow|already ended"):
            writer.add_entry(*entry)
    target.begin_install(meta).abort()
    assert (storage.listdir(), state_of(target)) == before
    assert carry(source, target, meta) is False


def to_its_end(steps: Generator[object, None, bool]) -> bool:
    """Run an installation to its end; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


@pytest.mark.parametrize("waits", [0, 1, 2])
def test_the_log_may_grow_while_an_install_waits_for_its_disk(waits: int) -> None:
    """After so many waits: the log has all that the snapshot has, or none of it."""
    source = filled(SimStorage(), 40)
    live = [4, 17, 30]
    meta = take(source, live, index=35)
    for has_it in (True, False):
        storage = SimStorage()
        target = filled(storage, 30)
        writer = target.begin_install(meta)
        writer.add_state(source.read_state(meta, 0, 100))
        for index in live:
            writer.add_entry(*kept_entry(source, index))
        steps = writer.finishing()
        for _ in range(waits):
            next(steps)
        fill(target, 10 if has_it else 3, size=60)
        target.log.set_term(7, "beta")
        assert to_its_end(steps) is has_it
        for _ in range(2):
            assert target.snapshot == meta
            assert (target.log.term, target.log.voted_for) == (7, "beta")
            assert target.log.last_index == (40 if has_it else 35)
            assert [target.log.read(index) for index in live] == [command(i, 60) for i in live]
            clean_up(target)
            assert bool(names(storage, ".kept")) is not has_it
            target = reopened(storage)


def test_an_install_that_is_stopped_while_it_waits_leaves_the_log_as_it_was() -> None:
    source = filled(SimStorage(), 40)
    meta = take(source, [4, 17], index=35)
    for waits in (1, 2):
        storage = SimStorage()
        target = open_journal(storage)
        target.log.set_term(1, None)
        fill(target, 3)
        target.log.sync()
        before = state_of(target)
        writer = target.begin_install(meta)
        writer.add_state(source.read_state(meta, 0, 100))
        for index in (4, 17):
            writer.add_entry(*kept_entry(source, index))
        steps = writer.finishing()
        for _ in range(waits):
            next(steps)
        steps.close()
        assert (state_of(target), target.snapshot) == (before, None)
        assert not [name for name in storage.listdir() if name.endswith((".tmp", ".snapshot"))]
        assert carry(source, target, meta) is False


def test_b22_an_install_of_entries_committed_here_is_refused() -> None:
    source, target = filled(SimStorage(), 40), filled(SimStorage(), 40)
    meta = take(source, [4], index=35)
    target.log.note_commit(35)
    with pytest.raises(SnapshotFailed, match="35 is committed here"):
        target.begin_install(meta)
    with pytest.raises(SnapshotFailed, match="the term is 1"):
        target.begin_install(replace(meta, index=39, term=2))


def test_b22_an_install_that_was_overtaken_by_the_log_takes_nothing_back() -> None:
    source, target = filled(SimStorage(), 40), filled(SimStorage(), 30)
    meta = take(source, [4], index=35)
    writer = target.begin_install(meta)
    fill(target, 10, size=60)
    target.log.note_commit(38)
    writer.add_state(source.read_state(meta, 0, 100))
    writer.add_entry(*kept_entry(source, 4))
    assert at_once(writer.finishing()) is True
    assert (target.log.first_index, target.log.last_index) == (1, 40)
    # Committed here in another term than the snapshot says: the logs have parted.
    other = open_journal(SimStorage())
    other.log.set_term(1, None)
    writer = other.begin_install(meta)
    fill(other, 40, term=0)
    other.log.note_commit(38)
    writer.add_state(source.read_state(meta, 0, 100))
    writer.add_entry(*kept_entry(source, 4))
    with pytest.raises(JournalRefused, match="entry 35 is committed here, in another term"):
        at_once(writer.finishing())


def test_an_install_spreads_its_entries_over_files_of_the_size_of_a_segment() -> None:
    source = filled(SimStorage(), 90)
    live = list(range(1, 81))
    meta = take(source, live, index=85)
    storage = SimStorage()
    target = open_journal(storage)
    target.log.set_term(1, None)
    carry(source, target, meta)
    assert len(names(storage, ".kept")) > 8
    for journal in (target, reopened(storage)):
        assert [journal.log.read(index) for index in live] == [command(i, 60) for i in live]
    # On from there, as a leader that another follower takes the snapshot from.
    third = open_journal(SimStorage())
    third.log.set_term(1, None)
    assert carry(journal, third, meta) is False
    assert third.log.read(77) == command(77, 60)
