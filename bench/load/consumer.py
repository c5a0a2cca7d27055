"""A consumer: one partition that takes messages and ends each as the workload says.

Owns handlers, failures and the events of consuming. One that is to crash runs in a process of its
own (`python -m bench.load.consumer`), which kills itself with everything that it holds and is
started again; its record is closed a moment before, because what a dead program had not written
would look like a loss. The first of them is up before the partitions meet. Must not know Spark.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import fifo
from bench import loop
from bench.load.bodies import read, think_seconds
from bench.load.link import Address, Link
from bench.load.partition import (
    CALL_TIMEOUT_S,
    CONSUMER,
    Figures,
    Row,
    Run,
    recorder,
    telling,
)
from bench.load.recorder import STAMP, Recorder
from bench.load.transit import Transit
from fifo.histogram import Histogram
from fifo.machine import backoff, limits
from fifo.words.backoff import parse as parse_backoff

LOOK_S = 0.1
UP = b"up"
"""The line of a process that waits for its run."""

CRASHED = 77
"""The exit code of a consumer that killed itself on purpose."""

HANG_LOCKS = 1.6
"""A handler that hangs takes so many locks."""

DEFAULT_BACKOFF = f"fixed:{limits.NACK_DELAY_MS_DEFAULT}ms"
"""Delay of a nack on a queue without a backoff of its own."""

RENEW_AT = 0.9
"""A slow renewer renews when this part of the lock has passed."""


async def consume(
    run: Run, figures: Figures, record: Recorder, link: Link, *, letters: bool = False
) -> None:
    """Consume until all producers have ended and nothing has come for a while."""
    transit = Transit(time.monotonic())
    client = await fifo.connect(run.url, timeout=CALL_TIMEOUT_S)
    async with client, telling(link, figures):
        await _Consuming(run, client, transit, figures, record, link, letters=letters).work()


class _Consuming:
    def __init__(
        self,
        run: Run,
        client: fifo.Client,
        transit: Transit,
        figures: Figures,
        record: Recorder,
        link: Link,
        *,
        letters: bool,
    ) -> None:
        self._link = link
        number = figures.row.partition
        workload = run.workload
        self._run = run
        self._client = client
        self._transit = transit
        self._backoff = parse_backoff(workload.queue.nack_backoff or DEFAULT_BACKOFF)
        self._figures = figures
        self._record = record
        self._letters = letters
        self._queue = run.dead_letters if letters else run.queue
        self._process = f"{'d' if letters else 'c'}{number}.{os.getpid()}"
        self._chance = random.Random(f"{workload.name} consumer {number} {time.monotonic_ns()}")
        place = number - workload.producers
        self._slow = place < round(workload.consuming.slow_renewers * workload.consumers)
        self._plain = letters or not workload.handled

    async def work(self) -> None:
        """Subscribe, handle, leave."""
        consuming = self._run.workload.consuming
        consumer = self._client.consume(
            self._queue,
            prefetch=consuming.prefetch,
            auto_renew=not self._slow,
            handler_timeout=self._run.workload.queue.lock
            if self._run.workload.failures.hang
            else None,
        )
        async with consumer:
            self._record.add(
                "ok", "subscribe", self._process, queue=self._queue, consumer=consumer.number,
                prefetch=consuming.prefetch, lock_s=self._run.workload.queue.lock,
                renews=not self._slow,
            )  # fmt: skip
            patience = asyncio.create_task(self._end_when_idle(consumer))
            try:
                if self._plain:
                    await self._ack_all(consumer)
                else:
                    async with asyncio.TaskGroup() as group:
                        for _ in range(consuming.workers):
                            group.create_task(self._handle_all(consumer))
                if consumer.number is not None:
                    self._record.add("ok", "cancel", self._process, consumer=consumer.number)
            finally:
                patience.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await patience

    async def _end_when_idle(self, consumer: fifo.Consumer[fifo.Message]) -> None:
        """Cancel once the producers are done and nothing came for `idle` seconds."""
        seen, moved = -1, time.monotonic()
        while not self._link.stopped:
            await asyncio.sleep(LOOK_S)
            if self._figures.delivered != seen or not self._link.published:
                seen, moved = self._figures.delivered, time.monotonic()
            if time.monotonic() - moved > self._run.workload.idle:
                break
        await consumer.cancel()

    async def _ack_all(self, consumer: fifo.Consumer[fifo.Message]) -> None:
        async for batch in consumer.batches():
            for message in batch:
                self._delivered(message)
            asked = [self._asked(message, "ack") for message in batch]
            for value in asked:
                self._record.add("invoke", "settle", self._process, **value)
            asked_at = time.monotonic()
            try:
                results = await self._client.settle_many(batch)
            except fifo.FifoError as error:
                for value in asked:
                    self._record.add("info", "settle", self._process, **value, error=repr(error))
                continue
            self._answered(asked_at, results)
            for value, result in zip(asked, results, strict=True):
                self._settled(value, result)

    async def _handle_all(self, consumer: fifo.Consumer[fifo.Message]) -> None:
        async for message in consumer:
            self._delivered(message)
            await self._handle(message)

    def _delivered(self, message: fifo.Message) -> None:
        local_ns = time.monotonic_ns()
        now_ns = local_ns + self._run.offset_ns
        seen = read(message.body)
        letter = message.dead_letter
        self._figures.delivered += 1
        self._figures.row.redelivered += message.attempt > 1
        if message.attempt == 1 and not self._letters:
            self._figures.count(seen.sent_ns, now_ns)
        stamp = {STAMP: int(message.published_at.timestamp() * 1000)}
        self._record.add(
            "ok", "deliver", self._process, now_ns / 1e9,
            id=message.id, body=seen.name, intact=seen.intact, queue=self._queue,
            consumer=message.consumer, token=message.token, attempt=message.attempt,
            failures=message.failures, reason=None if letter is None else letter.reason,
            lock_ms=round(message.remaining * 1000, 3),
            # When its frame came: messages may wait in the client's buffer for long.
            transit_s=self._transit.at_most(message._delivery.received),
            waited_s=local_ns / 1e9 - message._delivery.received, **stamp,
        )  # fmt: skip

    async def _handle(self, message: fifo.Message) -> None:
        consuming, failures = self._run.workload.consuming, self._run.workload.failures
        seconds = think_seconds(consuming.think, consuming.think_ms, self._chance)
        if self._chance.random() < failures.hang:
            self._figures.outcome("hung")
            seconds = self._run.workload.queue.lock * HANG_LOCKS
        elif self._chance.random() < failures.crash:
            self._crash()
        await self._think(message, seconds)
        await self._settle(message, self._verb(message))

    async def _think(self, message: fifo.Message, seconds: float) -> None:
        end = time.monotonic() + seconds
        pause = self._run.workload.queue.lock * RENEW_AT
        while self._slow and end - time.monotonic() > pause:
            await asyncio.sleep(pause)
            what: dict[str, Any] = {
                "id": message.id,
                "consumer": message.consumer,
                "token": message.token,
            }
            self._record.add("invoke", "renew", self._process, **what)
            try:
                await message.renew()
                self._record.add(
                    "ok", "renew", self._process, **what, remaining_s=message.remaining
                )
            except fifo.FifoError as error:
                kind = "info" if error.unknown else "fail"
                self._record.add(kind, "renew", self._process, **what, error=repr(error))
                return
        await asyncio.sleep(max(0.0, end - time.monotonic()))

    def _verb(self, message: fifo.Message) -> str:
        failures = self._run.workload.failures
        name = read(message.body).name
        if random.Random(name).random() < failures.poison:
            return "nack"
        chance = self._chance.random()
        for verb in ("nack", "release", "terminate"):
            chance -= getattr(failures, verb)
            if chance < 0:
                return verb
        return "ack"

    async def _settle(self, message: fifo.Message, verb: str) -> None:
        value = self._asked(message, verb)
        self._record.add("invoke", "settle", self._process, **value)
        asked_at = time.monotonic()
        try:
            if verb == "ack":
                result = await message.ack(receipt=True)
            elif verb == "nack":
                result = await message.nack(reason="by plan")
            elif verb == "release":
                result = await message.release()
            else:
                result = await message.terminate("by plan")
        except fifo.FifoError as error:
            kind = "fail" if isinstance(error, fifo.LockLost) else "info"
            self._record.add(kind, "settle", self._process, **value, error=repr(error))
            self._figures.outcome(f"{verb} {type(error).__name__}")
            return
        self._answered(asked_at, [result])
        self._settled(value, result)

    def _answered(self, asked_at: float, results: Sequence[fifo.SettleResult]) -> None:
        """Of the answers: a lost lock may be known here, without asking a node."""
        if any(result.status == fifo.Status.OK for result in results):
            self._transit.answered(asked_at, time.monotonic())

    def _asked(self, message: fifo.Message, verb: str) -> dict[str, Any]:
        delay_s = self._delay_s(message, verb)
        return {
            "id": message.id, "queue": self._queue, "consumer": message.consumer,
            "token": message.token, "verb": verb, "delay_s": delay_s,
            "delay_max_s": 0.0 if verb == "release" else delay_s,
        }  # fmt: skip

    def _delay_s(self, message: fifo.Message, verb: str) -> float | None:
        """Delay that the queue adds after this; None where it adds none."""
        return backoff.delay_ms(self._backoff, message.failures) / 1000 if verb == "nack" else None

    def _settled(self, value: dict[str, Any], result: fifo.SettleResult) -> None:
        kind = "info" if result.status == fifo.Status.SENT else "ok"
        told = {**value, "status": str(result.status), "late": result.late}
        self._record.add(kind, "settle", self._process, **told)
        late = " late" if result.late else ""
        self._figures.outcome(f"{value['verb']} {result.status}{late}")

    def _crash(self) -> None:
        """Die with everything that is held, once what was seen is written down."""
        self._figures.outcome("crashed")
        self._record.close()
        sys.stdout.write(json.dumps(asdict(self._figures.finished())) + "\n")
        sys.stdout.flush()
        os._exit(CRASHED)


class Incarnation:
    """A process that consumes as one partition; `begin` sets it going."""

    def __init__(self, partition: int, address: Address) -> None:
        """Start it; returns when it has imported everything and reached the driver."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.load.consumer", str(partition)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(address, self._process.stdin)
            self._process.stdin.flush()
        if self._process.stdout.readline().strip() != UP:
            _, said = self._process.communicate()
            raise _failed(said)

    def end(self) -> None:
        """Kill it where it was never set going."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def consume(self, run: Run, row: Row) -> tuple[int, Row]:
        """Its exit code and its row, when it has ended."""
        out, said = self._process.communicate(pickle.dumps((run, row.host)))
        if self._process.returncode not in (0, CRASHED):
            raise _failed(said)
        return self._process.returncode, Row(**json.loads(out.decode().splitlines()[-1]))


def _failed(said: bytes) -> RuntimeError:
    lines = said.decode(errors="replace").strip().splitlines()
    return RuntimeError(lines[-1] if lines else "a consumer's process has died")


def consume_crashing(run: Run, row: Row, first: Incarnation) -> Row:
    """A consumer in processes of its own, one after the other until one ends without a crash."""
    assert run.hub is not None, "a job has a driver"
    total = Histogram()
    incarnation = first
    while True:
        code, part = incarnation.consume(run, row)
        _add(row, part, total)
        if code == 0:
            row.latency = total.to_pairs()
            return row
        incarnation = Incarnation(row.partition, run.hub)


def _add(row: Row, part: Row, total: Histogram) -> None:
    total.merge(Histogram.from_pairs([(a, b) for a, b in part.latency]))
    row.messages += part.messages
    row.measured += part.measured
    row.redelivered += part.redelivered
    row.begin_ns = row.begin_ns or part.begin_ns
    row.end_ns = max(row.end_ns, part.end_ns)
    for name, count in part.outcomes.items():
        row.outcomes[name] = row.outcomes.get(name, 0) + count


def run_consumer(run: Run, row: Row, link: Link) -> Row:
    """This process's consumer, and its dead letters' where it is the first of all."""
    figures = Figures(run, row)

    async def both(record: Recorder) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(consume(run, figures, record, link))
            if run.workload.queue.dead_letter and row.partition == run.workload.producers:
                letters = Figures(run, Row("letters", row.partition, row.host))
                group.create_task(consume(run, letters, record, link, letters=True))

    with recorder(run, link, f"consumer-{row.partition}") as record:
        loop.run(both(record))
    return figures.finished()


def main() -> int:
    """An incarnation of a consumer that may crash: where the driver is and then the run on stdin,
    its row on stdout."""
    with Link(pickle.load(sys.stdin.buffer)) as link:
        sys.stdout.buffer.write(UP + b"\n")
        sys.stdout.buffer.flush()
        run, host = pickle.load(sys.stdin.buffer)
        row = run_consumer(run, Row(CONSUMER, int(sys.argv[1]), host), link)
    print(json.dumps(asdict(row)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
