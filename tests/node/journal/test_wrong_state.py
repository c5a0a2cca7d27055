"""The note of a wrong state: whole or not there, whatever ends the process that writes it."""

from __future__ import annotations

import random

import pytest

from node.journal import wrong_state
from node.journal.wrong_state import UNREADABLE, WRONG_STATE_NAME, WrongState
from node.testing.disk import SimStorage

pytestmark = pytest.mark.slow

NOTE = WrongState(2_048, 2_100)


def noted(wrong: WrongState) -> SimStorage:
    """A disk with a note."""
    storage = SimStorage()
    storage.lock()
    wrong_state.write(storage, wrong)
    return storage


def test_a_note_is_read_as_it_was_written() -> None:
    storage = noted(NOTE)
    assert wrong_state.read(storage) == NOTE
    wrong_state.write(storage, WrongState(5, 6))
    assert wrong_state.read(storage) == WrongState(5, 6)
    wrong_state.remove(storage)
    assert wrong_state.read(storage) is None
    assert storage.listdir() == []


def test_a_power_cut_after_the_call_takes_nothing_back() -> None:
    for seed in range(20):
        storage = noted(NOTE)
        storage.power_loss(random.Random(seed))
        fresh = storage.for_process()
        fresh.lock()
        assert wrong_state.read(fresh) == NOTE


@pytest.mark.parametrize(
    "content",
    [b"", b"fifo wrong 5 6\n", b"fifo wrong 5 6 00000000\n", b"\0" * 40],
    ids=["empty", "no checksum", "another checksum", "zeros"],
)
def test_a_note_that_cannot_be_read_says_that_any_state_is_wrong(content: bytes) -> None:
    """A start that took it for none would begin from the wrong state."""
    storage = SimStorage()
    storage.lock()
    file = storage.create(WRONG_STATE_NAME)
    file.write(0, (content,))
    file.close()
    assert wrong_state.read(storage) == UNREADABLE


def test_what_a_crash_left_of_a_note_is_none() -> None:
    storage = SimStorage()
    storage.lock()
    storage.create(f"{WRONG_STATE_NAME}.tmp").close()
    assert wrong_state.read(storage) is None
    wrong_state.write(storage, NOTE)
    assert wrong_state.read(storage) == NOTE
