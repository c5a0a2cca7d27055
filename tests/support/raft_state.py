"""The replicated state of a simulated node: every entry applied, some of their payloads in the log.

Owns a small state machine with what makes snapshots hard: bodies that stay behind as handles,
become useless after a while, and have to be readable on every node until then. What it is after any
entry follows from the log alone, so a restored one must equal one that applied everything.
"""

from __future__ import annotations

import zlib
from array import array
from typing import TYPE_CHECKING, Protocol

import msgpack

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from node.journal.skips import Skip
    from node.raft.equality import Mark

KEPT_ENTRIES = 40
"""A payload lies in the log for so many entries, then in the state; a few stay there for ever."""

ITEMS_PER_STEP = 8

SKIPPED = b"skipped"
"""The payload of an entry that was skipped, in the state of each member."""


def lies_in_the_log(index: int, applied_index: int) -> bool:
    """Whether the state after `applied_index` points to the payload of `index`."""
    return index % 3 == 0 and (index + KEPT_ENTRIES > applied_index or index % 9 == 0)


class SimState:
    """Entries that one node has applied: (index, term, payload), and the snapshots of them."""

    compresses = False
    """Whether a snapshot holds payloads compressed: what is dead takes next to nothing then, as in
    a queue that was emptied."""

    def __init__(
        self,
        read: Callable[[int], memoryview],
        restored: Callable[[list[tuple[int, int, bytes]]], None],
    ) -> None:
        self.applied: list[tuple[int, int, bytes]] = []
        self._read = read
        self._restored = restored

    def pointed_to(self) -> list[tuple[int, bytes]]:
        """The entries that the state points to, and what has to be there."""
        if not self.applied:
            return []
        last = self.applied[-1][0]
        return [(i, payload) for i, _, payload in self.applied if lies_in_the_log(i, last)]

    def live_bytes(self) -> int:
        """See `StateSource.live_bytes`."""
        return sum(len(payload) for _, payload in self.pointed_to())

    def freeze(self) -> SimView:
        """See `StateSource.freeze`."""
        return SimView(list(self.applied), zlib.compress if self.compresses else bytes)

    def restore(self, chunks: Iterator[bytes]) -> Iterator[None]:
        """See `StateSource.restore`."""
        unpacker = msgpack.Unpacker()
        applied: list[tuple[int, int, bytes]] = []
        for chunk in chunks:
            unpacker.feed(chunk)
            for index, term, payload in unpacker:
                if payload is None:
                    found = bytes(self._read(index))
                else:
                    found = zlib.decompress(payload) if self.compresses else payload
                applied.append((index, term, found))
            yield
        self._restored(applied)
        self.applied = applied


class SimView:
    """A state as it was."""

    def __init__(
        self, applied: list[tuple[int, int, bytes]], packed: Callable[[bytes], bytes]
    ) -> None:
        self._applied = applied
        self._packed = packed
        self._last = applied[-1][0] if applied else 0

    def live(self) -> Iterator[array[int]]:
        """See `StateView.live`."""
        for first in range(0, len(self._applied), ITEMS_PER_STEP):
            indexes = [index for index, _, _ in self._applied[first : first + ITEMS_PER_STEP]]
            yield array("Q", [i for i in indexes if lies_in_the_log(i, self._last)])

    def chunks(self) -> Iterator[bytes]:
        """See `StateView.chunks`."""
        for first in range(0, len(self._applied), ITEMS_PER_STEP):
            yield b"".join(
                msgpack.packb(
                    (i, term, None if lies_in_the_log(i, self._last) else self._packed(payload))
                )
                for i, term, payload in self._applied[first : first + ITEMS_PER_STEP]
            )

    def release(self) -> None:
        """See `StateView.release`."""


class Replayed(Protocol):
    """A node whose log is applied once more."""

    replays_as: int | None
    """The hash that the log gives then; None: the same as before."""

    @property
    def applied(self) -> list[tuple[int, int, bytes]]:
        """Entries that it has applied."""


class SimReplay:
    """A state to which the log is applied once more: it sees that all of it comes."""

    def __init__(self, state: SimState, node: Replayed) -> None:
        self._state = state
        self._node = node

    def restore(self, chunks: Iterator[bytes]) -> Iterator[None]:
        """See `Replay.restore`."""
        yield from self._state.restore(chunks)

    def apply(self, index: int, payload: memoryview) -> None:
        """See `Replay.apply`."""
        self._state.applied.append((index, 0, bytes(payload)))

    def skip(self, index: int, payload: memoryview, skip: Skip) -> None:
        """See `Replay.skip`."""
        self._state.applied.append((index, 0, SKIPPED))

    def marking(self, own: Mark) -> Generator[None, None, Mark]:
        """See `Replay.marking`."""
        yield
        last = own.index if own.whole else own.index - 1
        before = [(index, found) for index, _, found in self._node.applied if index <= last]
        assert [(index, found) for index, _, found in self._state.applied] == before
        found = self._node.replays_as
        return own if found is None else own._replace(hash=found)
