"""A client program as a process of its own: `python -m tests.jepsen.program FOLDER NAME KIND HOW`.

Owns what publishers, consumers and the drain do with the real client, and what they write into
their part of the history: a line per event, handed to the kernel at once, so that a killed program
loses none. SIGUSR1 says that the faults are over: publishers end, consumers ack what they get.
SIGTERM ends it in order. Times are CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import fifo
from tests.jepsen.bodies import body_of, given
from tests.jepsen.durably import Holder
from tests.jepsen.handling import LOOK_S, Handler, Taking
from tests.jepsen.history import drops, event_of, line_of
from tests.jepsen.workloads import Consuming, Publishing

TIMEOUT_S = 8.0
"""Of every call: longer than two elections."""

RETRY_S = 0.2
POISON = "poison"


class Program:
    """A process: its client, its part of the history, and the signals that steer it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.folder = folder
        self.plan = json.loads((folder / "cluster.json").read_text())
        self.rng = random.Random(f"{self.plan['seed']} {name}")
        path = folder / "history" / f"{name}.jsonl"
        self._file = path.open("ab", buffering=0)
        self._count = 0
        self.calm = asyncio.Event()
        self.over = asyncio.Event()

    def add(self, kind: str, f: str, process: str = "", **value: Any) -> None:
        """Record an event, now."""
        self._count += 1
        event = event_of(kind, f, process or self.name, time.monotonic(), self._count, value)
        self._file.write(line_of(event).encode() + b"\n")

    async def connect(self) -> fifo.Client:
        """A client, as soon as there is a leader."""
        while True:
            try:
                return await fifo.connect(
                    self.plan["url"], timeout=TIMEOUT_S, heartbeat=2.0, name=self.name
                )
            except fifo.FifoError:
                await asyncio.sleep(RETRY_S)

    async def timed(self, what: str, call: Coroutine[Any, Any, Any], wait_s: float = 0.0) -> Any:
        """V4: a call, and how long it took; `wait_s`: what it was asked to wait besides."""
        began = time.monotonic()
        try:
            return await call
        finally:
            seconds = round(time.monotonic() - began, 4)
            self.add("ok", "call", what=what, seconds=seconds, limit_s=TIMEOUT_S + wait_s)

    async def until(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for an event, for `seconds` at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)

    # --- publishing -------------------------------------------------------------------------------

    async def publish(self, how: Publishing) -> None:
        """Messages until the faults are over, one call after the other."""
        client = await self.connect()
        number = 0
        while not (self.calm.is_set() or self.over.is_set()):
            some = self.rng.randint(1, how.batch)
            names = [self._body_name(how, number + place) for place in range(some)]
            number += some
            if how.dedup:
                await self._publish_until_known(client, how, names[0])
            else:
                await self._publish(client, how, names)
            await self.until(self.calm, self.rng.expovariate(1 / how.pause_s))
        await client.close()

    def _body_name(self, how: Publishing, number: int) -> str:
        kind = POISON if self.rng.random() < how.poison else "m"
        return f"{self.name}-{os.getpid()}-{kind}-{number}"

    async def _publish(self, client: fifo.Client, how: Publishing, names: list[str]) -> None:
        keys = [f"k{self.rng.randrange(how.keys)}" if how.keys else None for _ in names]
        delays = [round(self.rng.random() * how.delay_s, 3) or None for _ in names]
        ttls = [self._ttl(how) for _ in names]
        for name, key, delay_s, ttl_s in zip(names, keys, delays, ttls, strict=True):
            self.add(
                "invoke", "publish",
                queue=how.queue, body=name, key=key, delay_s=delay_s, ttl_s=ttl_s,
            )  # fmt: skip
        error: fifo.FifoError | None = None
        confirms: Any = ()
        try:
            bodies = [body_of(name) for name in names]
            call = client.publish_many(how.queue, bodies, keys=keys, delays=delays, ttls=ttls)
            confirms = await self.timed("publish_many", call)
        except fifo.FifoError as failed:
            confirms, error = getattr(failed, "confirms", ()), failed
        for name, confirm in zip(names, confirms, strict=False):
            self.add("ok", "publish", queue=how.queue, body=name, id=confirm.id)
        for name in names[len(confirms) :]:
            assert error is not None, "all are confirmed without an error"
            kind = "info" if error.unknown else "fail"
            self.add(kind, "publish", queue=how.queue, body=name, error=repr(error))

    def _ttl(self, how: Publishing) -> float | None:
        if not how.ttl_s or self.rng.random() < 0.5:
            return None
        return round(self.rng.uniform(0.02, how.ttl_s), 3)

    async def _publish_until_known(self, client: fifo.Client, how: Publishing, name: str) -> None:
        """Publish a message under its own id until the answer is known: it may be stored once."""
        self.add("invoke", "publish", queue=how.queue, body=name, dedup_id=name)
        for attempt in range(100):
            try:
                call = client.publish(how.queue, body_of(name), dedup_id=name)
                confirm = await self.timed("publish", call)
            except fifo.FifoError as error:
                if self.over.is_set() or attempt == 99:
                    self.add("info", "publish", queue=how.queue, body=name, error=repr(error))
                    return
                self.add("ok", "retried", body=name, unknown=error.unknown)
                continue
            self.add("ok", "publish", queue=how.queue, body=name, id=confirm.id)
            return

    # --- consuming --------------------------------------------------------------------------------

    async def consume(self, how: Consuming) -> None:
        """Take messages and settle them until a signal ends it."""
        handler = Handler(self, how)
        client = await self.connect()
        watching = asyncio.ensure_future(handler.watch_gaps())
        while not self.over.is_set():
            consumer = client.consume(
                how.queue,
                prefetch=how.prefetch,
                lock=how.lock_s,
                max_lock=4 * how.lock_s,
                auto_renew=how.auto_renew,
            )
            try:
                await self.timed("subscribe", consumer.subscribe())
                self._subscribed(consumer, how)
                async with asyncio.TaskGroup() as group:
                    guard = group.create_task(self._leave_when_over(consumer))
                    workers = [
                        group.create_task(handler.work(consumer)) for _ in range(how.workers)
                    ]
                    await asyncio.wait(workers)
                    guard.cancel()
            except* fifo.FifoError as errors:
                self.add("ok", "consumer_error", error=repr(errors.exceptions[0]))
            await self._leave(consumer)
            if not self.over.is_set() and client._session.fatal is not None:
                client = await self.connect()
        watching.cancel()
        await client.close()

    async def _again(self, client: fifo.Client, error: fifo.FifoError) -> fifo.Client:
        """After an error: the same client a little later, or a new one where it has ended."""
        self.add("ok", "consumer_error", error=repr(error))
        await self.until(self.over, RETRY_S)
        return client if client._session.fatal is None else await self.connect()

    async def get(self, how: Consuming) -> None:
        """Get a few messages and settle them until a signal ends it."""
        handler = Handler(self, how)
        client = await self.connect()
        watching = asyncio.ensure_future(handler.watch_gaps())
        while not self.over.is_set():
            count, wait_s = self.rng.randint(1, how.prefetch), self.rng.choice((0.0, 0.3))
            call = client.get(how.queue, count, wait_s, how.lock_s, how.auto_renew)
            try:
                messages = await self.timed("get", call, wait_s)
            except fifo.FifoError as error:
                client = await self._again(client, error)
                continue
            for message in messages:
                handler.delivered(message)
            for message in messages:
                await handler.handle_delivered(message)
            if not messages:
                await self.until(self.over, LOOK_S)
        watching.cancel()
        await client.close()

    async def take(self, how: Consuming) -> None:
        """Share a durable consumer with others until a signal ends it."""
        around = Taking(self, how)
        client = await self.connect()
        while not self.over.is_set():
            holder = Holder(around, client, how.queue)
            try:
                await holder.open()
                while not self.over.is_set() and (self.calm.is_set() or self.rng.random() > 0.03):
                    await holder.round()
                    await self.until(self.over, LOOK_S)
                await holder.forget()
            except fifo.FifoError as error:
                client = await self._again(client, error)
        await client.close()

    def _subscribed(self, consumer: Any, how: Consuming) -> None:
        def changed(active: bool) -> None:
            self.add("ok", "active", queue=how.queue, consumer=consumer.number, active=active)

        consumer.on_activity = changed
        self.add(
            "ok", "subscribe", queue=how.queue, consumer=consumer.number,
            prefetch=how.prefetch, lock_s=how.lock_s, renews=how.auto_renew,
        )  # fmt: skip

    async def _leave_when_over(self, consumer: Any) -> None:
        await self.over.wait()
        await self._leave(consumer)

    async def _leave(self, consumer: Any) -> None:
        if consumer.cancelled:
            return
        if consumer.number is not None:
            self.add("ok", "cancel", consumer=consumer.number)
        with contextlib.suppress(fifo.FifoError):
            await consumer.cancel()

    # --- beginning and end ------------------------------------------------------------------------

    async def declare(self, queues: dict[str, dict[str, Any]]) -> None:
        """Make the queues."""
        client = await self.connect()
        for queue, fields in queues.items():
            spec = fifo.QueueSpec(queue, **fields)
            while True:
                try:
                    await client.declare(spec)
                    break
                except fifo.FifoError:
                    await asyncio.sleep(RETRY_S)
            self.add("ok", "declare", queue=queue, spec=given(spec))
        await client.close()

    async def redrive(self, queue: str) -> None:
        """Send all dead letters back, and wait until they are."""
        client = await self.connect()
        self.add("invoke", "redrive", queue=queue)  # From here on attempts may start again.
        moved, begun = 0, False
        while not self.over.is_set():
            try:
                view = (await client.queue(queue)).as_dict()
                if begun and view["redrive"]["status"] != "running":
                    moved = view["redrive"]["moved"]
                    break
                if not begun and not view["messages"]:
                    break
                if not begun:
                    await client.redrive(queue)
                    begun = True
            except fifo.QueueInUse:
                begun = True
            except fifo.FifoError:
                pass
            await asyncio.sleep(RETRY_S)
        self.add("ok", "redrive", queue=queue, moved=moved)
        await client.close()

    async def delete(self, queues: list[str]) -> None:
        """Take the queues away, sources before what they name: the next period has its own."""
        client = await self.connect()
        for queue in queues:
            while not self.over.is_set():
                try:
                    await client.delete(queue)
                    break
                except fifo.QueueNotFound:
                    break
                except fifo.FifoError:
                    await asyncio.sleep(RETRY_S)
        await client.close()

    async def drain(self, queues: list[str]) -> None:
        """Take everything that is left, and say what is left of it, and what was dropped."""
        how = Consuming(slow=0, nack=0, release=0, forget=0, leave=0)
        handler = Handler(self, how)
        self.calm.set()
        client = await self.connect()
        for queue in queues:
            async with client.consume(queue, prefetch=50, lock=30) as consumer:
                while not self.over.is_set():
                    message = await consumer.next(timeout=0.3)
                    if message is not None:
                        await handler.handle(message)
                    elif not await self._left(client, queue):
                        break
        left = {queue: await self._left(client, queue) for queue in queues}
        for queue in queues:
            for reason, count in drops((await client.queue(queue)).counters):
                self.add("ok", "drop", queue=queue, reason=reason, count=count)
        self.add("ok", "left", queues=left)
        await client.close()

    async def _left(self, client: fifo.Client, queue: str) -> int:
        while True:
            try:
                return int((await client.queue(queue)).messages)
            except fifo.FifoError:
                await asyncio.sleep(RETRY_S)


async def live(folder: Path, name: str, kind: str, how: Any) -> None:
    """Be what is asked for."""
    program = Program(folder, name)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, program.calm.set)
    loop.add_signal_handler(signal.SIGTERM, program.over.set)
    (folder / f"{name}.ready").touch()
    match kind:
        case "publish":
            await program.publish(Publishing(**how))
        case "consume":
            consuming = Consuming(**how)
            by = {"consume": program.consume, "get": program.get, "durable": program.take}
            await by[consuming.by](consuming)
        case _:
            await getattr(program, kind)(how)


def main() -> None:
    """Run one program."""
    folder, name, kind, how = sys.argv[1:]
    asyncio.run(live(Path(folder), name, kind, json.loads(how)))


if __name__ == "__main__":
    main()
