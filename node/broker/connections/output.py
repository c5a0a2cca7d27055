"""What waits to be sent to one client: buffers, and deliveries that are still handles.

Owns the order and the bound of one connection's output. The transport gets half a MiB at a time:
the standard loop copies what the socket does not take, again and again (decisions.md, "The write
path"), so the rest stays here uncopied. A delivery waits as a handle that makes its
frame: its bodies are taken from the log when the peer takes them, so that a consumer that does not
read costs handles, not memory. Where they are not at hand, the output stands until they were read:
nothing overtakes a delivery but what says that it may. Must not know sessions or what a frame says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

from fifo.wire import Buffer
from node.broker import limits

Frame: TypeAlias = list[Buffer]


class Later(Protocol):
    """Frames that are made at the moment at which they can be sent."""

    def make(self) -> Frame:
        """The next frame, of as much as is at hand; an empty one is left out."""

    @property
    def waits(self) -> bool:
        """Whether there is more, which has to be read first."""

    def needs(self) -> Iterable[Sequence[int]]:
        """The entries that the rest needs, in groups that are of use only as a whole."""


class Output:
    """The queue between a connection and its transport."""

    __slots__ = ("_items", "_transport", "blocked", "moved_at", "stands", "waiting_bytes")

    def __init__(self, transport: asyncio.Transport, now: float) -> None:
        self._transport = transport
        self._items: deque[Frame | Later] = deque()
        self.waiting_bytes = 0
        self.blocked = False
        self.stands = False
        """Whether what comes next waits for the disk."""
        self.moved_at = now

    @property
    def empty(self) -> bool:
        """True where the transport was given everything."""
        return not self._items

    @property
    def over(self) -> bool:
        """True where more waits than a peer may make us hold."""
        return (
            self.waiting_bytes > limits.OUTPUT_BYTES_MAX
            or len(self._items) > limits.OUTPUT_ITEMS_MAX
        )

    def add(self, frame: Frame) -> None:
        """Queue one frame."""
        self._items.append(frame)
        self.waiting_bytes += sum(map(len, frame))

    def add_first(self, frame: Frame) -> None:
        """Queue one frame that may overtake all others."""
        self._items.appendleft(frame)
        self.waiting_bytes += sum(map(len, frame))

    def add_later(self, later: Later) -> None:
        """Queue frames that are made when their turn comes."""
        self._items.append(later)

    def flush(self, now: float) -> None:
        """Hand the transport what it takes without waiting; several frames in one write."""
        items = self._items
        self.stands = False
        while items and not (self.blocked or self.stands):
            buffers: list[Buffer] = []
            size = 0
            while items and size < limits.WRITE_BYTES:
                item = items.popleft()
                if isinstance(item, list):
                    bytes_taken = sum(map(len, item))
                    self.waiting_bytes -= bytes_taken
                    size += bytes_taken
                    buffers.extend(item)
                    continue
                frame = item.make()
                size += sum(map(len, frame))
                buffers.extend(frame)
                if item.waits:
                    items.appendleft(item)
                    self.stands = True
                    break
            if not buffers:
                continue
            self.moved_at = now
            if len(buffers) == 1:
                self._transport.write(buffers[0])
            else:
                self._transport.writelines(buffers)

    def needs(self) -> Iterator[Sequence[int]]:
        """The entries that what waits here needs, in order: see `node.raft.FetchWaiter`."""
        for item in self._items:
            if not isinstance(item, list):
                yield from item.needs()

    def drop_later(self) -> None:
        """Forget what is not made yet."""
        self._items = deque(item for item in self._items if isinstance(item, list))
        self.stands = False

    def clear(self) -> None:
        """Forget what waits: the peer is gone."""
        self._items.clear()
        self.waiting_bytes = 0
        self.stands = False
