"""The app: tasks by name, their queues, and the client that sends to them.

Owns the registration of tasks, and the life of the app's own client. Must not know how messages are
run: `fifo.worker.worker` does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, ParamSpec, TypeVar, Unpack

from fifo.client import (
    Client,
    Connecting,
    ConnectKeywords,
    InvalidArgument,
    QueueSpec,
    connect,
)
from fifo.client.durations import Duration
from fifo.worker.bodies import CODECS, Codec, Format
from fifo.worker.errors import BadTask
from fifo.worker.middleware import Middleware, checked
from fifo.worker.periodic import CatchUp, Periodic, schedule_of, with_dedup
from fifo.worker.sending import Sender, with_dead_letters
from fifo.worker.tasks import AnyTask, Task, TaskOptions, rules

P = ParamSpec("P")
R = TypeVar("R")

URL_VARIABLE: Final = "FIFO_URL"
"""Environment variable with the URL of an app that was made without one."""


class App:
    """Tasks that belong together: what `fifo worker module:app` runs."""

    def __init__(
        self,
        url: str | None = None,
        *,
        format: Format = "json",
        middleware: Sequence[Middleware] = (),
        **options: Unpack[ConnectKeywords],
    ) -> None:
        """`url` defaults to $FIFO_URL; `options` are those of `fifo.connect`."""
        if format not in CODECS:
            raise InvalidArgument(f"format: must be {' or '.join(CODECS)}, not {format!r:.40}")
        self.url = url
        self.options = options
        self.middleware = checked(middleware)
        self.tasks: dict[str, AnyTask] = {}
        self.periodics: list[Periodic] = []
        self._explicit: dict[str, QueueSpec] = {}
        self._sender = Sender(CODECS[format])
        self._own: Client | None = None

    def __repr__(self) -> str:
        return f"<app with tasks {', '.join(self.tasks) or 'none'}>"

    def task(
        self, queue: str | QueueSpec, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Make a task of a handler: `@app.task("orders", max_deliveries=5)`.

        A queue that is missing is declared: as the QueueSpec says, or with `<queue>.dead` for what
        fails `max_deliveries` times.
        """
        spec = self._queue(queue, options.get("max_deliveries"))

        def register(handler: Callable[P, R]) -> Task[P, R]:
            name = options.get("name") or getattr(handler, "__name__", "")
            if not name or name in self.tasks:
                raise BadTask(f"task {name!r}: this app has one of that name; give it name=...")
            frame = sys._getframe(1)
            local = frame.f_locals if frame.f_locals is not frame.f_globals else None
            checked = rules(handler, options, name)
            made = Task(name, handler, spec, checked, self._sender, local and dict(local))
            self.tasks[name] = made
            return made

        return register

    def _queue(self, queue: str | QueueSpec, max_deliveries: int | None) -> QueueSpec:
        """The queue of a task: one that was given as a QueueSpec is that of all that name it."""
        if isinstance(queue, str):
            named = QueueSpec(queue)
            return self._explicit.get(queue) or with_dead_letters(named, max_deliveries)
        if not isinstance(queue, QueueSpec):
            raise BadTask(f"queue: must be a name or a fifo.QueueSpec, not {type(queue).__name__}")
        if self._explicit.setdefault(queue.name, queue) != queue:
            raise BadTask(f"queue {queue.name}: another task says otherwise about it; say it once")
        for task in self.tasks.values():
            if task.queue.name == queue.name:
                task.queue = queue
        return queue

    def periodic(
        self,
        when: str | Duration,
        *,
        zone: str = "UTC",
        catch_up: CatchUp = "last",
        arguments: Mapping[str, Any] | None = None,
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """Send a task by the clock: `@app.periodic("0 8 * * mon-fri", zone="Europe/Berlin")`.

        Above `@app.task`. `when` is a cron line, or an interval in whole seconds. Each due time is
        sent once, by whichever worker is active; `catch_up` says what becomes of those at which
        there was none.
        """

        def register(task: Task[P, R]) -> Task[P, R]:
            if not isinstance(task, Task):
                raise BadTask("@app.periodic stands above @app.task, which makes the task")
            if catch_up not in ("last", "all", "none"):
                raise BadTask(
                    f"task {task.name}: catch_up must be last, all or none, not {catch_up!r:.40}"
                )
            task.queue = with_dedup(task.queue)
            schedule = schedule_of(when, zone, task.name)
            self.periodics.append(Periodic(task, schedule, catch_up, dict(arguments or {})))
            return task

        return register

    def queues(self) -> dict[str, QueueSpec]:
        """The queues of all tasks; where several name one, it is that with the most deliveries."""
        found: dict[str, QueueSpec] = {}
        for task in self.tasks.values():
            spec, other = task.queue, found.get(task.queue.name)
            if other is None or _more(spec, other):
                found[spec.name] = spec
        return found

    def check(self) -> None:
        """Read the signatures of all handlers. Raises BadTask; InvalidArgument without a task."""
        if not self.tasks:
            raise InvalidArgument("the app has no tasks: write `@app.task(queue)` above a handler")
        for task in self.tasks.values():
            _ = task.parameters
        for one in self.periodics:
            one.task.parameters.bind(one.task.name, (), one.arguments)

    @property
    def codec(self) -> Codec:
        """The format of what this app sends."""
        return self._sender.codec

    @property
    def client(self) -> Client:
        """The client of the app. Raises ClientClosed where the app is not open."""
        return self._sender.client

    def chosen_url(self, url: str | None = None) -> str:
        """The cluster of this app: `url`, its own, or $FIFO_URL. Raises InvalidArgument."""
        chosen = url or self.url or os.environ.get(URL_VARIABLE)
        if not chosen:
            raise InvalidArgument(
                "the app has no url: write fifo.App(url), set the environment variable"
                f" {URL_VARIABLE}, or give the worker --url"
            )
        return chosen

    def connect(self, url: str | None = None) -> Connecting:
        """Connect a client as this app does: to `url`, its own, or $FIFO_URL.

        `await` the result, or use it in `async with`. Raises InvalidArgument at once.
        """
        return connect(self.chosen_url(url), **self.options)

    def use(self, client: Client | None) -> None:
        """Send with a client that belongs to others; None where it is closed."""
        self._sender.use(client)

    async def __aenter__(self) -> App:
        self._own = await self.connect()
        self.use(self._own)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        client, self._own = self._own, None
        self.use(None)
        if client is not None:
            await client.close()


def _more(spec: QueueSpec, other: QueueSpec) -> bool:
    """Whether a queue allows more than the same one as another task declares it."""
    return (spec.dedup_window is not None, spec.max_deliveries or 0) > (
        other.dedup_window is not None,
        other.max_deliveries or 0,
    )
