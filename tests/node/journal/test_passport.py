"""Passports on a simulated disk: first starts that end anywhere, and folders that may begin."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from node.journal.errors import JournalFailed, JournalFull
from node.journal.journal import Journal
from node.journal.passport import ID_BYTES, INIT_ORDER, Keeper, Known, read
from node.journal.recovery.open import holds_nothing, may_begin
from node.testing.disk import PowerCut, SimStorage
from tests.support.journals import CLUSTER, NODE, SMALL

pytestmark = pytest.mark.slow

STAMP = "20261124T020000Z"


def keeper(seed: int, *, begins: bool = False) -> Keeper:
    rng = random.Random(seed)
    return Keeper(rng.randbytes, lambda: STAMP, begins=begins)


def opened(storage: SimStorage, kept: Keeper, recover: str | None = None) -> Journal:
    return Journal.open(
        storage, cluster_id=CLUSTER, node=NODE, limits=SMALL, keeper=kept, recover=recover
    )


def disk(*, ordered: bool, stops_at: int | None = None) -> SimStorage:
    """An empty disk, perhaps with the order of `fifo cluster init`, and the end of its power."""
    storage = SimStorage()
    if ordered:
        storage.replace(INIT_ORDER, b"")

    def hook(operation: str, name: str) -> None:
        if stops_at is not None and storage.operations > stops_at:
            raise PowerCut

    storage.hook = hook
    return storage


@pytest.mark.parametrize("ordered", [True, False], ids=["init", "alone"])
def test_a_first_start_that_power_ends_anywhere_begins_at_the_next(ordered: bool) -> None:
    whole = disk(ordered=ordered)
    opened(whole, keeper(0, begins=not ordered)).close()
    for number in range(whole.operations):
        storage = disk(ordered=ordered, stops_at=number)
        kept = keeper(number, begins=not ordered)
        with pytest.raises(PowerCut):
            opened(storage, kept).close()
        storage.power_loss(random.Random(number))
        journal = opened(storage, kept)
        assert journal.passport is not None
        assert journal.passport.begun, number
        assert INIT_ORDER not in storage.listdir()


def test_a_folder_in_which_a_node_waited_may_begin_and_one_of_a_member_may_not() -> None:
    storage, kept = SimStorage(), keeper(1)
    assert may_begin(storage)
    waiting = opened(storage, kept)
    assert waiting.passport is not None
    assert len(waiting.passport.journal) == ID_BYTES
    assert not waiting.passport.begun
    waiting.close()
    assert not holds_nothing(storage)
    assert may_begin(storage)
    storage.replace(INIT_ORDER, b"")
    opened(storage, kept).close()
    found = read(storage)
    assert found is not None
    assert (found.begun, found.journal) == (True, waiting.passport.journal)
    assert not may_begin(storage)


def test_the_founders_are_those_of_the_file_when_the_journal_began() -> None:
    storage, kept = SimStorage(), keeper(5)
    opened(storage, replace(kept, members=("a",))).close()
    for members in ((NODE, "b"), (NODE, "c")):
        storage.replace(INIT_ORDER, b"")
        opened(storage, replace(kept, members=members)).close()
        found = read(storage)
        assert found is not None
        assert found.founders == (NODE, "b")


def test_a_passport_from_before_founders_were_kept_takes_those_of_the_file() -> None:
    storage, kept = SimStorage(), keeper(6, begins=True)
    opened(storage, kept).close()
    opened(storage, replace(kept, members=(NODE, "b"))).close()
    found = read(storage)
    assert found is not None
    assert found.founders == (NODE, "b")


def test_a_first_start_on_a_full_disk_is_refused_with_a_clear_message() -> None:
    storage = disk(ordered=True)
    storage.capacity_bytes = 10
    with pytest.raises(JournalFull, match=r"no room to open the journal .*free some space"):
        opened(storage, keeper(3))
    storage.capacity_bytes = None
    journal = opened(storage, keeper(3))
    assert journal.passport is not None
    assert journal.passport.begun


def test_a_passport_is_written_in_the_room_of_the_reserve() -> None:
    """A note about the others ends no node that has a reserve; without one the node says why."""
    storage = SimStorage(capacity_bytes=100_000)
    journal = Journal.open(
        storage, cluster_id=CLUSTER, node=NODE, keeper=keeper(4, begins=True),
        limits=replace(SMALL, reserve_bytes=5_000),
    )  # fmt: skip
    papers = journal.passport
    assert papers is not None
    storage.fill(0)
    learned = replace(papers, others={"b": Known(b"b" * 16, 1, b"o" * 16)})
    journal.writing_passport(learned)()
    assert read(storage) == learned
    storage.fill(0)
    with pytest.raises(JournalFailed, match=r"has stopped: no room left on the disk"):
        journal.writing_passport(papers)()


def test_a_folder_of_a_member_that_recovers_may_not_begin() -> None:
    storage = SimStorage()
    opened(storage, keeper(2), recover=STAMP).close()
    found = read(storage)
    assert found is not None
    assert not found.begun
    assert not may_begin(storage)
