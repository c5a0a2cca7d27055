"""A program's work with a durable consumer that others open as well, and its knowledge of it.

Owns the verbs (open, fetch, reserve, renew, ack, forget) and what they write into the history: the
simulator's programs and the real ones carry this out alike. Knows neither clocks nor processes: an
`Around` does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import fifo
from fifo.client.consuming.durable import DurableConsumer, DurableMessage
from tests.jepsen.checkers.sorting import RATE_ERROR

NAME = "shared"
LOCK_S = 1.5
MAX_LOCK_S = 4 * LOCK_S
"""No renewal makes a lock longer."""

DOUBT_S = RATE_ERROR * LOCK_S
RESERVED = 6
"""Maximum number of messages in one reserve."""


@dataclass(slots=True)
class HeldDurably:
    """A message of a durable consumer, and until when its program is sure of it (its own clock)."""

    message: DurableMessage
    consumer: int
    clock: Callable[[], float]
    until: float = 0.0
    longest: float = 0.0
    is_lost: bool = False

    @property
    def id(self) -> str:
        """The message's."""
        return str(self.message.id)

    @property
    def token(self) -> int:
        """The token it is held under."""
        return self.message.token

    @property
    def remaining(self) -> float:
        """Seconds of its lock that are sure to be left."""
        return min(self.until, self.longest) - self.clock()


class Around(Protocol):
    """The program in which this happens."""

    rng: random.Random

    def add(self, kind: str, f: str, **value: Any) -> None:
        """Record an event of the program's own."""

    async def timed(self, what: str, call: Coroutine[Any, Any, Any]) -> Any:
        """V4: a call, and how long it took."""

    def clock(self) -> float:
        """Its monotonic clock, seconds."""

    def delivered(self, message: DurableMessage, consumer: int) -> None:
        """Record that the program has a message in hand."""

    async def work(self, holds: list[HeldDurably], /) -> None:
        """Have them in hand for a while, and say so as long as that is sure: where no other program
        opens the same name, and settles or forgets what this one holds."""

    def happened(self, what: str) -> None:
        """Count something that should happen sometimes."""

    @property
    def calm(self) -> bool:
        """Whether the faults are over: then all is acked at once."""


class Holder:
    """An opening of the durable consumer, until an error or its own `forget` ends it."""

    def __init__(self, around: Around, client: fifo.Client, queue: str) -> None:
        self._around = around
        self._queue = queue
        self._durable: DurableConsumer = client.durable(
            queue, NAME, lock=LOCK_S, max_lock=MAX_LOCK_S
        )
        self._mine: dict[int, HeldDurably] = {}

    async def open(self) -> None:
        """Take it over with all that its last holder left: an ack settles that too."""
        held = await self._around.timed("open", self._durable.open())
        for first, last in held:
            self._around.happened("durable took over what was held")
            for message in await self._around.timed("fetch", self._durable.fetch(first, last)):
                self._got(message)

    def _got(self, message: DurableMessage) -> HeldDurably:
        held = HeldDurably(message, self._durable.consumer, self._around.clock)
        self._mine[message.token] = held
        self._around.delivered(message, self._durable.consumer)
        return held

    async def round(self) -> None:
        """Take some more, work, ack most."""
        asked = self._around.clock()
        call = self._durable.reserve(self._around.rng.randint(1, RESERVED))
        for message in await self._around.timed("reserve", call):
            held = self._got(message)
            # Its lock begins when the reserve is applied: after it was asked for.
            held.until = asked + LOCK_S
            held.longest = asked + MAX_LOCK_S
        if self._mine:
            await self._work()

    async def _work(self) -> None:
        rng, calm = self._around.rng, self._around.calm
        for _ in range(1 if calm else rng.choice((1, 1, 2, 4))):
            await self._around.work(list(self._mine.values()))
            if rng.random() < 0.5:
                await self._renew()
        if calm or rng.random() < 0.8:
            await self._ack(rng.choice(list(self._mine)))

    async def _renew(self) -> None:
        asked = self._around.clock()
        await self._around.timed("renew", self._durable.renew())
        self._around.happened("durable renewed")
        for held in self._mine.values():
            if held.remaining > DOUBT_S:  # Else it may have been lost before.
                held.until = asked + LOCK_S

    async def _ack(self, upto: int) -> None:
        acked = [held for token, held in self._mine.items() if token <= upto]
        asked = [
            {
                "id": held.id, "queue": self._queue, "consumer": held.consumer,
                "token": held.token, "verb": "ack", "delay_s": None,
            }
            for held in acked
        ]  # fmt: skip
        for one in asked:
            self._around.add("invoke", "settle", **one)
        try:
            refused = await self._around.timed("ack", self._durable.ack(upto))
        except fifo.FifoError as error:
            # Also where another has taken it over: it may have been carried out before that.
            for one in asked:
                self._around.add("info", "settle", **one, error=repr(error))
            raise
        for held, one in zip(acked, asked, strict=True):
            status = "ok"
            for other in refused:
                if other.first <= held.token <= other.last:
                    status = str(other.status)
            self._around.happened(f"durable ack {status}")
            self._around.add("ok", "settle", **one, status=status, late=False)
            del self._mine[held.token]

    async def forget(self) -> None:
        """Forget the consumer: all that is held goes back, even if another has it open."""
        self._around.add("ok", "cancel", consumer=self._durable.consumer)
        await self._around.timed("forget", self._durable.forget())
        self._around.happened("durable forgotten")
