"""A consuming program's work on one message, and its certainty about the lock meanwhile.

Owns handlers: how long they take, how they settle, and the `holds` of the history. A client is sure
of its lock when more is left of it than its delivery can have been on its way; what came while this
process stood still may be old, and is only sure once it was renewed.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from typing import TYPE_CHECKING, Any

import fifo
from fifo.client.consuming.durable import DurableMessage
from fifo.client.consuming.message import Message
from tests.jepsen.bodies import body_of, name_of
from tests.jepsen.checkers.sorting import RATE_ERROR
from tests.jepsen.durably import HeldDurably
from tests.jepsen.workloads import Consuming

if TYPE_CHECKING:
    from tests.jepsen.program import Program

LOOK_S = 0.05
"""Interval at which a handler looks whether its lock still holds."""

TRANSIT_S = 0.4
"""A delivery is on its way no longer: machines are busy, and disks slow before it leaves."""

GAP_S = 0.15
"""A loop that was away for longer may have let deliveries lie."""

RENEWED_S = 0.02
"""A deadline that moved by this was renewed."""


class Handler:
    """The handlers of one program."""

    def __init__(self, program: Program, how: Consuming) -> None:
        self._program = program
        self._how = how
        self._rng = program.rng
        self._gaps: list[tuple[float, float]] = []

    async def watch_gaps(self) -> None:
        """Note when this process stood still."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            if now - last > LOOK_S + GAP_S:
                self._gaps = [*self._gaps[-9:], (last - GAP_S, now + GAP_S)]
            last = now

    def _transit_s(self, message: Message) -> float | None:
        """Upper bound of this delivery's time in transit; None where it is not known."""
        received = message._delivery.received
        away = any(start <= received <= end for start, end in self._gaps)
        return None if away or self._program.plan["slow_links"] else TRANSIT_S

    async def work(self, consumer: Any) -> None:
        """Handle messages, one after the other, until the consumer ends or this worker leaves."""
        async for message in consumer:
            await self.handle(message)
            if not self._program.calm.is_set() and self._rng.random() < self._how.leave:
                return

    async def handle(self, message: Message) -> None:
        """Write it down, work on it, settle it."""
        self.delivered(message)
        await self.handle_delivered(message)

    async def handle_delivered(self, message: Message) -> None:
        """Work on it, settle it."""
        if not self._program.calm.is_set():
            if "-poison-" in name_of(message.body) and message.dead_letter is None:
                os.kill(os.getpid(), signal.SIGKILL)
            await self._work_on(message)
        await self._settle(message)

    def delivered(self, message: Message) -> None:
        """Write it down, at once: a later holder has it later."""
        self._program.add(
            "ok", "deliver",
            **seen(message, message.consumer),
            lock_ms=round(message.remaining * 1000),
            transit_s=self._transit_s(message),
            waited_s=round(time.monotonic() - message._delivery.received, 6),
        )  # fmt: skip

    async def _work_on(self, message: Message) -> None:
        how = self._how
        until = time.monotonic() + seconds_of(how, self._rng)
        renews = self._rng.random() < how.renew
        while (left := until - time.monotonic()) > 0 and not self._program.calm.is_set():
            await asyncio.sleep(min(LOOK_S, left))
            self._swear(message)
            if renews and message.remaining < how.lock_s / 2:
                await self._renew(message)
        if message.is_lost:
            self._program.add("ok", "lock_lost", **_named(message))

    def _swear(self, message: Message) -> None:
        """Tell the history that the client is sure of its lock now, if it is."""
        first = message._delivery.received + message._delivery.remaining_s
        deadline = message.ledger.deadline(message.token, message._delivery)
        transit_s = 0.0 if deadline > first + RENEWED_S else self._transit_s(message)
        if transit_s is None or message.is_lost or message.settled:
            return
        if message.remaining > transit_s + RATE_ERROR * self._how.lock_s + LOOK_S / 2:
            self._program.add("ok", "holds", **_named(message))

    async def _renew(self, message: Message) -> None:
        add = self._program.add
        add("invoke", "renew", **_named(message))
        try:
            await message.renew()
        except fifo.FifoError as error:
            kind = "fail" if isinstance(error, fifo.LockLost) else "info"
            add(kind, "renew", **_named(message), error=repr(error))
        else:
            add("ok", "renew", **_named(message), remaining_s=round(message.remaining, 3))

    async def _settle(self, message: Message) -> None:
        how = self._how
        chance = 1.0 if self._program.calm.is_set() else self._rng.random()
        for verb in ("forget", "nack", "release", "terminate"):
            chance -= getattr(how, verb)
            if chance < 0:
                break
        else:
            verb = "ack"
        delay: float | None = None
        match verb:
            case "forget":
                return
            case "nack":
                delay = self._rng.choice(how.nack_delays)
                call = message.nack(delay)
            case "release":
                call = message.release()
            case "terminate":
                call = message.terminate("cannot be done")
            case _:
                waits = self._program.calm.is_set() or self._rng.random() < 0.5
                call = message.ack(receipt=waits)
        await self._say(message, verb, call, delay)

    async def _say(self, message: Message, verb: str, call: Any, delay: float | None) -> None:
        how = self._how
        waits, longest = delay, 0.0 if verb == "release" else delay
        if verb == "nack" and delay is None:
            waits, longest = how.policy_s, how.policy_max_s
        what = {
            **_named(message), "queue": message.queue, "verb": verb,
            "delay_s": waits, "delay_max_s": longest,
        }  # fmt: skip
        add = self._program.add
        add("invoke", "settle", **what)
        try:
            result = await call
        except fifo.FifoError as error:
            kind = "fail" if isinstance(error, fifo.LockLost) else "info"
            add(kind, "settle", **what, error=repr(error))
            return
        kind = "info" if result.status == "sent" else "ok"
        add(kind, "settle", **what, status=str(result.status), late=result.late)


class Taking:
    """A program that shares a durable consumer, as `durably` sees it."""

    def __init__(self, program: Program, how: Consuming) -> None:
        self._program = program
        self._how = how
        self.rng = program.rng
        self.clock = time.monotonic
        self.timed = program.timed

    def add(self, kind: str, f: str, **value: Any) -> None:
        """Record an event of the program's."""
        self._program.add(kind, f, **value)

    def delivered(self, message: DurableMessage, consumer: int) -> None:
        """Record a message in hand: its time in transit is not known."""
        self._program.add("ok", "deliver", **seen(message, consumer))

    async def work(self, _holds: list[HeldDurably]) -> None:
        """Have them in hand for a while, without `holds`: another may have taken them over."""
        if not self.calm:
            await self._program.until(self._program.calm, seconds_of(self._how, self.rng))

    def happened(self, what: str) -> None:
        """Count what should happen sometimes: the history has it."""
        self._program.add("ok", "seen", what=what)

    @property
    def calm(self) -> bool:
        """Whether the faults are over."""
        return self._program.calm.is_set()


def seconds_of(how: Consuming, rng: random.Random) -> float:
    """Draw the seconds that a handler takes."""
    if rng.random() < how.slow:
        return rng.uniform(0.5, 2.5) * how.lock_s
    return rng.choice((0.0, 0.002, 0.02, 0.2)) * rng.random()


def seen(message: Message | DurableMessage, consumer: int) -> dict[str, Any]:
    """The fields of every delivery in a history."""
    body, letter, key = name_of(message.body), message.dead_letter, message.key
    return {
        "id": message.id,
        "body": body,
        "intact": message.body == body_of(body),
        "queue": message.queue,
        "key": key if key is None or isinstance(key, str) else key.hex(),
        "consumer": consumer,
        "token": message.token,
        "attempt": message.attempt,
        "failures": message.failures,
        "reason": None if letter is None else letter.reason,
    }


def _named(message: Message) -> dict[str, Any]:
    return {"id": message.id, "consumer": message.consumer, "token": message.token}
