"""The input of clients, in turns: a share for each connection, and peers in between.

Owns the budget of one turn of the event loop for all clients together, the share of one connection,
and the order in which connections get theirs: round robin. A connection with more to handle than
its share waits, and is not read meanwhile, so that what it has sent stays in its own sockets. The
loop looks at every other socket between two turns: Raft's messages, timers and heartbeats wait for
one budget, whatever a client sends. Must not know what a frame means.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from fifo.wire.messages import Message
from node.broker import limits
from node.broker.stretches import Stretches


class Share:
    """The work that one connection may have done before the others get their turn.

    Work is counted in items (frames, or pieces of a long answer) and in seconds of a stopwatch.
    """

    __slots__ = ("_clock", "_items", "_longest", "_until", "at", "items", "kind")

    def __init__(self, clock: Callable[[], float], items: int, seconds: float) -> None:
        self._clock = clock
        self.at = clock()
        self._until = self.at + seconds
        self._items = items
        self.items = 0
        self.kind: type[Message] = Message
        """Kind of the item that took longest."""
        self._longest = -1.0

    def spend(self, kind: type[Message]) -> bool:
        """Count one item of work; whether the share is used up."""
        now = self._clock()
        if now - self.at > self._longest:
            self._longest, self.kind = now - self.at, kind
        self.at = now
        self.items += 1
        return self.items >= self._items or now >= self._until


class Sharing(Protocol):
    """A connection, as far as its turns go."""

    queued: bool
    """Whether it waits for its turn, unread; set here."""

    def handle(self, share: Share) -> bool:
        """Handle what has arrived, within the share; whether more waits for the next turn."""

    def pause_for_turn(self) -> None:
        """Do not read until the connection has handled everything."""

    def resume_after_turn(self) -> None:
        """Read again."""


class InputTurns:
    """Gives connections their shares; one per node, on its event loop."""

    def __init__(
        self,
        clock: Callable[[], float],
        stretches: Stretches,
        name_of: Callable[[type[Message]], str],
    ) -> None:
        """`clock`: a stopwatch in seconds; `name_of`: the kind of a stretch, from its frame."""
        self._clock = clock
        self._name_of = name_of
        self._stretches = stretches
        self._waiting: deque[Sharing] = deque()
        self._asked = False
        self._items = limits.TURN_ITEMS_MAX
        self._seconds = limits.TURN_SECONDS
        """The rest of the budget of this turn of the loop."""

    def __len__(self) -> int:
        """Connections that wait."""
        return len(self._waiting)

    def arrived(self, connection: Sharing) -> None:
        """Handle what has arrived: now, while this turn of the loop has room for a share."""
        if connection.queued:
            return
        if self._items <= 0 or self._seconds <= 0 or self._serve(connection):
            self.queue(connection)

    def queue(self, connection: Sharing) -> None:
        """Have the connection wait for its turn, unread."""
        if not connection.queued:
            connection.pause_for_turn()
            connection.queued = True
            self._waiting.append(connection)
            self._ask()

    @property
    def _left(self) -> bool:
        return self._items > 0 and self._seconds > 0

    def _serve(self, connection: Sharing) -> bool:
        """Give a connection its share; whether it has more to handle."""
        items = min(limits.SHARE_ITEMS_MAX, self._items)
        share = Share(self._clock, items, min(limits.SHARE_SECONDS, self._seconds))
        began = share.at
        if began >= self._stretches.stale_at:
            self._stretches.read(began)
        more = connection.handle(share)
        self._items -= share.items
        took = share.at - began
        self._seconds -= took
        if took >= limits.STRETCH_NOTED_SECONDS:
            self._stretches.note(self._name_of(share.kind), began, share.at)
        if self._items < limits.TURN_ITEMS_MAX // 2 or self._seconds < limits.TURN_SECONDS / 2:
            self._ask()
        return more

    def _ask(self) -> None:
        """Begin the next turn of the loop with a new budget. Not for every few frames: a callback
        costs the loop a turn of its own."""
        if not self._asked:
            self._asked = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._asked = False
        self._items, self._seconds = limits.TURN_ITEMS_MAX, limits.TURN_SECONDS
        while self._waiting and self._left:
            connection = self._waiting.popleft()
            if self._serve(connection):
                self._waiting.append(connection)
            else:
                connection.queued = False
                connection.resume_after_turn()
        if self._waiting:
            self._ask()
