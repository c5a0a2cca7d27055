"""kombu's messages as fifo's, and back.

Owns the form: the body as it is, kombu's headers and properties as JSON in the header `kombu`, the
task's name and id beside it for who looks or filters. An ETA becomes a delay, an expiration a time
to live: the broker waits, not a worker, and what it has waited for is due, whatever the worker's
clock says. Must not know channels or queues.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from amqp.basic_message import Message as AmqpMessage
from kombu.utils import json

import fifo
from fifo.celery.numbers import whole
from fifo.client import checks
from fifo.words import bounds

KOMBU: Final = "kombu"
"""The header that carries kombu's own headers and properties."""

SHOWN: Final = ("task", "id")
"""Headers of Celery that are fifo's as well: `fifo queue redrive --header task=...` finds them."""

TRANSIENT: Final = 1
"""The delivery mode of messages that may be lost: events, replies of remote control."""

PROPERTIES: Final = frozenset(name for name, _ in AmqpMessage.PROPERTIES)
"""Names of properties that a message of AMQP has: programs pass others, which its client drops."""

PRIORITY_MAX: Final = 9

_FORM: Final = {
    "type": str,
    "encoding": str,
    "headers": dict,
    "properties": dict,
    "exchange": str,
    "routing_key": str,
}
"""Fields of the header, with their types where they are not null."""

_DELAY_S_MAX: Final = bounds.DURATION_MS_MAX / 1000
"""The longest delay: a task that is due later comes then, and waits in a worker."""


class Publication(NamedTuple):
    """The arguments with which a message of kombu's is published."""

    body: bytes
    headers: dict[str, str]
    delay_s: float | None
    ttl_s: float | None
    priority: int


def prepared(
    body: Any,
    priority: int | None,
    content_type: str | None,
    content_encoding: str | None,
    headers: Mapping[str, Any] | None,
    properties: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The message in the form that kombu passes from its producer to the channel."""
    return {
        "body": body,
        "content-type": content_type,
        "content-encoding": content_encoding,
        "headers": dict(headers or {}),
        "properties": {**(properties or {}), "priority": priority or 0},
    }


def is_transient(message: Mapping[str, Any]) -> bool:
    """Whether the message may be lost, so that publishing it need not wait."""
    return bool(message["properties"].get("delivery_mode") == TRANSIENT)


def publication(message: Mapping[str, Any], exchange: str, routing_key: str) -> Publication:
    """The publication of a prepared message.

    Raises InvalidArgument for an ETA that is no date, a priority or an expiration that is no
    number, and a body that is neither text nor bytes.
    """
    body, encoding = message["body"], message["content-encoding"]
    if isinstance(body, str):
        encoding = encoding or "utf-8"
        body = body.encode(encoding)
    headers, given = message["headers"], message["properties"]
    properties = {name: value for name, value in given.items() if name in PROPERTIES}
    priority = whole(properties.get("priority") or 0, "priority")
    expiration = properties.get("expiration")
    own = {
        "type": message["content-type"],
        "encoding": encoding,
        "headers": headers,
        "properties": properties,
        "exchange": exchange,
        "routing_key": routing_key,
    }
    delay_s = _delay_s(headers.get("eta"))
    if delay_s is not None and delay_s < _DELAY_S_MAX:
        own["waits"] = True
    shown = {name: value for name in SHOWN if isinstance(value := headers.get(name), str)}
    return Publication(
        checks.body(body),
        {KOMBU: json.dumps(own), **shown},
        delay_s,
        None if expiration is None else max(whole(expiration, "expiration"), 1) / 1000,
        min(max(priority, 0), PRIORITY_MAX),
    )


class Unreadable(ValueError):
    """A message whose header `kombu` no transport of ours has written."""


def received(message: fifo.Message, tag: str, consumer_tag: str) -> dict[str, Any]:
    """The arguments of kombu's `Message` for a message of fifo's, of any program.

    Raises Unreadable.
    """
    own = _own(message.headers.get(KOMBU, "{}"))
    headers = own.get("headers")
    if own.get("waits") and headers is not None:
        headers = _due(headers)
    return {
        "body": message.body,
        "delivery_tag": tag,
        "content_type": own.get("type") or message.headers.get("content-type"),
        "content_encoding": own.get("encoding") or "binary",
        "headers": dict(message.headers) if headers is None else headers,
        "properties": own.get("properties") or {},
        "delivery_info": {
            "consumer_tag": consumer_tag,
            "exchange": own.get("exchange", ""),
            "routing_key": own.get("routing_key", message.queue),
            "redelivered": message.attempt > 1,
            "priority": message.priority,
        },
    }


def _own(text: str) -> dict[str, Any]:
    """The fields of the header `kombu`. Raises Unreadable."""
    try:
        own = json.loads(text)
    except Exception as error:  # kombu's JSON makes dates and the like of what is marked so
        raise Unreadable(f"its header {KOMBU!r} is no JSON of kombu's: {error}") from error
    if not isinstance(own, dict):
        raise Unreadable(f"its header {KOMBU!r} is no JSON object, but {type(own).__name__}")
    for name, kind in _FORM.items():
        value = own.get(name)
        if value is not None and not isinstance(value, kind):
            raise Unreadable(
                f"its header {KOMBU!r} has {name}={value!r:.80}, which is no {kind.__name__}"
            )
    return own


def _due(headers: dict[str, Any]) -> dict[str, Any]:
    """Headers of a task that has waited in the broker until its ETA.

    A worker whose clock is behind would keep it, with a place of its prefetch: by its clock the
    task is due now.
    """
    now = datetime.now(UTC)
    try:
        due = _moment(headers.get("eta"))
    except fifo.InvalidArgument:
        return headers  # Celery refuses the task
    return headers if due is None or due <= now else {**headers, "eta": now.isoformat()}


def _moment(eta: object) -> datetime | None:
    """An ETA, as Celery writes it; None where there is none. Raises InvalidArgument."""
    if not isinstance(eta, str):
        return None
    try:
        due = datetime.fromisoformat(eta)
    except ValueError:
        raise fifo.InvalidArgument(f"eta: must be a date of ISO 8601, not {eta!r:.80}") from None
    return due.replace(tzinfo=UTC) if due.tzinfo is None else due


def _delay_s(eta: object) -> float | None:
    """Seconds until an ETA; None where it is past, or there is none."""
    due = _moment(eta)
    left_s = 0.0 if due is None else due.timestamp() - time.time()
    return min(left_s, _DELAY_S_MAX) if left_s > 0 else None
