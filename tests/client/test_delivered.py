"""The messages of an answer as a sequence: which of them, in which order, each once."""

from __future__ import annotations

import pytest

from fifo.client import Delivered, Delivery, DurableMessage
from fifo.client.consuming.delivered import Stretch, by_token
from fifo.wire.columns import Publication, pack_publication
from fifo.wire.messages import Deliver


def delivery(first_token: int, *bodies: bytes) -> Delivery:
    """A frame with these messages, one run."""
    columns, raw = pack_publication(Publication(bodies))
    runs = ((len(bodies), 3, 9, 1, 1_700_000_000_123),)
    message = Deliver(7, "orders", first_token, len(bodies), 5_000, columns, runs)
    return Delivery(message, memoryview(b"".join(raw)), 0.0, 0.0)


def test_what_comes_again_after_a_lost_connection_is_there_once() -> None:
    """Frames of the first transmission, and others that begin and end elsewhere."""
    came = [
        delivery(1, b"one", b"two", b"three"),
        delivery(2, b"two", b"three", b"four"),
        delivery(3, b"three"),
        delivery(9, b"nine"),
    ]
    messages = Delivered(by_token(came, range(2, 9)), DurableMessage)
    assert [(one.token, one.body) for one in messages] == [(2, b"two"), (3, b"three"), (4, b"four")]


def test_messages_are_made_when_they_are_asked_for() -> None:
    frames = [delivery(1, b"one", b"two"), delivery(3, b"three", b"four", b"five")]
    messages = Delivered([Stretch(frames[0], 1, 1), Stretch(frames[1], 0, 3)], DurableMessage)
    assert len(messages) == 4
    assert messages[0].body == b"two"
    assert messages[-1].body == b"five"
    assert [one.body for one in messages[1:3]] == [b"three", b"four"]
    assert repr(messages) == "<4 messages>"
    for place in (4, -5):
        with pytest.raises(IndexError, match=f"message {place} of 4"):
            messages[place]


def test_bodies_are_cut_once_and_their_bytes_are_there_before_and_after() -> None:
    frame = delivery(1, b"one", b"", b"three")
    assert frame.body_blob() == b"onethree"
    assert frame.bodies == [b"one", b"", b"three"]
    assert frame.bodies is frame.bodies
    assert frame.body_blob() == b"onethree"
    with pytest.raises(AttributeError):
        frame.body  # type: ignore[attr-defined] # noqa: B018 - the look at it is the test
