"""Whole views of one node: their bytes in pieces, their entries, and pins at one index."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from node.broker import limits
from node.broker.pin_copies import StatePiece, ViewCopy
from node.broker.pins import NEVER
from tests.node.broker.test_pins import Made
from tests.support.machine import Bench


def result(steps: Generator[None, None, Any]) -> Any:
    """The result of steps, taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def busy() -> Bench:
    """A machine with messages in several entries."""
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    for _ in range(40):
        bench.publish(session, "q", *"abcdefgh")
    return bench


def test_the_pieces_of_a_state_are_its_canonical_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COPY_PIECE_BYTES", 100)
    bench = busy()
    whole, digest = bench.machine.snapshot(), bench.machine.digest()
    copy = ViewCopy(bench.machine.freeze())
    session = bench.attach()
    pieces: list[StatePiece] = []
    while not (pieces and pieces[-1].digest):
        at = pieces[-1].after if pieces else 0
        piece = result(copy.state(at))
        assert result(copy.state(at)) == piece, "an answer that was lost is asked for again"
        pieces.append(piece)
        bench.publish(session, "q", *"later")
    assert b"".join(piece.data for piece in pieces) == whole
    assert pieces[-1].digest == digest
    assert len(pieces) > 10
    assert {len(piece.data) for piece in pieces[:-1]} == {100}
    assert result(copy.state(0)) is None, "it is made once, in order"
    assert result(copy.state(pieces[-1].after + 1)) is None


def test_a_state_of_whole_pieces_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = busy()
    monkeypatch.setattr(limits, "COPY_PIECE_BYTES", len(bench.machine.snapshot()))
    copy = ViewCopy(bench.machine.freeze())
    first = result(copy.state(0))
    last = first if first.digest else result(copy.state(first.after))
    assert last.digest == bench.machine.digest()


def test_one_reader_at_a_time_makes_pieces() -> None:
    copy = ViewCopy(busy().machine.freeze())
    first = copy.state(0)
    next(first)
    assert result(copy.state(0)) is None, "another is at it"
    first.close()
    assert result(copy.state(0)).digest, "it went away"


def test_entries_come_in_order_from_any_place() -> None:
    bench = busy()
    copy = ViewCopy(bench.machine.freeze())
    found, last = result(copy.entries(0, 1_000))
    assert last
    assert found == sorted(set(found))
    assert len(found) == 40
    again: list[int] = []
    over = False
    while not over:
        some, over = result(copy.entries(again[-1] if again else 0, 7))
        again += some
    assert again == found
    assert result(copy.entries(found[-1], 7)) == ([], True)
    assert result(ViewCopy(Bench().machine.freeze()).entries(0, 7)) == ([], True)


def test_a_pin_at_one_index_is_made_between_two_entries() -> None:
    made = Made()
    pins, log = made.pins, made.log
    assert pins.awaiting(59, "ada", 60.0) is None, "60 are applied: it is past"
    now = pins.awaiting(60, "ada", 60.0)
    assert now is not None
    assert now.pin is not None
    later = pins.awaiting(62, "ada", 60.0)
    assert later is not None
    assert not pins.made(later)
    assert pins.awaits == 62
    log.applied_index = 61
    assert not pins.made(later)
    pins.reaches(62)
    assert later.pin is None, "the state before entry 62 is another one"
    pins.reaches(64)  # 63 is Raft's own
    assert later.pin is not None
    assert (now.pin.index, later.pin.index) == (60, 62)
    assert pins.awaits == NEVER
    pins.forget(now)
    pins.forget(later)
    assert len(pins) == 2


def test_the_last_entry_of_an_idle_log_is_an_index_too() -> None:
    made = Made()
    awaited = made.pins.awaiting(61, "", 60.0)
    assert awaited is not None
    made.log.applied_index = 61
    assert made.pins.made(awaited)
    assert awaited.pin is not None
    assert awaited.pin.index == 61


def test_awaited_pins_count_as_pins() -> None:
    made = Made()
    share = limits.PINS_MAX // limits.SHARE_PARTS
    awaited = [made.pins.awaiting(99, "ada", 60.0) for _ in range(share)]
    assert made.pins.refusal("ada") is not None
    first = awaited[0]
    assert first is not None
    made.pins.forget(first)
    assert made.pins.refusal("ada") is None
