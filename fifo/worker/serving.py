"""A worker process: it connects, works until a signal, and drains.

Owns the meaning of signals: the first SIGTERM or SIGINT drains, the second releases everything.
Must not know other processes of the command.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import dataclass
from typing import Any

from fifo.client import Client
from fifo.worker import limits
from fifo.worker.app import App
from fifo.worker.worker import Worker

_log = logging.getLogger("fifo.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a worker process."""

    target: str
    url: str | None = None
    concurrency: int = limits.CONCURRENCY
    prefetch: int | None = None
    grace_s: float = limits.GRACE_SECONDS


async def serve(app: App, settings: Settings) -> None:
    """Work until a signal. Raises what ended the worker otherwise."""
    stops = Stops()
    stops.listen()
    try:
        async with await app.connect(settings.url) as client:
            await _work(app, client, settings, stops)
    finally:
        stops.forget()


async def _work(app: App, client: Client, settings: Settings, stops: Stops) -> None:
    worker = Worker(app, client, concurrency=settings.concurrency, prefetch=settings.prefetch)
    await worker.start()
    queues = ", ".join(app.queues())
    _log.info(
        "ready: %d tasks, queues %s, %d at once", len(app.tasks), queues, settings.concurrency
    )
    await _first(stops.first, worker.ended)
    _log.info("draining: %d messages at work, up to %g s", worker.at_work, settings.grace_s)
    draining = asyncio.create_task(worker.drain(settings.grace_s))
    await _first(stops.second, draining)
    if not draining.done():
        draining.cancel()
        await asyncio.wait({draining})
    _log.info("drained")
    if worker.ended.done():
        worker.ended.result()


async def _first(signal_came: asyncio.Event, other: asyncio.Future[Any]) -> None:
    """Wait for a signal or the other one."""
    came = asyncio.create_task(signal_came.wait())
    waited: set[asyncio.Future[Any]] = {came, other}
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    came.cancel()


class Stops:
    """Signals as events."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def listen(self) -> None:
        """Take SIGTERM and SIGINT from here on."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.add_signal_handler(number, self.stop)

    def forget(self) -> None:
        """Leave them to Python again."""
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Count a signal."""
        (self.second if self.first.is_set() else self.first).set()
