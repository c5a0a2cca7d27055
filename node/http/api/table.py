"""The routes of the API: one row for each, which is served and described as it stands here.

Owns the paths, the parameters and the work of each route in terms of the client. Must not know
HTTP: `serving.py` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from fifo.client import Client, FifoError, FoundMessage, QueueSpec, StoredMessage, observe
from fifo.client.json_forms import message_view
from fifo.client.listing import Listed
from fifo.client.matching import MatchKeywords
from fifo.wire import Code
from fifo.wire.limits import DURATION_MS_MAX, FIND_MESSAGES_MAX, PEEK_MESSAGES_MAX
from fifo.words.actions import ACTIONS
from fifo.words.options import Kind
from fifo.words.queue_options import QUEUE_OPTIONS
from node.http import limits
from node.http.api.exchange import EXCHANGES
from node.http.api.params import BODY, PATH, QUERY, Param
from node.http.api.pins import PINS
from node.http.api.problems import Problem
from node.http.api.routes import ID, LIMIT, QUEUE, Given, Route, Tagged, Work, number, text

ACTION: Final = Param(
    "action", PATH, "string", "What to do.", required=True, choices=tuple(ACTIONS)
)
_FOUND_LIMIT: Final = number("limit", "Maximum number of messages.", 1, FIND_MESSAGES_MAX)
_AFTER: Final = number("after", "Cursor: `next` of the page before.", 0, 2**63 - 1)
_BY_TEXT: Final = Param("after", QUERY, "string", "Cursor: `next` of the page before.")
_DEFAULT_LIMIT: Final = 100


def _found(message: FoundMessage) -> dict[str, Any]:
    return {**message_view(message), **message.place.as_dict()}


async def _status(client: Client, given: Given) -> Any:
    return (await client.status()).as_dict()


async def cluster_nodes(client: Client, given: Given | None = None) -> Any:
    """Every node by its own report; one that does not answer is `down`."""
    addresses = client.options.addresses
    found = await asyncio.gather(*(_observed(address, client) for address in addresses))
    refusals = [one for one in found if isinstance(one, PermissionError)]
    if len(refusals) == len(found):
        raise refusals[0]
    items = [
        {"role": "down", "error": str(one)} if isinstance(one, FifoError) else one for one in found
    ]
    return {
        "items": [
            {"address": address, **item} for address, item in zip(addresses, items, strict=True)
        ]
    }


async def _observed(address: str, client: Client) -> dict[str, Any] | FifoError:
    try:
        return await observe(address, limits.OBSERVE_SECONDS, options=client.options)
    except FifoError as error:
        return error


def _page(items: Iterable[dict[str, Any]], key: str, given: Given) -> Any:
    """A page by this field: what comes or goes between two pages moves no other item."""
    after, limit = given.get("after", ""), given.get("limit", _DEFAULT_LIMIT)
    found = sorted((one for one in items if one[key] > after), key=lambda one: one[key])
    return {"items": found[:limit], "next": found[limit - 1][key] if len(found) > limit else None}


async def _queues(client: Client, given: Given) -> Any:
    listed = await client.queues(given.get("prefix", ""))
    return _page((one.as_dict() for one in listed), "name", given)


async def _queue(client: Client, given: Given) -> Any:
    found = await client.queue(given["queue"])
    return Tagged(found.as_dict(), found.version or "")


def _listing(what: Listed) -> Work:
    """Pages of a list of what a queue has."""

    async def work(client: Client, given: Given) -> Any:
        limit = given.get("limit", _DEFAULT_LIMIT)
        page = await client.list_page(what, given["queue"], after=given.get("after"), limit=limit)
        return {"items": [one.as_dict() for one in page.items], "next": page.next}

    return work


async def _peek(client: Client, given: Given) -> Any:
    messages: list[StoredMessage] = await client.peek(given["queue"], given.get("limit", 10))
    return {"items": [message_view(one) for one in messages]}


async def _find(client: Client, given: Given) -> Any:
    page = await client.find(
        given["queue"],
        key=given.get("key"),
        place=given.get("place"),
        limit=given.get("limit", 10),
        after=given.get("after", 0),
        **_conditions(given),
    )
    return {"items": [_found(one) for one in page.messages], "next": page.after or None}


async def _message(client: Client, given: Given) -> Any:
    found = await client.message(given["queue"], given["id"])
    return Tagged(_found(found), found.place.version)


async def _dead_letters(client: Client, given: Given) -> Any:
    return {"items": [one.as_dict() for one in await client.dead_letters(given["queue"])]}


async def _sessions(client: Client, given: Given) -> Any:
    """Those of one user may be few in a page, even none, and there may be more."""
    limit, wanted = given.get("limit", _DEFAULT_LIMIT), given.get("user")
    page = await client.list_page("sessions", after=given.get("after"), limit=limit)
    found = [one.as_dict() for one in page.items if wanted in (None, one.user)]
    return {"items": found, "next": page.next}


async def _users(client: Client, given: Given) -> Any:
    return _page((one.as_dict() for one in await client.users()), "name", given)


async def _audit(client: Client, given: Given) -> Any:
    since = datetime.fromtimestamp(given.get("since_ms", 0) / 1000, UTC)
    lines = await client.audit(
        given.get("queue"),
        user=given.get("user"),
        since=since,
        before=given.get("after"),
        limit=given.get("limit", _DEFAULT_LIMIT),
    )
    return {
        "items": [one.as_dict() for one in lines],
        "next": lines[-1].id if lines else None,
    }


async def _end_session(client: Client, given: Given) -> Any:
    await client.end_session(given["session"])
    return {"session": given["session"], "done": "end"}


async def _log_users(client: Client, given: Given) -> Any:
    return _page(await client.log_users(), "name", given)


async def _manage_user(client: Client, given: Given) -> Any:
    values = _with_bytes(given.get("values") or {})
    if "if_match" in given:
        values["revision"] = _REVISION.read(given["if_match"])
    found = await client.manage_user(given["action"], given["user"], values or None)
    return {"user": given["user"], "done": given["action"], "is": found}


_REVISION: Final = number("If-Match", "The user's revision.", 1, 2**63 - 1)


async def _own_password(client: Client, given: Given) -> Any:
    await client.manage_user("password", None, {"password": given["password_hash"]})
    return {"done": "password"}


async def _import_users(client: Client, given: Given) -> Any:
    await client.manage_user("import")
    return {"done": "import"}


def _with_bytes(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a change of a user: what JSON gives as hexadecimal digits is bytes."""
    found: dict[str, Any] = {
        key: _with_bytes(each) if isinstance(each, dict) else each for key, each in values.items()
    }
    digest = found.get("digest")
    if isinstance(digest, str):
        try:
            found["digest"] = bytes.fromhex(digest)
        except ValueError:
            text = "digest: must be 64 hexadecimal digits: the SHA-256 of the token"
            raise Problem(Code.INVALID_ARGUMENT, text) from None
    return found


async def _forget_producer(client: Client, given: Given) -> Any:
    await client.forget_producer(given["producer"])
    return {"producer": given["producer"], "done": "forget"}


async def _act(client: Client, given: Given) -> Any:
    kept = ("target", "reason", "description", "key", "headers")
    options: Given = {key: given[key] for key in kept if key in given}
    if "delay_ms" in given:
        options["delay"] = given["delay_ms"] / 1000
    if "body" in given:
        options["body"] = given["body"].encode()
    was = await client.act(
        given["queue"], given["id"], given["action"], version=given.get("if_match"), **options
    )
    return {"id": given["id"], "queue": given["queue"], "action": given["action"], "was": was}


async def _copy(client: Client, given: Given) -> Any:
    options: Given = {key: given[key] for key in ("key", "headers") if key in given}
    if "body" in given:
        options["body"] = given["body"].encode()
    confirm = await client.copy(given["queue"], given["id"], given["target"], **options)
    return {"id": given["id"], "target": given["target"], "copy": confirm.id}


async def _lead(client: Client, given: Given) -> Any:
    await client.transfer_leadership(given["node"])
    return {"leader": given["node"]}


async def _members(client: Client, given: Given) -> Any:
    return dict((await client.status()).membership)


async def _change_members(client: Client, given: Given) -> Any:
    given = dict(given)
    return await client.change_members(given.pop("action"), **given)


async def _finish_upgrade(client: Client, given: Given) -> Any:
    return {"version": await client.finish_upgrade()}


def _options(given: Given) -> dict[str, Any]:
    """The options of a queue as the client takes them: durations are seconds there."""
    return {
        option.name: given[option.wire_name] / 1000
        if option.kind is Kind.DURATION
        else given[option.wire_name]
        for option in QUEUE_OPTIONS
        if option.wire_name in given
    }


async def _declare(client: Client, given: Given) -> Any:
    created = await client.declare(QueueSpec(given["queue"], **_options(given)))
    return {"queue": given["queue"], "created": created}


async def _update(client: Client, given: Given) -> Any:
    changes = cast("Any", _options(given))
    await client.update(given["queue"], version=given.get("if_match"), **changes)
    return {"queue": given["queue"]}


def _on_queue(method: str) -> Work:
    """A verb of a queue, by the client's method of this name."""

    async def work(client: Client, given: Given) -> Any:
        messages = await getattr(client, method)(given["queue"])
        found = {"queue": given["queue"], "done": method}
        return found if messages is None else {**found, "messages": messages}

    return work


def _conditions(given: Given) -> MatchKeywords:
    """The conditions on messages, as the client takes them. Of a query, a header is NAME=VALUE."""
    found = MatchKeywords()
    for key in ("exception_type", "stack_line"):
        if key in given:
            found[key] = given[key]
    if "headers" in given:
        found["headers"] = given["headers"]
    if "header" in given:
        name, _, value = given["header"].partition("=")
        found["headers"] = {name: value}
    if "older_than_ms" in given:
        found["older_than"] = given["older_than_ms"] / 1000
    return found


async def _move(client: Client, given: Given) -> Any:
    conditions = _conditions(given)
    if conditions or "after" in given:
        page = await client.move_found(
            given["queue"],
            given["target"],
            limit=min(given.get("limit", FIND_MESSAGES_MAX), FIND_MESSAGES_MAX),
            after=given.get("after", 0),
            **conditions,
        )
        found = {"queue": given["queue"], "target": given["target"], "messages": page.moved}
        return {**found, "next": page.after or None}
    moved = await client.move(given["queue"], given["target"], given.get("limit"))
    return {"queue": given["queue"], "target": given["target"], "messages": moved}


_FILTERS: Final = ("reason", "source", "exception_type", "stack_line", "headers", "min_attempts")


async def _redrive(client: Client, given: Given) -> Any:
    options: dict[str, Any] = {key: given[key] for key in _FILTERS if key in given}
    options |= {key: given[key] for key in ("limit", "reset_counts") if key in given}
    if "rate_per_s" in given:
        options["rate"] = given["rate_per_s"]
    if "older_than_ms" in given:
        options["older_than"] = given["older_than_ms"] / 1000
    if given.get("dry_run"):
        count = await client.redrive(given["queue"], given.get("target"), dry_run=True, **options)
        return count.as_dict()
    return (await client.redrive(given["queue"], given.get("target"), **options)).as_dict()


async def _cancel_redrive(client: Client, given: Given) -> Any:
    return (await client.cancel_redrive(given["queue"])).as_dict()


_KINDS: Final[Mapping[Kind, str]] = {
    Kind.FLAG: "boolean",
    Kind.DURATION: "integer",
    Kind.COUNT: "integer",
    Kind.SIZE: "integer",
}

_SPEC: Final = tuple(
    Param(option.wire_name, BODY, _KINDS.get(option.kind, "string"), f"{option.help}.")
    for option in QUEUE_OPTIONS
)
_CHANGES: Final = tuple(
    param for param, option in zip(_SPEC, QUEUE_OPTIONS, strict=True) if option.changeable
)


_EDIT: Final = (
    text("body", "Another body, as text."),
    text("key", "Another key."),
    Param("headers", BODY, "object", "Other headers instead of its own."),
)
_ACT: Final = (
    QUEUE,
    ID,
    ACTION,
    text("target", "Queue that it goes to."),
    number("delay_ms", "Time until it is ready.", 0, DURATION_MS_MAX, BODY),
    text("reason", "Why, for the dead letter."),
    text("description", "More about it."),
    *_EDIT,
)
_REDRIVE: Final = (
    QUEUE,
    text("target", "Queue that they go to (default: the source of each)."),
    text("reason", "Only with this reason."),
    text("source", "Only from this queue."),
    text("exception_type", "Only of this exception type."),
    text("stack_line", "Only with this line of the stack."),
    Param("headers", BODY, "object", "Only with these headers."),
    number("older_than_ms", "Only what died longer ago.", 0, DURATION_MS_MAX, BODY),
    number("min_attempts", "Only what was delivered so often.", 0, 2**31, BODY),
    number("limit", "Maximum number of messages.", 1, 2**53, BODY),
    number("rate_per_s", "Messages per second.", 1, 2**31, BODY),
    Param("reset_counts", BODY, "boolean", "Whether counts start anew (default true)."),
    Param("dry_run", BODY, "boolean", "Only count."),
)

_CONDITIONS: Final = (
    text("exception_type", "Only dead letters of this exception type."),
    text("stack_line", "Only dead letters with this line of the stack."),
    Param("headers", BODY, "object", "Only with these headers."),
    number("older_than_ms", "Only what was published longer ago.", 0, DURATION_MS_MAX, BODY),
)

_LISTS: Final[tuple[tuple[Listed, str, str], ...]] = (
    ("locks", "Locked messages, holders and deadlines, by consumer.", "consume or manage"),
    ("delayed", "Delayed messages, the first to be due first.", "consume or manage"),
    ("consumers", "The consumers and their states, by number.", "consume or manage"),
    ("producers", "Named producers, by number.", "publish or manage"),
)

ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/status", "status", "The state of the leader.", "monitor", _status),
    Route("GET", "/nodes", "nodes", "The state of every node, by its own report.", "monitor",
          cluster_nodes),
    Route("GET", "/events", "events", "Live changes, once a second, as server-sent events.",
          "any; monitor for the overview, consume or manage for one queue", None,
          (
              Param("topics", QUERY, "string", "`overview`, `queues`, or both with a comma"
                    " between (default: overview where no queue is named)."),
              Param("queue", QUERY, "string", "A queue to follow with its consumers and locks."),
          )),
    Route(
        "GET", "/queues", "queues", "The queues that the user may see, by name.", "any", _queues,
        (
            Param("prefix", QUERY, "string", "Only names that begin so."),
            _BY_TEXT,
            LIMIT,
        ),
    ),
    Route("GET", "/queues/{queue}", "queue", "One queue.", "any", _queue, (QUEUE,)),
    Route("PUT", "/queues/{queue}", "declare", "Create a queue, or find it with the same options.",
          "declare", _declare, (QUEUE, *_SPEC)),
    Route("PATCH", "/queues/{queue}", "update", "Change options of a queue.", "manage", _update,
          (QUEUE, *_CHANGES), conditional=True),
    Route("DELETE", "/queues/{queue}", "delete", "Delete a queue with its messages.", "manage",
          _on_queue("delete"), (QUEUE,)),
    *(
        Route("POST", f"/queues/{{queue}}/{verb}", verb, said, "manage", _on_queue(verb), (QUEUE,))
        for verb, said in (
            ("pause", "Stop deliveries."),
            ("resume", "Resume deliveries."),
            ("purge", "Delete all messages that are not locked."),
        )
    ),
    Route("POST", "/queues/{queue}/move", "move", "Move ready messages from the front; with"
          " conditions those of a page of at most 100 that meet them.", "manage",
          _move, (
              QUEUE,
              text("target", "Queue that they go to.", required=True),
              number("limit", "Maximum number of messages.", 1, 2**53, BODY),
              *_CONDITIONS,
              number("after", "Cursor: `next` of the answer before.", 0, 2**63 - 1, BODY),
          )),
    Route("POST", "/queues/{queue}/redrive", "redrive", "Begin to move dead letters back, or count"
          " them.", "manage", _redrive, _REDRIVE),
    Route("DELETE", "/queues/{queue}/redrive", "cancel_redrive", "End the redrive.", "manage",
          _cancel_redrive, (QUEUE,)),
    *(
        Route("GET", f"/queues/{{queue}}/{what}", what, said, permission, _listing(what),
              (QUEUE, _BY_TEXT, LIMIT))
        for what, said, permission in _LISTS
    ),
    Route("GET", "/queues/{queue}/peek", "peek", "The next messages, without locking them.",
          "consume", _peek,
          (QUEUE, number("limit", "Maximum number of messages.", 1, PEEK_MESSAGES_MAX))),
    Route("GET", "/queues/{queue}/dead-letters", "dead_letters", "Dead letters in groups that are"
          " alike.", "consume or manage", _dead_letters, (QUEUE,)),
    Route("GET", "/queues/{queue}/messages", "find", "Messages wherever they stand, page by page.",
          "consume or manage", _find,
          (
              QUEUE,
              Param("key", QUERY, "string", "Only with this key."),
              Param("place", QUERY, "string", "Only in this place.",
                    choices=("ready", "locked", "delayed")),
              Param("exception_type", QUERY, "string", "Only dead letters of this type."),
              Param("stack_line", QUERY, "string", "Only dead letters with this line."),
              Param("header", QUERY, "string", "Only with this header, as NAME=VALUE."),
              number("older_than_ms", "Only what was published longer ago.", 0, DURATION_MS_MAX),
              _AFTER,
              _FOUND_LIMIT,
          )),
    Route("GET", "/queues/{queue}/messages/{id}", "message", "One message and where it stands.",
          "consume or manage", _message, (QUEUE, ID)),
    Route("POST", "/queues/{queue}/messages/{id}/copy", "copy", "Publish a copy of a message.",
          "consume or manage, and publish on the target", _copy,
          (QUEUE, ID, text("target", "Queue of the copy.", required=True), *_EDIT),
          body_bytes_max=limits.API_BATCH_BYTES_MAX),
    Route("POST", "/queues/{queue}/messages/{id}/{action}", "act", "Act on one message by its id.",
          "manage, and publish on the target", _act, _ACT, conditional=True,
          body_bytes_max=limits.API_BATCH_BYTES_MAX),
    *EXCHANGES,
    *PINS,
    Route("GET", "/sessions", "sessions", "The user's sessions, or all, by number.", "any",
          _sessions,
          (Param("user", QUERY, "string", "Only of this user."), _BY_TEXT, LIMIT)),
    Route("DELETE", "/sessions/{session}", "end_session", "End a session: what it holds is"
          " returned, uncounted.", "its own user, or operate", _end_session,
          (Param("session", PATH, "string", "The beginning of its id.", required=True),)),
    Route("GET", "/users", "users", "The user's shares, or all, by name.", "any", _users,
          (_BY_TEXT, LIMIT)),
    Route("GET", "/users/log", "log_users", "The users of the log, by name.", "operate",
          _log_users, (_BY_TEXT, LIMIT)),
    Route("POST", "/password", "own_password", "Change the password of the user who asks, and who"
          " gave the one it has (Basic).", "any, by password", _own_password,
          (text("password_hash", "The hash of the new one, as `fifo user hash` prints it: no"
                " password travels.", required=True),)),
    Route("POST", "/users/import", "import_users", "Take over the users of a cluster.toml, once.",
          "operate", _import_users),
    Route("POST", "/users/{user}/{action}", "manage_user", "Change a user of the log, or one of its"
          " tokens (docs/protocol.md, ManageUser).", "operate", _manage_user,
          (
              Param("user", PATH, "string", "Its name.", required=True),
              Param("action", PATH, "string", "What to do.", required=True,
                    choices=("add", "set", "remove", "add_token", "revoke_token")),
              Param("values", BODY, "object", "What it is to be; `digest` as hexadecimal digits."),
          ), conditional=True),
    Route("DELETE", "/producers/{producer}", "forget_producer", "Forget a named producer.",
          "manage on its queues", _forget_producer,
          (Param("producer", PATH, "string", "Its name.", required=True),)),
    Route("GET", "/audit", "audit", "Who changed what, the newest first.", "operate", _audit,
          (
              Param("queue", QUERY, "string", "Only changes of this queue."),
              Param("user", QUERY, "string", "Only by this user."),
              number("since_ms", "Only since this time, in ms since 1970.", 0, 253_370_764_800_000),
              _BY_TEXT,
              LIMIT,
          )),
    Route("POST", "/leadership", "transfer_leadership", "Hand the leadership to a node.",
          "operate", _lead, (text("node", "Name of the node.", required=True),)),
    Route("POST", "/upgrade", "finish_upgrade", "Use what all nodes can; older releases cannot.",
          "operate", _finish_upgrade),
    Route("GET", "/members", "members", "The members, a change under way, nodes that wait to join.",
          "monitor", _members),
    Route("POST", "/members", "change_members", "Begin a change of the members, one at a time.",
          "operate", _change_members,
          (
              Param("action", BODY, "string", "What to do.", required=True,
                    choices=("add", "remove", "replace", "move", "undo")),
              text("member", "Name of the node; not for `undo`."),
              text("replaces", "The member that goes, for `replace`."),
              text("peer", "Host and port for other nodes."),
              text("client", "Host and port for clients."),
              text("http", "Host and port for HTTP."),
          )),
)  # fmt: skip
