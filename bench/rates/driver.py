"""Clients of one checkout, in one process: they load its cluster, measure, and print one line.

Owns the loads. Imports the standard library and the public client of the checkout that is measured,
nothing of this one: a driver of today runs on older checkouts. Run as a script by `checkout.py`,
which gives the job as an argument and says on stdin when to begin; not for people.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import fifo

STAMP_BYTES = 8
LANES = 4
"""A window travels in so many calls: some are confirmed while others are on their way."""

CALL_TIMEOUT_S = 60.0
PACE_S = 0.001
"""A paced load sends what is due at each of these steps."""

FILL_BATCH = 1_000
KEYS = 1_000
"""Keys of messages that have one, in turn."""

_HEADERS = {"kind": "bench", "from": "rates"}
_TTL_S = 3_600.0


class Figures:
    """Measurements between two instants: messages, their times, CPU time of this process."""

    def __init__(self) -> None:
        self.begin_ns = self.end_ns = 0
        self.kill_ns = 0
        """When a leader is killed; 0: never."""
        self.messages = 0
        self.pause_s = 0.0
        self._last_ns = 0
        self._cpu_s = 0.0
        self._times_us: Counter[int] = Counter()

    def count(self, sent_ns: int, messages: int = 1) -> None:
        """Count messages that were sent at one time, and are through now."""
        now_ns = time.monotonic_ns()
        if self.begin_ns <= now_ns < self.end_ns:
            self.messages += messages
            self._last_ns = now_ns
            self._times_us[_rounded((now_ns - sent_ns) // 1_000)] += messages

    def pause(self, since_ns: int) -> None:
        """Keep the time since an instant if it is the longest; one that ended before the leader was
        killed is none of the kill's."""
        now_ns = time.monotonic_ns()
        if now_ns >= self.kill_ns:
            self.pause_s = max(self.pause_s, (now_ns - since_ns) / 1e9)

    async def watch(self) -> None:
        """Wait for both instants, and take the CPU time between them."""
        await _until(self.begin_ns)
        before = time.process_time()
        await _until(self.end_ns)
        self._cpu_s = time.process_time() - before

    def shown(self) -> dict[str, float]:
        """The one line of the report."""
        return {
            "messages": self.messages,
            "span_s": (self._last_ns - self.begin_ns) / 1e9 if self.messages else 0.0,
            "p50_ms": self._percentile_ms(0.5),
            "p99_ms": self._percentile_ms(0.99),
            "pause_s": self.pause_s,
            "cpu_s": self._cpu_s,
        }

    def _percentile_ms(self, part: float) -> float:
        left = part * self._times_us.total()
        for time_us, count in sorted(self._times_us.items()):
            left -= count
            if left <= 0:
                return time_us / 1_000
        return 0.0


def _rounded(value: int) -> int:
    """Three digits: so many different times are no burden."""
    return int(round(value, 3 - len(str(value)))) if value > 999 else value


async def _until(at_ns: int) -> None:
    await asyncio.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)


class Load:
    """The clients of one process, and what they do."""

    def __init__(self, job: dict[str, Any], clients: list[fifo.Client], figures: Figures) -> None:
        self._job = job
        self._clients = clients
        self._figures = figures
        self._padding = os.urandom(job["size"] - STAMP_BYTES)
        self._keys = itertools.cycle([b"key-%d" % number for number in range(KEYS)])
        self._names = [f"{job['queue']}-{number}" for number in range(job["queues"])]

    async def prepare(self) -> None:
        """Make the queues, and fill them where that is wanted."""
        job, client = self._job, self._clients[0]
        for name in self._names or [job["queue"]]:
            with contextlib.suppress(fifo.QueueExists):
                await client.declare(fifo.QueueSpec(name, **job["spec"]))
        for _ in range(0, job["fill"], FILL_BATCH):
            await self._publish_batch(client, time.monotonic_ns(), FILL_BATCH)

    async def leave(self) -> None:
        """Delete the queues."""
        for name in self._names or [self._job["queue"]]:
            with contextlib.suppress(fifo.QueueNotFound):
                await self._clients[0].delete(name)

    async def run(self) -> None:
        """Load the cluster until the end."""
        loads: dict[str, Callable[[fifo.Client], Awaitable[None]]] = {
            "publish": self._publish,
            "consume": self._consume,
            "paced": self._paced,
            "spread": self._spread,
            "survive": self._survive,
        }
        load = loads[self._job["role"]]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout((self._figures.end_ns - time.monotonic_ns()) / 1e9):
                await _all(load(client) for client in self._clients)

    def _body(self, sent_ns: int) -> bytes:
        return sent_ns.to_bytes(STAMP_BYTES, "little") + self._padding

    async def _publish_batch(self, client: fifo.Client, sent_ns: int, count: int) -> None:
        more: dict[str, Any] = {}
        if self._job["dressed"] or self._job["keyed"]:
            more["keys"] = list(itertools.islice(self._keys, count))
        if self._job["dressed"]:
            more |= {"headers": [_HEADERS] * count, "ttls": [_TTL_S] * count}
        await client.publish_many(self._job["queue"], [self._body(sent_ns)] * count, **more)

    async def _publish(self, client: fifo.Client) -> None:
        window = self._job["window"]
        if window == 1:
            await self._one_by_one(client)
            return
        lanes = min(LANES, window)
        await _all(self._lane(client, window // lanes) for _ in range(lanes))

    async def _lane(self, client: fifo.Client, count: int) -> None:
        while True:
            sent_ns = time.monotonic_ns()
            await self._publish_batch(client, sent_ns, count)
            self._figures.count(sent_ns, count)

    async def _one_by_one(self, client: fifo.Client) -> None:
        while True:
            sent_ns = time.monotonic_ns()
            await client.publish(self._job["queue"], self._body(sent_ns))
            self._figures.count(sent_ns)

    async def _consume(self, client: fifo.Client) -> None:
        prefetch = self._job["prefetch"]
        more = {} if prefetch is None else {"prefetch": prefetch}
        async with client.consume(self._job["queue"], **more) as messages:
            async for batch in messages.batches():
                stamps = (bytes(message.body[:STAMP_BYTES]) for message in batch)
                for stamp, same in itertools.groupby(stamps):
                    self._figures.count(int.from_bytes(stamp, "little"), len(list(same)))
                messages.ack_many(batch)

    async def _paced(self, client: fifo.Client) -> None:
        """Publish so many a second, each on its own; clients that share the load begin in turn."""
        rate = self._job["rate"] / len(self._clients)
        offset = self._clients.index(client) / len(self._clients) / rate
        begun, sent = time.monotonic() + offset, 0
        async with asyncio.TaskGroup() as group:
            while True:
                due = int((time.monotonic() - begun) * rate) - sent
                for _ in range(max(0, due)):
                    group.create_task(self._once(client))
                sent += max(0, due)
                await asyncio.sleep(max(PACE_S, (sent + 1) / rate + begun - time.monotonic()))

    async def _once(self, client: fifo.Client) -> None:
        sent_ns = time.monotonic_ns()
        await client.publish(self._job["queue"], self._body(sent_ns))
        self._figures.count(sent_ns)

    async def _spread(self, client: fifo.Client) -> None:
        """Publish a message to each queue, all at once, and again when all are confirmed."""
        while True:
            sent_ns = time.monotonic_ns()
            body = self._body(sent_ns)
            await asyncio.gather(*[client.publish(name, body) for name in self._names])
            self._figures.count(sent_ns, len(self._names))

    async def _survive(self, client: fifo.Client) -> None:
        """Publish one by one; the longest time without a confirm from the kill on."""
        before = time.monotonic_ns()
        while True:
            try:
                await client.publish(self._job["queue"], self._body(0))
            finally:  # One that the end interrupts has waited too.
                self._figures.pause(before)
            before = time.monotonic_ns()


async def _all(coroutines: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for coroutine in coroutines:
            group.create_task(coroutine)


@contextlib.asynccontextmanager
async def _connected(url: str, count: int) -> AsyncIterator[list[fifo.Client]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(fifo.connect(url, timeout=CALL_TIMEOUT_S))
            for _ in range(count)
        ]


async def work(job: dict[str, Any]) -> None:
    """Connect, say so, load, report, and leave when the others have reported too."""
    figures = Figures()
    async with _connected(job["url"], job["clients"]) as clients:
        load = Load(job, clients, figures)
        await load.prepare()
        print(json.dumps({"ready": True}), flush=True)
        times = json.loads(await _line())
        figures.begin_ns, figures.end_ns = times["begin_ns"], times["end_ns"]
        figures.kill_ns = times["kill_ns"]
        await _all((figures.watch(), load.run()))
        print(json.dumps(figures.shown()), flush=True)
        await _line()
        if job["leaves"]:
            await load.leave()


def _line() -> Coroutine[Any, Any, str]:
    return asyncio.to_thread(sys.stdin.readline)


def main() -> int:
    """Do the job of the command line; 1 and one line on stderr where it failed, or stdin ended."""
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(work(json.loads(sys.argv[1])))
    except Exception as failed:  # A client of any age: each error is one line here.
        error: BaseException = failed
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
