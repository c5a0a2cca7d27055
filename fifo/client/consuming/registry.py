"""All consumers of a client, as a part of its session.

Owns which of them live, in the order in which they were made, and their tags: a tag is what the
node knows a consumer by in its session, so no two that live have the same one. Keeps none alive: a
consumer that its program lets go of can be collected, and gives back what it has (`leaving`).
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator
from typing import Any, Final

from fifo.client.connection.session import Session
from fifo.client.consuming.consumer import Consumer
from fifo.client.errors import FifoError, SessionEnded
from fifo.wire import limits as wire

_FIRST_AGAIN: Final = 2
"""The first number added to a tag that another consumer has: worker, worker-2, worker-3."""


class Consumers:
    """The consumers that live: neither cancelled nor collected."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._all: list[weakref.ref[Consumer[Any]]] = []
        session.parts.append(self)

    def add(self, consumer: Consumer[Any]) -> None:
        """Tell it of the session's events from here on; those that have gone are forgotten."""
        self._all = [weakref.ref(one) for one in self]
        self._all.append(weakref.ref(consumer))

    def __iter__(self) -> Iterator[Consumer[Any]]:
        found = [reference() for reference in self._all]
        return iter([one for one in found if one is not None and not one.cancelled])

    def free_tag(self, queue: str, tag: str) -> str:
        """This tag, or with a number behind it where another consumer of the queue has it.

        One that was left has it until all that it holds is settled.
        """
        taken = {one.tag for one in self if one.queue == queue}
        taken.update(one.tag for one in self._session.ledgers.values() if one.queue == queue)
        numbered = (_numbered(tag, number) for number in itertools.count(_FIRST_AGAIN))
        return next(one for one in itertools.chain([tag], numbered) if one not in taken)

    def resumed(self) -> None:
        """Connected."""
        for consumer in self:
            consumer.resumed()

    def detached(self) -> None:
        """Nothing to do: the node keeps consumers."""

    def writable(self) -> None:
        """Consumers never waited to send."""

    def session_ended(self, error: SessionEnded, *, was_gone: bool) -> None:
        """Every token is void."""
        for consumer in self:
            consumer.session_ended()

    def failed(self, error: FifoError) -> None:
        """No message will come any more."""
        for consumer in self:
            consumer.fail(error)

    def owes(self) -> bool:
        """Deliveries are not owed."""
        return False


def _numbered(tag: str, number: int) -> str:
    """Add a number to a tag, which is cut where it would be too long for the protocol."""
    end = f"-{number}"
    return tag.encode()[: wire.QUEUE_NAME_BYTES_MAX - len(end)].decode(errors="ignore") + end
