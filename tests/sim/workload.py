"""Client programs: they publish numbered messages, take them, and settle them in every way.

Owns the programs and what they write into the history. They use the public client only, but for a
look at when a delivery was received, which bounds what the client can know of its lock.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import fifo
from fifo.client.connection.environment import Environment
from fifo.client.connection.threads import SameLoop
from fifo.client.consuming.message import Message
from node.testing.clockwork import Program
from tests.jepsen.bodies import body_of, given, name_of
from tests.jepsen.history import drops
from tests.sim.plan import Consuming

if TYPE_CHECKING:
    from tests.sim.world import World

QUEUE, DEAD = "work", "dead"

TTLS = (None, 0.05, 0.5, 3.0)
"""Seconds after which a message is of no use, where some expire."""

KEYS = ("red", "green", None)
"""Keys of messages, where the queue keeps their order."""

LEAVING = 0.05
"""Probability that a worker stops after a message; a consumer without workers is cancelled."""

LOOK_SECONDS = 0.1
"""Interval at which a handler looks whether its lock still holds."""

RATE_ERROR = 0.05
"""Clocks may differ by this part: 0.98 against 1.02, and a little."""


Held: TypeAlias = tuple[str, Program, Any, float]
"""A message in hand: its program, and the seconds of its lock that are in doubt."""


class Programs:
    """The client programs of one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._publishing: dict[str, None] = {}
        self.incarnations: dict[str, int] = {}
        self.in_hand: dict[str, list[Held]] = {}
        world.on_hand_out = self._somebody_has

    # --- programs ---------------------------------------------------------------------------------

    def start(self, name: str, main: Callable[[str, random.Random], Any]) -> None:
        """Run a client program on a machine of its own; one that was killed starts again later."""
        incarnation = self.incarnations[name] = self.incarnations.get(name, 0) + 1
        rng = self.world.chance(f"client {name} {incarnation}")
        program = Program(
            self.world.loop, f"{name}#{incarnation}", name,
            rate=rng.uniform(0.98, 1.02), offset=rng.uniform(0.0, 1e5),
        )  # fmt: skip
        self.world.programs[name] = program
        if name.startswith("p"):
            self._publishing[name] = None  # Before it runs, lest all seem done.
        program.run(main(name, rng))

    def restart_dead(self, mains: Mapping[str, Callable[[str, random.Random], Any]]) -> None:
        """Start what was killed again."""
        for name, main in mains.items():
            if not self.world.programs[name].alive:
                self.start(name, main)

    async def connect(
        self, name: str, rng: random.Random, *, heartbeat_s: float = 2.0
    ) -> fifo.Client:
        """A client, as soon as there is a leader."""
        program = self.world.programs[name]
        environment = Environment(
            monotonic=program.clock,
            wall=program.wall,
            chance=rng.random,
            entropy=rng.randbytes,
            own_loop=SameLoop,
        )
        while True:
            try:
                return await fifo.connect(
                    self.world.url,
                    environment=environment,
                    timeout=self.world.plan.timeout_s,
                    heartbeat=heartbeat_s,
                )
            except fifo.FifoError:
                await asyncio.sleep(0.5)

    async def timed(
        self, name: str, what: str, call: Coroutine[Any, Any, Any], wait_s: float = 0.0
    ) -> Any:
        """V4: a call, and how long it took; `wait_s`: what it was asked to wait besides."""
        program = self.world.programs[name]
        began, paused = self.world.loop.now, program.paused_seconds
        try:
            return await call
        finally:
            took = self.world.loop.now - began - (program.paused_seconds - paused)
            if program.alive and not self.world.loop.over:
                self.world.history.add(
                    "ok", "call", name,
                    what=what, seconds=round(took, 4), limit_s=self.world.plan.timeout_s + wait_s,
                )  # fmt: skip

    def published_all(self, name: str) -> None:
        """A publisher has ended."""
        self._publishing.pop(name, None)

    def publishing(self) -> list[str]:
        """Publishers that live and have not ended."""
        return [name for name in self._publishing if self.world.programs[name].alive]

    # --- declaring --------------------------------------------------------------------------------

    async def declare(self, name: str, rng: random.Random) -> None:
        """Make the queues."""
        client = await self.connect(name, rng)
        spec = fifo.QueueSpec(
            QUEUE,
            dead_letter=DEAD,
            max_deliveries=self.world.plan.max_deliveries,
            nack_backoff="fixed:300ms",
            ordering=self.world.plan.ordering,
            dead_letter_expired=self.world.plan.verbs.bury_expired,
        )
        while True:
            try:
                await client.declare(fifo.QueueSpec(DEAD))
                await client.declare(spec)
                break
            except fifo.FifoError:
                await asyncio.sleep(0.2)
        for one in (fifo.QueueSpec(DEAD), spec):
            self.world.history.add("ok", "declare", name, queue=one.name, spec=given(one))
        await client.close()

    # --- publishing -------------------------------------------------------------------------------

    async def publish(self, name: str, rng: random.Random, count: int) -> None:
        """So many messages, alone or a few at once, one call after the other."""
        client = await self.connect(name, rng)
        label = f"{name}.{self.incarnations[name]}"
        number = 0
        while number < count:
            some = min(rng.choice((1, 1, 1, 3, 8)), count - number)
            names = [f"{label}-{number + place}" for place in range(some)]
            number += some
            ttls = [rng.choice(TTLS) if self.world.plan.verbs.ttl else None for _ in names]
            await self._publish(client, name, names, [rng.choice(KEYS) for _ in names], ttls)
            if not self.world.calm:
                await asyncio.sleep(rng.expovariate(4.0))
        await client.close()
        self.published_all(name)

    async def _publish(
        self,
        client: fifo.Client,
        name: str,
        names: list[str],
        keys: list[str | None],
        ttls: list[float | None],
    ) -> None:
        add = self.world.history.add
        for one, key, ttl_s in zip(names, keys, ttls, strict=True):
            add("invoke", "publish", name, queue=QUEUE, body=one, key=key, ttl_s=ttl_s)
        try:
            if len(names) == 1:
                call = client.publish(QUEUE, body_of(names[0]), key=keys[0], ttl=ttls[0])
                confirms: Any = [await self.timed(name, "publish", call)]
            else:
                many = client.publish_many(
                    QUEUE, [body_of(one) for one in names], keys=keys, ttls=ttls
                )
                confirms = await self.timed(name, "publish_many", many)
            error = None
        except fifo.FifoError as failed:
            confirms = getattr(failed, "confirms", ())
            error = failed
        for one, confirm in zip(names, confirms, strict=False):
            add("ok", "publish", name, queue=QUEUE, body=one, id=confirm.id)
        for one in names[len(confirms) :]:
            assert error is not None, "all are confirmed without an error"
            kind = "info" if error.unknown else "fail"
            add(kind, "publish", name, queue=QUEUE, body=one, error=repr(error))

    # --- consuming --------------------------------------------------------------------------------

    async def consume(self, name: str, rng: random.Random, how: Consuming) -> None:
        """Take messages and settle them, for ever: `leave` ends it."""
        client = await self.connect(name, rng)
        while True:
            consumer = client.consume(
                QUEUE,
                prefetch=how.prefetch,
                lock=how.lock_s,
                max_lock=4 * how.lock_s,
                auto_renew=how.auto_renew,
                renewals=how.renewals or None,
            )
            workers: list[asyncio.Task[None]] = []
            try:
                await self.timed(name, "subscribe", consumer.subscribe())
                self.world.history.add(
                    "ok", "subscribe", name, queue=QUEUE, consumer=consumer.number,
                    prefetch=how.prefetch, lock_s=how.lock_s,
                    renews=how.auto_renew or how.renewals > 0,
                )  # fmt: skip
                workers = [
                    asyncio.get_running_loop().create_task(self._work(name, rng, consumer, how))
                    for _ in range(how.workers)
                ]
                await asyncio.gather(*workers)
            except fifo.FifoError as error:
                self.world.happened(f"consumer error {type(error).__name__}")
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await self._leave(name, consumer)
            await asyncio.sleep(0.3)
            if client._session.fatal is not None:
                client = await self.connect(name, rng)

    async def _leave(self, name: str, consumer: Any) -> None:
        """Cancel, so that the next round is another consumer."""
        if consumer.number is not None:
            self.world.history.add("ok", "cancel", name, consumer=consumer.number)
        try:
            await consumer.cancel()
        except fifo.FifoError as error:
            self.world.happened(f"cancel {type(error).__name__}")

    async def _work(self, name: str, rng: random.Random, consumer: Any, how: Consuming) -> None:
        async for message in consumer:
            self.delivered(name, message)
            if not self.world.calm:
                await self.handle(name, rng, message, how)
            await self.settle(name, rng, message)
            if rng.random() < LEAVING and not self.world.calm:
                return

    def delivered(self, name: str, message: Any, consumer: int = 0) -> None:
        """A program has a message in hand; `consumer`: of one that does not know it itself."""
        consumer = consumer or message.consumer
        body = name_of(message.body)
        letter = message.dead_letter
        self.world.note(f"{name} has {message.id} {consumer} {message.token}")
        self.world.history.add(
            "ok", "deliver", name,
            id=message.id,
            body=body,
            intact=message.body == body_of(body),
            queue=message.queue,
            consumer=consumer,
            token=message.token,
            attempt=message.attempt,
            failures=message.failures,
            reason=None if letter is None else letter.reason,
        )  # fmt: skip

    async def handle(
        self, name: str, rng: random.Random, message: Message, how: Consuming
    ) -> None:  # fmt: skip
        """Work on it for a while, and tell the history as long as its lock is sure to hold."""
        program = self.world.programs[name]
        late = program.transits.get(message._delivery.received, 0.05)
        slack = late + RATE_ERROR * how.lock_s + LOOK_SECONDS / 10
        await self.work([(name, program, message, slack)], how.seconds(rng))

    async def work(self, holds: list[Held], seconds: float) -> None:
        """Have messages in hand for `seconds`, and say so while that is sure."""
        for held in holds:
            self.in_hand.setdefault(held[2].id, []).append(held)
        program = holds[0][1]
        until = program.clock() + seconds
        while program.clock() < until:
            await asyncio.sleep(min(LOOK_SECONDS, until - program.clock()))
            for held in holds:
                self.sure(held)
        for held in holds:
            self.in_hand[held[2].id].remove(held)

    def sure(self, held: Held) -> None:
        """Tell the history that a client is sure of its lock now, if it is."""
        name, program, message, slack = held
        if program.alive and message.remaining > slack and not message.is_lost:
            self.world.history.add(
                "ok", "holds", name,
                id=message.id, consumer=message.consumer, token=message.token,
            )  # fmt: skip

    def _somebody_has(self, number: str) -> None:
        """Record, at a hand-out of the message, every program that is sure of its lock on it."""
        for held in self.in_hand.get(number, ()):
            self.sure(held)

    async def settle(
        self, name: str, rng: random.Random, message: Message, *, always: bool = False
    ) -> None:
        """Settle it in one of the ways there are, or (where not `always`) leave it."""
        chance = 0.0 if self.world.calm else rng.random()
        if chance > 0.97 and not always:
            self.world.happened("left unsettled")
            return
        delay = rng.choice((None, 0.0, 0.05, 0.5))
        if chance < 0.35:
            verb, call = "ack", message.ack(receipt=True)
        elif chance < 0.75:
            verb, call = "ack", message.ack()
        elif chance < 0.87:
            verb, call = "nack", message.nack(delay)
        elif chance < 0.94:
            verb, call = "release", message.release()
        else:
            verb, call = "terminate", message.terminate("cannot be done")
        await self._say(name, message, verb, call, delay)

    async def _say(
        self, name: str, message: Message, verb: str, call: Any, delay: float | None = None
    ) -> None:
        delay_s = (0.3 if delay is None else delay) if verb == "nack" else None
        what = {
            "id": message.id,
            "queue": message.queue,
            "consumer": message.consumer,
            "token": message.token,
            "verb": verb,
            "delay_s": delay_s,
            "delay_max_s": 0.0 if verb == "release" else delay_s,
        }
        add = self.world.history.add
        add("invoke", "settle", name, **what)
        try:
            result = await call
        except fifo.FifoError as error:
            self.world.happened(f"settle {type(error).__name__}")
            kind = "fail" if isinstance(error, fifo.LockLost) else "info"
            add(kind, "settle", name, **what, error=repr(error))
            return
        except asyncio.CancelledError:
            add("info", "settle", name, **what)
            raise
        self.world.happened(f"{verb} {result.status}")
        kind = "info" if result.status == "sent" else "ok"
        add(kind, "settle", name, **what, status=str(result.status), late=result.late)

    # --- draining ---------------------------------------------------------------------------------

    async def drain(self, name: str, rng: random.Random) -> None:
        """Take everything that is left in both queues."""
        client = await self.connect(name, rng)
        for queue in (QUEUE, DEAD):
            async with client.consume(queue, prefetch=50, lock=30) as consumer:
                while await self._left(client, queue):
                    message = await consumer.next(timeout=0.5)
                    if message is not None:
                        self.delivered(name, message)
                        await self._say(name, message, "ack", message.ack(receipt=True))
            counters = await self._counters(client, queue)
            for reason, count in drops(counters):
                self.world.history.add("ok", "drop", name, queue=queue, reason=reason, count=count)
        self.world.drained = True
        await client.close()

    async def _left(self, client: fifo.Client, queue: str) -> int:
        while True:
            try:
                return int((await client.queue(queue)).messages)
            except fifo.FifoError:
                await asyncio.sleep(0.2)

    async def _counters(self, client: fifo.Client, queue: str) -> dict[str, int]:
        while True:
            try:
                return dict((await client.queue(queue)).counters)
            except fifo.FifoError:
                await asyncio.sleep(0.2)
