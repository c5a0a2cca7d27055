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
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiohttp import web

from fifo.client import Client, FifoError, InvalidArgument
from fifo.client.listing import Listed
from fifo.client.views import View
from node.http import limits
from node.http.api import problems
from node.http.api.callers import Credentials
from node.http.api.problems import Problem
from node.http.api.serving import Api, Port, refused
from node.http.console import verdicts
from node.http.console.members import Members
from node.http.console.picture import ROW, Picture
from node.http.console.samples import Samples
from node.http.console.streams import Answer, Seen, Streams, Viewer
from node.http.console.watch import Conditions, ConsumerStates
from node.users import Permission

if TYPE_CHECKING:
    from node.server import Node

logger = logging.getLogger("fifo.http")

PREFIX: Final = "/console/feed"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_LISTS: Final[tuple[Listed, ...]] = ("locks", "consumers", "delayed")


class QueueView(NamedTuple):
    """The leader's word about a queue, being asked for since `asked_at` (monotonic seconds)."""

    asked_at: float
    answer: asyncio.Future[dict[str, Any]]


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
        self.streams = Streams(self._overview, self._viewer, port)
        self._queues: dict[tuple[Credentials, str, tuple[str, ...]], QueueView] = {}
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
        tasks = [task for task in (self._watching, *(one.answer for one in self._queues.values()))
                 if task is not None]  # fmt: skip
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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
        return await self.streams.serve(request, viewer, _seen(request))

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
        """The view of a queue: options, locks, consumers and delayed messages by the leader's word,
        a page of each, and samples."""
        name, rights = request.query.get("name", ""), viewer.rights
        seen = _seen(request)
        cursors = tuple(_cursor(request, what) for what in _LISTS)
        shown = dict(await self._shared(viewer.credentials, name, cursors))
        shown["consumers"] = [
            {**one, "changes": self._states.changes(one["consumer"])}
            for one in shown["consumers"] or ()
        ]
        shown |= {
            "boot": self._boot,
            "now_ms": _wall_ms(),
            "may": {
                str(permission): rights is None or rights.may(permission, name)
                for permission in Permission
            },
            "history": self._samples.shown(
                shown["queue"]["number"], seen.after if seen.boot == self._boot else 0
            ),
        }
        return _json(json.dumps(shown))

    async def _shared(
        self, credentials: Credentials, name: str, cursors: tuple[str, ...]
    ) -> dict[str, Any]:
        """The leader's word about a queue, shared by the browsers of a user for a second."""
        key, now = (credentials, name, cursors), time.monotonic()
        known = self._queues.get(key)
        old = known is None or now - known.asked_at >= limits.QUEUE_VIEW_SECONDS
        if known is None or (known.answer.done() and old):
            self._queues.pop(key, None)
            while len(self._queues) >= limits.QUEUE_VIEWS_MAX:
                self._queues.pop(next(iter(self._queues))).answer.cancel()
            asking = asyncio.ensure_future(self._ask(credentials, name, cursors))
            known = self._queues[key] = QueueView(now, asking)
        found = await asyncio.shield(known.answer)
        return {**found, "asked_ms_ago": int(1000 * (time.monotonic() - known.asked_at))}

    async def _ask(
        self, credentials: Credentials, name: str, cursors: tuple[str, ...]
    ) -> dict[str, Any]:
        async with self._api.client(credentials) as client:
            queue = await client.queue(name)
            asking = zip(_LISTS, cursors, strict=True)
            found = await asyncio.gather(*(_page(client, what, name, at) for what, at in asking))
        return {
            "queue": queue.as_dict(),
            "page_size": limits.QUEUE_ITEMS_SHOWN,
            "next": {what: more for what, (_, more) in zip(_LISTS, found, strict=True)},
            **{what: items for what, (items, _) in zip(_LISTS, found, strict=True)},
        }


async def _page(
    client: Client, what: Listed, name: str, cursor: str
) -> tuple[list[dict[str, Any]] | None, str | None]:
    """A page of a list of what a queue has, None where the user may not see it; and the cursor of
    the next one."""
    most = limits.QUEUE_ITEMS_SHOWN
    try:
        page = await client.list_page(what, name, after=cursor or None, limit=most)
    except PermissionError:
        return None, None
    except InvalidArgument:  # A leader of 0.1.0 knows no pages; or the cursor is none.
        found: list[View] = await getattr(client, what)(name, most)
        return [one.as_dict() for one in found], None
    return [one.as_dict() for one in page.items], page.next


def _json(text: str) -> web.Response:
    return web.Response(text=text, content_type="application/json", headers=_HEADERS)


def _seen(request: web.Request) -> Seen:
    """The part that the browser has, by its own word."""
    boot, roles = request.query.get("boot", ""), "roles" in request.query
    return Seen(boot, _number(request, "since"), _number(request, "after"), roles)


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _cursor(request: web.Request, name: str) -> str:
    text = request.query.get(name, "")
    return text if len(text) <= limits.CURSOR_CHARACTERS_MAX else ""


def _wall_ms() -> int:
    return int(time.time() * 1000)
