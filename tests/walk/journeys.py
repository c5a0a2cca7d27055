"""The five journeys, made by a real client and three real nodes under virtual time.

Owns what is done in each, and which part of the run belongs to it. Must not know how it is shown.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping
from dataclasses import replace
from types import CodeType

import fifo
from fifo.client.consuming.message import Message
from tests.sim.plan import Plan
from tests.sim.run import until
from tests.sim.workload import Programs
from tests.sim.world import World
from tests.walk.calls import Calls
from tests.walk.tracer import Step, Tracer

LOCK_SECONDS = 5.0
IDLE_SECONDS = 3.0
"""Long enough for every timer of an idle cluster; what it does then is left out of the walk."""

CALM_SECONDS = 1.0
"""Between two journeys: all that the one before left to do is done by then."""


LONE_PUBLISHES = 20
"""Publishes one after the other, to count the calls of one."""


class Walk:
    """A run with all journeys: the steps of each, and the role of each program in it."""

    def __init__(self) -> None:
        self.journeys: dict[str, list[Step]] = {}
        self.calls: dict[str, float] = {}
        """Calls of the leader, of a follower and of the client for a publish that is alone."""
        self._world = World(Plan(1, 3, (), (), 3, ()))
        self._programs = Programs(self._world)
        self._usual: set[CodeType] = set()
        self._ended = False

    def run(self) -> dict[str, list[Step]]:
        """Make every journey; its steps, each with a role in place of its program."""
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            self._world.loop.run_until_complete(self._main())
        finally:
            logging.disable(before)
            self._world.loop.finish()
        return self.journeys

    async def _main(self) -> None:
        for host in self._world.hosts.values():
            host.start()
        await until(self._world, self._world.leader, 10.0, "there is no leader")
        self._programs.start("client", self._client)
        await until(self._world, lambda: self._ended, 120.0, "the walk does not end")

    async def _client(self, name: str, rng: random.Random) -> None:
        client = await self._programs.connect(name, rng)
        await client.declare(fifo.QueueSpec("alone"))
        await self._count(client)
        await client.declare(fifo.QueueSpec("orders", lock=LOCK_SECONDS))
        async with client.consume("orders", prefetch=10, auto_renew=False) as messages:
            await self._make(client, messages)
        await client.close()
        self._ended = True

    async def _count(self, client: fifo.Client) -> None:
        await client.publish("alone", b"warm")
        calls = Calls()
        await asyncio.sleep(CALM_SECONDS)
        with calls.counting():
            for _ in range(LONE_PUBLISHES):
                await client.publish("alone", b"one")
        leader = self._world.leader()
        assert leader is not None
        found = {name: calls.by_program[name] / LONE_PUBLISHES for name in calls.by_program}
        self.calls["client"] = found.pop("client")
        self.calls["leader"] = found.pop(leader.name)
        self.calls["follower"] = max(found.values())

    async def _make(self, client: fifo.Client, messages: fifo.Consumer[Message]) -> None:
        await client.publish("orders", b"warm")
        await (await _next(messages)).ack(receipt=True)
        tracer = await self._begin()
        with tracer.noting():
            await asyncio.sleep(IDLE_SECONDS)
        self._usual = tracer.codes()
        tracer = await self._begin()
        with tracer.noting():
            await client.publish("orders", b"one")
            message = await _next(messages)
        self._end("publish", tracer)
        tracer = await self._begin()
        with tracer.noting():
            await message.renew()
        self._end("renewal", tracer)
        tracer = await self._begin()
        with tracer.noting():
            await message.ack(receipt=True)
        self._end("ack", tracer)
        await self._time_out(client, messages)
        await self._leader_change(client, messages)

    async def _time_out(self, client: fifo.Client, messages: fifo.Consumer[Message]) -> None:
        await client.publish("orders", b"two")
        message = await _next(messages)
        await asyncio.sleep(LOCK_SECONDS - CALM_SECONDS)
        tracer = await self._begin()
        with tracer.noting():
            await message.lock_lost.wait()
            # Asking for more clears the suspicion: the message comes back.
            message = await _next(messages)
        self._end("time-out", tracer)
        await message.ack(receipt=True)

    async def _leader_change(self, client: fifo.Client, messages: fifo.Consumer[Message]) -> None:
        await client.publish("orders", b"three")
        message = await _next(messages)
        tracer = await self._begin()
        leader = self._world.leader()
        assert leader is not None
        with tracer.noting():
            leader.kill()
            await message.ack(receipt=True)
        self._end("change of leader", tracer)

    async def _begin(self) -> Tracer:
        await asyncio.sleep(CALM_SECONDS)
        return Tracer()

    def _end(self, journey: str, tracer: Tracer) -> None:
        leader = self._world.leader()
        assert leader is not None
        roles = dict.fromkeys(self._world.hosts, "follower") | {leader.name: "leader"}
        self.journeys[journey] = _in_roles(tracer.steps(self._usual), roles)


async def _next(messages: fifo.Consumer[Message]) -> Message:
    message = await messages.next(LOCK_SECONDS * 2)
    assert message is not None, "the message does not come"
    return message


def _in_roles(steps: list[Step], roles: Mapping[str, str]) -> list[Step]:
    """The steps with roles for programs; what two programs of one role do stands there once."""
    seen: dict[tuple[str, str, str], Step] = {}
    for step in steps:
        actor = roles.get(step.actor, step.actor)
        seen.setdefault((actor, step.room, step.function), replace(step, actor=actor))
    return list(seen.values())
