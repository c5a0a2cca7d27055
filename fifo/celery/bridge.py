"""A client on a thread of its own, for programs that wait in their own ways: kombu's hub, threads,
greenlets.

Owns the thread, its event loop, and the crossing in both directions: calls go over, messages come
back through a deque, a condition and, for an event loop of kombu's, a pipe. Must not know channels.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, TypeVar

import fifo
from fifo.celery import limits
from fifo.celery.loops import LOOPS
from fifo.client import LockedMessage

_log = logging.getLogger("fifo.celery")
_T = TypeVar("_T")

Arrival = Callable[[], None]
"""A message, or an error, as a call that hands it to the program, on the program's thread."""


class Bridge:
    """A connected client, and what it has brought for the program. Raises what connecting raises.

    In a process that was forked from its own it is no use: `alive` is false there.
    """

    def __init__(self, url: str, options: fifo.ConnectKeywords) -> None:
        self._pid = os.getpid()
        self._arrived: deque[Arrival] = deque()
        self._condition = threading.Condition()
        self._pipe: tuple[int, int] | None = None
        self._unwaited = 0
        self._stopping: asyncio.Event
        self.client: fifo.Client
        started: Future[None] = Future()
        self._thread = LOOPS.get(url)
        self._loop = self._thread.loop
        work = self._main(url, options, started)
        self._main_task = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._main_task.add_done_callback(partial(_ended_early, started))
        try:
            started.result()
        except BaseException:
            self._main_task.cancel()
            LOOPS.put_back(self._thread)
            raise

    @property
    def alive(self) -> bool:
        """Whether calls can cross: this process made it, and it was not closed."""
        return self._pid == os.getpid() and not self._main_task.done()

    def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine over there and wait for it here. Raises ClientClosed where it is over."""
        if not self.alive:
            work.close()
            raise fifo.ClientClosed("the connection is closed, or was made before a fork")
        if self._thread.is_here:
            work.close()
            raise fifo.ClientClosed("this is the event loop of the cluster: call in a thread")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine over there, and wait for nothing: what goes wrong is logged."""
        if not self.alive:
            work.close()
        else:
            self._loop.call_soon_threadsafe(self._begin, work)

    def soon(self, call: Callable[..., object], *args: object) -> None:
        """Call over there, soon."""
        if self.alive:
            self._loop.call_soon_threadsafe(call, *args)

    def arrive(self, arrivals: list[Arrival]) -> None:
        """Hand over to the program; called over there."""
        with self._condition:
            was_empty = not self._arrived
            self._arrived.extend(arrivals)
            self._condition.notify()
            if was_empty and self._pipe is not None:
                os.write(self._pipe[1], b"!")

    def next_arrival(self, timeout: float | None) -> Arrival | None:
        """The first arrival, after up to `timeout` seconds (None: for ever); None for none."""
        with self._condition:
            if not self._arrived and timeout != 0:
                self._condition.wait(timeout)
            found = self._arrived.popleft() if self._arrived else None
            if not self._arrived:
                self._silence()
            return found

    def take_back(self, wanted: Callable[[Arrival], bool]) -> list[Arrival]:
        """Take out what arrived and was not handed over."""
        with self._condition:
            taken = [one for one in self._arrived if wanted(one)]
            left = [one for one in self._arrived if not wanted(one)]
            self._arrived = deque(left)
            return taken

    def fileno(self) -> int:
        """A descriptor that can be read while something has arrived."""
        with self._condition:
            if self._pipe is None:
                self._pipe = os.pipe()
                os.set_blocking(self._pipe[0], False)
                os.set_blocking(self._pipe[1], False)
                if self._arrived:
                    os.write(self._pipe[1], b"!")
            return self._pipe[0]

    def close(self) -> None:
        """Send the last settlements, close the client, end the thread. Does nothing in a fork."""
        if self.alive:
            self._loop.call_soon_threadsafe(self._stopping.set)
            if not self._thread.is_here:
                wait([self._main_task], limits.CLOSE_S)
            LOOPS.put_back(self._thread)
        self.abandon()

    def end_soon(self) -> None:
        """Begin to end, and wait for nothing: the connection was dropped, not closed."""
        if self.alive:
            self._main_task.add_done_callback(lambda _: LOOPS.put_back(self._thread, wait=False))
            self._loop.call_soon_threadsafe(self._stopping.set)

    def abandon(self) -> None:
        """Close the pipe: in a fork, to which the thread does not belong."""
        with self._condition:
            pipe, self._pipe = self._pipe, None
        for end in pipe or ():
            os.close(end)

    def _silence(self) -> None:
        if self._pipe is not None:
            with contextlib.suppress(BlockingIOError):
                os.read(self._pipe[0], 64)

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        if self._unwaited >= limits.UNWAITED_MAX:
            work.close()
            return
        self._unwaited += 1
        asyncio.ensure_future(work).add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._unwaited -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s", error)

    async def _main(self, url: str, options: fifo.ConnectKeywords, started: Future[None]) -> None:
        self._stopping = asyncio.Event()
        with self._thread.client_environment(self._stopping.set) as environment:
            async with fifo.connect(url, environment=environment, **options) as client:
                self.client = client
                client.on_unsettled = _unsettled
                started.set_result(None)
                await self._stopping.wait()


def _ended_early(started: Future[None], main: Future[None]) -> None:
    """Give who waits for the connection the error, if there is one."""
    if not started.done():
        started.set_exception(main.exception() or fifo.ClientClosed("not connected"))


def _unsettled(message: LockedMessage, error: fifo.FifoError) -> None:
    _log.warning("%r is not known to be settled, and may be delivered again: %s", message, error)
