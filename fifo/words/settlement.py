"""Settlements: the four verbs, their results, and why a message became a dead letter.

Owns the numbers, which are on the wire and in the log: a value is never given a new meaning, and a
new one is only ever added at the end. Must not know what a verb does.
"""

from enum import IntEnum


class Verb(IntEnum):
    """The four settlements (semantics.md 8)."""

    ACK = 0
    NACK = 1
    RELEASE = 2
    TERMINATE = 3


class Status(IntEnum):
    """The result of a settlement, for one message (semantics.md 8)."""

    OK = 0
    ALREADY_SETTLED = 1
    LOCK_LOST = 2
    DEAD_LETTERED = 3
    UNKNOWN_CONSUMER = 4


class AttemptOutcome(IntEnum):
    """The end of one attempt, in the history of a dead letter."""

    NACK = 0
    TIMEOUT = 1
    DISCONNECT = 2
    RELEASED = 3
    TERMINATED = 4
    TAKEN_BACK = 5


class Reason(IntEnum):
    """Why a message was dead-lettered (semantics.md 9)."""

    TERMINATED = 0
    MAX_DELIVERIES = 1
    EXPIRED = 2
    OVERFLOW = 3


REASONS = tuple(reason.name.lower() for reason in Reason)
"""The reasons as text, in the order of their numbers."""
