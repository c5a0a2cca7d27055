"""The output of one client connection: buffers, and deliveries that are still handles.

Owns its order and bounds. The transport gets half a MiB at a time: the standard loop copies, again
and again, what the socket does not take (decisions.md, "The write path"), so the rest stays here
uncopied. A delivery waits as a handle that makes its frame: bodies are taken from the log when the
peer takes them, so that a consumer that does not read costs handles, not memory. If they are not in
memory, the output stands until they have been read: only heartbeats overtake a delivery. Must not
know sessions or what a frame means.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias

from fifo.wire import Buffer
from node.broker import limits

Buffers: TypeAlias = list[Buffer]
"""An encoded frame."""


class Deferred(Protocol):
    """Frames that are made at the moment at which they can be sent."""

    def make(self) -> Buffers:
        """The next frame, of what is in memory; an empty one is skipped."""

    @property
    def waits(self) -> bool:
        """Whether more is left, which has to be read first."""

    def needs(self) -> Iterable[Sequence[int]]:
        """The entries that the rest needs, in groups that are of use only as a whole."""


class Output:
    """The queue between a connection and its transport."""

    __slots__ = ("_transport", "blocked", "items", "moved_at", "stands", "waiting_bytes")

    def __init__(self, transport: asyncio.Transport, now: float) -> None:
        self._transport = transport
        self.items: deque[Buffers | Deferred] = deque()
        """Output that the transport does not have yet."""
        self.waiting_bytes = 0
        self.blocked = False
        self.stands = False
        """Whether the next frame waits for the disk."""
        self.moved_at = now

    @property
    def over(self) -> bool:
        """True while more output waits than the limits allow."""
        return (
            self.waiting_bytes > limits.OUTPUT_BYTES_MAX
            or len(self.items) > limits.OUTPUT_ITEMS_MAX
        )

    def add(self, frame: Buffers) -> None:
        """Queue one frame."""
        self.items.append(frame)
        self.waiting_bytes += sum(map(len, frame))

    def add_first(self, frame: Buffers) -> None:
        """Queue one frame ahead of all others."""
        self.items.appendleft(frame)
        self.waiting_bytes += sum(map(len, frame))

    def add_deferred(self, deferred: Deferred) -> None:
        """Queue frames that are made when their turn comes."""
        self.items.append(deferred)

    def flush(self, now: float) -> None:
        """Write to the transport what it takes without blocking; several frames at once."""
        items = self.items
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
        """The entries that waiting frames need, in order: see `node.raft.FetchWaiter`."""
        for item in self.items:
            if not isinstance(item, list):
                yield from item.needs()

    def end_before_deferred(self, *, last: bool) -> None:
        """Discard all from the first frame on that is not made yet, for an answer behind it may
        count what it delivers; but for the `last` frame, where that says why the connection ends.
        """
        items = self.items
        farewell = [items[-1]] if last and items and isinstance(items[-1], list) else []
        made = itertools.takewhile(lambda item: isinstance(item, list), items)
        self.items = deque([*made, *farewell])
        self.waiting_bytes = sum(sum(map(len, one)) for one in self.items if isinstance(one, list))
        self.stands = False

    def clear(self) -> None:
        """Discard all output: the peer is gone."""
        self.items.clear()
        self.waiting_bytes = 0
        self.stands = False
