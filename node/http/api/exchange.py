"""Publish, get and settle over HTTP: for programs without a library.

Owns what these routes do, in terms of the caller's session on this node. A lock that another node
handed out is settled and renewed by its handle. Must not know HTTP: `serving.py` does.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from fifo.client import Client, LockLost, Message, SettleResult, Status
from fifo.client.json_forms import message_view
from fifo.wire import Code
from fifo.wire.limits import DURATION_MS_MAX
from fifo.words import bounds
from node.http import limits
from node.http.api.callers import Caller
from node.http.api.locks import Lock, lock_of
from node.http.api.params import BODY, HEADER, PATH, QUERY, Param, fields
from node.http.api.problems import Problem
from node.http.api.routes import QUEUE, Given, Route, number, text

_LOST: Final = (Status.LOCK_LOST, Status.UNKNOWN_CONSUMER)


class Taken(NamedTuple):
    """Messages for a caller: their JSON, and they themselves, for the case that it has gone."""

    result: dict[str, Any]
    messages: Sequence[Message]


# --- publish --------------------------------------------------------------------------------------


async def _publish(caller: Caller, given: Given) -> Any:
    client, queue = caller.client, given["queue"]
    dedup_id = given.get("Idempotency-Key")
    if dedup_id is not None:
        await _check_window(client, queue)
    confirm = await client.publish(
        queue,
        given["message"],
        key=given.get("key"),
        headers=given["headers"] or None,
        delay=_seconds(given, "delay_ms"),
        ttl=_seconds(given, "ttl_ms"),
        priority=given.get("priority", bounds.PRIORITY_DEFAULT),
        dedup_id=dedup_id,
    )
    return {"queue": queue, "id": confirm.id, "duplicate": confirm.duplicate}


async def _publish_batch(caller: Caller, given: Given) -> Any:
    client, queue = caller.client, given["queue"]
    messages = [_published(one, place) for place, one in enumerate(given["messages"])]
    if not 1 <= len(messages) <= limits.API_BATCH_MESSAGES_MAX:
        said = f"messages: must be 1 to {limits.API_BATCH_MESSAGES_MAX}, not {len(messages)}"
        raise Problem(Code.INVALID_ARGUMENT, said)
    dedup_ids = [one.get("dedup_id") for one in messages]
    whole = given.get("Idempotency-Key")
    if whole is not None:
        dedup_ids = [
            f"{whole}/{place}" if one is None else one for place, one in enumerate(dedup_ids)
        ]
    if any(one is not None for one in dedup_ids):
        await _check_window(client, queue)
    confirms = await client.publish_many(
        queue,
        [one["message"] for one in messages],
        keys=[one.get("key") for one in messages],
        headers=[one.get("headers") for one in messages],
        delays=[_seconds(one, "delay_ms") for one in messages],
        ttls=[_seconds(one, "ttl_ms") for one in messages],
        priorities=[one.get("priority", bounds.PRIORITY_DEFAULT) for one in messages],
        dedup_ids=dedup_ids,
    )
    return {
        "queue": queue,
        "items": [{"id": one.id, "duplicate": one.duplicate} for one in confirms],
    }


def _published(given: Any, place: int) -> Given:
    """A message of a batch, checked, with its bytes as `message`. Raises Problem."""
    where = f"messages[{place}]"
    if not isinstance(given, dict):
        raise Problem(Code.INVALID_ARGUMENT, f"{where}: must be a JSON object")
    found = fields(_MESSAGE, given, where)
    if ("body" in found) == ("body_base64" in found):
        raise Problem(Code.INVALID_ARGUMENT, f"{where}: give either body or body_base64")
    if "body" in found:
        return {**found, "message": found["body"].encode()}
    try:
        body = base64.b64decode(found["body_base64"], validate=True)
    except (binascii.Error, ValueError):
        raise Problem(Code.INVALID_ARGUMENT, f"{where}: body_base64 is no base64") from None
    return {**found, "message": body}


async def _check_window(client: Client, queue: str) -> None:
    """Refuse an id by which nothing would be recognized. Raises Problem."""
    if (await client.queue(queue)).spec.get("dedup_window_ms") is None:
        said = (
            f"queue {queue!r} remembers no ids, so a repeated Idempotency-Key would be stored"
            " again: set its dedup_window_ms"
        )
        raise Problem(Code.INVALID_ARGUMENT, said, status=409)


# --- get ------------------------------------------------------------------------------------------


async def _get(caller: Caller, given: Given) -> Taken:
    """Take messages in steps, for each may be as long as a body can be."""
    queue, wanted, wait = given["queue"], given.get("count", 1), given.get("wait_ms", 0) / 1000
    lock, renewals = _seconds(given, "lock_ms"), given.get("renewals", 0)
    found: list[Message] = []
    while True:
        room = limits.API_GET_BYTES_MAX - sum(len(message.body) for message in found)
        most = min(wanted - len(found), room // bounds.BODY_BYTES_MAX)
        if not most:
            break
        caller.check_room()
        part = await caller.client.get(queue, most, wait, lock, auto_renew=renewals > 0)
        for message in part:
            caller.hold(message, renewals)
        found += part
        wait = 0
        if len(part) < most:
            break
    return Taken({"items": [_taken(message) for message in found]}, found)


def _taken(message: Message) -> dict[str, Any]:
    lock = Lock(message.consumer, message.token, message.handle, message.queue)
    return {
        "handle": str(lock),
        "remaining_ms": int(message.remaining * 1000),
        **message_view(message),
    }


# --- settle ---------------------------------------------------------------------------------------


async def _settle(caller: Caller, given: Given) -> Any:
    lock, verb = lock_of(given["handle"]), given["verb"]
    if verb == "renew":
        return await _renew(caller, lock)
    message = caller.held(lock)
    delay, reason = _seconds(given, "delay_ms"), given.get("reason")
    description = given.get("description")
    if message is None:
        result = await caller.client.settle(
            lock.queue, lock.consumer, lock.token, verb,
            handle=lock.handle, delay=delay, reason=reason, description=description,
        )  # fmt: skip
    elif verb == "ack":
        result = await message.ack(receipt=True)
    elif verb == "nack":
        result = await message.nack(delay, reason)
    elif verb == "release":
        result = await message.release(delay)
    else:
        result = await message.terminate(reason or "terminated", description)
    caller.let_go(lock)
    return _settled(lock, verb, result)


def _settled(lock: Lock, verb: str, result: SettleResult) -> Any:
    if result.status in _LOST:
        said = f"the lock is lost ({result.status}): the message is another consumer's, or was"
        raise Problem(Code.LOCK_LOST, said, detail={"status": result.status, "verb": verb})
    return {"queue": lock.queue, "done": verb, "status": result.status, "late": result.late}


async def _renew(caller: Caller, lock: Lock) -> Any:
    message = caller.held(lock)
    try:
        if message is None:
            remaining = await caller.client.renew_lock(
                lock.consumer, lock.token, handle=lock.handle
            )
        else:
            await message.renew()
            remaining = message.remaining
    except LockLost as error:
        raise Problem(Code.LOCK_LOST, str(error)) from error
    return {"queue": lock.queue, "done": "renew", "remaining_ms": int(remaining * 1000)}


def _seconds(given: Given, name: str) -> float | None:
    return given[name] / 1000 if name in given else None


# --- routes ---------------------------------------------------------------------------------------


def _options(where: str) -> tuple[Param, ...]:
    """The parameters of a message beside its body."""
    return (
        Param("key", where, "string", "Key of the message, for queues that order by key."),
        number("delay_ms", "Time until it is ready.", 0, DURATION_MS_MAX, where),
        number("ttl_ms", "Time until it expires.", 1, DURATION_MS_MAX, where),
        number("priority", "9 is first.", 0, bounds.PRIORITY_MAX, where),
    )


_MESSAGE: Final = (
    text("body", "The body, as text."),
    text("body_base64", "The body, as base64."),
    *_options(BODY),
    Param("headers", BODY, "object", "Headers, texts by name."),
    text("dedup_id", "Id by which a repeat is recognized; default: by Idempotency-Key."),
)
_IDEMPOTENCY: Final = Param(
    "Idempotency-Key", HEADER, "string",
    "Id by which a repeat is recognized, within the queue's dedup window.",
)  # fmt: skip
_HANDLE: Final = Param("handle", PATH, "string", "The handle of the lock.", required=True)
VERBS: Final = ("ack", "nack", "release", "terminate", "renew")

EXCHANGES: Final = (
    Route("POST", "/queues/{queue}/messages", "publish",
          "Publish the body of the request, whatever its type, which becomes the header"
          " content-type; `Fifo-Header-NAME` becomes the header name. The answer comes after the"
          " commit.",
          "publish", None, (QUEUE, _IDEMPOTENCY, *_options(QUERY)),
          exchange=_publish, status=201, body_bytes_max=bounds.BODY_BYTES_MAX, is_raw=True),
    Route("POST", "/queues/{queue}/messages/batch", "publish_batch",
          "Publish messages in order; an error names the first that is not stored.",
          "publish", None,
          (QUEUE, _IDEMPOTENCY,
           Param("messages", BODY, "array", "The messages.", required=True, items=_MESSAGE)),
          exchange=_publish_batch, status=201, body_bytes_max=limits.API_BATCH_BYTES_MAX),
    Route("POST", "/queues/{queue}/get", "get",
          "Take messages, waiting for the first; each is locked, and its handle names the lock.",
          "consume", None,
          (QUEUE,
           number("count", "Maximum number of messages; a node may hand out fewer.", 1,
                  limits.API_GET_MESSAGES_MAX),
           number("wait_ms", "Time to wait for the first.", 0, limits.API_GET_WAIT_MS_MAX),
           number("lock_ms", "Length of the lock (default: the queue's).", bounds.LOCK_MS_MIN,
                  bounds.LOCK_MS_MAX),
           number("renewals", "Locks' time for which this node renews the lock.", 0,
                  bounds.RENEWALS_MAX)),
          exchange=_get, waits=True),
    Route("POST", "/locks/{handle}/{verb}", "settle",
          "Settle the message that a lock holds, or renew the lock, on any node.",
          "none but the handle, as a client of the same user", None,
          (_HANDLE,
           Param("verb", PATH, "string", "What to do.", required=True, choices=VERBS),
           number("delay_ms", "Time until it is ready again (nack, release).", 0, DURATION_MS_MAX,
                  BODY),
           text("reason", "Why (nack, terminate)."),
           text("description", "More about it (terminate).")),
          exchange=_settle),
)  # fmt: skip
