"""The options of a queue as AMQP names them, as fifo's.

Owns the table of arguments. Must not know what they do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import fifo
from fifo.celery import limits

_log = logging.getLogger("fifo.celery")


def _seconds(value: Any) -> float:
    return float(value) / 1000


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "x-expires": ("expires_unused", _seconds),
    "x-message-ttl": ("ttl", _seconds),
    "x-max-length": ("max_length", int),
    "x-max-length-bytes": ("max_bytes", int),
    "x-delivery-limit": ("max_deliveries", int),
    "x-overflow": ("overflow", lambda value: "drop_oldest" if value == "drop-head" else "reject"),
    "x-single-active-consumer": ("ordering", lambda value: "single_active" if value else "none"),
    "x-dead-letter-routing-key": ("dead_letter", str),
}

_DEAD: Final = ".dead"
"""The end of the name of a dead-letter queue, as workers of fifo have it."""

_IMPLIED: Final = frozenset({"x-max-priority", "x-queue-type", "x-queue-mode"})
"""Arguments that ask for what every queue has, or for how another broker stores it."""


def spec(
    name: str,
    arguments: Mapping[str, Any],
    defaults: Mapping[str, Any],
    *,
    is_transient: bool,
) -> fifo.QueueSpec:
    """The spec of a queue that an app declares; `defaults` are from the app's transport options.

    Raises InvalidArgument for a value out of range.
    """
    options = dict(defaults)
    if is_transient:
        options["expires_unused"] = limits.TRANSIENT_EXPIRES_S
    for argument, value in arguments.items():
        if argument in _OPTIONS:
            option, convert = _OPTIONS[argument]
            options[option] = convert(value)
        elif argument == "x-dead-letter-exchange":
            if value:
                _log.warning(
                    "queue %s: x-dead-letter-exchange %r is ignored: dead letters go to the queue"
                    " that x-dead-letter-routing-key names",
                    name,
                    value,
                )
        elif argument not in _IMPLIED:
            _log.warning("queue %s: the argument %s=%r is ignored", name, argument, value)
    if "max_length" in options or "max_bytes" in options:
        options.setdefault("overflow", "drop_oldest")
    lasts = options.get("expires_unused") is None and not name.endswith(_DEAD)
    if lasts and "dead_letter" not in options:
        options["dead_letter"] = made_for(name)
        # A task that expires is no failure: Celery's `expires` drops it.
        options.setdefault("dead_letter_expired", False)
    return fifo.QueueSpec(name, **options)


def made_for(queue: str) -> str:
    """The name of the dead-letter queue that is declared with a queue."""
    return queue + _DEAD


def dead_letters(spec: fifo.QueueSpec) -> Iterable[fifo.QueueSpec]:
    """The dead-letter queue that is declared with a queue: what Celery rejects is kept in it."""
    if spec.dead_letter == made_for(spec.name):
        yield fifo.QueueSpec(spec.dead_letter, ttl=limits.DEAD_TTL_S)
