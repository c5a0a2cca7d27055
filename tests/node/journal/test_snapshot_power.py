"""Snapshots, cleaning up and installations under power losses, kills and failing disks."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from node.journal.errors import JournalFailed, JournalFull, JournalUnusable
from node.testing.disk import PowerCut, SimStorage
from tests.support.journals import fill, open_journal
from tests.support.snapshot_script import LIVE, SIZE, Life, Moment, check_holds
from tests.support.snapshots import clean_up, take

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow


def operations_of_a_whole_life() -> list[tuple[str, str]]:
    storage = SimStorage()
    seen: list[tuple[str, str]] = []
    storage.hook = lambda operation, name: seen.append((operation, name))
    life = Life(storage)
    assert life.stopped is None
    return seen


SEEDS = 1
"""The suffix that a power loss takes is drawn anew at each operation; one round meets most."""

OPERATIONS = operations_of_a_whole_life()


def stop_at(
    storage: SimStorage, number: int, problem: Callable[[], Exception], *, once: bool = False
) -> None:
    """Lets operation `number`, counted from 0, fail, and everything after it too unless `once`."""

    def hook(operation: str, name: str) -> None:
        if storage.operations == number + 1 or (storage.operations > number and not once):
            raise problem()

    storage.hook = hook


def check_goes_on(storage: SimStorage, expected: list[Moment], rng: random.Random) -> None:
    """Opens the disk, demands one of `expected`, cleans up, works on, loses power again."""
    journal = open_journal(storage)
    moment = check_holds(journal, expected)
    # What was found counts as durable from now on, so it has to be.
    storage.power_loss(rng)
    journal = open_journal(storage)
    check_holds(journal, [moment])
    clean_up(journal)
    check_holds(journal, [moment])
    check_tidy(storage, journal.stats().snapshots.count)
    storage.power_loss(rng)
    journal = open_journal(storage)
    check_holds(journal, [moment])
    fill(journal, 4, size=SIZE, term=9)
    journal.log.set_term(9, "alpha")
    live = LIVE[moment.snapshot] if moment.snapshot else ()
    take(journal, live)
    clean_up(journal)
    last, term = journal.log.last_index, journal.log.term
    storage.power_loss(rng)
    journal = open_journal(storage)
    assert (journal.log.last_index, journal.log.term) == (last, term)
    for index in live:
        assert journal.log.read(index) == moment.entries[index - 1][0]


def check_tidy(storage: SimStorage, snapshots: int) -> None:
    """Nothing is left lying about: no temporary file, no third snapshot."""
    endings = Counter(name.rpartition(".")[2] for name in storage.listdir())
    assert endings["tmp"] == 0
    assert endings["snapshot"] == snapshots <= 2


def test_the_script_produces_the_cases_that_the_sweeps_need() -> None:
    done = Counter(
        (operation, name.removesuffix(".tmp").rpartition(".")[2]) for operation, name in OPERATIONS
    )
    for ending in ("snapshot", "kept", "segment"):
        for operation in ("create", "write", "sync", "rename", "unlink"):
            assert done[operation, ending], (operation, ending)
    assert done["unlink", "segment"] > 10


@pytest.mark.parametrize("seed", range(SEEDS))
def test_b02_a_power_loss_at_any_operation_loses_nothing_acknowledged(seed: int) -> None:
    open_ended = 0
    for number in range(len(OPERATIONS)):
        rng = random.Random(f"{seed}/{number}")
        storage = SimStorage()
        stop_at(storage, number, PowerCut)
        life = Life(storage)
        assert isinstance(life.stopped, PowerCut)
        storage.power_loss(rng)
        check_goes_on(storage, life.possible, rng)
        open_ended += len(life.possible) > 1
    assert open_ended


def test_b03_a_kill_at_any_operation_loses_nothing_acknowledged() -> None:
    for number in range(len(OPERATIONS)):
        storage = SimStorage()
        stop_at(storage, number, PowerCut)
        life = Life(storage)
        storage.crash()
        check_goes_on(storage, life.possible, random.Random(number))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_b15_an_error_of_a_snapshot_is_given_up_and_one_of_the_journal_is_final(code: int) -> None:
    """Each operation fails once. What is not the journal's own is tried again and succeeds; room
    that the disk does not have is done without."""
    given_up = roomless = 0
    for number, (operation, name) in enumerate(OPERATIONS):
        storage = SimStorage()
        stop_at(storage, number, lambda: OSError(code, os.strerror(code)), once=True)
        life = Life(storage)
        base = name.removesuffix(".tmp")
        beside = operation == "unlink" or base.endswith((".snapshot", ".kept"))
        if beside:
            assert life.stopped is None, (number, operation, name)
            assert life.given_up == 1, (number, operation, name)
            given_up += 1
        elif life.stopped is None:
            assert (code, operation) == (errno.ENOSPC, "write"), (number, name)
            roomless += 1
        else:
            assert isinstance(life.stopped, JournalFailed | JournalFull | JournalUnusable)
        storage.crash()
        check_goes_on(storage, life.possible, random.Random(number))
    assert given_up > 30
    assert (roomless > 0) == (code == errno.ENOSPC)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_b15_a_disk_that_fails_for_good_leaves_a_journal_that_opens(code: int) -> None:
    for number in range(0, len(OPERATIONS), 3):
        storage = SimStorage()
        stop_at(storage, number, lambda: OSError(code, os.strerror(code)))
        life = _stopped_life(storage)
        storage.crash()
        check_goes_on(storage, life.possible, random.Random(number))


def _stopped_life(storage: SimStorage) -> Life:
    life = Life(storage)
    assert life.stopped is not None
    return life
