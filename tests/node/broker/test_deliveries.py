"""Runs as frames: columns only where something differs, bodies as slices of the log."""

from __future__ import annotations

import os
from array import array

import pytest

from fifo.machine.effects import BlobColumn, Deliver, Run
from fifo.machine.types import Attempt, DeadLetter, TextPlace
from fifo.wire import Decoder, Frame, columns
from fifo.wire.messages import Deliver as DeliverFrame
from node.broker import deliveries, limits

KEYS = b"k1k22"
AREA = KEYS + b"alphabetagamma"


def run(**changed: object) -> Run:
    """Three bodies of entry 7: alpha, beta, gamma."""
    plain = Run(
        7, 3, 5, array("I", [5, 4, 5]), 14, None, None, 2, 100, 1, 1_700, None, None, None, None
    )
    return plain._replace(**changed)  # type: ignore[arg-type]  # a test's own fields


def read(index: int) -> memoryview:
    """The log of these tests."""
    return memoryview(AREA if index == 7 else b"x" * 100)


def framed(*runs: Run) -> tuple[DeliverFrame, columns.Layout]:
    """Return the frame that a client gets of these runs."""
    effect = Deliver(1, 9, "orders", 40, 30_000, 99_000, runs, False, "mine")
    parts = deliveries.deliver_frame(effect, runs, 40, 29_000, read)
    (frame,) = Decoder().receive_data(b"".join(parts))
    assert isinstance(frame, Frame)
    message = frame.message
    assert isinstance(message, DeliverFrame)
    known = columns.DELIVER_TAGS
    return message, columns.lay_out(message.columns, frame.raw, message.count, known)


def test_a_plain_run_is_sizes_and_one_slice() -> None:
    message, layout = framed(run())
    assert layout.bodies() == [b"alpha", b"beta", b"gamma"]
    assert [tag for tag, _ in message.columns] == [columns.SIZES]
    assert message.runs == ((3, 1, 2, 100, 1_700),)
    assert (message.first_token, message.count, message.remaining_ms) == (40, 3, 29_000)


def test_runs_with_and_without_keys_share_a_frame() -> None:
    keyed = run(keys=BlobColumn(0, array("I", [2, 0, 3]), 5))
    _, layout = framed(run(count=1, sizes=array("I", [5]), bodies_bytes=5), keyed)
    assert layout.blobs(columns.KEY_LENGTHS) == [b"", b"k1", b"", b"k22"]
    assert layout.bodies() == [b"alpha", b"alpha", b"beta", b"gamma"]


def test_a_redelivered_message_says_how_often() -> None:
    again = run(count=1, sizes=array("I", [5]), bodies_bytes=5, attempts=array("I", [4]))
    again = again._replace(failures=array("I", [2]))
    _, layout = framed(run(), again)
    attempts, failures = layout.column(columns.ATTEMPTS), layout.column(columns.FAILURES)
    assert attempts is not None
    assert failures is not None
    assert list(columns.unpack_u32(attempts)) == [1, 1, 1, 4]
    assert list(columns.unpack_u32(failures)) == [0, 0, 0, 2]


def test_priorities_are_filled_with_the_default() -> None:
    _, layout = framed(run(), run(priorities=bytes([9, 8, 7])))
    assert bytes(layout.column(columns.PRIORITIES) or b"") == bytes([4, 4, 4, 9, 8, 7])


def test_a_dead_letter_brings_its_record_with_long_texts_from_the_log() -> None:
    letter = DeadLetter(
        0, TextPlace(7, 5, 3), "ValueError", "no", TextPlace(7, 5, 5), "orders", "why", 55,
        (Attempt(3, 1, 44),),
    )  # fmt: skip
    dead = run(count=1, sizes=array("I", [5]), bodies_bytes=5, dead_letter=letter)
    message, _ = framed(run(), dead)
    ((position, record),) = message.dead_letters
    assert position == 3
    assert (record["reason"], record["detail"], record["stack"]) == ("terminated", "why", "alpha")
    assert (record["description"], record["exception_text"]) == ("alp", "no")
    assert record["history"] == [[3, "timeout", 44]]


def test_large_deliveries_are_cut_into_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DELIVER_BYTES", 60)
    runs = [run(number=n) for n in range(10)]
    cut = list(deliveries.chunks(runs))
    assert [one for chunk in cut for one in chunk] == runs
    assert [len(chunk) for chunk in cut] == [2] * 5
    assert list(deliveries.chunks([run(bodies_bytes=1000)])) == [[run(bodies_bytes=1000)]]
    assert list(deliveries.chunks([])) == []


def test_dead_letters_with_long_texts_are_cut_into_frames_that_fit() -> None:
    long = TextPlace(8, 0, 16_384)
    letter = DeadLetter(0, long, None, long, long, "orders", long, 55, ())
    dead = [
        run(count=1, sizes=array("I", [5]), bodies_bytes=5, dead_letter=letter) for _ in range(200)
    ]
    effect = Deliver(1, 9, "orders", 1, 30_000, 99_000, tuple(dead), False, "")
    stack = memoryview(b"s" * 16_384)
    delivered = 0
    for chunk in deliveries.chunks(dead):
        parts = deliveries.deliver_frame(effect, chunk, 1, 1, lambda _: stack)
        (frame,) = Decoder().receive_data(b"".join(parts))
        assert isinstance(frame, Frame)
        assert isinstance(frame.message, DeliverFrame)
        assert frame.message.dead_letters[0][1]["stack"] == "s" * 16_384
        delivered += frame.message.count
    assert delivered == 200


def test_a_peek_stops_at_the_size_of_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PEEK_BYTES_MAX", 60)
    taken = deliveries.in_one_peek([run() for _ in range(10)])
    assert len(taken) == 2
    answer, raw = deliveries.peeked("orders", taken, read)
    assert answer.count == 6
    assert sum(map(len, raw)) == 6 * 4 + 2 * 14
    nothing, empty = deliveries.peeked("orders", deliveries.in_one_peek([]), read)
    assert (nothing.count, nothing.columns, empty) == (0, (), [])


def test_bodies_are_not_copied() -> None:
    log = bytearray(os.urandom(100))
    one = Run(1, 1, 10, array("I", [50]), 50, None, None, 1, 1, 1, 0, None, None, None, None)
    effect = Deliver(1, 1, "q", 1, 1, 1, (one,), False, "")
    parts = deliveries.deliver_frame(effect, (one,), 1, 0, lambda _: memoryview(log))
    log[10] ^= 0xFF
    assert bytes(parts[-1]) == bytes(log[10:60])
