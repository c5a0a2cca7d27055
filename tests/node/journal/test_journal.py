"""The journal as the node and PySyncObj see it, without faults."""

from __future__ import annotations

import pytest

from node.journal.errors import JournalFailed, JournalRefused
from node.journal.journal import Journal
from node.journal.limits import JournalLimits
from node.journal.writer import SYNC_BUCKET_SECONDS
from node.testing.disk import SimStorage
from tests.support.journals import (
    CLUSTER,
    NODE,
    ONE_SEGMENT,
    SMALL,
    command,
    fill,
    open_journal,
    state_of,
)


@pytest.fixture
def storage() -> SimStorage:
    return SimStorage()


def test_a_new_journal_is_empty_and_clean(storage: SimStorage) -> None:
    journal = open_journal(storage)
    assert len(journal.log) == 0
    assert (journal.log.first_index, journal.log.last_index, journal.log.last_term) == (1, 0, 0)
    assert (journal.log.term, journal.log.voted_for) == (0, None)
    assert journal.log.commit_hint() == 0
    assert not journal.log.dirty


def test_entries_come_back_by_place_by_slice_and_from_the_end(storage: SimStorage) -> None:
    journal = open_journal(storage)
    fill(journal, 5)
    expected = [(command(index), index, 1) for index in range(1, 6)]
    assert [journal.log[place] for place in range(5)] == expected
    assert [journal.log[place] for place in range(-5, 0)] == expected
    assert journal.log[:] == expected
    assert journal.log[1:3] == expected[1:3]
    assert journal.log[3:99] == expected[3:]
    assert journal.log[-2:] == expected[-2:]
    assert journal.log[::2] == expected[::2]
    for place in (5, -6):
        with pytest.raises(IndexError):
            journal.log[place]


def test_the_ends_of_the_log_follow_additions_and_truncations(storage: SimStorage) -> None:
    journal = open_journal(storage)
    fill(journal, 3)
    assert journal.log[-1] == (command(3), 3, 1)
    journal.log.truncate(1)
    assert journal.log[-1] == journal.log[0] == (command(1), 1, 1)
    journal.log.add(b"other", 2, 4)
    assert journal.log[-1] == (b"other", 2, 4)
    assert (journal.log.last_index, journal.log.last_term) == (2, 4)


def test_terms_and_sizes_are_known_without_reading(storage: SimStorage) -> None:
    journal = open_journal(storage)
    journal.log.add(b"\x01", 1, 0)
    journal.log.add(command(2, 33), 2, 7)
    journal.log.sync()
    before = storage.read_bytes
    assert [journal.log.term_at(index) for index in (0, 1, 2)] == [0, 0, 7]
    assert [journal.log.size_at(index) for index in (1, 2)] == [1, 33]
    assert storage.read_bytes == before
    for index in (-1, 3):
        with pytest.raises(IndexError):
            journal.log.term_at(index)
    for index in (0, 3):
        with pytest.raises(IndexError):
            journal.log.size_at(index)
        with pytest.raises(IndexError):
            journal.log.read(index)


def test_everything_survives_an_orderly_restart(storage: SimStorage) -> None:
    journal = open_journal(storage)
    journal.log.add(b"\x01", 1, 0)
    journal.log.set_term(3, "beta")
    fill(journal, 40, term=3)
    journal.log.note_commit(17)
    before = state_of(journal)
    journal.close()
    again = open_journal(storage)
    assert state_of(again) == before
    assert again.log.synced_index == again.log.last_index == 41
    assert again.log.commit_hint() == 17
    assert again.cut_bytes == 0


def test_one_group_is_one_write_and_one_sync(storage: SimStorage) -> None:
    journal = open_journal(storage, limits=ONE_SEGMENT)
    seen: list[str] = []
    storage.hook = lambda operation, _: seen.append(operation)
    fill(journal, 300)
    journal.log.note_commit(299)
    assert seen == []
    assert journal.log.dirty
    assert journal.log.synced_index == 0
    journal.log.sync()
    assert seen == ["write", "sync"]
    assert not journal.log.dirty
    assert journal.log.synced_index == 300
    journal.log.sync()
    assert seen == ["write", "sync"]


def test_a_hard_state_is_on_the_disk_when_the_call_returns(storage: SimStorage) -> None:
    journal = open_journal(storage, limits=ONE_SEGMENT)
    fill(journal, 2)
    before = storage.syncs
    journal.log.set_term(2, NODE)
    assert storage.syncs == before + 1
    assert not journal.log.dirty
    assert journal.log.synced_index == 2
    journal.log.set_term(2, NODE)
    assert storage.syncs == before + 1, "nothing new to write"


def test_an_added_command_is_kept_without_a_copy(storage: SimStorage) -> None:
    journal = open_journal(storage, limits=JournalLimits())
    payload = bytes(1000)
    journal.log.add(payload, 1, 1)
    assert journal.log.read(1) is payload
    journal.log.sync()
    assert journal.log.read(1) is payload


def test_a_command_that_can_change_is_copied(storage: SimStorage) -> None:
    journal = open_journal(storage)
    buffer = bytearray(b"\x10abc")
    journal.log.add(memoryview(buffer), 1, 1)  # type: ignore[arg-type]  # what a transport may hold
    buffer[:] = b"xxxx"
    journal.log.sync()
    assert journal.log.read(1) == b"\x10abc"


def test_an_empty_command_is_an_entry(storage: SimStorage) -> None:
    journal = open_journal(storage)
    journal.log.add(b"", 1, 0)
    journal.close()
    assert open_journal(storage).log[:] == [(b"", 1, 0)]


# --- ranges and memory ---


def test_a_range_has_at_least_one_entry_and_then_stops_at_the_byte_limit(
    storage: SimStorage,
) -> None:
    journal = open_journal(storage)
    fill(journal, 10, size=100)

    def indexes(first: int, max_bytes: int, max_count: int | None = None) -> list[int]:
        return [index for _, index, _ in journal.log.entries(first, max_bytes, max_count)]

    assert indexes(1, 0) == [1]
    assert indexes(1, 199) == [1]
    assert indexes(1, 200) == [1, 2]
    assert indexes(4, 250) == [4, 5]
    assert indexes(9, 10_000) == [9, 10]
    assert indexes(1, 10_000, 3) == [1, 2, 3]
    assert indexes(1, 10_000, 0) == []
    assert indexes(11, 10_000) == []
    with pytest.raises(IndexError):
        journal.log.entries(0, 10)


def test_a_range_reads_no_more_than_it_returns(storage: SimStorage) -> None:
    journal = open_journal(storage, limits=ONE_SEGMENT)
    fill(journal, 1000, size=100)
    journal.log.sync()
    before = storage.read_bytes
    assert len(journal.log.entries(3, 500)) == 5
    assert storage.read_bytes - before <= 5 * 200


def test_reads_beyond_the_cache_come_from_the_disk(storage: SimStorage) -> None:
    limits = JournalLimits(segment_bytes=4096, cache_bytes=2000)
    journal = open_journal(storage, limits=limits)
    for _ in range(20):
        fill(journal, 10, size=100)
        journal.log.sync()
        assert journal.stats().cached_bytes <= 2000
    before = storage.read_bytes
    assert journal.log.read(200) == command(200, 100)
    assert storage.read_bytes == before, "the newest entry is in memory"
    for index in range(1, 201):
        assert journal.log.read(index) == command(index, 100)
    assert storage.read_bytes > before
    assert journal.stats().cached_bytes <= 2000
    before = storage.read_bytes
    assert journal.log.read(200) == command(200, 100)
    assert storage.read_bytes == before, "what was read last is in memory"


def test_unwritten_entries_are_never_dropped_from_memory(storage: SimStorage) -> None:
    journal = open_journal(storage)
    fill(journal, 30)
    before = storage.read_bytes
    for index in range(1, 31):
        assert journal.log.read(index) == command(index)
    assert storage.read_bytes == before
    journal.log.sync()
    assert journal.stats().cached_bytes == 0
    assert journal.log.read(7) == command(7)


def test_a_replaced_entry_is_read_not_the_one_it_replaced(storage: SimStorage) -> None:
    for limits in (SMALL, JournalLimits()):
        journal = open_journal(SimStorage(), limits=limits)
        fill(journal, 5)
        journal.log.sync()
        journal.log.truncate(2)
        journal.log.add(b"new", 3, 2)
        assert journal.log.read(3) == b"new"
        journal.log.sync()
        assert [entry[0] for entry in journal.log[:]] == [command(1), command(2), b"new"]


def test_a_truncation_frees_the_memory_of_the_removed_entries(storage: SimStorage) -> None:
    journal = open_journal(storage, limits=JournalLimits())
    fill(journal, 10, size=1000)
    journal.log.truncate(1)
    assert 1000 < journal.stats().cached_bytes < 2000


def test_descriptors_are_bounded_whatever_the_number_of_segments(storage: SimStorage) -> None:
    journal = open_journal(storage)
    for _ in range(40):
        fill(journal, 3, size=150)
        journal.log.sync()
    assert journal.stats().segments > 30
    for index in range(1, 121):
        assert journal.log.read(index) == command(index, 150)
        # Two segments and the mark.
        assert storage.open_files <= 3
    journal.close()
    assert storage.open_files == 0


def test_the_figures_tell_syncs_sizes_and_space() -> None:
    storage = SimStorage(capacity_bytes=100_000)
    times = iter((10.0, 10.003, 20.0, 20.0001))
    journal = Journal.open(storage, cluster_id=CLUSTER, node=NODE, clock=lambda: next(times))
    fill(journal, 10)
    journal.log.sync()
    fill(journal, 10)
    journal.log.sync()
    figures = journal.stats()
    assert (figures.syncs, figures.entries, figures.segments) == (2, 20, 1)
    assert figures.last_sync_seconds == pytest.approx(0.0001)
    assert figures.mean_sync_seconds == pytest.approx(0.00155)
    assert figures.sync_buckets[SYNC_BUCKET_SECONDS.index(0.005)] == 1
    assert figures.sync_buckets[0] == 1
    assert sum(figures.sync_buckets) == 2
    names = [name for name in storage.listdir() if name.endswith(".segment")]
    assert figures.disk_bytes == sum(len(storage.content(name)) for name in names)
    assert figures.written_bytes < figures.disk_bytes
    assert figures.free_bytes == 100_000 - sum(
        len(storage.content(name)) for name in storage.listdir()
    )


def test_the_repr_of_a_journal_is_a_status_line(storage: SimStorage) -> None:
    journal = open_journal(storage)
    fill(journal, 2)
    journal.log.set_term(4, "beta")
    journal.log.add(b"x", 3, 4)
    assert repr(journal) == (
        "<Journal simulated open, entries 1..3, synced 2, term 4, voted for beta>"
    )


# --- the commit hint ---


def test_b23_the_commit_index_never_lies_beyond_the_log(storage: SimStorage) -> None:
    journal = open_journal(storage)
    journal.log.note_commit(50)
    assert journal.log.commit_hint() == 0
    fill(journal, 2)
    assert journal.log.commit_hint() == 1, "the no-op of entry 1 is committed in every log"
    journal.log.note_commit(50)
    assert journal.log.commit_hint() == 2
    fill(journal, 60)
    assert journal.log.commit_hint() == 2, "a clamped hint does not grow with the log"
    journal.close()
    assert open_journal(storage).log.commit_hint() == 2


def test_a_moved_commit_index_is_written_within_a_timer_tick_and_only_once(
    storage: SimStorage,
) -> None:
    journal = open_journal(storage)
    fill(journal, 9)
    journal.log.sync()
    journal.log.note_commit(5)
    assert not journal.log.dirty, "a hint alone asks for no sync"
    journal.log.each_second()
    assert journal.log.dirty
    journal.log.sync()
    journal.log.each_second()
    assert not journal.log.dirty
    storage.crash()
    assert open_journal(storage).log.commit_hint() == 5


def test_the_commit_index_never_goes_back(storage: SimStorage) -> None:
    journal = open_journal(storage)
    fill(journal, 9)
    journal.log.note_commit(5)
    journal.log.note_commit(3)
    assert journal.log.commit_hint() == 5


# --- what is refused ---


def test_a_gap_or_a_falling_term_is_refused_and_changes_nothing(storage: SimStorage) -> None:
    journal = open_journal(storage)
    fill(journal, 3, term=4)
    for index, term in ((3, 4), (5, 4), (0, 4), (4, 3)):
        with pytest.raises(JournalRefused, match="cannot follow entry 3 of term 4"):
            journal.log.add(b"x", index, term)
    assert journal.log.last_index == 3
    journal.close()
    assert open_journal(storage).log.last_index == 3


def test_an_oversized_command_is_refused_and_changes_nothing(storage: SimStorage) -> None:
    journal = open_journal(storage, limits=JournalLimits(command_bytes=100))
    with pytest.raises(JournalRefused, match="101 bytes, the maximum is 100"):
        journal.log.add(bytes(101), 1, 1)
    assert not journal.log.dirty
    journal.log.add(bytes(100), 1, 1)


def test_b08_a_second_vote_in_a_term_or_a_falling_term_is_refused(storage: SimStorage) -> None:
    journal = open_journal(storage)
    journal.log.set_term(7, None)
    journal.log.set_term(7, "beta")
    journal.close()
    journal = open_journal(storage)
    for term, name in ((7, "gamma"), (7, None), (6, None)):
        with pytest.raises(JournalRefused):
            journal.log.set_term(term, name)
    assert (journal.log.term, journal.log.voted_for) == (7, "beta")


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_name_that_cannot_be_stored_is_refused(storage: SimStorage, name: str) -> None:
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        open_journal(storage, node=name)
    journal = open_journal(storage, node="x" * 255)
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        journal.log.set_term(1, name)


def test_committed_entries_and_the_first_cannot_be_removed(storage: SimStorage) -> None:
    journal = open_journal(storage)
    fill(journal, 9)
    with pytest.raises(JournalRefused, match="entries up to 1 stay"):
        journal.log.truncate(0)
    journal.log.note_commit(4)
    with pytest.raises(JournalRefused, match="entries up to 4 stay"):
        journal.log.truncate(3)
    journal.log.truncate(9)
    assert journal.log.last_index == 9
    journal.log.truncate(4)
    assert journal.log.last_index == 4


def test_a_closed_journal_takes_nothing_more(storage: SimStorage) -> None:
    journal = open_journal(storage)
    fill(journal, 3)
    journal.close()
    journal.close()
    for call in (
        lambda: journal.log.add(b"x", 4, 1),
        lambda: journal.log.set_term(2, None),
        lambda: journal.log.truncate(2),
        lambda: journal.log.read(2),
        journal.log.sync,
        journal.log.each_second,
    ):
        with pytest.raises(JournalFailed, match="is closed"):
            call()
    assert "closed" in repr(journal)


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment_bytes": 100},
        {"segment_bytes": 1 << 31},
        {"command_bytes": 0},
        {"command_bytes": 1 << 30},
        {"cache_bytes": -1},
        {"replay_chunk_bytes": 0},
        {"open_segments": 1},
    ],
)
def test_limits_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        JournalLimits(**wrong)


def test_a_cluster_id_of_the_wrong_length_is_refused(storage: SimStorage) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        open_journal(storage, cluster_id=b"short")
