"""A delivery frame, decoded lazily: bodies at once, everything else on demand.

Owns reading the columns of a `Deliver`, `Peeked` or `Paged` frame, by position. A message is a view
onto it (`message.py`). Must not know connections or what becomes of a message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fifo.wire import Code, RemoteProtocolError
from fifo.wire.columns import (
    ATTEMPTS,
    DELIVER_TAGS,
    FAILURES,
    HEADER_BLOB,
    HEADER_LENGTHS,
    KEY_BLOB,
    KEY_LENGTHS,
    PRIORITIES,
    SIZES,
    ColumnError,
    Layout,
    cut,
    decode_headers,
    lay_out,
    unpack_u32,
)
from fifo.wire.messages import Deliver, Peeked
from fifo.wire.pins import Paged
from fifo.words.bounds import PRIORITY_DEFAULT
from fifo.words.settlement import REASONS

if TYPE_CHECKING:
    from fifo.client.consuming.lock_ledger import LockLedger

_BLOB_OF: Final = {KEY_LENGTHS: KEY_BLOB, HEADER_LENGTHS: HEADER_BLOB}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why and from where a message became a dead letter (semantics.md 9).

    `reason` is terminated, max_deliveries, expired or overflow; `detail` the text that the program
    gave to terminate; `exception` is "type: text"; `history` the last attempts, oldest first;
    `record` everything as the node sent it.
    """

    reason: str
    detail: str | None
    description: str | None
    exception: str | None
    stack: str | None
    source: str | None
    history: tuple[Any, ...]
    record: Mapping[str, Any]

    @property
    def died_at(self) -> datetime | None:
        """When it died, by the wall clock of the leader then."""
        died_ms = self.record.get("died_ms")
        return datetime.fromtimestamp(died_ms / 1000, UTC) if isinstance(died_ms, int) else None


def dead_letter(record: Mapping[str, Any]) -> DeadLetter:
    """A dead letter's record as an object; what a node left out is None."""
    reason = record.get("reason")
    if isinstance(reason, int):
        reason = REASONS[reason] if reason < len(REASONS) else str(reason)
    kind, words = record.get("exception_type"), record.get("exception_text")
    exception = ": ".join([part for part in (kind, words) if part]) or None
    return DeadLetter(
        reason=str(reason),
        detail=record.get("detail"),
        description=record.get("description"),
        exception=exception,
        stack=record.get("stack"),
        source=record.get("source"),
        history=tuple(record.get("history") or ()),
        record=record,
    )


class WireColumns(NamedTuple):
    """Columns of a frame, in little-endian numbers; None where every message has the default.

    `sizes`, lengths and attempts have four bytes for each message, priorities one. Keys and headers
    lie end to end in blobs, of length 0 for none; `decode` reads the headers of a message.
    """

    sizes: bytes
    key_lengths: bytes | None
    keys: bytes
    header_lengths: bytes | None
    headers: bytes
    priorities: bytes | None
    attempts: bytes | None

    def decode(self, headers: bytes) -> dict[str, str]:
        """The headers of one message."""
        return decode_headers(headers)


class Delivery:
    """The messages of one frame. `received` is monotonic, `received_wall` is for people."""

    __slots__ = (
        "_blobs",
        "_columns",
        "_dead_letters",
        "_ends",
        "_joined",
        "bodies",
        "count",
        "first_token",
        "keys_out",
        "ledger",
        "queue",
        "received",
        "received_wall",
        "remaining_s",
        "runs",
        "size",
    )
    bodies: list[bytes]

    def __init__(
        self,
        message: Deliver | Peeked | Paged,
        raw: memoryview,
        received: float,
        received_wall: float,
    ) -> None:
        layout = _layout(message, raw)
        self.ledger: LockLedger[Any] | None = None
        self.queue = message.queue
        self.count = message.count
        self.size = len(raw)
        self.received = received
        self.received_wall = received_wall
        self.keys_out = isinstance(message, Deliver) and message.keys_out
        self.first_token = message.first_token if isinstance(message, Deliver) else 0
        self.remaining_s = message.remaining_ms / 1000 if isinstance(message, Deliver) else 0.0
        # All is copied, for a view would keep the whole received chunk alive.
        end = layout.bodies_at + layout.bodies_bytes
        self._joined: bytes | None = bytes(layout.raw[layout.bodies_at : end])
        self._columns = {
            tag: bytes(layout.raw[at : at + size]) for tag, (at, size) in layout.places.items()
        }
        self._blobs: dict[int, list[bytes]] = {}
        self.runs = message.runs
        self._ends = list(accumulate([run[0] for run in message.runs]))
        self._dead_letters = dict(message.dead_letters) if message.dead_letters else None
        if (self._ends[-1] if self._ends else 0) != self.count:
            raise RemoteProtocolError(Code.PROTOCOL, "the runs of a delivery do not add up")

    if not TYPE_CHECKING:  # where it would make an attribute of every name

        def __getattr__(self, name: str) -> list[bytes]:
            """Cut the bodies when the first is asked for: not for a program that wants columns.

            A property would cost each message of a consumer a call.
            """
            if name != "bodies":
                raise AttributeError(name)
            sizes = self._columns.get(SIZES)
            self.bodies = [] if sizes is None else cut(self._joined, unpack_u32(sizes))
            self._joined = None
            return self.bodies

    def body_blob(self) -> bytes:
        """All bodies, end to end."""
        return b"".join(self.bodies) if self._joined is None else self._joined

    @property
    def wire(self) -> WireColumns:
        """The columns of the frame as they came, for a program that has no use for messages."""
        found = self._columns.get
        return WireColumns(
            found(SIZES, b""),
            found(KEY_LENGTHS),
            found(KEY_BLOB, b""),
            found(HEADER_LENGTHS),
            found(HEADER_BLOB, b""),
            found(PRIORITIES),
            found(ATTEMPTS),
        )

    def number(self, index: int) -> tuple[int, int, int]:
        """Queue number, producer number and number of a message: the parts of its id."""
        at, place = self._run(index)
        run = self.runs[at]
        return run[1], run[2], run[3] + place

    def id(self, index: int) -> str:
        """The message id as text."""
        queue, producer, number = self.number(index)
        return f"{queue}.{producer}.{number}"

    def published_at(self, index: int) -> datetime:
        """When it was published, by the wall clock of the leader that took it."""
        at, _ = self._run(index)
        return datetime.fromtimestamp(self.runs[at][4] / 1000, UTC)

    def _run(self, index: int) -> tuple[int, int]:
        """Which run a message is in, and its place there."""
        at = bisect_right(self._ends, index)
        return at, index - (self._ends[at - 1] if at else 0)

    def key(self, index: int) -> bytes:
        """The key, empty for none."""
        return self._blob(KEY_LENGTHS, index)

    def headers(self, index: int) -> bytes:
        """The headers, encoded; empty for none."""
        return self._blob(HEADER_LENGTHS, index)

    def _blob(self, tag: int, index: int) -> bytes:
        found = self._blobs.get(tag)
        if found is None:
            lengths = self._columns.get(tag)
            if lengths is None:
                return b""
            blob = memoryview(self._columns[_BLOB_OF[tag]])
            found = self._blobs[tag] = cut(blob, unpack_u32(lengths))
        return found[index]

    def priority(self, index: int) -> int:
        """0 to 9."""
        column = self._columns.get(PRIORITIES)
        return PRIORITY_DEFAULT if column is None else column[index]

    def attempt(self, index: int) -> int:
        """Deliveries of this message so far, from 1."""
        return self._u32(ATTEMPTS, index, 1)

    def failures(self, index: int) -> int:
        """Returns that counted so far."""
        return self._u32(FAILURES, index, 0)

    def _u32(self, tag: int, index: int, default: int) -> int:
        column = self._columns.get(tag)
        if column is None:
            return default
        return int.from_bytes(column[4 * index : 4 * index + 4], "little")

    def dead_letter(self, index: int) -> DeadLetter | None:
        """Its record, where it is a dead letter."""
        found = self._dead_letters.get(index) if self._dead_letters else None
        return None if found is None else dead_letter(found)


def _layout(message: Deliver | Peeked | Paged, raw: memoryview) -> Layout:
    try:
        if not message.count and not message.columns:
            return Layout(0, {}, 0, 0, raw)
        return lay_out(message.columns, raw, message.count, DELIVER_TAGS)
    except ColumnError as error:
        raise RemoteProtocolError(Code.PROTOCOL, f"a delivery: {error}") from error
