"""The page's stream: what the feed answers, pushed once a second to each browser that shows it.

Owns the pace, the places, and what each browser has already. All browsers with the same rights that
have the same are sent one rendering, so that one more costs a write. One that finds no place asks
the feed instead. Must not know what is in an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from aiohttp import web

from fifo.client import FifoError
from fifo.wire import Code
from node.broker.permissions import Rights
from node.http import limits
from node.http.api import problems
from node.http.api.callers import Credentials
from node.http.api.places import Places
from node.http.api.problems import Problem
from node.http.api.serving import Port

_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Accel-Buffering": "no",
}


class Viewer(NamedTuple):
    """A caller that looks; `rights` is None where there are no users."""

    credentials: Credentials
    rights: Rights | None


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
    """The streams of one node. `answer` renders; `identify` says who sends a request, or raises
    Problem."""

    def __init__(
        self,
        answer: Callable[[Viewer, Seen], Awaitable[Answer]],
        identify: Callable[[web.Request], Awaitable[Viewer]],
        port: Port,
    ) -> None:
        self._answer = answer
        self._identify = identify
        self._port = port
        self._places = Places(
            limits.CONSOLE_STREAMS_MAX, limits.CONSOLE_STREAMS_PER_USER_MAX, "consoles"
        )
        self._frames: dict[tuple[Rights | None, Seen], asyncio.Task[tuple[bytes, Seen]]] = {}
        self._frames_of = 0
        self._closing = asyncio.Event()
        self.renderings = 0
        """Number of renderings so far."""

    def close(self) -> None:
        """End all streams."""
        self._closing.set()
        for task in self._frames.values():
            task.cancel()

    async def serve(self, request: web.Request, viewer: Viewer, seen: Seen) -> web.StreamResponse:
        """Push answers until either side ends. Raises Problem where there is no place."""
        rights = viewer.rights
        with self._places.taken(None if rights is None else rights.user.name):
            response = web.StreamResponse(headers=_HEADERS)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                try:
                    await self._go_on(request, response, viewer, seen)
                except (Problem, FifoError) as error:
                    await response.write(_problem(error))
                await response.write_eof()
        return response

    async def _go_on(
        self, request: web.Request, response: web.StreamResponse, viewer: Viewer, seen: Seen
    ) -> None:
        loop = asyncio.get_running_loop()
        checked_at = loop.time()
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while not self._closing.is_set():
                self._port.goes_on(request)
                if loop.time() - checked_at >= limits.EVENTS_CHECK_SECONDS:
                    checked_at = loop.time()
                    viewer = await self._still(request, viewer)
                frame, seen = await self._frame(viewer, seen)
                await response.write(frame)
                # All streams wake at once, so that they share a rendering.
                until = limits.PICTURE_SECONDS - loop.time() % limits.PICTURE_SECONDS
                await asyncio.wait((closing,), timeout=until)
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
        second = int(asyncio.get_running_loop().time() / limits.PICTURE_SECONDS)
        if second != self._frames_of:
            self._frames_of = second
            self._frames = {key: one for key, one in self._frames.items() if not one.done()}
        key = viewer.rights, seen
        task = self._frames.get(key)
        if task is None:
            task = self._frames[key] = asyncio.ensure_future(self._render(viewer, seen))
        return await asyncio.shield(task)

    async def _render(self, viewer: Viewer, seen: Seen) -> tuple[bytes, Seen]:
        self.renderings += 1
        text, now_seen = await self._answer(viewer, seen)
        return f"data: {text}\n\n".encode(), now_seen


def _problem(error: Problem | FifoError) -> bytes:
    problem = error if isinstance(error, Problem) else problems.of_error(error, conditional=False)
    return f"event: problem\ndata: {json.dumps(problem.as_dict())}\n\n".encode()
