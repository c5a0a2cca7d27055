"""Records of runs made by hand: a good one, and what to do to it."""

from __future__ import annotations

from bench.demo.fate import Fate, fate_of
from bench.demo.records import Chunk, Delivery

COUNT = 20_100
CHUNK_ROWS = 500
START_MS = 1_700_000_000_000


def delivery(row: int, outcome: str, *, attempt: int = 1, message_id: str = "") -> Delivery:
    """A delivery at a time that grows with the row."""
    at = START_MS + row + attempt * 1000
    return Delivery(
        row=row,
        attempt=attempt,
        failures=attempt - 1,
        outcome=outcome,
        message_id=message_id or f"1/2/{row}",
        published_ms=at - 7,
        received_ms=at,
        settled_ms=at + 1,
    )


def good_chunks() -> list[Chunk]:
    """Every row confirmed, five milliseconds after it was sent."""
    firsts = range(1, COUNT + 1, CHUNK_ROWS)
    return [
        Chunk(first, min(first + CHUNK_ROWS - 1, COUNT), START_MS + first, START_MS + first + 5)
        for first in firsts
    ]


def good_deliveries() -> list[Delivery]:
    """Every row settled by its fate."""
    made = []
    for row in range(1, COUNT + 1):
        match fate_of(row):
            case Fate.ACK:
                made.append(delivery(row, "acked"))
            case Fate.NACK_ONCE:
                made += [delivery(row, "nacked"), delivery(row, "acked", attempt=2)]
            case Fate.TERMINATE:
                made.append(delivery(row, "terminated"))
    return made


def good_dead() -> list[Delivery]:
    """The two terminated rows of COUNT, in the dead-letter queue under their own ids."""
    return [delivery(row, "terminated") for row in (10_000, 20_000)]
