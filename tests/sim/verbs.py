"""What client programs do beside publishing and consuming: the other verbs, under the same faults.

Owns programs that get, that share a durable consumer, that publish under numbers of their own, and
that send dead letters back. What they write into the history is what `workload` writes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import fifo
from fifo.client.durable import DurableConsumer, DurableMessage
from tests.jepsen.bodies import body_of
from tests.sim.plan import Consuming
from tests.sim.workload import DEAD, QUEUE, RATE_ERROR, Programs

GETTING = Consuming(prefetch=1, lock_s=1.0, workers=1, auto_renew=False, slow=0.3)

DURABLE_LOCK_S = 1.5
DURABLE = Consuming(prefetch=1, lock_s=DURABLE_LOCK_S, workers=1, auto_renew=False, slow=0.3)
MAX_LOCK_S = 4 * DURABLE_LOCK_S
"""No renewal makes a lock longer."""

LATER_SECONDS = 0.3
"""After an error, and between two looks at an empty queue."""


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


class Verbal:
    """These programs of one world."""

    def __init__(self, programs: Programs) -> None:
        self._programs = programs
        self._world = programs.world
        self._numbered: dict[int, bool] = {}
        """Numbers that were asked for, and whether their answer is in the history."""

    def mains(self) -> dict[str, Callable[[str, random.Random], Any]]:
        """Those that the plan has, by name."""
        verbs = self._world.plan.verbs
        found: dict[str, Callable[[str, random.Random], Any]] = {}
        for number in range(verbs.getters):
            found[f"g{number + 1}"] = self.get
        for number in range(verbs.durables):
            found[f"t{number + 1}"] = self.take
        if verbs.numbered:
            found["pn"] = partial(self.publish_numbered, count=verbs.numbered)
        if verbs.redrives:
            found["r1"] = self.redrive
        return found

    async def _again(self, client: fifo.Client, name: str, rng: random.Random) -> fifo.Client:
        """After an error: the same client a little later, or a new one where it has ended."""
        await asyncio.sleep(LATER_SECONDS)
        if client._session.fatal is None:
            return client
        return await self._programs.connect(name, rng)

    # --- get --------------------------------------------------------------------------------------

    async def get(self, name: str, rng: random.Random) -> None:
        """Get a few, handle them, settle them, for ever."""
        programs = self._programs
        client = await programs.connect(name, rng)
        while True:
            wait_s, renew = rng.choice((0.0, 0.5)), rng.random() < 0.3
            call = client.get(QUEUE, rng.randint(1, 4), wait_s, GETTING.lock_s, renew)
            try:
                messages = await programs.timed(name, "get", call, wait_s)
            except fifo.FifoError as error:
                self._world.happened(f"get {type(error).__name__}")
                client = await self._again(client, name, rng)
                continue
            self._world.happened(f"get of {min(len(messages), 2)}")
            for message in messages:
                programs.delivered(name, message)
            for message in messages:
                if not self._world.calm:
                    await programs.handle(name, rng, message, GETTING)
                # One that is renewed and never settled would be held for ever.
                await programs.settle(name, rng, message, always=renew)
            if not messages:
                await asyncio.sleep(LATER_SECONDS)

    # --- durable consumers ------------------------------------------------------------------------

    async def take(self, name: str, rng: random.Random) -> None:
        """Reserve, renew, ack and forget under a name that others have as well, for ever."""
        client = await self._programs.connect(name, rng)
        while True:
            durable = client.durable(QUEUE, "shared", lock=DURABLE_LOCK_S, max_lock=MAX_LOCK_S)
            mine: dict[int, HeldDurably] = {}
            try:
                await self._take_over(name, durable, mine)
                while await self._round(name, rng, durable, mine):
                    pass
            except fifo.FifoError as error:
                self._world.happened(f"durable {type(error).__name__}")
                client = await self._again(client, name, rng)

    async def _take_over(
        self, name: str, durable: DurableConsumer, mine: dict[int, HeldDurably]
    ) -> None:
        """Open it, and take what whoever had it left: an ack settles that too."""
        held = await self._programs.timed(name, "open", durable.open())
        for first, last in held:
            self._world.happened("durable took over what was held")
            for message in await self._programs.timed(name, "fetch", durable.fetch(first, last)):
                self._got(name, durable, message, mine)

    def _got(
        self, name: str, durable: DurableConsumer, message: Any, mine: dict[int, HeldDurably]
    ) -> HeldDurably:
        held = HeldDurably(message, durable.consumer, self._world.programs[name].clock)
        mine[message.token] = held
        self._programs.delivered(name, message, durable.consumer)
        return held

    async def _round(
        self, name: str, rng: random.Random, durable: DurableConsumer, mine: dict[int, HeldDurably]
    ) -> bool:
        """Take some, work, ack most; False after it was forgotten."""
        clock = self._world.programs[name].clock
        asked = clock()
        call = durable.reserve(rng.randint(1, 6))
        for message in await self._programs.timed(name, "reserve", call):
            held = self._got(name, durable, message, mine)
            # Its lock begins when the reserve is applied: after it was asked for.
            held.until = asked + DURABLE_LOCK_S
            held.longest = asked + MAX_LOCK_S
        if mine:
            await self._work(name, rng, durable, mine)
        if not self._world.calm and rng.random() < 0.05:
            self._world.history.add("ok", "cancel", name, consumer=durable.consumer)
            await self._programs.timed(name, "forget", durable.forget())
            self._world.happened("durable forgotten")
            return False
        await asyncio.sleep(LATER_SECONDS * rng.random())
        return True

    async def _work(
        self, name: str, rng: random.Random, durable: DurableConsumer, mine: dict[int, HeldDurably]
    ) -> None:
        program = self._world.programs[name]
        doubt = RATE_ERROR * DURABLE_LOCK_S
        for _ in range(1 if self._world.calm else rng.choice((1, 1, 2, 4))):
            holds = [(name, program, held, doubt) for held in mine.values()]
            seconds = 0.0 if self._world.calm else DURABLE.seconds(rng)
            await self._programs.work(holds, seconds)
            if rng.random() < 0.5:
                await self._renew(name, durable, mine)
        if self._world.calm or rng.random() < 0.8:
            await self._ack(name, durable, mine, rng.choice(list(mine)))

    async def _renew(
        self, name: str, durable: DurableConsumer, mine: dict[int, HeldDurably]
    ) -> None:
        clock = self._world.programs[name].clock
        asked = clock()
        await self._programs.timed(name, "renew", durable.renew())
        self._world.happened("durable renewed")
        for held in mine.values():
            if held.remaining > RATE_ERROR * DURABLE_LOCK_S:  # Else it may have been lost before.
                held.until = asked + DURABLE_LOCK_S

    async def _ack(
        self, name: str, durable: DurableConsumer, mine: dict[int, HeldDurably], upto: int
    ) -> None:
        acked = [held for token, held in mine.items() if token <= upto]
        add = self._world.history.add
        asked = [
            {
                "id": held.id, "queue": QUEUE, "consumer": held.consumer, "token": held.token,
                "verb": "ack", "delay_s": None,
            }
            for held in acked
        ]  # fmt: skip
        for one in asked:
            add("invoke", "settle", name, **one)
        try:
            refused = await self._programs.timed(name, "ack", durable.ack(upto))
        except fifo.FifoError as error:
            # Also where another has taken it over: it may have been carried out before that.
            for one in asked:
                add("info", "settle", name, **one, error=repr(error))
            raise
        for held, one in zip(acked, asked, strict=True):
            status, late = "ok", False
            for other in refused:
                if other.first <= held.token <= other.last:
                    status, late = str(other.status), other.late
            self._world.happened(f"durable ack {status}")
            add("ok", "settle", name, **one, status=status, late=late)
            del mine[held.token]

    # --- named producers --------------------------------------------------------------------------

    async def publish_numbered(self, name: str, rng: random.Random, count: int) -> None:
        """So many messages under numbers that outlive every session, each until it is stored."""
        client = await self._programs.connect(name, rng)
        done = False
        while not done:
            try:
                call = client.open_producer("numbered")
                producer = await self._programs.timed(name, "open_producer", call)
                stored = producer.last(QUEUE)
                self._stored(name, stored)
                while stored < count:
                    stored += 1
                    await self._publish_one(name, rng, producer, stored)
                done = True
            except fifo.FifoError as error:
                self._world.happened(f"numbered {type(error).__name__}")
                client = await self._again(client, name, rng)
        await client.close()
        self._programs.published_all(name)

    async def _publish_one(self, name: str, rng: random.Random, producer: Any, number: int) -> None:
        again = number in self._numbered
        body = f"numbered-{number}"
        if not again:
            self._numbered[number] = False
            self._world.history.add("invoke", "publish", name, queue=QUEUE, body=body)
        call = producer.publish(QUEUE, body_of(body), number=number)
        confirm = await self._programs.timed(name, "publish", call)
        known = {} if again else {"id": confirm.id}
        self._numbered[number] = True
        self._world.history.add("ok", "publish", name, queue=QUEUE, body=body, **known)
        self._world.happened(f"numbered {'again' if again else 'once'}")
        if not self._world.calm:
            await asyncio.sleep(rng.expovariate(4.0))

    def _stored(self, name: str, last: int) -> None:
        """What the cluster says is stored was published, though nobody confirmed it."""
        for number, answered in self._numbered.items():
            if number <= last and not answered:
                self._numbered[number] = True
                self._world.happened("numbered found stored")
                self._world.history.add(
                    "ok", "publish", name, queue=QUEUE, body=f"numbered-{number}"
                )  # fmt: skip

    # --- redrive ----------------------------------------------------------------------------------

    async def redrive(self, name: str, rng: random.Random) -> None:
        """Send dead letters back, now and then, until the faults are over."""
        client = await self._programs.connect(name, rng)
        while not self._world.calm:
            await asyncio.sleep(rng.uniform(0.5, 3.0))
            # It may begin though nobody hears of it.
            self._world.history.add("invoke", "redrive", name, queue=DEAD)
            call = client.redrive(DEAD, rate=rng.choice((None, 5)), limit=rng.choice((None, 3)))
            try:
                await self._programs.timed(name, "redrive", call)
                view = (await client.queue(DEAD))["redrive"]
            except fifo.FifoError as error:
                self._world.happened(f"redrive {type(error).__name__}")
                client = await self._again(client, name, rng)
                continue
            self._world.happened(f"redrive {view['status']}")
            self._world.history.add("ok", "redrive", name, queue=DEAD, moved=view["moved"])
