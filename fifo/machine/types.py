"""The types that commands, replies, effects and state share: small enums and aliases.

Owns those of the machine alone; verbs, statuses, reasons and codes stand in `fifo.words`. Must not
know how any of them work. The integers are in the log: a value is never given a new meaning, and a
new one is only ever added at the end.
"""

from enum import IntEnum
from typing import Final, NamedTuple

Range = tuple[int, int]
"""An inclusive range (first, last) of tokens."""

Column = tuple[int, int]
"""(lengths_at, blob_at): a length column (u32) and its blob, both by offset in the entry's area."""

NEVER_MS: Final = (1 << 63) - 1
"""A time that does not come: stands in the expiry column for "no ttl"."""


class Role(IntEnum):
    """The role of a session's connection."""

    DATA = 0
    CONTROL = 1


class Cause(IntEnum):
    """Why a message came back (semantics.md section 7), or why it was never handed out yet."""

    NACK = 0
    TIMEOUT = 1
    DISCONNECT = 2
    RELEASED = 3
    PUBLISHED = 4  # delayed at publish: it has not come back, it has not been out
    TAKEN_BACK = 5  # by an operator, from its holder
    POSTPONED = 6  # by an operator, while it was ready


class Use(IntEnum):
    """The use of a session so far: it decides how long the session outlives its connections."""

    NONE = 0
    WRITING = 1  # it published or settled: its numbers and receipts are asked for again
    CONSUMING = 2  # it subscribed or got


class EndCause(IntEnum):
    """Why a session ended."""

    CLOSED = 0
    EXPIRED = 1
    OPERATOR = 2


class Suspicion(IntEnum):
    """Whether a consumer is suspected, and since when: a suspected consumer has a cause."""

    NONE = 0
    TIMEOUT = 1
    TIMEOUT_WHILE_DISCONNECTED = 2  # a resume clears this one


class Base(IntEnum):
    """The base status of a consumer; detached, disconnected and suspected are flags beside it."""

    ACTIVE = 0
    WAITING = 1
    CANCELLED = 2


class Attempt(NamedTuple):
    """A line of a dead letter's history."""

    consumer: int
    outcome: int
    wall_ms: int


class TextPlace(NamedTuple):
    """Where a text lies that is too long for the state: entry, offset in its area, bytes of UTF-8.

    As for a body it is the same on every node and for ever.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which a place has no use for
    at: int
    size: int


Text = str | TextPlace
"""A text that a program gave, or where it lies in the log."""


class DeadLetter(NamedTuple):
    """Why and from where a message became a dead letter.

    The original message id and the publish time are those of the message itself.
    """

    reason: int
    description: Text | None
    exception_type: str | None
    exception_text: Text | None
    stack: Text | None
    source: str
    detail: Text | None  # the reason that the program gave to terminate
    died_wall_ms: int
    history: tuple[Attempt, ...]
    attempts: int = 0  # what it had when it died
    failures: int = 0

    @property
    def texts(self) -> tuple[Text | None, ...]:
        """All that may lie in the log."""
        return self.detail, self.description, self.exception_text, self.stack
