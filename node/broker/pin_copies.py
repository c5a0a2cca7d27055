"""A pinned view as a whole, for a copy of it: its canonical bytes, and the entries it points to.

Owns how far the one walk over the state has come, its digest, and the indexes of the entries. The
bytes are made once, in order: of what was made only the last piece can be had again, for a reader
whose answer was lost. Must not know who reads, or where entries lie.
"""

from __future__ import annotations

import hashlib
from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterator
from typing import NamedTuple

from fifo.machine.contract import Frozen, live_entries, snapshot_chunks
from fifo.wire.limits import DIGEST_BYTES
from node.broker import limits


class StatePiece(NamedTuple):
    """Bytes of a state from `at` on. `digest`: of all of it, with the last piece."""

    at: int
    data: bytes
    digest: bytes = b""

    @property
    def after(self) -> int:
        """Where the next one begins."""
        return self.at + len(self.data)


class ViewCopy:
    """The copy of one view, as far as it was made."""

    def __init__(self, view: Frozen) -> None:
        self._view = view
        self._chunks: Iterator[bytes] | None = None
        self._made = bytearray()
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._last = StatePiece(0, b"")
        self._busy = False
        self._entries: list[array[int]] | None = None

    def state(self, at: int) -> Generator[None, None, StatePiece | None]:
        """The piece that begins at `at`, in bounded steps; None where that is neither the next one
        nor the last that was made, or where another reader is at it."""
        last = self._last
        if last.at == at and (last.data or last.digest):
            return last
        if self._busy or last.after != at:
            return None
        self._busy = True
        try:
            return (yield from self._next(at))
        finally:
            self._busy = False

    def _next(self, at: int) -> Generator[None, None, StatePiece]:
        if self._chunks is None:
            self._chunks = snapshot_chunks(self._view)
        made = self._made
        ended = False
        while len(made) < limits.COPY_PIECE_BYTES and not ended:
            chunk = next(self._chunks, None)
            ended = chunk is None
            made += chunk or b""
            yield
        data = bytes(made[: limits.COPY_PIECE_BYTES])
        del made[: limits.COPY_PIECE_BYTES]
        self._hash.update(data)
        self._last = StatePiece(at, data, self._hash.digest() if ended else b"")
        return self._last

    def entries(self, above: int, most: int) -> Generator[None, None, tuple[list[int], bool]]:
        """Up to `most` indexes above `above` of entries that the view points to, ascending, and
        whether there are no more."""
        if self._entries is None:
            found = []
            for indexes in live_entries(self._view):
                if indexes:
                    found.append(indexes)
                yield
            self._entries = found
        pages = self._entries
        at = bisect_right(pages, above, key=lambda page: page[-1])
        taken: list[int] = []
        while at < len(pages) and len(taken) < most:
            page = pages[at]
            first = bisect_right(page, above)
            taken += page[first : first + most - len(taken)]
            at += 1
        last = not pages or not taken or taken[-1] == pages[-1][-1]
        return taken, last
