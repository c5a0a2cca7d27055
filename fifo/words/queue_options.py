"""The options of a queue: one row per option, from which every room derives its own form.

Owns the table. A row is a field of `QueueOptions`: its name on the wire, its type, and in `row` its
kind with bounds, default, help text, and whether it may change on a live queue. The client's
checks, the command line, the machine's validation, the table in `docs/protocol.md` and the model's
generator derive from it; `fifo.QueueSpec` and `fifo.QueueChanges` repeat the names for static
typing, held by a test. Must not know what an option does.
"""

from dataclasses import dataclass
from typing import Final

from fifo.words import bounds
from fifo.words.durations import to_text
from fifo.words.options import Kind, Option, row, rows


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """The table, and the values of a queue's options under their names on the wire.

    The order of the rows is that of the bytes of snapshots: a new row goes to the end.
    """

    ordering: str = row(
        Kind.CHOICE,
        "none",
        "Delivery order: none, by key, or to a single active consumer",
        choices=("none", "key", "single_active"),
        changeable=False,
    )
    priorities: bool | None = row(
        Kind.FLAG,
        None,
        "Deliver by priority",
        default_text="only with ordering none",
        changeable=False,
    )
    on_delay: str = row(
        Kind.CHOICE,
        "block",
        "In an ordered queue, whether a delayed return blocks the messages behind it",
        choices=("block", "skip"),
    )
    lock_ms: int = row(
        Kind.DURATION,
        bounds.LOCK_MS_DEFAULT,
        f"Lock duration of a delivery, {to_text(bounds.LOCK_MS_MIN)} to"
        f" {to_text(bounds.LOCK_MS_MAX)}",
        low=bounds.LOCK_MS_MIN,
        high=bounds.LOCK_MS_MAX,
    )
    max_lock_ms: int = row(
        Kind.DURATION,
        bounds.TOTAL_LOCK_MS_DEFAULT,
        "Longest total lock, including renewals",
        low=bounds.LOCK_MS_MIN,
        high=bounds.TOTAL_LOCK_MS_MAX,
    )
    max_deliveries: int | None = row(
        Kind.COUNT,
        None,
        "Failed deliveries before a message is dead-lettered",
        default_text=f"{bounds.MAX_DELIVERIES_DEFAULT} with a dead-letter queue, else unlimited",
        low=1,
        high=bounds.MAX_DELIVERIES_MAX,
    )
    on_exhausted: str = row(
        Kind.CHOICE,
        "dead_letter",
        "Fate of a message that reaches max_deliveries",
        choices=("dead_letter", "drop"),
    )
    count_timeouts: bool = row(
        Kind.FLAG,
        True,
        "Count an expired lock as a failed delivery",
        default_text="count",
    )
    nack_backoff: str | None = row(
        Kind.BACKOFF,
        None,
        "Redelivery delay after a nack: fixed:1s, exponential:1s..60s*2 or table:1s,5s,30s",
        default_text="fixed:1s",
    )
    timeout_backoff: str | None = row(
        Kind.BACKOFF,
        None,
        "Redelivery delay after an expired lock, in the same form",
        default_text="none",
    )
    dead_letter: str | None = row(
        Kind.QUEUE,
        None,
        "Queue that receives dead letters; created if missing",
        default_text="none",
    )
    dead_letter_expired: bool = row(
        Kind.FLAG,
        True,
        "Dead-letter or drop expired messages",
        default_text="dead-letter",
        off="drop-expired",
    )
    dead_letter_overflow: bool = row(
        Kind.FLAG,
        False,
        "Dead-letter or drop messages evicted by overflow drop_oldest",
        default_text="drop",
        off="drop-overflow",
    )
    max_length: int | None = row(
        Kind.COUNT,
        None,
        "Maximum number of messages in the queue",
        default_text="unlimited",
        low=1,
        high=bounds.QUEUE_LENGTH_MAX,
    )
    max_bytes: int | None = row(
        Kind.SIZE,
        None,
        "Maximum total size of message bodies, as in 64MiB",
        default_text="unlimited",
        low=1,
        high=bounds.QUEUE_BYTES_MAX,
    )
    overflow: str = row(
        Kind.CHOICE,
        "reject",
        "Policy of a full queue",
        choices=("reject", "drop_oldest"),
    )
    ttl_ms: int | None = row(
        Kind.DURATION,
        None,
        "Time to live of a message",
        default_text="unlimited",
        low=1,
    )
    expires_unused_ms: int | None = row(
        Kind.DURATION,
        None,
        "Delete the queue after this long without a consumer; publishes do not count",
        default_text="never",
        low=bounds.EXPIRES_UNUSED_MS_MIN,
    )
    disconnect_grace_ms: int | None = row(
        Kind.DURATION,
        None,
        "Return a disconnected client's messages after this long",
        default_text="when their locks expire",
        high=bounds.SESSION_TIMEOUT_MS,
    )
    dedup_window_ms: int | None = row(
        Kind.DURATION,
        None,
        "How long deduplication ids are remembered",
        default_text="not at all",
        low=1,
        high=bounds.DEDUP_WINDOW_MS_MAX,
    )
    dedup_max: int = row(
        Kind.COUNT,
        bounds.DEDUP_IDS_MAX,
        "Maximum number of deduplication ids remembered",
        low=1,
        high=bounds.DEDUP_IDS_MAX,
    )


QUEUE_OPTIONS: Final[tuple[Option, ...]] = rows(QueueOptions)
"""The rows of the table, in its order."""

BY_NAME: Final = {option.name: option for option in QUEUE_OPTIONS}
"""The rows by the name that users type."""
