"""The checked options of a consumer: the frame that subscribes, and the client's own part.

Owns the defaults and the way from keywords to both. The rows stand in
`fifo.words.consumer_options`. Must not know sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from fifo.client import limits
from fifo.client.backoff import BackoffCallable, split_callable
from fifo.client.option_values import to_wire, unknown
from fifo.wire.messages import Subscribe
from fifo.words.consumer_options import AUTO, BY_NAME, CONSUMER_OPTIONS

_CALLABLE: Final = "nack_backoff"
"""The option that may be a callable: the client decides about a nack, and nothing else."""

_SENT: Final = {item.name for item in fields(Subscribe)} - {"queue", "tag"}


@dataclass(frozen=True, slots=True)
class ConsumeOptions:
    """The checked options of a consumer: the frame to send, and the client's own part.

    `is_tuned`: the client chooses the prefetch, beginning with the one in the frame. `renewals`
    bound what the client renews; where it renews nothing they stand in the frame, and the leader
    renews.
    """

    subscribe: Subscribe
    is_tuned: bool = False
    auto_renew: bool = True
    renewals: int | None = None
    handler_timeout_s: float | None = None
    nack_delay: BackoffCallable | None = None


def check(name: str, value: Any, what: str) -> None:
    """Check one option; raises InvalidArgument that calls it `what`."""
    if name == _CALLABLE:
        split_callable(value, what)
    else:
        to_wire(BY_NAME[name], value, what)


def consume_options(queue: str, tag: str, given: Mapping[str, Any]) -> ConsumeOptions:
    """The options of a consumer of `queue`; what is not given has its default.

    Raises InvalidArgument.
    """
    values = {option.wire_name: option.default for option in CONSUMER_OPTIONS}
    nack_delay = None
    for name, value in given.items():
        option = BY_NAME.get(name)
        if option is None:
            raise unknown(name, BY_NAME, "a consumer")
        if name == _CALLABLE:
            values[name], nack_delay = split_callable(value)
        else:
            values[option.wire_name] = to_wire(option, value, name)
    timeout_ms = values["handler_timeout_ms"]
    auto_renew, renewals = values["auto_renew"] and values["renewable"], values["renewals"]
    if auto_renew:
        values["renewals"] = None
    is_auto = values["prefetch"] == AUTO
    if is_auto:
        values["prefetch"] = limits.PLACES_WHEN_PULLING if values["pull"] else 1
    return ConsumeOptions(
        Subscribe(queue=queue, tag=tag, **{name: values[name] for name in _SENT}),
        is_tuned=is_auto and not values["pull"],
        auto_renew=auto_renew,
        renewals=renewals,
        handler_timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        nack_delay=nack_delay,
    )
