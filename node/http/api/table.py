"""The routes of the API: one row for each, which is served and described as it stands here.

Owns the paths, the parameters and the work of each route in terms of the client. Must not know
HTTP: `serving.py` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from fifo.client import Client, FoundMessage, QueueSpec, StoredMessage
from fifo.client.json_forms import message_view
from fifo.wire.limits import (
    DURATION_MS_MAX,
    FIND_MESSAGES_MAX,
    LISTED_OF_QUEUE_MAX,
    PEEK_MESSAGES_MAX,
)
from fifo.words.actions import ACTIONS
from fifo.words.options import Kind
from fifo.words.queue_options import QUEUE_OPTIONS
from node.http.api.params import BODY, PATH, QUERY, Param

Given: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tagged:
    """A result with the version that `If-Match` takes."""

    result: Any
    etag: str


Work: TypeAlias = Callable[[Client, Given], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method and a path below `/api/v1`, what they do, and who may ask for it."""

    method: str
    path: str
    name: str
    help: str
    permission: str
    work: Work
    params: tuple[Param, ...] = ()
    conditional: bool = False


QUEUE: Final = Param("queue", PATH, "string", "Name of the queue.", required=True)
ID: Final = Param("id", PATH, "string", "Id of the message, as in 3.17.42.", required=True)
ACTION: Final = Param(
    "action", PATH, "string", "What to do.", required=True, choices=tuple(ACTIONS)
)


def _number(name: str, help_text: str, low: int, high: int, where: str = QUERY) -> Param:
    return Param(name, where, "integer", help_text, low=low, high=high)


LIMIT: Final = _number("limit", "Maximum number of items.", 1, LISTED_OF_QUEUE_MAX)
_FOUND_LIMIT: Final = _number("limit", "Maximum number of messages.", 1, FIND_MESSAGES_MAX)
_AFTER: Final = _number("after", "Cursor: `next` of the page before.", 0, 2**63 - 1)
_DEFAULT_LIMIT: Final = 100


def _found(message: FoundMessage) -> dict[str, Any]:
    return {**message_view(message), **message.place.as_dict()}


async def _status(client: Client, given: Given) -> Any:
    return (await client.status()).as_dict()


async def _queues(client: Client, given: Given) -> Any:
    """A page by name: what comes or goes between two pages moves no other queue."""
    listed = await client.queues(given.get("prefix", ""))
    after, limit = given.get("after", ""), given.get("limit", _DEFAULT_LIMIT)
    queues = sorted((one for one in listed if one.name > after), key=lambda one: one.name)
    more = queues[limit - 1].name if len(queues) > limit else None
    return {"items": [one.as_dict() for one in queues[:limit]], "next": more}


async def _queue(client: Client, given: Given) -> Any:
    return (await client.queue(given["queue"])).as_dict()


def _listing(method: str) -> Work:
    """A list of what a queue has, by the client's method of this name."""

    async def work(client: Client, given: Given) -> Any:
        listed = await getattr(client, method)(given["queue"], given.get("limit", _DEFAULT_LIMIT))
        return {"items": [one.as_dict() for one in listed]}

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
    )
    return {"items": [_found(one) for one in page.messages], "next": page.after or None}


async def _message(client: Client, given: Given) -> Any:
    found = await client.message(given["queue"], given["id"])
    return Tagged(_found(found), found.place.version)


async def _dead_letters(client: Client, given: Given) -> Any:
    return {"items": [one.as_dict() for one in await client.dead_letters(given["queue"])]}


async def _sessions(client: Client, given: Given) -> Any:
    return {"items": [one.as_dict() for one in await client.sessions()]}


async def _users(client: Client, given: Given) -> Any:
    return {"items": [one.as_dict() for one in await client.users()]}


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
    await client.update(given["queue"], **cast("Any", _options(given)))
    return {"queue": given["queue"]}


def _on_queue(method: str) -> Work:
    """A verb of a queue, by the client's method of this name."""

    async def work(client: Client, given: Given) -> Any:
        messages = await getattr(client, method)(given["queue"])
        found = {"queue": given["queue"], "done": method}
        return found if messages is None else {**found, "messages": messages}

    return work


async def _move(client: Client, given: Given) -> Any:
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


def _text(name: str, help_text: str, *, required: bool = False) -> Param:
    return Param(name, BODY, "string", help_text, required=required)


_EDIT: Final = (
    _text("body", "Another body, as text."),
    _text("key", "Another key."),
    Param("headers", BODY, "object", "Other headers instead of its own."),
)
_ACT: Final = (
    QUEUE,
    ID,
    ACTION,
    _text("target", "Queue that it goes to."),
    _number("delay_ms", "Time until it is ready.", 0, DURATION_MS_MAX, BODY),
    _text("reason", "Why, for the dead letter."),
    _text("description", "More about it."),
    *_EDIT,
)
_REDRIVE: Final = (
    QUEUE,
    _text("target", "Queue that they go to (default: the source of each)."),
    _text("reason", "Only with this reason."),
    _text("source", "Only from this queue."),
    _text("exception_type", "Only of this exception type."),
    _text("stack_line", "Only with this line of the stack."),
    Param("headers", BODY, "object", "Only with these headers."),
    _number("older_than_ms", "Only what died longer ago.", 0, DURATION_MS_MAX, BODY),
    _number("min_attempts", "Only what was delivered so often.", 0, 2**31, BODY),
    _number("limit", "Maximum number of messages.", 1, 2**53, BODY),
    _number("rate_per_s", "Messages per second.", 1, 2**31, BODY),
    Param("reset_counts", BODY, "boolean", "Whether counts start anew (default true)."),
    Param("dry_run", BODY, "boolean", "Only count."),
)

ROUTES: Final = (
    Route("GET", "/status", "status", "The state of the leader.", "monitor", _status),
    Route(
        "GET", "/queues", "queues", "The queues that the user may see, by name.", "any", _queues,
        (
            Param("prefix", QUERY, "string", "Only names that begin so."),
            Param("after", QUERY, "string", "Cursor: `next` of the page before."),
            LIMIT,
        ),
    ),
    Route("GET", "/queues/{queue}", "queue", "One queue.", "any", _queue, (QUEUE,)),
    Route("PUT", "/queues/{queue}", "declare", "Create a queue, or find it with the same options.",
          "declare", _declare, (QUEUE, *_SPEC)),
    Route("PATCH", "/queues/{queue}", "update", "Change options of a queue.", "manage", _update,
          (QUEUE, *_CHANGES)),
    Route("DELETE", "/queues/{queue}", "delete", "Delete a queue with its messages.", "manage",
          _on_queue("delete"), (QUEUE,)),
    *(
        Route("POST", f"/queues/{{queue}}/{verb}", verb, text, "manage", _on_queue(verb), (QUEUE,))
        for verb, text in (
            ("pause", "Stop deliveries."),
            ("resume", "Resume deliveries."),
            ("purge", "Delete all messages that are not locked."),
        )
    ),
    Route("POST", "/queues/{queue}/move", "move", "Move ready messages from the front.", "manage",
          _move, (
              QUEUE,
              _text("target", "Queue that they go to.", required=True),
              _number("limit", "Maximum number of messages.", 1, 2**53, BODY),
          )),
    Route("POST", "/queues/{queue}/redrive", "redrive", "Begin to move dead letters back, or count"
          " them.", "manage", _redrive, _REDRIVE),
    Route("DELETE", "/queues/{queue}/redrive", "cancel_redrive", "End the redrive.", "manage",
          _cancel_redrive, (QUEUE,)),
    *(
        Route("GET", f"/queues/{{queue}}/{what}", what, text, "consume or manage", _listing(what),
              (QUEUE, LIMIT))
        for what, text in (
            ("locks", "Locked messages, holders and deadlines."),
            ("delayed", "Delayed messages, the first to be due first."),
            ("consumers", "The consumers and their states."),
            ("producers", "Named producers."),
        )
    ),
    Route("GET", "/queues/{queue}/peek", "peek", "The next messages, without locking them.",
          "consume", _peek,
          (QUEUE, _number("limit", "Maximum number of messages.", 1, PEEK_MESSAGES_MAX))),
    Route("GET", "/queues/{queue}/dead-letters", "dead_letters", "Dead letters in groups that are"
          " alike.", "consume or manage", _dead_letters, (QUEUE,)),
    Route("GET", "/queues/{queue}/messages", "find", "Messages wherever they stand, page by page.",
          "consume or manage", _find,
          (
              QUEUE,
              Param("key", QUERY, "string", "Only with this key."),
              Param("place", QUERY, "string", "Only in this place.",
                    choices=("ready", "locked", "delayed")),
              _AFTER,
              _FOUND_LIMIT,
          )),
    Route("GET", "/queues/{queue}/messages/{id}", "message", "One message and where it stands.",
          "consume or manage", _message, (QUEUE, ID)),
    Route("POST", "/queues/{queue}/messages/{id}/copy", "copy", "Publish a copy of a message.",
          "consume or manage, and publish on the target", _copy,
          (QUEUE, ID, _text("target", "Queue of the copy.", required=True), *_EDIT)),
    Route("POST", "/queues/{queue}/messages/{id}/{action}", "act", "Act on one message by its id.",
          "manage, and publish on the target", _act, _ACT, conditional=True),
    Route("POST", "/leadership", "transfer_leadership", "Hand the leadership to a node.", "operate",
          _lead, (_text("node", "Name of the node.", required=True),)),
    Route("GET", "/sessions", "sessions", "The user's sessions, or all.", "any", _sessions),
    Route("GET", "/users", "users", "The user's shares, or all.", "any", _users),
)  # fmt: skip
