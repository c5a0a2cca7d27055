"""The answer to a read of the entries of a pinned view, made once they have been read.

Owns how many go into one piece, and the form of the answer. Must not know how the entries were
found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fifo.wire import Buffer, Code, Frame, encode
from fifo.wire.pins import PinPiece
from node.broker import deliveries, limits
from node.broker.connections.connection import Connection
from node.broker.pins import Pin
from node.raft import NotCached


class PieceAnswer:
    """A `node.broker.connections.output.Deferred`; until it is made the request is unanswered."""

    def __init__(
        self,
        connection: Connection,
        frame: Frame,
        indexes: Sequence[int],
        last: bool,
        read: deliveries.ReadArea,
        pin: Pin,
        paid: Callable[[int], None],
    ) -> None:
        """`indexes`: the entries to send, as many as fit; `last`: nothing is behind them; `paid` is
        called with the bytes that were sent."""
        self._connection = connection
        self._correlation = frame.correlation
        self._indexes = indexes
        self._last = last
        self._read = read
        self._pin = pin
        self._paid = paid
        self._found: list[memoryview] = []
        self._bytes = 0
        self.waits = True
        connection.begin(0, len(indexes))

    def make(self) -> list[Buffer]:
        """See `Deferred`."""
        frame: list[Buffer] = []
        try:
            if self._pin.ended is not None or self._pin.hold.ended:
                raise IndexError("what the pin kept is let go of")
            if not self._gathered():
                return frame
            frame = self._frame()
            self._connection.answered(self._correlation)
            self._paid(self._bytes)
        except IndexError:
            text = "the pinned view has ended while it was read: pin anew"
            self._connection.refuse(self._correlation, Code.PIN_GONE, text)
        self.waits = False
        self._connection.end(0, len(self._indexes))
        return frame

    def _gathered(self) -> bool:
        """Whether a piece is in memory; what was read stays there."""
        try:
            for index in self._indexes[len(self._found) :]:
                if self._bytes >= limits.COPY_PIECE_BYTES:
                    break
                entry = self._read(index)
                self._found.append(entry)
                self._bytes += len(entry)
        except NotCached:
            return False
        return True

    def _frame(self) -> list[Buffer]:
        count = len(self._found)
        indexes = self._indexes[:count]
        sizes = map(len, self._found)
        answer = PinPiece(
            after=indexes[-1] if indexes else 0,
            last=self._last and count == len(self._indexes),
            entries=tuple(zip(indexes, sizes, strict=True)),
        )
        return encode(answer, self._correlation, self._found)

    def needs(self) -> Iterable[Sequence[int]]:
        """See `Deferred`."""
        return [(index,) for index in self._indexes[len(self._found) :]]
