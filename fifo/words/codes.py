"""Codes: what a request can be refused with, in the protocol and in the machine.

Owns both lists and the one mapping between them. Must not know how a client or a node reacts. New
codes are added at the end of their group and described in `docs/protocol.md`; a client treats an
unknown code as not retryable.
"""

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
    QUEUE_REPLACED = "queue_replaced"
    MESSAGE_NOT_FOUND = "message_not_found"
    PIN_GONE = "pin_gone"


RETRYABLE: Final = frozenset(
    {Code.NOT_LEADER, Code.MOVED, Code.OVERLOADED, Code.NOT_NOW, Code.SHUTTING_DOWN, Code.GAP}
)
"""Codes that say the same request may succeed later, unchanged."""


class RefusalCode:
    """The codes of the machine: each of its refusals carries one."""

    INVALID: Final = "invalid"
    TOO_LARGE: Final = "too_large"
    LIMIT: Final = "limit"
    QUEUE_NOT_FOUND: Final = "queue_not_found"
    QUEUE_EXISTS: Final = "queue_exists"
    QUEUE_FULL: Final = "queue_full"
    IN_USE: Final = "in_use"
    CYCLE: Final = "cycle"
    NO_DEAD_LETTER_QUEUE: Final = "no_dead_letter_queue"
    UNKNOWN_SESSION: Final = "unknown_session"
    UNKNOWN_CONSUMER: Final = "unknown_consumer"
    UNKNOWN_PRODUCER: Final = "unknown_producer"
    GAP: Final = "gap"
    FENCED: Final = "fenced"
    SESSION_CONNECTED: Final = "session_connected"
    FORBIDDEN: Final = "forbidden"
    SUBSCRIBED: Final = "subscribed"
    DEDUP_FULL: Final = "dedup_full"
    STALE: Final = "stale"
    REDRIVE_RUNNING: Final = "redrive_running"
    OLD_GENERATION: Final = "old_generation"
    QUEUE_REPLACED: Final = "queue_replaced"
    MESSAGE_NOT_FOUND: Final = "message_not_found"
    SESSION_TAKEN: Final = "session_taken"


CODE_OF_REFUSAL: Final[dict[str, Code]] = {
    RefusalCode.INVALID: Code.INVALID_ARGUMENT,
    RefusalCode.TOO_LARGE: Code.TOO_LARGE,
    RefusalCode.LIMIT: Code.LIMIT,
    RefusalCode.QUEUE_NOT_FOUND: Code.QUEUE_NOT_FOUND,
    RefusalCode.QUEUE_EXISTS: Code.QUEUE_EXISTS,
    RefusalCode.QUEUE_FULL: Code.QUEUE_FULL,
    RefusalCode.IN_USE: Code.IN_USE,
    RefusalCode.CYCLE: Code.INVALID_ARGUMENT,
    RefusalCode.NO_DEAD_LETTER_QUEUE: Code.NO_DEAD_LETTER_QUEUE,
    RefusalCode.UNKNOWN_SESSION: Code.SESSION_ENDED,
    RefusalCode.UNKNOWN_CONSUMER: Code.UNKNOWN_CONSUMER,
    RefusalCode.UNKNOWN_PRODUCER: Code.UNKNOWN_PRODUCER,
    RefusalCode.GAP: Code.GAP,
    RefusalCode.FENCED: Code.MOVED,
    RefusalCode.SESSION_CONNECTED: Code.INVALID_ARGUMENT,
    RefusalCode.FORBIDDEN: Code.PERMISSION_DENIED,
    RefusalCode.SUBSCRIBED: Code.IN_USE,
    RefusalCode.DEDUP_FULL: Code.DEDUP_FULL,
    RefusalCode.STALE: Code.INVALID_ARGUMENT,
    RefusalCode.REDRIVE_RUNNING: Code.IN_USE,
    RefusalCode.OLD_GENERATION: Code.SESSION_TAKEN,
    RefusalCode.QUEUE_REPLACED: Code.QUEUE_REPLACED,
    RefusalCode.MESSAGE_NOT_FOUND: Code.MESSAGE_NOT_FOUND,
    RefusalCode.SESSION_TAKEN: Code.SESSION_TAKEN,
}
"""The machine tells apart what a client cannot act on, so the protocol has fewer codes."""
