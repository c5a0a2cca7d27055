"""The options of a connection: one row per option, from which every room derives its own form.

Owns the table. The keywords of `fifo.connect`, the query of a URL, the section `[connection]` of a
configuration file and the table in `docs/client.md` derive from it; `fifo.client.Options` and
`fifo.ConnectionKeywords` repeat the names for static typing, held by a test. Must not know what an
option does.
"""

from dataclasses import dataclass
from typing import Final

from fifo.words import bounds
from fifo.words.options import Kind, Option, row, rows


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The table; durations in milliseconds."""

    user: str | None = row(Kind.TEXT, None, "User, with a password", default_text="none")
    password: str | None = row(Kind.SECRET, None, "Password of the user", default_text="none")
    token: str | None = row(
        Kind.SECRET,
        None,
        "Token, in the place of user and password; of a program also a callable that returns one,"
        " called for each log-in",
        default_text="none",
    )
    ca: str | None = row(
        Kind.TEXT,
        None,
        "PEM file of the authorities that sign the nodes' certificates, for `fifos://`",
        default_text="the system's",
    )
    cert: str | None = row(
        Kind.TEXT,
        None,
        "PEM file of a client certificate, in the place of user and password",
        default_text="none",
    )
    key: str | None = row(
        Kind.TEXT, None, "PEM file of its key, where `cert` does not have it", default_text="none"
    )
    # Long enough for two elections, short enough to be seen.
    timeout_ms: int = row(
        Kind.DURATION, 30_000, "Time limit of a call that is given no timeout", low=1
    )
    # Covers an election at start, and reports a wrong address soon.
    connect_timeout_ms: int = row(
        Kind.DURATION, 10_000, "Time limit of the first connection", low=1
    )
    heartbeat_ms: int = row(
        Kind.DURATION,
        5_000,
        "Silence before a side pings; after two of them the connection is dead",
        low=100,
        high=600_000,
    )
    reconnect: str = row(
        Kind.BACKOFF,
        "exponential:50ms..1s*2",
        "Pause between rounds over all nodes; at most 200 ms in the first 5 s",
    )
    # Publishers wait beyond it, so memory stays bounded.
    window_bytes: int = row(
        Kind.SIZE,
        8 * bounds.MIB,
        "Unconfirmed bytes before publishers wait",
        low=bounds.BODY_BYTES_MAX,
        high=1 << 31,
    )
    auto_retry_acks: bool = row(
        Kind.FLAG, True, "Send settlements again until they are answered", default_text="yes"
    )
    max_ack_retries: int | None = row(
        Kind.COUNT, None, "Retries of a settlement", default_text="unlimited", high=1 << 31
    )
    ack_retry_backoff: str = row(
        Kind.BACKOFF, "exponential:50ms..5s*2", "Pause between retries of a settlement"
    )
    close_timeout_ms: int = row(
        Kind.DURATION, 5_000, "Time limit of waiting for receipts at close", low=1
    )
    name: str | None = row(
        Kind.TEXT, None, "Name of the client in the lists of the nodes", default_text="none"
    )


CONNECTION_OPTIONS: Final[tuple[Option, ...]] = rows(ConnectionOptions)
"""The rows of the table, in its order."""

BY_NAME: Final = {option.name: option for option in CONNECTION_OPTIONS}
"""The rows by the name that users type."""
