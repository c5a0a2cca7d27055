"""An event loop whose time is virtual, shared by programs that each have a clock of their own.

Owns time, the order in which things run, and the life of a program: paused, its callbacks wait;
dead, they never run. Which program a callback belongs to is a context variable, so that asyncio
itself carries it through tasks, timers and futures. Knows neither networks nor queues.

Whatever runs is instantaneous but for a microsecond: time passes by jumping to the next timer. A
loop with nothing to do, or that never gets past an instant, is an error.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, NoReturn

CURRENT: ContextVar[Program | None] = ContextVar("program", default=None)

STEP_SECONDS = 1e-6
"""Virtual duration of one callback: enough to keep any two of them apart in time."""

SPIN_MAX = 2_000_000
"""Callbacks until the clock has jumped by `JUMPED_SECONDS`: more of them wait for nothing."""

JUMPED_SECONDS = 1e-3
"""In one jump or in several: a link that carries a byte or two at a time makes short ones only."""

WALL_START = 1_700_000_000.0
"""Wall time at which a world begins unless it is given another: the same in every run."""

CLOSE_MAX = 20
"""Maximum number of waits of a coroutine while it is being ended."""


class Deadlock(Exception):
    """Nothing runs, and nothing ever will."""


class Program:
    """A process on one machine: its clock, and whether it runs.

    `host` is the machine it runs on, `alive` becomes false once and for ever.
    """

    def __init__(
        self, loop: VirtualLoop, name: str, host: str, *, rate: float = 1.0, offset: float = 0.0
    ) -> None:
        self.loop = loop
        self.name = name
        self.host = host
        self.rate = rate
        self.offset = offset
        self.alive = True
        self.paused = False
        self.paused_seconds = 0.0
        self.transits: dict[float, float] = {}
        self._paused_at = 0.0
        self._waiting: list[asyncio.Handle] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self.context = copy_context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return f"<program {self.name}>"

    def clock(self) -> float:
        """Its monotonic clock, seconds."""
        return self.offset + self.rate * self.loop.now

    def wall(self) -> float:
        """Its wall clock, seconds since 1970."""
        return self.loop.wall_start + self.loop.now

    def run(self, main: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as part of this program. What it raises ends the simulation."""
        task = self.loop.create_task(main, context=self.context)
        self._tasks.append(task)
        task.add_done_callback(self._done, context=self.context)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None and self.alive:
            self.loop.failed(task.exception())

    def pause(self) -> None:
        """Stop it as SIGSTOP does."""
        if not self.paused:
            self.paused = True
            self._paused_at = self.loop.now

    def resume(self) -> None:
        """Go on with all that waited, in order."""
        if self.paused:
            self.paused = False
            self.paused_seconds += self.loop.now - self._paused_at
            waiting, self._waiting = self._waiting, []
            self.loop.ready.extend((self, handle) for handle in waiting)

    def put_off(self, handle: asyncio.Handle) -> None:
        """Something of a paused program came due."""
        self._waiting.append(handle)

    def die(self) -> None:
        """End it as SIGKILL does: no callback of it runs again."""
        self.alive = False
        self._waiting.clear()


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. `now` is the world's time; `time()` is the running program's."""

    def __init__(self, *, wall_start: float = WALL_START) -> None:
        """`wall_start` is the wall time of the beginning, in seconds since 1970."""
        super().__init__()
        self.wall_start = wall_start
        self.now = 0.0
        self.steps = 0
        self.over = False
        self.failure: BaseException | None = None
        self.ready: deque[tuple[Program | None, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, asyncio.Handle]] = []
        self._numbers = itertools.count()
        self._tasks: list[asyncio.Task[Any]] = []
        self._spun = 0
        self._jumped = 0.0
        self.network: Any = None
        self.set_exception_handler(self._unhandled)
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # its own is generic

    # --- asyncio ---

    def time(self) -> float:
        program = CURRENT.get()
        return self.now if program is None else program.clock()

    def call_soon(  # type: ignore[override]  # typeshed's is generic in the arguments
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.over:
            self.ready.append((_program(handle), handle))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # likewise

    def call_at(  # type: ignore[override]  # likewise
        self, when: float, callback: Callable[..., object], *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:  # fmt: skip
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        program = _program(handle)
        if program is not None:
            when = (when - program.offset) / program.rate
        if not self.over:
            heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def after(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        """Call in so many seconds of the world's time, as part of no program."""
        handle = asyncio.Handle(callback, args, self, _WORLD)
        heapq.heappush(self._timers, (self.now + delay, next(self._numbers), handle))

    def run_in_executor(self, *_: object) -> NoReturn:
        """Threads know no virtual time."""
        raise AssertionError("a thread was asked for: the simulation has only one")

    async def create_connection(  # type: ignore[override]  # the few arguments that we use
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, ssl: None = None
    ) -> tuple[asyncio.Transport, Any]:
        return await self.network.connect(factory, host, port)  # type: ignore[no-any-return]

    async def create_server(  # type: ignore[override]  # likewise
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: object
    ) -> Any:
        return self.network.listen(factory, host, port)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **options)
        # Kept, so that no task of a dead program is collected, and its `finally` run, some day.
        self._tasks.append(task)
        return task

    # --- running ---

    def _run_once(self) -> None:
        if not self.ready and not self._jump():
            raise Deadlock(f"{self.now:.3f} s: nothing runs and nothing is due")
        self._ripen()
        if self.ready:
            self._run_one()

    def run_due(self) -> None:
        """Run everything that is ready or due, without a jump of the clock; raises Deadlock."""
        self._spun = 0
        self._ripen()
        while self.ready:
            self._run_one()
            self._ripen()

    def next_due(self) -> float | None:
        """When the next timer is due, in the world's time; None where there is none."""
        while self._timers and self._timers[0][2]._cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _run_one(self) -> None:
        program, handle = self.ready.popleft()
        if handle._cancelled:
            return
        if program is not None and (program.paused or not program.alive):
            if program.alive:
                program.put_off(handle)
            return
        self.steps += 1
        self._spun += 1
        self.now += STEP_SECONDS
        handle._run()
        if self.failure is not None:
            raise self.failure
        if self._spun > SPIN_MAX:
            raise Deadlock(f"{self.now:.3f} s: {SPIN_MAX} callbacks and time stands still")

    def _jump(self) -> bool:
        due = self.next_due()
        if due is None:
            return False
        self._jumped += max(0.0, due - self.now)
        if self._jumped > JUMPED_SECONDS:
            self._spun, self._jumped = 0, 0.0
        self.now = max(self.now, due)
        return True

    def _ripen(self) -> None:
        """Have run what is due."""
        while self._timers and self._timers[0][0] <= self.now:
            _, _, handle = heapq.heappop(self._timers)
            if not handle._cancelled:
                self.ready.append((_program(handle), handle))

    # --- errors ---

    def failed(self, error: BaseException | None) -> None:
        """The simulation ends with this error."""
        if self.failure is None:
            self.failure = error

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, report: dict[str, Any]) -> None:
        program = CURRENT.get()
        if self.over or (program is not None and not program.alive):
            return
        self.failed(report.get("exception") or AssertionError(report["message"]))

    def finish(self) -> None:
        """Nothing runs any more, whatever is collected later."""
        self.over = True
        self.ready.clear()
        self._timers.clear()
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with warnings.catch_warnings():
                # Programs end as they are: none leaves its consumers before the world ends.
                warnings.simplefilter("ignore", ResourceWarning)
                _close(task.get_coro())
        self._tasks.clear()
        self.close()


def _close(coroutine: Any) -> None:
    """End a coroutine that waits, whatever it still wants to wait for."""
    for _ in range(CLOSE_MAX):
        try:
            coroutine.close()
        except RuntimeError:
            continue  # It waits in a `finally`.
        return


_WORLD = copy_context()


def _program(handle: asyncio.Handle) -> Program | None:
    return handle._context.get(CURRENT)  # type: ignore[attr-defined,no-any-return]


def current() -> Program:
    """The program that runs now."""
    program = CURRENT.get()
    assert program is not None, "called by the world, not by a program"
    return program
