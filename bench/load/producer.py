"""A producer: one partition that publishes in a window, at its share of each phase's rate.

Owns pacing and the events of publishing. Must not know Spark: it runs wherever an event loop does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import fifo
from bench.load.bodies import Content, body_of, contents
from bench.load.link import Link
from bench.load.partition import CALL_TIMEOUT_S, Figures, Run, telling
from bench.load.recorder import Recorder

CHUNKS_PER_WINDOW = 4
"""A window travels in so many calls: some are confirmed while others are on their way."""

PACE_S = 0.02
"""At a given rate, messages go out in chunks this far apart."""


async def produce(run: Run, figures: Figures, recorder: Recorder, link: Link) -> None:
    """Publish this partition's share of the workload."""
    source = contents(run.workload, figures.row.partition)
    async with fifo.connect(run.url, timeout=CALL_TIMEOUT_S) as client, telling(link, figures):
        publisher = _Publisher(run, client, figures, recorder, source, link)
        await asyncio.sleep(max(0.0, run.begin - run.now()))
        if run.workload.messages:
            await publisher.publish(run.workload.share(figures.row.partition))
            return
        for phase, _, end in run.phases():
            rate = phase.rate / run.workload.producers
            await publisher.publish_until(end, rate)


class _Publisher:
    def __init__(
        self,
        run: Run,
        client: fifo.Client,
        figures: Figures,
        recorder: Recorder,
        source: Iterator[Content],
        link: Link,
    ) -> None:
        window = run.workload.window
        self._link = link
        self._run = run
        self._client = client
        self._figures = figures
        self._recorder = recorder
        self._source = source
        self._chunk = max(1, window // CHUNKS_PER_WINDOW)
        self._places = asyncio.Semaphore(max(1, window // self._chunk))
        self._process = f"p{figures.row.partition}"
        self._numbers = itertools.count()

    async def publish(self, count: int) -> None:
        """So many, as fast as the window lets them."""
        async with asyncio.TaskGroup() as calls:
            for first in range(0, count, self._chunk):
                if self._link.stopped:
                    return
                await self._places.acquire()
                calls.create_task(self._call(min(self._chunk, count - first)))

    async def publish_until(self, end: float, rate: float) -> None:
        """Until a time of the driver's clock, at a rate, or at none."""
        due, sent, begin = 0.0, 0, self._run.now()
        async with asyncio.TaskGroup() as calls:
            while (now := self._run.now()) < end and not self._link.stopped:
                due = rate * (now - begin) if rate else sent + self._chunk
                count = min(int(due) - sent, self._chunk)
                if count < 1:
                    await asyncio.sleep(PACE_S)
                    continue
                await self._places.acquire()
                sent += count
                calls.create_task(self._call(count))

    async def _call(self, count: int) -> None:
        """Publish so many messages in one call, and record what became of each."""
        some = list(itertools.islice(self._source, count))
        names = [f"{self._process}-{next(self._numbers)}" for _ in some]
        sent_ns = self._run.now_ns()
        bodies = [body_of(n, sent_ns, one.data) for n, one in zip(names, some, strict=True)]
        queue, delay_s = self._run.queue, self._run.workload.body.delay or None
        asked: list[dict[str, Any]] = [
            {"queue": queue, "body": n, "key": one.key, "delay_s": delay_s,
             "priority": one.priority}
            for n, one in zip(names, some, strict=True)
        ]  # fmt: skip
        for value in asked:
            self._recorder.add("invoke", "publish", self._process, **value)
        confirms, error = await self._publish(bodies, some, delay_s)
        now_ns = self._run.now_ns()
        self._places.release()
        for value, confirm in zip(asked, confirms, strict=False):
            self._recorder.add("ok", "publish", self._process, **value, id=confirm.id)
        for value in asked[len(confirms) :]:
            assert error is not None, "all are confirmed without an error"
            kind = "info" if error.unknown else "fail"
            self._recorder.add(kind, "publish", self._process, **value, error=repr(error))
            self._figures.outcome(f"publish {type(error).__name__}")
        if confirms:
            self._figures.count(sent_ns, now_ns, len(confirms))

    async def _publish(
        self, bodies: list[bytes], some: list[Content], delay_s: float | None
    ) -> tuple[list[fifo.Confirm], fifo.FifoError | None]:
        keyed = any(one.key is not None for one in some)
        ranked = some[0].priority is not None
        try:
            found = await self._client.publish_many(
                self._run.queue,
                bodies,
                keys=[one.key for one in some] if keyed else None,
                delays=[delay_s] * len(some) if delay_s else None,
                priorities=[one.priority or 0 for one in some] if ranked else None,
                timeout=CALL_TIMEOUT_S,
            )
        except fifo.FifoError as error:
            return list(getattr(error, "confirms", ())), error
        return list(found), None
