"""Frames of a client on their way out, held against what its program has and waits for.

Owns the look at frames on their way out. Must not know what a program did to have them sent.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, cast

from fifo.client.connection.environment import over_tcp
from fifo.client.connection.link import Link
from fifo.wire import Buffer
from fifo.wire.columns import SIZES, unpack_u32
from fifo.wire.messages import Message, Publish, PublishAcross, Renew
from tests.client.model.truth import Lock

if TYPE_CHECKING:
    from tests.client.model.acting import Actor


WINDOW_BYTES: Final = 1_000
"""Of every client: less than the least that one may choose, for messages that are as small."""

LARGE_BYTES: Final = 400
"""The largest message, or list of messages: three of them fill a window."""


class Sending:
    """The frames of one program."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._bodies: set[bytes] = set()
        """Bodies that were sent."""

    async def dial(
        self,
        factory: Callable[[], asyncio.Protocol],
        host: str,
        port: int,
        context: ssl.SSLContext | None,
    ) -> None:
        """Open a connection as a client does, and look at each frame before it is sent."""
        link = cast("Link", factory())
        send: Final = link.send

        def seen(message: Message, correlation: int = 0, raw: Sequence[Buffer] = ()) -> None:
            self._look(message, raw)
            send(message, correlation, raw)

        link.send = seen  # type: ignore[method-assign]  # of this one link: a look from outside
        await over_tcp(lambda: link, host, port, context)

    def _look(self, message: Message, raw: Sequence[Buffer]) -> None:
        match message:
            case Renew(explicit=False):
                self._renews(set(_locks(message)))
            case Publish() | PublishAcross():
                self._publishes(list(_bodies(message.columns, b"".join(raw))))

    def _renews(self, named: set[Lock]) -> None:
        """A renewal names all that its program holds, and nothing that it has settled."""
        promises = self._actor.scene.promises
        for letter in self._actor.letters:
            is_named = letter.lock in named
            if is_named:
                held = letter.renews and not letter.is_over
                promises.holds("what is renewed is held", held, f"{letter} is renewed")
            if promises.must_be_renewed(letter):
                promises.holds("what is held is renewed", is_named, f"{letter} is not renewed")

    def _publishes(self, bodies: Sequence[bytes]) -> None:
        """Compare what was sent and not answered with the window, which one message may exceed."""
        actor = self._actor
        if actor.blocks:  # its threads hear of an answer after the room was given on
            return
        self._bodies.update(bodies)
        waiting = [one.body for one in actor.publishings if not one.ended]
        sent = sum(len(body) for body in waiting if body in self._bodies)
        few = sent <= WINDOW_BYTES + LARGE_BYTES
        actor.scene.promises.holds("unanswered within the window", few, f"{actor}: {sent} bytes")


def _locks(message: Renew) -> Iterator[Lock]:
    for consumer, ranges in message.items:
        for first, last in ranges:
            for token in range(first, last + 1):
                yield consumer, token


def _bodies(columns: Sequence[tuple[int, int]], raw: bytes) -> Iterator[bytes]:
    """Cut the bodies of a publish out of its raw part, where they stand behind all columns."""
    *begins, at = accumulate((size for _, size in columns), initial=0)
    found = {
        tag: raw[begin : begin + size] for (tag, size), begin in zip(columns, begins, strict=True)
    }
    for size in unpack_u32(found[SIZES]):
        yield raw[at : at + size]
        at += size
