"""A worker: the consumers of an app's queues, a number of messages at work, and an orderly end.

Owns the order of a drain: no new messages, what was not begun goes back, what is at work ends, then
what it needed is closed. Runs on the event loop it is started on; signals and processes are not its
business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any

from fifo.client import Client, Consumer, InvalidArgument, Message, QueueNotFound
from fifo.worker import limits
from fifo.worker.app import App
from fifo.worker.children import Children
from fifo.worker.dependencies import Dependencies
from fifo.worker.periodic import Clockmaker
from fifo.worker.replies import REPLY_TO
from fifo.worker.results import reply
from fifo.worker.running import Runner
from fifo.worker.sending import declare
from fifo.worker.tasks import AnyTask

_log = logging.getLogger("fifo.worker")


class Worker:
    """Runs the tasks of an app with a client: `async with Worker(app, client) as worker`.

    `concurrency` is the number of messages at work at once. Handlers that may block run in
    `children`, or in threads where there are none. `ended` is done when a consumer can go
    on no longer, with the reason.
    """

    def __init__(
        self,
        app: App,
        client: Client,
        *,
        concurrency: int = limits.CONCURRENCY,
        prefetch: int | None = None,
        children: Children | None = None,
    ) -> None:
        if not isinstance(app, App):
            raise InvalidArgument(f"app: must be a fifo.App, not {app!r:.60}")
        if type(concurrency) is not int or not 1 <= concurrency <= limits.CONCURRENCY_MAX:
            raise InvalidArgument(
                f"concurrency: must be from 1 to {limits.CONCURRENCY_MAX}, not {concurrency!r:.40}"
            )
        self.app = app
        self.client = client
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.draining = False
        self._concurrency = concurrency
        self._prefetch = concurrency if prefetch is None else prefetch
        self._dependencies = Dependencies()
        self._children = children
        elsewhere = None if children is None else self._in_process
        self._runner = Runner(
            app.tasks, app.middleware, self._dependencies, elsewhere, self._answer
        )
        self._slots: asyncio.Semaphore | None = None
        self._consumers: list[Consumer[Message]] = []
        self._runs: set[asyncio.Task[None]] = set()

    @property
    def at_work(self) -> int:
        """Messages that handlers have in hand now."""
        return self._runner.at_work

    async def start(self) -> None:
        """Declare what is missing, subscribe, and begin. Raises FifoError."""
        self.app.check()
        queues = self.app.queues()
        if len(queues) > 1:
            self._slots = asyncio.Semaphore(self._concurrency)
        self.app.use(self.client)
        for spec in queues.values():
            view = await declare(self.client, spec)
            most = view.spec.get("max_deliveries")
            if most is not None:
                self._runner.limits[spec.name] = most
            consumer = await self._consume(spec.name, self._prefetch)
            for _ in range(self._concurrency):
                self._begin(self._serve(consumer))
        if self.app.periodics:
            clock = Clockmaker(self.client, self.app.periodics)
            await clock.start()
            for name in clock.queues:
                consumer = await self._consume(name, 1)
                self._begin(self._keep_time(clock, consumer))

    async def _consume(self, queue: str, prefetch: int) -> Consumer[Message]:
        # Where the client's other consumers pull, those of a worker would wait for ever.
        consumer = self.client.consume(queue, prefetch=prefetch, pull=False, label="fifo worker")
        await consumer.subscribe()
        self._consumers.append(consumer)
        return consumer

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        run = asyncio.create_task(work)
        self._runs.add(run)
        run.add_done_callback(self._over)

    async def _keep_time(self, clock: Clockmaker, consumer: Consumer[Message]) -> None:
        """Send what is due until the consumer is cancelled."""
        async for message in consumer:
            await clock.handle(message)

    def _over(self, run: asyncio.Task[None]) -> None:
        self._runs.discard(run)
        if run.cancelled() or self.ended.done():
            return
        error = run.exception()
        if error is not None:
            self.ended.set_exception(error)

    async def _serve(self, consumer: Consumer[Message]) -> None:
        """Take messages one by one until the consumer is cancelled."""
        slots, run = self._slots, self._runner.run
        while (message := await self._next(consumer)) is not None:
            if slots is None:
                await run(message)
                continue
            async with slots:
                if self.draining:
                    await message.release(receipt=False)
                else:
                    await run(message)

    async def _next(self, consumer: Consumer[Message]) -> Message | None:
        while True:
            try:
                return await consumer.next()
            except QueueNotFound:
                await declare(self.client, self.app.queues()[consumer.queue])

    async def drain(self, grace_s: float = limits.GRACE_SECONDS) -> bool:
        """Take no more, wait for what is at work, release what is not done by then.

        Returns whether all ended by themselves. Cancelling it releases at once.
        """
        self.draining = True
        try:
            await asyncio.gather(*[consumer.cancel() for consumer in self._consumers])
            if self._runs:
                await asyncio.wait(self._runs, timeout=grace_s)
        finally:
            in_time = not self._runs
            await self._release()
        return in_time

    async def _release(self) -> None:
        """Cancel what is at work: its messages go back, uncounted."""
        left = list(self._runs)
        for run in left:
            run.cancel()
        if left:
            _log.warning("%d handlers had not ended: their messages are released", len(left))
            await asyncio.wait(left, timeout=limits.RELEASE_SECONDS)
        try:
            await self._dependencies.close()
        except Exception:
            _log.exception("a dependency could not be ended")
        if self._children is not None:
            await self._children.close()

    async def _in_process(self, task: AnyTask, arguments: dict[str, Any], message: Message) -> Any:
        assert self._children is not None, "asked only where there are some"
        wants_result = REPLY_TO in message.headers
        return await self._children.run(task, arguments, wants_result=wants_result)

    async def _answer(self, headers: Mapping[str, str], ending: Mapping[str, Any]) -> None:
        await reply(self.client, self.app.codec, headers, ending)

    async def __aenter__(self) -> Worker:
        try:
            await self.start()
        except BaseException:
            await self.drain(0)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.draining:
            await self.drain()
