"""A durable consumer of a reservation: the driver's side of it, and that of tasks and programs.

Owns its verbs, and the ranges of tokens that it holds. That a reservation may have several of them
is the business of `reservation`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import fifo
from fifo.blocking import BlockingClient, BlockingDurable
from fifo.client import NotAcked, Opened
from fifo.spark import limits
from fifo.spark.options import Settings

_T = TypeVar("_T")

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Tokens first..last, ascending."""

ANY: Final = Opened(0, 1)
"""The latest opening, whichever it is: the broker's refusal names the generation."""


class Follower:
    """A reservation that others may open again meanwhile: only the newest generation is served,
    and this one takes over its number from the refusal.
    """

    def __init__(self, client: BlockingClient, queue: str, name: str, opened: Opened) -> None:
        self._client = client
        self._queue = queue
        self._name = name
        self._consumer = opened.consumer
        self._durable = self._as_opened(opened.generation)

    def _as_opened(self, generation: int) -> BlockingDurable:
        opened = Opened(self._consumer, generation)
        return self._client.durable(self._queue, self._name, opened=opened)

    @property
    def opened(self) -> Opened:
        """The generation that was served last."""
        return self._durable.opened

    def find(self) -> BlockingDurable:
        """The reservation in its present generation; raises LockLost where there is none."""
        try:
            self._durable.ack(0)
        except fifo.SessionTaken as error:
            self._adopt(error)
        return self._durable

    def fetch_part(
        self, first: int, last: int, max_bytes: int, *, bodies: bool = True
    ) -> fifo.Fetched:
        """As `durable.fetch_part`."""
        return self._following(
            lambda: self._durable.fetch_part(first, last, max_bytes, bodies=bodies)
        )

    def settle(self, verb: str, tokens: Sequence[int], **more: Any) -> tuple[fifo.Verdict, ...]:
        """As `durable.settle`."""
        return self._following(lambda: self._durable.settle(verb, tokens, **more))

    def renew(self) -> None:
        """As `durable.renew`."""
        self._following(lambda: self._durable.renew())

    def ack(self, upto: int) -> int:
        """As `durable.ack`; how many had been lost before."""
        return tokens_of(self._following(lambda: self._durable.ack(upto)))

    def forget(self) -> None:
        """As `durable.forget`."""
        self._following(lambda: self._durable.forget())

    def _following(self, verb: Callable[[], _T]) -> _T:
        """Each refusal names a later generation: every action of Spark opens the name anew."""
        while True:
            try:
                return verb()
            except fifo.SessionTaken as error:
                self._adopt(error)

    def _adopt(self, error: fifo.SessionTaken) -> None:
        generation = error.detail.get("generation") if isinstance(error.detail, dict) else None
        if not isinstance(generation, int):
            raise error
        self._durable = self._as_opened(generation)


class Holder:
    """The driver's side: opens the name, which takes it over, and knows what it holds."""

    def __init__(self, client: BlockingClient, settings: Settings, name: str) -> None:
        lock_s = settings.lock_s or limits.LOCK_S
        self._durable = client.durable(
            settings.queue,
            name,
            lock=lock_s,
            max_lock=settings.max_lock_s or max(lock_s, limits.MAX_LOCK_S),
        )
        self._runs = settings.key_runs
        self._held: Ranges = ()
        self._lost: Ranges = ()
        self._next = 1
        self.open()

    def open(self) -> None:
        """Take the name over, and learn what is held, which is locked anew: who comes back before
        the locks have run out keeps all of it.
        """
        self._held = tuple(self._durable.open())
        self._lost = self._durable.lost
        self._next = self._durable.next_token
        if self._held:
            self.renew()

    @property
    def opened(self) -> Opened:
        """For the tasks."""
        return self._durable.opened

    @property
    def last(self) -> int:
        """The last token that was given out."""
        return self._next - 1

    @property
    def room(self) -> int:
        """Messages that it can hold beside those that it holds, as far as this side knows."""
        return limits.HELD_MAX - count(self._held)

    @property
    def oldest(self) -> int:
        """The first token that is held; the next one where nothing is."""
        return self._held[0][0] if self._held else self._next

    def held(self, after: int, upto: int) -> Ranges:
        """The held ranges of tokens after+1..upto, as far as this side knows."""
        return cut(self._held, after, upto)

    def lost(self, after: int, upto: int) -> Ranges:
        """The ranges of tokens after+1..upto that were lost when this one opened it."""
        return cut(self._lost, after, upto)

    def take(self, most: int, max_bytes: int | None = None) -> tuple[int, int | None]:
        """Lock up to `most` more messages; how many, and what their bodies left of `max_bytes`.
        Fewer: no more are ready, or can be held, or the last one's body makes it `max_bytes`.

        Where an answer was lost it looks at what is held, so that nothing is locked twice.
        """
        taken = 0
        while taken < most and max_bytes != 0:
            wanted = min(most - taken, limits.STEP_MESSAGES)
            before = self._next
            try:
                tokens, left_bytes = self._durable.hold(wanted, max_bytes, runs=self._runs)
            except fifo.FifoError as error:
                if not error.unknown:
                    raise
                self.open()
            else:
                max_bytes = None if max_bytes is None else left_bytes
                if tokens:
                    self._held += ((tokens[0], tokens[-1]),)
                self._next = max(self._next, tokens.stop)
            taken += self._next - before
            if self._next == before:
                break
        return taken, max_bytes

    def ack(self, upto: int) -> int:
        """Settle all up to this token; how many had been lost before."""
        lost = self._durable.ack(upto)
        self._held = self.held(upto, self.last)
        return tokens_of(lost)

    def renew(self) -> None:
        """Lock all anew; also where nothing is held, for the cluster forgets what is not used."""
        self._durable.renew()


def cut(ranges: Ranges, after: int, upto: int) -> Ranges:
    """The part of these ranges in after+1..upto."""
    found = [(max(first, after + 1), min(last, upto)) for first, last in ranges]
    return tuple((first, last) for first, last in found if first <= last)


def tokens_of(lost: Sequence[NotAcked]) -> int:
    """Count these tokens."""
    return count([(one.first, one.last) for one in lost])


def count(ranges: Sequence[tuple[int, int]]) -> int:
    """Tokens in these ranges."""
    return sum(last - first + 1 for first, last in ranges)
