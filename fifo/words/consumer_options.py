"""The options of a consumer: one row per option, from which every room derives its own form.

Owns the tables. The arguments of `client.consume`, the query of a URL, the keywords of
`fifo.connect`, the options of `fifo consume`, the section `[consumer]` of a configuration file, the
table in `docs/client.md`, the frame `Subscribe` and the machine's validation derive from them;
`fifo.ConsumerKeywords` repeats the names for static typing, held by a test. Must not know what an
option does.
"""

from dataclasses import dataclass
from typing import Final

from fifo.words import bounds
from fifo.words.durations import to_text
from fifo.words.options import Kind, Option, row, rows

AUTO: Final = "auto"
"""The prefetch that the client library chooses."""

_PREFETCH: Final = 100
"""Messages that a consumer holds unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options that the cluster keeps, under their names on the wire."""

    prefetch: int = row(
        Kind.COUNT,
        _PREFETCH,
        "Maximum number of messages locked at once",
        low=1,
        high=bounds.PREFETCH_MAX,
    )
    lock_ms: int | None = row(
        Kind.DURATION,
        None,
        f"Lock duration of a delivery, {to_text(bounds.LOCK_MS_MIN)} to"
        f" {to_text(bounds.LOCK_MS_MAX)}",
        default_text="the queue's",
        low=bounds.LOCK_MS_MIN,
        high=bounds.LOCK_MS_MAX,
    )
    max_lock_ms: int | None = row(
        Kind.DURATION,
        None,
        "Longest total lock, including renewals",
        default_text="the queue's",
        low=bounds.LOCK_MS_MIN,
        high=bounds.TOTAL_LOCK_MS_MAX,
    )
    priority: int = row(
        Kind.COUNT,
        0,
        "Priority among the queue's consumers; the highest is served first",
        low=-bounds.CONSUMER_PRIORITY_MAX,
        high=bounds.CONSUMER_PRIORITY_MAX,
    )
    renewable: bool = row(
        Kind.FLAG,
        True,
        "Allow the renewal of locks",
        default_text="yes",
    )
    nack_backoff: str | None = row(
        Kind.BACKOFF,
        None,
        "Redelivery delay after a nack: fixed:1s, exponential:1s..60s*2 or table:1s,5s,30s",
        default_text="the queue's",
    )
    timeout_backoff: str | None = row(
        Kind.BACKOFF,
        None,
        "Redelivery delay after an expired lock, in the same form",
        default_text="the queue's",
    )
    pull: bool = row(
        Kind.FLAG,
        False,
        "Deliver only the messages that the program asks for with `credit`",
        default_text="no",
    )
    renewals: int | None = row(
        Kind.COUNT,
        None,
        "Renew a lock for this many locks' time: by the client, or without `auto_renew` by the"
        " leader",
        default_text="by the client, up to `max_lock`",
        high=bounds.RENEWALS_MAX,
    )
    label: str | None = row(
        Kind.TEXT,
        None,
        "Text of the program's own for the consumer, shown in the lists of consumers and locks",
        default_text="none",
    )


@dataclass(frozen=True, slots=True)
class ClientConsumerOptions(ConsumerOptions):
    """All options of a consumer: those above, and those that the client library carries out."""

    prefetch: int | str = row(  # type: ignore[assignment]  # the client makes a number of `auto`
        Kind.COUNT,
        AUTO,
        "Maximum number of messages locked at once",
        low=1,
        high=bounds.PREFETCH_MAX,
        choices=(AUTO,),
    )
    tag: str | None = row(
        Kind.TEXT,
        None,
        "Name of the consumer in its client; a number is appended if the client already uses it",
        default_text="generated",
    )
    auto_renew: bool = row(
        Kind.FLAG,
        True,
        "Renew locks automatically, in a background thread",
        default_text="yes",
    )
    handler_timeout_ms: int | None = row(
        Kind.DURATION,
        None,
        "Stop renewing a message that has been in the handler for this long",
        default_text="none",
        low=1,
    )


CONSUMER_OPTIONS: Final[tuple[Option, ...]] = rows(ClientConsumerOptions)
"""The rows of the table, in its order."""

REPLICATED: Final[tuple[Option, ...]] = rows(ConsumerOptions)
"""The rows that the cluster keeps."""

BY_NAME: Final = {option.name: option for option in CONSUMER_OPTIONS}
"""The rows by the name that users type."""

OF_ALL: Final = {name: option for name, option in BY_NAME.items() if name != "tag"}
"""The rows that may be set for all consumers of a client: a tag names one of them."""
