"""The answers to the page: the cluster and all queues, pushed or asked for, or one queue.

Owns these answers and who gets which part of them. They are for the page of the same version alone:
programs have `/api/v1`. All comes from this node's replica and from what the nodes answer to any
observer, but for the view of one queue: only the leader knows how long its locks last. Must not
change anything.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from fifo.client import FifoError
from node.http import limits
from node.http.api import problems
from node.http.api.callers import Credentials
from node.http.api.problems import Problem
from node.http.api.serving import Api, Port, refused
from node.http.console import verdicts
from node.http.console.members import Members
from node.http.console.picture import ROW, Picture
from node.http.console.queue_views import QueueViews, Shown, shown_in
from node.http.console.samples import Samples
from node.http.console.streams import Answer, Seen, Streams
from node.http.console.viewer import Viewer
from node.http.console.watch import Conditions, ConsumerStates

if TYPE_CHECKING:
    from node.server import Node

logger = logging.getLogger("fifo.http")

PREFIX: Final = "/console/feed"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Feed:
    """The feed of one node."""

    def __init__(self, node: Node, api: Api, port: Port) -> None:
        self._node = node
        self._api = api
        self._boot = os.urandom(8).hex()
        """Versions and sample numbers of another process mean nothing here."""
        self._samples = Samples()
        self._states = ConsumerStates()
        self._conditions = Conditions()
        self._members = Members(node)
        self.picture = Picture(node, self._samples, self._states)
        self.views = QueueViews(api.client, self._samples, self._states, self._boot)
        self.streams = Streams(self._overview, self.views.news, self._viewer, port)
        self._watching: asyncio.Task[None] | None = None

    def add_to(self, app: web.Application) -> None:
        """Serve it."""
        app.router.add_get(PREFIX, self._handler(self._asked))
        app.router.add_get(f"{PREFIX}/stream", self._handler(self._pushed))
        app.router.add_get(f"{PREFIX}/queue", self._handler(self._queue))

    def start(self) -> None:
        """Begin to take samples."""
        self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """End everything that runs."""
        self.streams.close()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.views.close()
        await self._members.close()
        await self.picture.close()

    # --- what goes on while no one looks ----------------------------------------------------------

    async def _watch(self) -> None:
        sampled_at = 0.0
        while True:
            await asyncio.sleep(limits.WATCH_SECONDS)
            try:
                self._look()
                now = time.monotonic()
                if now - sampled_at >= limits.SAMPLE_SECONDS and self._node.shows_totals():
                    sampled_at = now
                    figures = await self.picture.figures()
                    await self.picture.look_at_consumers()
                    self._samples.add(time.monotonic(), _wall_ms(), figures)
            except Exception:
                logger.exception("event=console_watch_failed")

    def _look(self) -> None:
        raft = self._node.raft_status()
        if raft is None:
            return
        holding: list[Any] = [("away", peer.name) for peer in raft.peers if not peer.connected]
        if raft.leader is None:
            holding.append("no leader")
        self._conditions.look(_wall_ms(), holding)

    # --- answers ----------------------------------------------------------------------------------

    def _handler(
        self, answer: Callable[[web.Request, Viewer], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await answer(request, await self._viewer(request))
            except Problem as problem:
                return refused(problem)
            except FifoError as error:
                return refused(problems.of_error(error, conditional=False))

        return handle

    async def _viewer(self, request: web.Request) -> Viewer:
        return Viewer(*await self._api.caller(request))

    async def _asked(self, request: web.Request, viewer: Viewer) -> web.Response:
        return _json((await self._overview(viewer, _seen(request))).text)

    async def _pushed(self, request: web.Request, viewer: Viewer) -> web.StreamResponse:
        return await self.streams.serve(request, viewer, _seen(request), self._shown(request))

    def _shown(self, request: web.Request) -> Shown | None:
        """The queue that the page of a stream shows, if it is one of a queue."""
        name = request.query.get("queue")
        return None if name is None else shown_in(request, name, self._known(request, "from"))

    def _known(self, request: web.Request, name: str) -> int:
        """The number of the first sample that the browser lacks; 0 where it knew another process
        of the node."""
        return _number(request, name) if request.query.get("boot") == self._boot else 0

    async def _overview(self, viewer: Viewer, seen: Seen) -> Answer:
        """The cluster, and what has changed since a browser looked last."""
        if seen.boot != self._boot:
            seen = Seen(self._boot, 0, 0, seen.roles)
        rights = viewer.rights
        await self.picture.look()
        head: dict[str, Any] = {
            "boot": self._boot,
            "node": self._node.me.name,
            "now_ms": _wall_ms(),
            "cluster_ms": self._node.broker.clock.now_ms(),
            "behind": self._node.unready(),
            "user": None if rights is None else rights.user.name,
            "monitor": rights is None or rights.may_monitor,
            "operate": rights is None or rights.user.operate,
            "row": ROW,
        }
        if head["monitor"]:
            head |= await self._cluster(viewer.credentials, seen)
        rows = self.picture.changed(seen.since, rights)
        text = f'{json.dumps(head)[:-1]},"queues":{rows}}}'
        return Answer(text, seen._replace(since=self.picture.version, after=self._samples.next))

    async def _cluster(self, credentials: Credentials, seen: Seen) -> dict[str, Any]:
        views = await self._members.views(self._api.options(credentials))
        refusal = verdicts.refusal(views)
        if refusal is not None and refusal["for_ms"] is None:
            refusal["for_ms"] = self._age_ms("no leader")
        nodes = [
            {key: value for key, value in view.items() if key != "roles" or seen.roles}
            | {"away_ms": self._age_ms(("away", view["name"]))}
            for view in views
        ]
        history = self._samples.shown(Samples.ALL, seen.after)
        return {"nodes": nodes, "refusal": refusal, "history": history}

    def _age_ms(self, condition: Any) -> int | None:
        since_ms = self._conditions.since_ms(condition)
        return None if since_ms is None else _wall_ms() - since_ms

    async def _queue(self, request: web.Request, viewer: Viewer) -> web.Response:
        """The view of one queue, for a browser that is not pushed it."""
        name = request.query.get("name", "")
        found = await self.views.whole(
            viewer, shown_in(request, name, self._known(request, "after"))
        )
        return _json(json.dumps(found))


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json", headers=_HEADERS)


def _seen(request: web.Request) -> Seen:
    """The part that the browser has, by its own word."""
    boot, roles = request.query.get("boot", ""), "roles" in request.query
    return Seen(boot, _number(request, "since"), _number(request, "after"), roles)


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _wall_ms() -> int:
    return int(time.time() * 1000)
