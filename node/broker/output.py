"""What waits to be sent to one client: buffers, and deliveries that are still handles.

Owns the order and the bound of one connection's output. The transport gets half a MiB at a time:
the standard loop copies what the socket does not take, again and again (performance.md, what the
prototype taught, 3), so the rest stays here uncopied. A delivery waits as a call that makes its
frame: its bodies are read from the log when the peer takes them, so that a consumer that does not
read costs handles, not memory. Must not know sessions or what a frame says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from fifo.wire import Buffer
from node.broker import limits

Frame: TypeAlias = Sequence[Buffer]
Later: TypeAlias = Callable[[], Frame]
"""Makes a frame at the moment at which it can be sent; an empty one is left out."""


class Output:
    """The queue between a connection and its transport."""

    __slots__ = ("_items", "_transport", "blocked", "moved_at", "waiting_bytes")

    def __init__(self, transport: asyncio.Transport, now: float) -> None:
        self._transport = transport
        self._items: deque[Frame | Later] = deque()
        self.waiting_bytes = 0
        self.blocked = False
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

    def add_later(self, later: Later) -> None:
        """Queue a frame that is made when its turn comes."""
        self._items.append(later)

    def flush(self, now: float) -> None:
        """Hand the transport what it takes without waiting; several frames in one write."""
        items = self._items
        while items and not self.blocked:
            buffers: list[Buffer] = []
            size = 0
            while items and size < limits.WRITE_BYTES:
                item = items.popleft()
                if callable(item):
                    frame = item()
                    size += sum(map(len, frame))
                else:
                    frame = item
                    bytes_taken = sum(map(len, frame))
                    self.waiting_bytes -= bytes_taken
                    size += bytes_taken
                buffers.extend(frame)
            self.moved_at = now
            if len(buffers) == 1:
                self._transport.write(buffers[0])
            elif buffers:
                self._transport.writelines(buffers)

    def clear(self) -> None:
        """Forget what waits: the peer is gone."""
        self._items.clear()
        self.waiting_bytes = 0
