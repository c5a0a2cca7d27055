"""Pinned views over HTTP: the cluster as it was at one index, read page by page.

Owns these routes and the name of a pin in a path, which says which node keeps the view: it may be
read through any other, and no address but those of this cluster's nodes is ever dialed. A
view belongs to no session, and ends when it was not read for its lease. Must not know HTTP:
`serving.py` does.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from fifo.client import Client, InvalidArgument, PinnedView, ScanKeywords
from fifo.client.json_forms import scanned_view
from fifo.wire import Code
from fifo.wire.limits import (
    DURATION_MS_MAX,
    FIND_MESSAGES_MAX,
    LISTED_OF_QUEUE_MAX,
    PIN_LEASE_MS,
    PIN_LEASE_MS_MAX,
    PIN_LEASE_MS_MIN,
)
from fifo.words.settlement import REASONS
from node.http.api.params import BODY, PATH, QUERY, Param
from node.http.api.problems import Problem
from node.http.api.routes import LIMIT, QUEUE, Given, Route, number

_STATES: Final = ("ready", "locked", "delayed", "dead")
_FILTERS: Final = ("state", "key", "reason", "exception_type", "stack_line", "bodies")
_LIMIT_DEFAULT: Final = 100


def _name_of(view: PinnedView) -> str:
    """The name of a pin, which is safe in a path."""
    return base64.urlsafe_b64encode(view.ref.encode()).decode().rstrip("=")


def _ref_of(name: str, client: Client) -> str:
    """The view that a name in a path means. Raises Problem."""
    try:
        ref = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        ref = ""
    if ref.partition("/")[0] not in client.options.addresses:
        text = f"pin: must be the `pin` that POST /pins gave, not {name!r:.80}"
        raise Problem(Code.INVALID_ARGUMENT, text)
    return ref


@asynccontextmanager
async def _pinned(client: Client, given: Given) -> AsyncIterator[PinnedView]:
    """The view of a request, whose lease begins anew. Raises Problem, PinGone."""
    try:
        view = await client.pinned(_ref_of(given["pin"], client))
    except InvalidArgument as error:
        raise Problem(Code.INVALID_ARGUMENT, f"pin: {error}") from None
    try:
        yield view
    finally:
        view.leave()


async def _pin(client: Client, given: Given) -> Any:
    lease_ms = given.get("lease_ms", PIN_LEASE_MS)
    view = await client.pin(lease=lease_ms / 1000)
    view.leave()
    return {"pin": _name_of(view), "index": view.index, "lease_ms": lease_ms}


async def _renew(client: Client, given: Given) -> Any:
    async with _pinned(client, given) as view:
        return {"pin": given["pin"], "index": view.index}


async def _unpin(client: Client, given: Given) -> Any:
    async with _pinned(client, given) as view:
        await view.close()
    return {"pin": given["pin"], "done": "unpin"}


async def _queues(client: Client, given: Given) -> Any:
    async with _pinned(client, given) as view:
        listed = [one.as_dict() for one in await view.queues()]
    after, limit = given.get("after", ""), given.get("limit", _LIMIT_DEFAULT)
    found = sorted((one for one in listed if one["name"] > after), key=lambda one: one["name"])
    more = found[limit - 1]["name"] if len(found) > limit else None
    return {"items": found[:limit], "next": more}


async def _consumers(client: Client, given: Given) -> Any:
    async with _pinned(client, given) as view:
        listed = [one.as_dict() for one in await view.consumers(given["queue"])]
    after, limit = given.get("after", 0), given.get("limit", _LIMIT_DEFAULT)
    found = sorted((one for one in listed if one["consumer"] > after), key=lambda o: o["consumer"])
    more = found[limit - 1]["consumer"] if len(found) > limit else None
    return {"items": found[:limit], "next": more}


async def _messages(client: Client, given: Given) -> Any:
    wanted = ScanKeywords(**{key: given[key] for key in _FILTERS if key in given})  # type: ignore[typeddict-item]
    if "header" in given:
        name, _, value = given["header"].partition("=")
        wanted["headers"] = {name: value}
    if "older_than_ms" in given:
        wanted["older_than"] = given["older_than_ms"] / 1000
    async with _pinned(client, given) as view:
        page = await view.page(
            given["queue"],
            after=given.get("cursor", 0),
            limit=given.get("limit", _LIMIT_DEFAULT),
            **wanted,
        )
    return {"items": [scanned_view(one) for one in page.messages], "next": page.after or None}


_PIN: Final = Param("pin", PATH, "string", "The `pin` that POST /pins gave.", required=True)
_READ: Final = "consume or manage"

PINS: Final = (
    Route("POST", "/pins", "pin", "Pin the state of the cluster as it is now, everything confirmed"
          " included, for as long as it is read.", "consume or manage on any queue, or monitor",
          _pin,
          (number("lease_ms", "It ends when it was not read for this long.", PIN_LEASE_MS_MIN,
                  PIN_LEASE_MS_MAX, BODY),), status=201),
    Route("GET", "/pins/{pin}", "pinned", "The index of a pinned view; its lease begins anew.",
          "none but its name", _renew, (_PIN,)),
    Route("DELETE", "/pins/{pin}", "unpin", "End a pinned view for all its readers.",
          "none but its name", _unpin, (_PIN,)),
    Route("GET", "/pins/{pin}/queues", "pinned_queues", "The queues that the user may see, by name,"
          " as they were.", "any", _queues,
          (_PIN, Param("after", QUERY, "string", "Cursor: `next` of the page before."), LIMIT)),
    Route("GET", "/pins/{pin}/queues/{queue}/consumers", "pinned_consumers", "The consumers of a"
          " queue as they were, by number.", _READ, _consumers,
          (_PIN, QUEUE, number("after", "Cursor: `next` of the page before.", 0, 2**63 - 1),
           number("limit", "Maximum number of items.", 1, LISTED_OF_QUEUE_MAX))),
    Route("GET", "/pins/{pin}/queues/{queue}/messages", "pinned_messages", "A page of a queue as it"
          " was, in its order; the node that keeps the view looks at the conditions. It may have"
          " few messages, even none, and a `next`.", _READ, _messages,
          (_PIN, QUEUE,
           Param("state", QUERY, "string", "Only in this state.", choices=_STATES),
           Param("key", QUERY, "string", "Only with this key."),
           Param("header", QUERY, "string", "Only with this header, as NAME=VALUE."),
           Param("reason", QUERY, "string", "Only dead letters of this reason.",
                 choices=tuple(REASONS)),
           Param("exception_type", QUERY, "string", "Only dead letters of this exception type."),
           Param("stack_line", QUERY, "string", "Only dead letters with this line of the stack."),
           number("older_than_ms", "Only what was published longer ago.", 0, DURATION_MS_MAX),
           Param("bodies", QUERY, "boolean", "`false`: without bodies, keys and headers."),
           number("cursor", "Where to go on: `next` of the page before.", 0, 2**63 - 1),
           number("limit", "Maximum number of messages.", 1, FIND_MESSAGES_MAX))),
)  # fmt: skip
