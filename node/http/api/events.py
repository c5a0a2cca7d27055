"""Server-sent events: what changes, once a second, for pages that stay open.

Owns the streams: their number, what each has sent, and their ends. Work is shared: the rows of
queues are looked at once a second for all (`live.py`), and what only the leader knows is asked once
a second for all listeners with the same credentials. Must not know how a page shows it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

from aiohttp import web

from fifo.client import Client, ClientClosed, FifoError, SessionEnded
from fifo.wire import Code
from node.broker.connections.authentication import Denied, Verdict
from node.broker.permissions import Rights
from node.http import limits
from node.http.api import problems
from node.http.api.callers import Callers, Credentials
from node.http.api.live import LiveQueues, LiveRow
from node.http.api.places import Places
from node.http.api.problems import Problem
from node.http.api.routes import Given
from node.http.api.table import cluster_nodes

logger = logging.getLogger("fifo.http")

TOPICS: Final = ("overview", "queues")
_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
}


class Listener(NamedTuple):
    """A caller that listens; `rights` is None where there are no users."""

    credentials: Credentials
    rights: Rights | None
    check: Callable[[], Awaitable[Verdict]]


class _Look:
    """A question to the cluster, under way or answered."""

    def __init__(self, second: int, task: asyncio.Task[str]) -> None:
        self.second = second
        self.task = task
        # No listener may be left to hear that it failed.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())


class Events:
    """The streams of one node. `about_node` describes it, `now_ms` is cluster time."""

    def __init__(
        self,
        live: LiveQueues,
        callers: Callers,
        about_node: Callable[[], dict[str, Any]],
        now_ms: Callable[[], int],
    ) -> None:
        self._live = live
        self._callers = callers
        self._about_node = about_node
        self._now_ms = now_ms
        self._places = Places(
            limits.EVENT_STREAMS_MAX, limits.EVENT_STREAMS_PER_USER_MAX, "streams of events"
        )
        self._seconds: asyncio.Task[None] | None = None
        self._second = 0
        self._next: asyncio.Future[None] | None = None
        self._looks: dict[tuple[Credentials, str], _Look] = {}
        self._closed = False

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        if self._seconds is not None:
            self._seconds.cancel()
            self._stop()

    # --- streams ----------------------------------------------------------------------------------

    async def answer(
        self, request: web.Request, listener: Listener, given: Given, alive: Callable[[], None]
    ) -> web.StreamResponse:
        """Send events until either side ends. `alive` is called at each. Raises Problem before the
        first event."""
        try:
            return await self._serve(request, listener, given, alive)
        finally:
            self._ended()

    async def _serve(
        self, request: web.Request, listener: Listener, given: Given, alive: Callable[[], None]
    ) -> web.StreamResponse:
        stream = _Stream(self, listener, given)
        rights = listener.rights
        with self._places.taken(None if rights is None else rights.user.name):
            # What is refused is refused as any request, before a stream begins.
            first = [text async for text in stream.news(patient=True)]
            response = web.StreamResponse(headers=_HEADERS)
            await response.prepare(request)
            try:
                await response.write(b"retry: 1000\n\n")
                for text in first:
                    await response.write(text.encode())
                await self._go_on(stream, response, alive)
                await response.write_eof()
            except ConnectionError:
                logger.debug("event=events_left user=%s", listener.credentials.user)
        return response

    async def _go_on(
        self, stream: _Stream, response: web.StreamResponse, alive: Callable[[], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        try:
            while await self._turn():
                alive()
                await stream.check()
                async for text in stream.news():
                    await response.write(text.encode())
                    heard_at = loop.time()
                if loop.time() - heard_at >= limits.EVENTS_SILENCE_SECONDS:
                    await response.write(b": nothing new\n\n")
                    heard_at = loop.time()
        except Problem as problem:
            await response.write(_event("problem", json.dumps(problem.as_dict())).encode())

    def _ended(self) -> None:
        """Rest where no stream is left."""
        if not len(self._places) and self._seconds is not None:
            self._seconds.cancel()
            self._stop()

    # --- the shared second ------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """Wait for the next second; False where there is none."""
        if self._closed:
            return False
        await self.started()
        assert self._next is not None, "it was started"
        await asyncio.shield(self._next)
        return not self._closed

    async def started(self) -> None:
        """Look at the queues for the first time, where no stream has."""
        if self._seconds is None:
            self._next = asyncio.get_running_loop().create_future()
            self._seconds = asyncio.ensure_future(self._tick())
            await asyncio.shield(self._next)

    def _stop(self) -> None:
        self._seconds = None
        if self._next is not None and not self._next.done():
            self._next.set_result(None)
        self._next = None
        for look in self._looks.values():
            look.task.cancel()
        self._looks.clear()
        self._live.forget()

    async def _tick(self) -> None:
        while True:
            try:
                await self._live.look()
            except Exception:
                logger.exception("event=events_failed")
            self._second += 1
            for key, look in list(self._looks.items()):
                if look.second < self._second - 1 and look.task.done():
                    del self._looks[key]  # No listener has asked for it lately.
            reached, self._next = self._next, asyncio.get_running_loop().create_future()
            assert reached is not None, "made before the first tick, and by each"
            reached.set_result(None)
            await asyncio.sleep(limits.EVENTS_SECONDS)

    async def shared(
        self,
        credentials: Credentials,
        topic: str,
        ask: Callable[[Client], Awaitable[Any]],
        *,
        patient: bool,
    ) -> str | None:
        """The JSON of what `ask` finds, asked once a second for all with these credentials; None
        while it takes too long. Raises FifoError, Problem."""
        key = credentials, topic
        look = self._looks.get(key)
        if look is None or (look.second < self._second and look.task.done()):
            asking = asyncio.ensure_future(self._ask(credentials, ask))
            look = self._looks[key] = _Look(self._second, asking)
        await asyncio.wait((look.task,), timeout=None if patient else limits.EVENTS_ANSWER_SECONDS)
        if not look.task.done() or look.task.cancelled():
            return None
        return look.task.result()

    async def _ask(self, credentials: Credentials, ask: Callable[[Client], Awaitable[Any]]) -> str:
        async with self._callers.client(credentials) as client:
            return json.dumps(await ask(client), ensure_ascii=False)

    def about_node(self) -> str:
        """The JSON of this node."""
        return json.dumps(self._about_node())

    def queues(
        self, seen: int | None, rights: Rights | None
    ) -> Iterator[tuple[bool, list[str], list[LiveRow]]]:
        """(whether it begins anew, names that are gone, rows) since a look, in pieces."""
        found = None if seen is None else self._live.since(seen)
        gone, rows = ([], self._live.rows()) if found is None else found
        if rights is not None:
            gone = [name for name in gone if rights.sees(name)]
            rows = [row for row in rows if rights.sees(row.name)]
        size = limits.EVENTS_ROWS_MAX
        for start in range(0, max(1, len(rows)), size):
            first = start == 0
            if found is None or gone or rows:
                yield found is None and first, gone if first else [], rows[start : start + size]

    @property
    def looks(self) -> int:
        """The number of the last look at the queues."""
        return self._live.looks

    def now_ms(self) -> int:
        """Cluster time."""
        return self._now_ms()


class _Stream:
    """The topics of one listener, and what it has of them already."""

    def __init__(self, events: Events, listener: Listener, given: Given) -> None:
        default = "" if "queue" in given else "overview"
        topics = [topic for topic in given.get("topics", default).split(",") if topic]
        wrong = [topic for topic in topics if topic not in TOPICS]
        if wrong:
            text = f"topics: must be of {', '.join(TOPICS)}, with commas between, not {wrong[0]!r}"
            raise Problem(Code.INVALID_ARGUMENT, text)
        self._topics = topics
        self._queue: str | None = given.get("queue")
        self._events = events
        self._listener = listener
        self._sent: dict[str, str] = {}
        self._look: int | None = None
        self._checked_at = asyncio.get_running_loop().time()

    async def check(self) -> None:
        """Check the credentials again, now and then. Raises Problem."""
        now = asyncio.get_running_loop().time()
        if self._listener.rights is None:
            return
        if now - self._checked_at < limits.EVENTS_CHECK_SECONDS:
            return
        self._checked_at = now
        verdict = await self._listener.check()
        if not isinstance(verdict, Denied):
            self._listener = self._listener._replace(rights=verdict)
        elif verdict.code != Code.OVERLOADED:
            raise Problem(verdict.code, verdict.text)

    async def news(self, *, patient: bool = False) -> AsyncIterator[str]:
        """The events of this second; `patient`: of the first, which are waited for."""
        await self._events.started()
        node = self._events.about_node()
        if self._is_new("node", node):
            yield _event("node", node)
        if "overview" in self._topics:
            async for text in self._asked("overview", cluster_nodes, patient=patient):
                yield text
        if "queues" in self._topics:
            seen, self._look = self._look, self._events.looks
            for begins, gone, rows in self._events.queues(seen, self._listener.rights):
                yield _event("queues", _queues_text(begins, self._events.now_ms(), gone, rows))
        if self._queue is not None:
            name = self._queue

            async def ask(client: Client) -> Any:
                return await one_queue(client, name)

            async for text in self._asked("queue", ask, patient=patient):
                yield text

    async def _asked(
        self, topic: str, ask: Callable[[Client], Awaitable[Any]], *, patient: bool
    ) -> AsyncIterator[str]:
        key = topic if topic != "queue" else f"queue {self._queue}"
        try:
            found = await self._events.shared(self._listener.credentials, key, ask, patient=patient)
        except (ClientClosed, SessionEnded):
            found = None  # The next second has a client of its own.
        except FifoError as error:
            problem = problems.of_error(error, conditional=False)
            if error.unknown and not patient:
                return  # The connection ended, for a reason that the next second finds out.
            if patient or not problem.retryable:
                raise problem from error
            # It passes, as an election does: the stream goes on.
            found = None
            text = json.dumps(problem.as_dict())
            if self._is_new("problem", text):
                yield _event("problem", text)
        if found is not None and self._is_new(topic, found):
            self._sent.pop("problem", None)
            yield _event(topic, found)

    def _is_new(self, topic: str, text: str) -> bool:
        if self._sent.get(topic) == text:
            return False
        self._sent[topic] = text
        return True


async def one_queue(client: Client, name: str) -> dict[str, Any]:
    """A queue with its consumers and first locks."""
    # Consumers after locks: what holds one is among them.
    locks = await client.locks(name, limits.EVENTS_LISTED_MAX)
    consumers = await client.consumers(name, limits.EVENTS_LISTED_MAX)
    queue = await client.queue(name)
    return {
        "queue": queue.as_dict(),
        "consumers": [one.as_dict() for one in consumers],
        "locks": [one.as_dict() for one in locks],
    }


def _queues_text(begins: bool, now_ms: int, gone: list[str], rows: list[LiveRow]) -> str:
    items = ",".join(row.text for row in rows)
    head = {"snapshot": begins, "cluster_time_ms": now_ms, "gone": gone}
    return f'{json.dumps(head)[:-1]}, "items": [{items}]}}'


def _event(name: str, data: str) -> str:
    """The text of one event; JSON has no line breaks."""
    return f"event: {name}\ndata: {data}\n\n"
