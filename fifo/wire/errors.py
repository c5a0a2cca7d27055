"""What can be wrong on the wire: error codes as text, and the two protocol exceptions.

Owns the list of codes that an `Error` frame may carry and which of them a client may retry.
Must not know how a client or a node reacts. New codes are added at the end of their group and
described in `docs/protocol.md`; an unknown code is treated as not retryable.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Code(StrEnum):
    """Error codes of the protocol; stable text, for programs to compare."""

    # The stream or the request itself.
    PROTOCOL = "protocol"
    UNSUPPORTED = "unsupported"
    UNSUPPORTED_VERSION = "unsupported_version"
    INVALID_ARGUMENT = "invalid_argument"
    TOO_LARGE = "too_large"
    # Who may do what.
    AUTHENTICATION_FAILED = "authentication_failed"
    PERMISSION_DENIED = "permission_denied"
    # Sessions and leaders.
    NOT_LEADER = "not_leader"
    MOVED = "moved"
    SESSION_TAKEN = "session_taken"
    SESSION_ENDED = "session_ended"
    UNKNOWN_OUTCOME = "unknown_outcome"
    OVERLOADED = "overloaded"
    SHUTTING_DOWN = "shutting_down"
    # Queues and messages.
    QUEUE_NOT_FOUND = "queue_not_found"
    QUEUE_EXISTS = "queue_exists"
    QUEUE_FULL = "queue_full"
    IN_USE = "in_use"
    GAP = "gap"
    UNKNOWN_PRODUCER = "unknown_producer"
    DEDUP_FULL = "dedup_full"
    UNKNOWN_CONSUMER = "unknown_consumer"
    LOCK_LOST = "lock_lost"
    NOT_RENEWABLE = "not_renewable"
    NOT_NOW = "not_now"
    NO_DEAD_LETTER_QUEUE = "no_dead_letter_queue"
    LIMIT = "limit"
    INTERNAL = "internal"


RETRYABLE: Final = frozenset(
    {Code.NOT_LEADER, Code.MOVED, Code.OVERLOADED, Code.NOT_NOW, Code.SHUTTING_DOWN, Code.GAP}
)
"""Codes that say the same request may succeed later, unchanged."""


class WireError(Exception):
    """Root of what this package raises."""


class LocalProtocolError(WireError):
    """Our own side tried to send what the protocol does not allow: a bug of the caller."""


class RemoteProtocolError(WireError):
    """The peer sent what the protocol does not allow.

    `code` says what to answer; after it the stream cannot be trusted and has to be closed.
    """

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
