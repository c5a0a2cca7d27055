"""Several worker processes of one command: started, watched, started again, reloaded.

Owns their life. A process that ends before any was ready ends the command, with its own line; one
that ends later is started again. Signals are passed on, the second one too. With `reload` the
processes are replaced when a file changes. Must not know apps: it imports none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fifo.worker import limits
from fifo.worker.status import Report, Reports
from fifo.worker.stopping import Stops

_log = logging.getLogger("fifo.worker")

_OF_OTHERS: Final = frozenset({"site-packages", "__pycache__", "node_modules"})
"""Folders of which a look with --reload sees nothing: thousands of files, none of the program's."""


@dataclass(slots=True)
class _Worker:
    """A process and what it reports."""

    process: Process
    report: Report
    descriptor: int
    started_at: float
    was_ready: bool = False


class Supervisor:
    """Keeps `count` processes of a command line running until a signal."""

    def __init__(self, arguments: Sequence[str], count: int, reload: Path | None) -> None:
        """`arguments` are those of `fifo worker`; each process has one option more."""
        self._arguments = tuple(arguments)
        self._reload = reload
        self._count = count
        self._workers: dict[int, _Worker] = {}
        self._ended: asyncio.Queue[_Worker | None] = asyncio.Queue()
        self._waiting: set[asyncio.Task[None]] = set()
        self._pause_s = limits.RESTART_SECONDS
        self._stops = Stops()
        self._replacing = False
        self._works = False
        self.reports = Reports(wanted=count)

    async def run(self) -> int:
        """Run until a signal; return the exit code."""
        self._stops.listen(self._pass_on)
        reloading = None if self._reload is None else asyncio.create_task(self._look(self._reload))
        try:
            for _ in range(self._count):
                await self._start()
            return await self._keep()
        finally:
            if reloading is not None:
                reloading.cancel()
            self._stops.forget()

    async def _start(self) -> None:
        if len(self._workers) >= self._count:
            return  # a change of a file has come before
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        command = (sys.executable, "-m", "fifo", "worker", *self._arguments)
        process = await asyncio.create_subprocess_exec(
            *command,
            "--status-descriptor",
            str(writing),
            pass_fds=(writing,),
            start_new_session=True,  # Ctrl-C of the terminal comes by this process, and once
        )
        os.close(writing)
        worker = self._workers[process.pid] = _Worker(process, Report(), reading, time.monotonic())
        self.reports.reports[process.pid] = worker.report
        asyncio.get_running_loop().add_reader(reading, self._heard, worker)
        waiting = asyncio.create_task(self._wait(worker))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    def _heard(self, worker: _Worker) -> None:
        letters = os.read(worker.descriptor, 4096)
        if not letters:
            asyncio.get_running_loop().remove_reader(worker.descriptor)
            return
        worker.report.hear(letters)
        worker.was_ready |= worker.report.state == "ready"
        self._works |= worker.was_ready

    async def _wait(self, worker: _Worker) -> None:
        await worker.process.wait()
        with contextlib.suppress(OSError, ValueError):
            self._heard(worker)  # what it wrote last
        asyncio.get_running_loop().remove_reader(worker.descriptor)
        os.close(worker.descriptor)
        del self._workers[worker.process.pid], self.reports.reports[worker.process.pid]
        self._ended.put_nowait(worker)

    async def _keep(self) -> int:
        """Start again what ends, until a signal has ended all."""
        while True:
            worker = await self._ended.get()
            if worker is None:
                return 0
            code = worker.process.returncode or 0
            if self._stops.first.is_set():
                if not self._workers:
                    return 0
            elif self._replacing or (self._reload is not None and not worker.was_ready):
                continue  # the next change of a file starts it
            elif not self._works:
                self._pass_on(signal.SIGTERM)
                await asyncio.gather(*self._waiting)
                return code or 1
            else:
                await self._restart(worker, code)

    async def _restart(self, worker: _Worker, code: int) -> None:
        if time.monotonic() - worker.started_at > limits.RESTART_SECONDS_MAX:
            self._pause_s = limits.RESTART_SECONDS
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        _log.error("process %d ended %s: started again in %g s", worker.process.pid, how,
                   self._pause_s)  # fmt: skip
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause_s):
                await self._stops.first.wait()
        if self._stops.first.is_set():
            self._ended.put_nowait(worker)
            return
        self._pause_s = min(2 * self._pause_s, limits.RESTART_SECONDS_MAX)
        await self._start()

    def _pass_on(self, number: int) -> None:
        for worker in self._workers.values():
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(number)
        if not self._workers:
            self._ended.put_nowait(None)  # none will end

    async def _look(self, folder: Path) -> None:
        """Replace the processes whenever a file of the program changes."""
        known = _stamps(folder)
        while True:
            await asyncio.sleep(limits.RELOAD_SECONDS)
            found = _stamps(folder)
            if found == known or self._stops.first.is_set():
                continue
            changed = sorted(key for key in {*known, *found} if known.get(key) != found.get(key))
            known = found
            _log.info("%s changed: the workers are started again", changed[0])
            await self._replace()

    async def _replace(self) -> None:
        self._replacing = True
        try:
            for worker in list(self._workers.values()):
                worker.process.send_signal(signal.SIGTERM)
            await asyncio.gather(*self._waiting)
            while not self._ended.empty():
                self._ended.get_nowait()
        finally:
            self._replacing = False
        for _ in range(self._count):
            await self._start()


def _stamps(folder: Path) -> dict[str, int]:
    """Python files below a folder, by the time of their last change; no hidden folders."""
    found = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name for name in folders if not name.startswith(".") and name not in _OF_OTHERS
        ]
        for name in files:
            if name.endswith(".py"):
                path = os.path.join(place, name)
                with contextlib.suppress(OSError):
                    found[path] = os.stat(path).st_mtime_ns
    return found
