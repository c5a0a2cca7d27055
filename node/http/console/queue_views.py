"""The view of one queue: its options, locks, consumers and delayed messages by the leader's word, a
page of each, and its samples.

Owns what is asked of the leader, once a second for all browsers of a user that show the same, and
which part of the answer a browser lacks. Must not know how it gets there.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from aiohttp import web

from fifo.client import Client, FifoError, InvalidArgument, Unsupported
from fifo.client.listing import Listed
from fifo.client.views import View
from node.http import limits
from node.http.api import problems
from node.http.api.callers import Credentials
from node.http.api.problems import Problem
from node.http.console.samples import Samples
from node.http.console.viewer import Viewer
from node.http.console.watch import ConsumerStates
from node.users import Permission

_LISTS: Final[tuple[Listed, ...]] = ("locks", "consumers", "delayed")


class Shown(NamedTuple):
    """The queue that a browser shows, with the cursors of its pages, and what it has of it: samples
    before `after`; `has` tells the rest."""

    name: str
    cursors: tuple[str, ...]
    after: int
    has: int | None = None


class News(NamedTuple):
    """The part of a view that a browser lacks, as JSON, or None; and what it has then."""

    text: str | None
    shown: Shown


class _Asked(NamedTuple):
    """The leader's word about a queue, being asked for since `at` (monotonic seconds)."""

    at: float
    answer: asyncio.Future[dict[str, Any]]


class QueueViews:
    """The views of one node. `client` opens a caller's, `boot` names this process of the node."""

    def __init__(
        self,
        client: Callable[[Credentials], AbstractAsyncContextManager[Client]],
        samples: Samples,
        states: ConsumerStates,
        boot: str,
    ) -> None:
        self._client = client
        self._samples = samples
        self._states = states
        self._boot = boot
        self._asked: dict[tuple[Credentials, str, tuple[str, ...]], _Asked] = {}

    async def close(self) -> None:
        """Ask no longer."""
        asking = [one.answer for one in self._asked.values()]
        for answer in asking:
            answer.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def whole(self, viewer: Viewer, shown: Shown) -> dict[str, Any]:
        """The view, with the samples that the browser lacks. Raises Problem, FifoError."""
        word, age_ms = await self._shared(viewer.credentials, shown)
        return self._part(viewer, word) | {
            "boot": self._boot,
            "asked_ms_ago": age_ms,
            "history": self._samples.shown(word["queue"]["number"], shown.after),
        }

    async def news(self, viewer: Viewer, shown: Shown) -> News:
        """The view where it differs from the browser's; one that is refused is a `problem`."""
        try:
            found = await self.whole(viewer, shown)
        except (Problem, FifoError) as error:
            return _problem(error, shown)
        age_ms, history = found.pop("asked_ms_ago"), found.pop("history")
        text = json.dumps(found)
        now_has = shown._replace(after=history["next"], has=hash(text))
        if now_has.has == shown.has and not history["times_ms"]:
            return News(None, now_has)
        rest = json.dumps({"asked_ms_ago": age_ms, "history": history})
        return News(f"{text[:-1]},{rest[1:]}", now_has)

    def _part(self, viewer: Viewer, word: dict[str, Any]) -> dict[str, Any]:
        """The leader's word with what this node knows, but for what is new in each second."""
        name, rights = word["queue"]["name"], viewer.rights
        consumers = [
            {**one, "changes": self._states.changes(one["consumer"])}
            for one in word["consumers"] or ()
        ]
        may = {str(each): rights is None or rights.may(each, name) for each in Permission}
        return {**word, "consumers": consumers, "may": may}

    async def _shared(self, credentials: Credentials, shown: Shown) -> tuple[dict[str, Any], int]:
        """The leader's word, shared by the browsers of a user for a second; its age in ms."""
        key, now = (credentials, shown.name, shown.cursors), time.monotonic()
        known = self._asked.get(key)
        old = known is None or now - known.at >= limits.QUEUE_VIEW_SECONDS
        if known is None or (known.answer.done() and old):
            self._asked.pop(key, None)
            while len(self._asked) >= limits.QUEUE_VIEWS_MAX:
                self._asked.pop(next(iter(self._asked))).answer.cancel()
            known = self._asked[key] = _Asked(now, asyncio.ensure_future(self.ask(*key)))
        found = await asyncio.shield(known.answer)
        return found, int(1000 * (time.monotonic() - known.at))

    async def ask(
        self, credentials: Credentials, name: str, cursors: tuple[str, ...]
    ) -> dict[str, Any]:
        """Ask the leader, in a caller's name. Raises Problem, FifoError."""
        async with self._client(credentials) as client:
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
    except (InvalidArgument, Unsupported):  # No cursor; or pages, where a node of 0.1.0 leads.
        found: list[View] = await getattr(client, what)(name, most)
        return [one.as_dict() for one in found], None
    return [one.as_dict() for one in page.items], page.next


def shown_in(request: web.Request, name: str, after: int) -> Shown:
    """The queue `name` with the cursors of a request."""
    return Shown(name, tuple(_cursor(request, what) for what in _LISTS), after)


def _cursor(request: web.Request, name: str) -> str:
    text = request.query.get(name, "")
    return text if len(text) <= limits.CURSOR_CHARACTERS_MAX else ""


def _problem(error: Problem | FifoError, shown: Shown) -> News:
    problem = error if isinstance(error, Problem) else problems.of_error(error, conditional=False)
    text = json.dumps({"problem": problem.as_dict()})
    has = hash(text)
    return News(None if has == shown.has else text, shown._replace(has=has))
