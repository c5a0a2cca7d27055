"""The intended fate of each row, and the number of rows of each fate.

Owns the rule by which a consumer decides, by row number alone, so that the counts are known before
the first message is sent. Knows no queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NACK_EVERY = 100
"""Every hundredth row fails once, and succeeds when it comes back."""

TERMINATE_EVERY = 10_000
"""Every ten-thousandth can never succeed. 100 divides it; such a row is terminated, not nacked."""


class Fate(Enum):
    """Action of a consumer on a row."""

    ACK = "ack"
    NACK_ONCE = "nack once, then ack"
    TERMINATE = "terminate"


def fate_of(row: int) -> Fate:
    """By the row's number, from 1."""
    if row % TERMINATE_EVERY == 0:
        return Fate.TERMINATE
    if row % NACK_EVERY == 0:
        return Fate.NACK_ONCE
    return Fate.ACK


@dataclass(frozen=True, slots=True)
class Expected:
    """Distinct rows that end in each way, for rows 1..count."""

    count: int
    acked: int
    nacked: int
    dead_lettered: int


def expected(count: int) -> Expected:
    """Counted by arithmetic, not by asking `fate_of` for each row, so that each checks the
    other."""
    dead_lettered = count // TERMINATE_EVERY
    return Expected(
        count=count,
        acked=count - dead_lettered,
        nacked=count // NACK_EVERY - dead_lettered,
        dead_lettered=dead_lettered,
    )
