"""A worker process: it connects, works until a signal, and drains.

Owns the meaning of signals: the first SIGTERM or SIGINT drains, the second releases everything; and
what the process reports of itself. Must not know other processes of the command.
"""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from fifo.client import Client, redacted
from fifo.worker import limits
from fifo.worker.app import App
from fifo.worker.children import Children
from fifo.worker.health import probes
from fifo.worker.status import BEAT, BY_STATE, Report, Reports, State
from fifo.worker.stopping import Stops
from fifo.worker.watch import Watch
from fifo.worker.worker import Worker

_log = logging.getLogger("fifo.worker")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a worker process."""

    target: str
    url: str | None = None
    concurrency: int = limits.CONCURRENCY
    prefetch: int | None = None
    grace_s: float = limits.GRACE_SECONDS
    children: int = 1
    log_level: str = "info"
    log_format: str = "text"
    health_port: int | None = None
    health_file: Path | None = None
    status_descriptor: int | None = None


async def serve(app: App, settings: Settings) -> None:
    """Work until a signal. Raises what ended the worker otherwise."""
    stops = Stops()
    stops.listen()
    report = Report()
    reports = Reports({os.getpid(): report})
    try:
        async with probes(reports, settings.health_port, settings.health_file):
            with Watch(), Announcing(report, settings.status_descriptor, stops) as announcing:
                url = app.chosen_url(settings.url)
                connecting = asyncio.ensure_future(app.connect(url))
                _log.info("connecting to %s", redacted(url))
                await _first(stops.first, connecting)
                if not connecting.done():
                    connecting.cancel()
                    return
                async with connecting.result() as client:
                    await _work(app, client, settings, stops, announcing)
    finally:
        stops.forget()


async def _work(
    app: App, client: Client, settings: Settings, stops: Stops, announcing: Announcing
) -> None:
    children = Children(settings.target, settings.children, settings.log_level, settings.log_format)
    worker = Worker(
        app,
        client,
        concurrency=settings.concurrency,
        prefetch=settings.prefetch,
        children=children,
    )
    await worker.start()
    queues = ", ".join(app.queues())
    tasks, most = len(app.tasks), settings.concurrency
    noun = "task" if tasks == 1 else "tasks"
    _log.info("ready: %d %s, queues %s, %d at once", tasks, noun, queues, most)
    client.on_disconnected = lambda _error: announcing.say("starting")
    client.on_connected = lambda _address: announcing.say("ready")
    announcing.say("ready")
    await _first(stops.first, worker.ended)
    client.on_disconnected = client.on_connected = None
    announcing.say("draining")
    left = worker.at_work
    noun = "message" if left == 1 else "messages"
    _log.info("draining: %d %s at work, up to %g s", left, noun, settings.grace_s)
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


class Announcing:
    """Signs of life while its block runs: to the probes of this process, and to a supervisor."""

    def __init__(self, report: Report, descriptor: int | None, stops: Stops) -> None:
        self._report = report
        self._descriptor = descriptor
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
        self._stops = stops
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.TimerHandle | None = None

    def __enter__(self) -> Announcing:
        self._beat()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._next is not None:
            self._next.cancel()

    def say(self, state: State) -> None:
        """Report a change of the state."""
        self._write(BY_STATE[state])

    def _beat(self) -> None:
        self._write(BEAT)
        self._next = self._loop.call_later(limits.BEAT_SECONDS, self._beat)

    def _write(self, letters: bytes) -> None:
        self._report.hear(letters)
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, letters)
        except BrokenPipeError:
            self._descriptor = None
            _log.error("the supervisor of this process has gone: draining")
            self._stops.first.set()
