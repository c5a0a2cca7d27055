"""Virtual time on the event loop of a test: the world takes its turns where the loop would wait.

Owns the clock of that loop while a cluster is open, and the rule by which time passes: when neither
the loop nor the world has anything to do, the clock jumps to whatever is due first. While a thread
works, or a program with a clock of its own is connected, time passes as it does for people; a loop
that only threads use has no time while none of them waits for it. Must not know nodes or clients.

A running loop has no public way to another selector or clock, and the loop of a test is made by
others (pytest-asyncio, `asyncio.run`): hence its `_selector`.
"""

from __future__ import annotations

import asyncio
import time
from asyncio.events import _set_running_loop
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from node.testing import limits
from node.testing.callers import Callers
from node.testing.clockwork import STEP_SECONDS, Program, VirtualLoop
from node.testing.looks import jump, look


class LoopRefused(Exception):
    """The running loop cannot have a virtual clock."""


def running_loop() -> Any:
    """The running loop. Raises LoopRefused unless its clock can become virtual."""
    loop: Any = asyncio.get_running_loop()
    selector: Any = getattr(loop, "_selector", None)
    if not issubclass(type(loop), asyncio.BaseEventLoop) or selector is None:
        kind = f"{type(loop).__module__}.{type(loop).__name__}"
        raise LoopRefused(
            f"the running event loop is {kind}, whose clock cannot be virtual: use asyncio's own"
            " event loop in this test"
        )
    if getattr(selector.select, "__self__", None) is not selector:
        raise LoopRefused("this event loop has a cluster already: close that one first")
    return loop


class Guest(Program):
    """A program whose callbacks run on the loop of the test: for the world it is always paused."""

    def __init__(self, conductor: Conductor, name: str) -> None:
        super().__init__(conductor.world, name, name)
        self.paused = True
        self._conductor = conductor

    def put_off(self, handle: asyncio.Handle) -> None:
        """Run it on its own loop."""
        self._conductor.post(handle)


class Conductor:
    """See the module. `paced`: programs whose time passes as for people; `sockets`: those of the
    loop that are the cluster's own; `for_threads`: the loop runs nothing but calls of threads."""

    def __init__(self, wall_start: float, over: Callable[[], BaseException]) -> None:
        """On the running loop, whose clock is virtual from here to `release`. Raises LoopRefused.

        `wall_start` is the wall time of the world's beginning; `over` makes the error of calls of
        threads that get no answer.
        """
        self.loop = running_loop()
        self.world = world = VirtualLoop(wall_start=wall_start)
        self._selector: Any = self.loop._selector
        self.callers = Callers(self.loop, patience_s=limits.CALLER_SECONDS, over=over)
        self.paced = 0
        self.sockets = 0
        self.advancing = 0
        self.for_threads = False
        self._posted = False
        self._began_at = self.loop.time() - world.now
        self._select: Callable[[float | None], list[Any]] = self._selector.select
        self._run_in_executor = self.loop.run_in_executor
        self._selector.select = self._wait
        self.loop.time = lambda: self._began_at + world.now
        self.loop.run_in_executor = self._in_thread

    def release(self) -> None:
        """Give the loop back its clock, which goes on from where it is."""
        self.callers.close()
        ahead = self.loop.time() - time.monotonic()
        del self._selector.select
        self.loop.run_in_executor = self._run_in_executor
        self.loop.time = lambda: time.monotonic() + ahead

    def post(self, handle: asyncio.Handle) -> None:
        """Run a callback of the world on the loop."""
        self._posted = True
        context: Any = handle._context  # type: ignore[attr-defined]  # asyncio's own
        callback, args = handle._callback, handle._args  # type: ignore[attr-defined]
        self.loop.call_soon(callback, *args, context=context)

    def _in_thread(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        job = self.callers.job(func)
        crosses = executor is None or isinstance(executor, ThreadPoolExecutor)
        future = self._run_in_executor(executor, job if crosses else func, *args)
        future.add_done_callback(lambda _: self.callers.left(job))
        return future

    def _wait(self, timeout: float | None = None) -> list[Any]:
        """Take the place of the wait for sockets."""
        if self.world.failure is not None:
            return self._select(timeout)
        self._posted = False
        # A turn of the loop takes time: a callback that waits for less than the loop's clock can
        # show would run in this instant for ever.
        self.world.now += STEP_SECONDS
        _set_running_loop(self.world)
        try:
            self.world.run_due()
        finally:
            _set_running_loop(self.loop)
        events = self._select(0)
        if events or self._posted or (timeout is not None and timeout <= 0):
            return events
        return self._idle(timeout)

    def _idle(self, timeout: float | None) -> list[Any]:
        if self.for_threads and not (self.callers.waiting or self.paced):
            return self._select(None)
        world, due = self.world, self.world.next_due()
        ends = [world.now + timeout] if timeout is not None else []
        end = min([*ends, due] if due is not None else ends, default=None)
        if end is None:
            return self._select(None)
        if (self.paced or self.callers.running) and not self.advancing:
            began = time.perf_counter()
            events = self._select(max(0.0, end - world.now))
            took = time.perf_counter() - began
            world.now = min(end, world.now + took) if events else max(world.now, end)
            return events
        if len(self._selector.get_map()) > 1 + self.sockets:  # The loop's own pipe is one.
            events = look(self._selector, self._select, limits.LOOK_SECONDS)
            if events:
                return events
            end = world.now + jump(end - world.now)
        world.now = max(world.now, end)
        return []
