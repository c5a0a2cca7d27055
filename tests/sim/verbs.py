"""Client programs of the verbs other than publish and consume, under the same faults.

Owns programs that get, that share a durable consumer, that publish under numbers of their own, and
that send dead letters back. What they write into the history is what `workload` writes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import fifo
from fifo.client.consuming.durable import DurableMessage
from tests.jepsen.bodies import body_of
from tests.jepsen.durably import DOUBT_S, LOCK_S, HeldDurably, Holder
from tests.sim.plan import Consuming
from tests.sim.workload import DEAD, QUEUE, Programs

GETTING = Consuming(prefetch=1, lock_s=1.0, workers=1, auto_renew=False, slow=0.3)

DURABLE = Consuming(prefetch=1, lock_s=LOCK_S, workers=1, auto_renew=False, slow=0.3)
FORGETTING = 0.05
"""Probability that a durable consumer is forgotten after a round."""

LATER_SECONDS = 0.3
"""After an error, and between two looks at an empty queue."""


class _Around:
    """A program that shares a durable consumer, as `durably` sees it."""

    def __init__(self, programs: Programs, name: str, rng: random.Random) -> None:
        self._programs = programs
        self._name = name
        self.rng = rng
        self.clock = programs.world.programs[name].clock
        self.happened = programs.world.happened

    def add(self, kind: str, f: str, **value: Any) -> None:
        self._programs.world.history.add(kind, f, self._name, **value)

    async def timed(self, what: str, call: Coroutine[Any, Any, Any]) -> Any:
        return await self._programs.timed(self._name, what, call)

    def delivered(self, message: DurableMessage, consumer: int) -> None:
        self._programs.delivered(self._name, message, consumer)

    async def work(self, holds: list[HeldDurably]) -> None:
        seconds = 0.0 if self.calm else DURABLE.seconds(self.rng)
        if self._programs.world.plan.verbs.durables > 1:
            await asyncio.sleep(seconds)
            return
        program = self._programs.world.programs[self._name]
        await self._programs.work([(self._name, program, held, DOUBT_S) for held in holds], seconds)

    @property
    def calm(self) -> bool:
        return self._programs.world.calm


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
        around = _Around(self._programs, name, rng)
        client = await self._programs.connect(name, rng)
        while True:
            holder = Holder(around, client, QUEUE)
            try:
                await holder.open()
                while around.calm or rng.random() > FORGETTING:
                    await holder.round()
                    await asyncio.sleep(LATER_SECONDS * rng.random())
                await holder.forget()
            except fifo.FifoError as error:
                self._world.happened(f"durable {type(error).__name__}")
                client = await self._again(client, name, rng)

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
        """Record a message that the cluster holds as published, though no answer confirmed it."""
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
            # It may begin though its answer is lost.
            self._world.history.add("invoke", "redrive", name, queue=DEAD)
            call = client.redrive(DEAD, rate=rng.choice((None, 5)), limit=rng.choice((None, 3)))
            try:
                await self._programs.timed(name, "redrive", call)
                view = (await client.queue(DEAD)).as_dict()["redrive"]
            except fifo.FifoError as error:
                self._world.happened(f"redrive {type(error).__name__}")
                client = await self._again(client, name, rng)
                continue
            self._world.happened(f"redrive {view['status']}")
            self._world.history.add("ok", "redrive", name, queue=DEAD, moved=view["moved"])
