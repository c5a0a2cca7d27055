"""Keywords of the client's calls, written out for static typing.

Owns one typed dictionary per set of options; those of queues, consumers and connections are the
rows of the tables in `fifo.words` (held by a test). Durations are seconds or a timedelta; None
restores a default. What an option does, its bounds and its default stand in `docs/client.md`. Must
not know what is done with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypedDict

from fifo.client.backoff import Backoff, BackoffCallable
from fifo.client.durations import Duration


class ConnectionKeywords(TypedDict, total=False):
    """The options of a connection."""

    user: str | None
    password: str | None
    token: str | Callable[[], str] | None
    ca: str | None
    cert: str | None
    key: str | None
    timeout: Duration
    connect_timeout: Duration
    heartbeat: Duration
    reconnect: Backoff | str
    window_bytes: int
    auto_retry_acks: bool
    max_ack_retries: int | None
    ack_retry_backoff: Backoff | str
    close_timeout: Duration
    name: str | None


class ConsumerDefaults(TypedDict, total=False):
    """The options that may be set for all consumers of a client."""

    prefetch: int | Literal["auto"]
    lock: Duration | None
    max_lock: Duration | None
    priority: int
    renewable: bool
    nack_backoff: Backoff | BackoffCallable | str | None
    timeout_backoff: Backoff | str | None
    pull: bool
    auto_renew: bool
    renewals: int | None
    handler_timeout: Duration | None
    label: str | None


class ConsumerKeywords(ConsumerDefaults, total=False):
    """The options of one consumer."""

    tag: str | None


class ConnectKeywords(ConnectionKeywords, ConsumerDefaults, total=False):
    """The keywords of `fifo.connect`: the connection's own, and defaults for its consumers."""


class QueueChanges(TypedDict, total=False):
    """The options of a live queue that `client.update` changes."""

    lock: Duration | None
    max_lock: Duration | None
    max_deliveries: int | None
    dead_letter: str | None
    dead_letter_expired: bool | None
    dead_letter_overflow: bool | None
    on_exhausted: str | None
    nack_backoff: Backoff | str | None
    timeout_backoff: Backoff | str | None
    count_timeouts: bool | None
    ttl: Duration | None
    expires_unused: Duration | None
    max_length: int | None
    max_bytes: int | None
    overflow: str | None
    on_delay: str | None
    disconnect_grace: Duration | None
    dedup_window: Duration | None
    dedup_max: int | None


class RedriveKeywords(TypedDict, total=False):
    """The conditions and bounds of `client.redrive`."""

    reason: str | None
    source: str | None
    exception_type: str | None
    stack_line: str | None
    headers: Mapping[str, str] | None
    older_than: Duration | None
    min_attempts: int | None
    limit: int | None
    rate: int | None
    reset_counts: bool
