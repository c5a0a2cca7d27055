"""The journal under power losses, kills, full disks and failing disks, on the simulated disk."""

from __future__ import annotations

import errno
import os
import random
from typing import TYPE_CHECKING

import pytest

from node.journal.errors import JournalFailed, JournalFull, JournalUnusable
from node.journal.journal import Journal
from node.journal.limits import JournalLimits
from node.testing.disk import PowerCut, SimStorage
from tests.support.journals import (
    NODE,
    ONE_SEGMENT,
    SMALL,
    State,
    busy_script,
    command,
    fill,
    journal_with,
    open_journal,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow


SEEDS = range(6)


class Run:
    """The busy script on a disk, until it ends or something stops it.

    `states` are the log's states after each step; the one at `acknowledged` was the newest that
    a successful sync covered.
    """

    def __init__(self, storage: SimStorage) -> None:
        self.states: list[State] = [((), 0, None)]
        self.acknowledged = 0
        self.stopped: Exception | None = None
        try:
            self._run(storage)
        except (PowerCut, JournalFailed, JournalFull, JournalUnusable) as problem:
            self.stopped = problem

    def _run(self, storage: SimStorage) -> None:
        journal = open_journal(storage)
        for step in busy_script(journal):
            syncs = storage.syncs
            try:
                step()
            finally:
                # A step that was interrupted may be on the disk, or not.
                self.states.append(state_in_memory(journal, self.states[-1]))
            if not journal.log.dirty and storage.syncs > syncs:
                self.acknowledged = len(self.states) - 1
        journal.close()

    @property
    def possible(self) -> list[State]:
        """The states that a restart may find: nothing acknowledged is missing."""
        return self.states[self.acknowledged :]


def state_in_memory(journal: Journal, otherwise: State) -> State:
    """The journal's state, also when it has failed and can no longer read its disk."""
    known = dict(enumerate(otherwise[0]))
    entries = []
    for place in range(len(journal.log)):
        index = place + 1
        old = known.get(place)
        if old is not None and old[2] == journal.log.term_at(index):
            entries.append(old)
        else:
            entries.append((journal.log.read(index), index, journal.log.term_at(index)))
    return tuple(entries), journal.log.term, journal.log.voted_for


def operations_of_a_whole_run() -> int:
    storage = SimStorage()
    assert Run(storage).stopped is None
    return storage.operations


OPERATIONS = operations_of_a_whole_run()


def stop_at(storage: SimStorage, number: int, problem: Callable[[], Exception]) -> None:
    """Lets operation `number`, counted from 0, fail, and everything after it too."""

    def hook(operation: str, name: str) -> None:
        if storage.operations > number:
            raise problem()

    storage.hook = hook


def check_goes_on(storage: SimStorage, expected: list[State], rng: random.Random) -> None:
    """Opens the disk, demands one of `expected`, works on, loses power again."""
    journal = open_journal(storage)
    state = state_of(journal)
    assert state in expected
    assert journal.log.synced_index == journal.log.last_index
    # What was found counts as durable from now on, so it has to be.
    storage.power_loss(rng)
    journal = open_journal(storage)
    assert state_of(journal) == state
    fill(journal, 4, term=9)
    journal.log.set_term(9, NODE)
    state = state_of(journal)
    storage.power_loss(rng)
    assert state_of(open_journal(storage)) == state


@pytest.mark.parametrize("seed", SEEDS)
def test_b18_a_power_loss_at_any_operation_loses_nothing_acknowledged(seed: int) -> None:
    kept_more = 0
    for number in range(OPERATIONS):
        rng = random.Random(f"{seed}/{number}")
        storage = SimStorage()
        stop_at(storage, number, PowerCut)
        run = Run(storage)
        assert isinstance(run.stopped, PowerCut)
        storage.power_loss(rng)
        check_goes_on(storage, run.possible, rng)
        kept_more += len(run.possible) > 1
    assert kept_more, "some cuts have to fall between a record and its sync"


def test_b18_a_kill_at_any_operation_loses_nothing_acknowledged() -> None:
    for number in range(OPERATIONS):
        storage = SimStorage()
        stop_at(storage, number, PowerCut)
        run = Run(storage)
        storage.crash()
        check_goes_on(storage, run.possible, random.Random(number))


@pytest.mark.parametrize("number_of_error", [errno.ENOSPC, errno.EIO])
def test_b15_an_error_at_any_operation_stops_and_leaves_a_journal_that_opens(
    number_of_error: int,
) -> None:
    for number in range(OPERATIONS):
        storage = SimStorage()
        stop_at(storage, number, lambda: OSError(number_of_error, os.strerror(number_of_error)))
        run = Run(storage)
        assert isinstance(run.stopped, JournalFailed | JournalFull | JournalUnusable), number
        storage.crash()
        check_goes_on(storage, run.possible, random.Random(number))


def test_b18_nothing_unsynced_is_reported_as_synced() -> None:
    lost = 0
    for seed in range(50):
        storage = SimStorage()
        journal = open_journal(storage)
        fill(journal, 5)
        journal.log.sync()
        fill(journal, 5)
        assert (journal.log.synced_index, journal.log.last_index) == (5, 10)
        storage.power_loss(random.Random(seed))
        journal = open_journal(storage)
        assert journal.log.last_index >= 5
        lost += journal.log.last_index < 10
    assert lost, "what was never synced has to be lost sometimes"


def test_synced_index_falls_with_a_truncation_and_rises_with_the_sync() -> None:
    journal = open_journal(SimStorage())
    fill(journal, 10)
    journal.log.sync()
    journal.log.truncate(6)
    assert journal.log.synced_index == 6
    fill(journal, 8, term=2)
    assert journal.log.synced_index == 6
    journal.log.sync()
    assert journal.log.synced_index == 14


def test_b08_a_vote_survives_every_power_loss_after_the_call() -> None:
    for seed in range(50):
        storage = SimStorage()
        journal = open_journal(storage)
        fill(journal, 3)
        journal.log.set_term(7, "beta")
        storage.power_loss(random.Random(seed))
        journal = open_journal(storage)
        assert (journal.log.term, journal.log.voted_for) == (7, "beta")
        assert journal.log.last_index == 3, (
            "what the voter compared against is durable with the vote"
        )


def test_b08_the_vote_is_found_in_the_newest_segment_too() -> None:
    storage = SimStorage()
    journal = open_journal(storage)
    journal.log.set_term(7, "beta")
    for _ in range(10):
        fill(journal, 3, size=200, term=7)
        journal.log.sync()
    journal.close()
    newest = max(name for name in storage.listdir() if name.endswith(".segment"))
    assert b"beta" in storage.content(newest)
    assert open_journal(storage).log.voted_for == "beta"


def test_b15_a_full_disk_stops_the_journal_and_space_brings_it_back() -> None:
    storage = SimStorage(capacity_bytes=5_000)
    journal = open_journal(storage, limits=ONE_SEGMENT)
    acknowledged = 0
    with pytest.raises(JournalFailed, match="no room left on the disk"):  # noqa: PT012
        while True:
            fill(journal, 3, size=100)
            journal.log.sync()
            acknowledged = journal.log.last_index
    assert acknowledged > 20
    assert journal.log.synced_index == acknowledged
    for call in (
        journal.log.sync,
        lambda: journal.log.add(b"x", journal.log.last_index + 1, 1),
        lambda: journal.log.set_term(2, None),
    ):
        with pytest.raises(JournalFailed, match="no room left on the disk"):
            call()
    journal.close()
    # The disk is as full as before, and the node starts all the same.
    again = open_journal(storage, limits=ONE_SEGMENT)
    assert again.log.last_index >= acknowledged
    for index in range(1, acknowledged + 1):
        assert again.log.read(index) == command(index, 100)
    storage.capacity_bytes = None
    fill(again, 100)
    again.close()
    assert open_journal(storage, limits=ONE_SEGMENT).log.last_index == again.log.last_index


def test_a_full_disk_refuses_a_new_journal_with_a_clear_message() -> None:
    storage = SimStorage(capacity_bytes=10)
    with pytest.raises(JournalFull, match="no room to open the journal in simulated"):
        open_journal(storage)
    storage.capacity_bytes = None
    assert len(open_journal(storage).log) == 0


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_an_unwritable_folder_is_refused_with_a_clear_message(number: int) -> None:
    storage = SimStorage()

    def refuse(operation: str, name: str) -> None:
        raise OSError(number, os.strerror(number))

    storage.hook = refuse
    with pytest.raises(JournalUnusable, match="cannot use the journal folder simulated"):
        open_journal(storage)
    storage.hook = None
    open_journal(storage)


def test_a_failed_sync_is_never_tried_again_on_the_same_descriptor() -> None:
    storage, journal = journal_with(3, limits=ONE_SEGMENT)
    attempts: list[str] = []

    def fail(operation: str, name: str) -> None:
        attempts.append(operation)
        if operation == "sync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    storage.hook = fail
    fill(journal, 3)
    with pytest.raises(JournalFailed, match="the disk failed"):
        journal.log.sync()
    assert attempts == ["write", "sync"]
    assert journal.log.synced_index == 3
    with pytest.raises(JournalFailed):
        journal.log.sync()
    with pytest.raises(JournalFailed):
        journal.log.each_second()
    journal.close()
    assert attempts == ["write", "sync"], "nothing touches the disk after a failure"


@pytest.mark.parametrize("seed", SEEDS)
def test_pages_of_a_failed_sync_are_written_again_before_they_count(
    seed: int,
) -> None:
    """The kernel holds the lost pages as clean: a restart reads them, a sync skips them."""
    storage, journal = journal_with(3, limits=ONE_SEGMENT)

    def fail(operation: str, name: str) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    storage.hook = fail
    fill(journal, 3)
    with pytest.raises(JournalFailed):
        journal.log.sync()
    storage.crash()
    journal = open_journal(storage, limits=ONE_SEGMENT)
    assert journal.log.synced_index == 6
    storage.power_loss(random.Random(seed))
    assert open_journal(storage, limits=ONE_SEGMENT).log.last_index == 6


def test_a_failure_while_reading_is_final_too() -> None:
    storage = SimStorage()
    journal = open_journal(
        storage, limits=JournalLimits(segment_bytes=512, cache_bytes=0, open_segments=2)
    )
    for _ in range(4):
        fill(journal, 3, size=300)
        journal.log.sync()
    names = storage.listdir()
    storage.remove(names[0])
    storage.remove(names[1])
    with pytest.raises(JournalFailed, match="the disk failed"):
        journal.log.read(1)
    with pytest.raises(JournalFailed):
        journal.log.add(b"x", 13, 1)


def test_a_failed_opening_gives_the_folder_back() -> None:
    storage = SimStorage()
    open_journal(storage).close()
    storage.hook = lambda operation, name: _raise(OSError(errno.EIO, "broken"))
    with pytest.raises(JournalUnusable):
        open_journal(storage)
    storage.hook = None
    assert storage.open_files == 0
    open_journal(storage)


def _raise(problem: Exception) -> None:
    raise problem


def test_the_sweeps_cover_several_segments() -> None:
    storage = SimStorage()
    Run(storage)
    assert open_journal(storage, limits=SMALL).stats().segments >= 4
