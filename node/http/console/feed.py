"""The answers to the page, once a second: the cluster and all queues, or one queue.

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

from fifo.client import Client, FifoError
from node.broker.permissions import Rights
from node.http import limits
from node.http.api import problems
from node.http.api.callers import Credentials
from node.http.api.problems import Problem
from node.http.api.serving import Api, refused
from node.http.console import verdicts
from node.http.console.members import Members
from node.http.console.picture import ROW, Picture
from node.http.console.samples import Samples
from node.http.console.watch import Conditions, ConsumerStates
from node.users import Permission

if TYPE_CHECKING:
    from node.server import Node

logger = logging.getLogger("fifo.http")

PREFIX: Final = "/console/feed"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

_Part = Callable[[Client, str, int], Awaitable[Any]]


class Feed:
    """The feed of one node."""

    def __init__(self, node: Node, api: Api) -> None:
        self._node = node
        self._api = api
        self._boot = os.urandom(8).hex()
        """Versions and sample numbers of another process mean nothing here."""
        self._samples = Samples()
        self._states = ConsumerStates()
        self._conditions = Conditions()
        self._members = Members(node)
        self.picture = Picture(node, self._samples, self._states)
        self._queues: dict[tuple[Credentials, str], tuple[float, asyncio.Future[Any]]] = {}
        self._watching: asyncio.Task[None] | None = None

    def add_to(self, app: web.Application) -> None:
        """Serve it."""
        app.router.add_get(PREFIX, self._handler(self._overview))
        app.router.add_get(f"{PREFIX}/queue", self._handler(self._queue))

    def start(self) -> None:
        """Begin to take samples."""
        self._watching = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """End everything that runs."""
        tasks = [task for task in (self._watching, *(one for _, one in self._queues.values()))
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
        self, answer: Callable[[web.Request, Credentials, Rights | None], Awaitable[str]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                credentials, rights = await self._api.caller(request)
                text = await answer(request, credentials, rights)
            except Problem as problem:
                return refused(problem)
            except FifoError as error:
                return refused(problems.of_error(error, conditional=False))
            return web.Response(text=text, content_type="application/json", headers=_HEADERS)

        return handle

    async def _overview(
        self, request: web.Request, credentials: Credentials, rights: Rights | None
    ) -> str:
        """The cluster, and the queues that have changed since `since`."""
        since = _number(request, "since") if request.query.get("boot") == self._boot else 0
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
            head |= await self._cluster(request, credentials)
        sees = None if rights is None else rights.sees
        return f'{json.dumps(head)[:-1]},"queues":{self.picture.changed(since, sees)}}}'

    async def _cluster(self, request: web.Request, credentials: Credentials) -> dict[str, Any]:
        views = await self._members.views(self._api.options(credentials))
        refusal = verdicts.refusal(views)
        if refusal is not None and refusal["for_ms"] is None:
            refusal["for_ms"] = self._age_ms("no leader")
        with_roles = "roles" in request.query
        nodes = [
            {key: value for key, value in view.items() if key != "roles" or with_roles}
            | {"away_ms": self._age_ms(("away", view["name"]))}
            for view in views
        ]
        history = self._samples.shown(Samples.ALL, _number(request, "after"))
        return {"nodes": nodes, "refusal": refusal, "history": history}

    def _age_ms(self, condition: Any) -> int | None:
        since_ms = self._conditions.since_ms(condition)
        return None if since_ms is None else _wall_ms() - since_ms

    async def _queue(
        self, request: web.Request, credentials: Credentials, rights: Rights | None
    ) -> str:
        """The view of a queue: options, locks, consumers and delayed messages by the leader's word,
        and samples."""
        name = request.query.get("name", "")
        after = _number(request, "after") if request.query.get("boot") == self._boot else 0
        shown = dict(await self._shared(credentials, name))
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
            "history": self._samples.shown(shown["queue"]["number"], after),
        }
        return json.dumps(shown)

    async def _shared(self, credentials: Credentials, name: str) -> dict[str, Any]:
        """The leader's word about a queue, shared by the browsers of a user for a second."""
        key, now = (credentials, name), time.monotonic()
        known = self._queues.get(key)
        if known is None or (known[1].done() and now - known[0] >= limits.QUEUE_VIEW_SECONDS):
            self._queues.pop(key, None)
            while len(self._queues) >= limits.QUEUE_VIEWS_MAX:
                self._queues.pop(next(iter(self._queues)))[1].cancel()
            known = self._queues[key] = now, asyncio.ensure_future(self._ask(credentials, name))
        found: dict[str, Any] = await asyncio.shield(known[1])
        return found

    async def _ask(self, credentials: Credentials, name: str) -> dict[str, Any]:
        async with self._api.client(credentials) as client:
            queue = await client.queue(name)
            found = await asyncio.gather(*(_listed(client, what, name) for what in _LISTS))
        return {"queue": queue.as_dict(), **dict(zip(_LISTS, found, strict=True))}


_LISTS: Final = ("locks", "consumers", "delayed", "producers")


async def _listed(client: Client, what: str, name: str) -> list[dict[str, Any]] | None:
    """A list of what a queue has; None where the user may not see it."""
    try:
        found = await getattr(client, what)(name, limits.QUEUE_ITEMS_SHOWN)
    except PermissionError:
        return None
    return [one.as_dict() for one in found]


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _wall_ms() -> int:
    return int(time.time() * 1000)
