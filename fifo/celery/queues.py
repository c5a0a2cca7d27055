"""The options of a queue as AMQP names them, as fifo's.

Owns the table of arguments. Must not know what they do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import fifo
from fifo.celery import limits
from fifo.celery.numbers import whole

_log = logging.getLogger("fifo.celery")


_OVERFLOW: Final = {
    "drop-head": "drop_oldest",
    "reject-publish": "reject",
    "reject-publish-dlx": "reject",
}


def _seconds(value: Any, what: str) -> float:
    return whole(value, f"{what} (milliseconds)") / 1000


def _overflow(value: Any, what: str) -> str:
    found = _OVERFLOW.get(value) if isinstance(value, str) else None
    if found is None:
        known = ", ".join(_OVERFLOW)
        raise fifo.InvalidArgument(f"{what}: must be one of {known}, not {value!r:.80}")
    return found


def _ordering(value: Any, _what: str) -> str:
    return "single_active" if value else "none"


def _name(value: Any, _what: str) -> str:
    return str(value)


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[Any, str], Any]]]] = {
    "x-expires": ("expires_unused", _seconds),
    "x-message-ttl": ("ttl", _seconds),
    "x-max-length": ("max_length", whole),
    "x-max-length-bytes": ("max_bytes", whole),
    "x-delivery-limit": ("max_deliveries", whole),
    "x-overflow": ("overflow", _overflow),
    "x-single-active-consumer": ("ordering", _ordering),
    "x-dead-letter-routing-key": ("dead_letter", _name),
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

    Raises InvalidArgument, with the name of the queue, for a value that cannot be.
    """
    options = dict(defaults)
    if is_transient:
        options["expires_unused"] = limits.TRANSIENT_EXPIRES_S
    for argument, value in arguments.items():
        if argument in _OPTIONS:
            option, convert = _OPTIONS[argument]
            options[option] = convert(value, f"queue {name}: the argument {argument}")
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
    try:
        return fifo.QueueSpec(name, **options)
    except fifo.InvalidArgument as error:
        raise fifo.InvalidArgument(f"queue {name}: {error}") from None


def made_for(queue: str) -> str:
    """The name of the dead-letter queue that is declared with a queue."""
    return queue + _DEAD


def dead_letters(spec: fifo.QueueSpec) -> Iterable[fifo.QueueSpec]:
    """The dead-letter queue that is declared with a queue: what Celery rejects is kept in it."""
    if spec.dead_letter == made_for(spec.name):
        yield fifo.QueueSpec(spec.dead_letter, ttl=limits.DEAD_TTL_S)
