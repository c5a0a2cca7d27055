"""The page's stream: what the feed answers, pushed once a second to each browser that shows it, and
the view of the queue that its page shows.

Owns the pace, the places, and what each browser has already. All browsers with the same rights that
have the same are sent one rendering, so that one more costs a write. A view that the leader does
not answer in time comes with a later second, and holds nothing else up. A browser that finds no
place asks the feed instead. Must not know what is in an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Final, NamedTuple, TypeVar

from aiohttp import web

from fifo.client import FifoError
from fifo.wire import Code
from node.http import limits
from node.http.api import problems
from node.http.api.places import Places
from node.http.api.problems import Problem
from node.http.api.serving import Port
from node.http.console.queue_views import News, Shown
from node.http.console.viewer import Viewer

T = TypeVar("T")

_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Accel-Buffering": "no",
}


class Seen(NamedTuple):
    """The part that a browser has: of which process of the node, up to which picture and sample;
    `roles`: whether its page shows changes of role."""

    boot: str
    since: int
    after: int
    roles: bool


class Answer(NamedTuple):
    """An answer as JSON, and what a browser that has it has seen."""

    text: str
    seen: Seen


class Streams:
    """The streams of one node. `answer` and `news` render; `identify` says who sends a request, or
    raises Problem."""

    def __init__(
        self,
        answer: Callable[[Viewer, Seen], Awaitable[Answer]],
        news: Callable[[Viewer, Shown], Coroutine[Any, Any, News]],
        identify: Callable[[web.Request], Awaitable[Viewer]],
        port: Port,
    ) -> None:
        self._answer = answer
        self._news = news
        self._identify = identify
        self._port = port
        self._places = Places(
            limits.CONSOLE_STREAMS_MAX, limits.CONSOLE_STREAMS_PER_USER_MAX, "consoles"
        )
        self._rendered: dict[Hashable, asyncio.Task[Any]] = {}
        self._rendered_in = 0
        self._closing = asyncio.Event()
        self.renderings = 0
        """Number of renderings so far."""

    def close(self) -> None:
        """End all streams."""
        self._closing.set()
        for task in self._rendered.values():
            task.cancel()

    async def serve(
        self, request: web.Request, viewer: Viewer, seen: Seen, shown: Shown | None
    ) -> web.StreamResponse:
        """Push answers, and the view of a queue, until either side ends. Raises Problem where there
        is no place."""
        rights = viewer.rights
        with self._places.taken(None if rights is None else rights.user.name):
            response = web.StreamResponse(headers=_HEADERS)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                try:
                    await self._go_on(request, response, viewer, seen, shown)
                except (Problem, FifoError) as error:
                    await response.write(_problem(error))
                await response.write_eof()
        return response

    async def _go_on(
        self,
        request: web.Request,
        response: web.StreamResponse,
        viewer: Viewer,
        seen: Seen,
        shown: Shown | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        # A page that shows another queue opens another stream: the place of this one is free then.
        lost = self._port.lost(request)
        closing = asyncio.ensure_future(self._closing.wait())
        looking: asyncio.Task[News] | None = None
        try:
            while not closing.done() and not lost.done():
                self._port.goes_on(request)
                if loop.time() - checked_at >= limits.EVENTS_CHECK_SECONDS:
                    checked_at = loop.time()
                    viewer = await self._still(request, viewer)
                frame, seen = await self._frame(viewer, seen)
                await response.write(frame)
                if shown is not None:
                    looking = looking or self._look(viewer, shown)
                    await asyncio.wait((looking,), timeout=limits.EVENTS_ANSWER_SECONDS)
                    if looking.done():
                        shown = await _write_news(response, looking, shown)
                        looking = None
                # All streams wake at once, so that they share a rendering.
                until = limits.PICTURE_SECONDS - loop.time() % limits.PICTURE_SECONDS
                await asyncio.wait(
                    (closing, lost), timeout=until, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            closing.cancel()

    async def _still(self, request: web.Request, viewer: Viewer) -> Viewer:
        """The viewer with the rights of now. Raises Problem where there are none any more."""
        try:
            return await self._identify(request)
        except Problem as problem:
            if problem.code != Code.OVERLOADED:
                raise
            return viewer

    async def _frame(self, viewer: Viewer, seen: Seen) -> tuple[bytes, Seen]:
        rendering = self._shared((viewer.rights, seen), lambda: self._render(viewer, seen))
        return await asyncio.shield(rendering)

    def _look(self, viewer: Viewer, shown: Shown) -> asyncio.Task[News]:
        return self._shared((viewer, shown), lambda: self._news(viewer, shown))

    def _shared(
        self, key: Hashable, render: Callable[[], Coroutine[Any, Any, T]]
    ) -> asyncio.Task[T]:
        """The rendering of this second for all who have the same, or one that is still going on."""
        second = int(asyncio.get_running_loop().time() / limits.PICTURE_SECONDS)
        if second != self._rendered_in:
            self._rendered_in = second
            self._rendered = {key: one for key, one in self._rendered.items() if not one.done()}
        task = self._rendered.get(key)
        if task is None:
            task = self._rendered[key] = asyncio.ensure_future(render())
            # No browser may be left to hear that it failed.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _render(self, viewer: Viewer, seen: Seen) -> tuple[bytes, Seen]:
        self.renderings += 1
        text, now_seen = await self._answer(viewer, seen)
        return f"data: {text}\n\n".encode(), now_seen


async def _write_news(
    response: web.StreamResponse, looking: asyncio.Task[News], shown: Shown
) -> Shown:
    """Send what a look has found, if anything; what the browser has then."""
    if looking.cancelled():  # Too many queues are looked at; the next second asks again.
        return shown
    text, shown = looking.result()
    if text is not None:
        await response.write(f"event: queue\ndata: {text}\n\n".encode())
    return shown


def _problem(error: Problem | FifoError) -> bytes:
    problem = error if isinstance(error, Problem) else problems.of_error(error, conditional=False)
    return f"event: problem\ndata: {json.dumps(problem.as_dict())}\n\n".encode()
