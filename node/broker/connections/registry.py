"""All client connections of a node: how many, which of them are unknown, slow or full.

Owns the bounds that hold whether or not this node leads: the number of connections, the time for a
handshake, stalled peers, the memory held for all of them, and the list of those to flush. Must not
know sessions' contents, requests or leadership.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator

from fifo.wire import Code
from fifo.wire.messages import Redirect
from node.broker import limits
from node.broker.connections.connection import Connection
from node.broker.connections.sessions import beat, silent
from node.broker.permissions import Rights
from node.broker.quotas import Refusal, refusal
from node.broker.turns import Turns
from node.users import Quota

logger = logging.getLogger(__name__)


class Connections:
    """The open client connections of one node, oldest first."""

    def __init__(
        self,
        turns: Turns,
        connections_max: int,
        memory_high_bytes: int,
        over_quota: Callable[[str], None],
    ) -> None:
        """`memory_high_bytes`: held for all peers together, above which the largest are cut;
        `over_quota` counts a refusal by the name of its quota."""
        self._turns = turns
        self.connections_max = connections_max
        self._memory_high_bytes = memory_high_bytes
        self._over_quota = over_quota
        self._all: dict[Connection, None] = {}
        self._unknown: dict[Connection, None] = {}
        self._sessionless: dict[Connection, None] = {}
        self._watched: dict[Connection, None] = {}
        self._users: dict[Connection, str] = {}
        self._of_user: Counter[str] = Counter()
        self.waiting: list[Connection] = []
        """Connections to be flushed."""
        self.reading = True
        """False while no connection is read."""
        self._ended = False
        self.emptied = asyncio.Event()
        """Set when the last connection is removed."""

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._all))

    def add(self, connection: Connection) -> None:
        """Take a new connection; close it, or the oldest unknown one, if there are too many."""
        self._all[connection] = self._sessionless[connection] = None
        if self._ended:
            connection.abort()  # It was accepted while the listener closed.
            return
        self._unknown[connection] = None
        if len(self._all) > self.connections_max and len(self._unknown) == 1:
            del self._unknown[connection]
            text = f"this node has its maximum of {self.connections_max} connections"
            connection.fail(Code.OVERLOADED, text)
            return
        if len(self._unknown) > limits.UNOPENED_MAX or len(self._all) > self.connections_max:
            # Only the known can be refused by who they are, and of those some places are kept free.
            oldest = next(iter(self._unknown))
            del self._unknown[oldest]
            oldest.fail(Code.OVERLOADED, "too many connections without a completed handshake")
        if not self.reading:
            connection.stop_reading("crowded")

    def remove(self, connection: Connection) -> None:
        """Forget a closed connection."""
        for group in (self._all, self._unknown, self._sessionless, self._watched):
            group.pop(connection, None)
        user = self._users.pop(connection, None)
        if user is not None:
            self._of_user[user] -= 1
            self._of_user += Counter()  # forget who has none
        if not self._all:
            self.emptied.set()

    def known(self, connection: Connection) -> None:
        """Note that the peer has identified itself: it no longer counts as unknown."""
        self._unknown.pop(connection, None)

    def take(self, connection: Connection, rights: Rights) -> Refusal | None:
        """Count an authenticated connection to its user; why there may not be one more."""
        user = rights.user.name
        found = refusal(
            rights,
            Quota.CONNECTIONS,
            self.connections_max,
            used=len(self._users),
            own=self._of_user[user],
        )
        if found is not None:
            self._over_quota(found.quota)
        else:
            self._users[connection] = user
            self._of_user[user] += 1
        return found

    def of_user(self, user: str) -> int:
        """The connections of a user to this node."""
        return self._of_user[user]

    def watch(self, connection: Connection) -> None:
        """Check this connection in each sweep while it is `holding`."""
        self._watched[connection] = None

    # --- sending and reading ----------------------------------------------------------------------

    def to_flush(self, connection: Connection) -> None:
        """Flush this connection in the turn that runs, or soon."""
        if not self.waiting:
            self._turns.ask_flush()
        self.waiting.append(connection)

    def flush(self) -> None:
        """Send waiting output, in one write per connection."""
        connections, self.waiting = self.waiting, []
        for connection in connections:
            connection.flush()

    def stop_reading(self) -> None:
        """Read from no connection until `start_reading`."""
        self.reading = False
        for connection in self._all:
            connection.stop_reading("crowded")

    def start_reading(self) -> None:
        """Read from all connections again."""
        self.reading = True
        for connection in self._all:
            connection.start_reading("crowded")

    # --- the sweep --------------------------------------------------------------------------------

    def sweep(self, now: float, redirect: Callable[[], Redirect]) -> int:
        """Close handshakes that take too long, stalled peers, and the largest if memory is short.

        `redirect`: the last frame for clients that no leader could welcome in time. Return the
        bytes that were held for all peers.
        """
        for connection in list(self._sessionless):
            if connection.session is not None:
                del self._sessionless[connection]
            elif connection.open:
                _sweep_sessionless(connection, now, redirect)
        held_bytes = sum([self._sweep_watched(connection, now) for connection in [*self._watched]])
        if held_bytes > self._memory_high_bytes:
            self._make_room(held_bytes)
        return held_bytes

    def _sweep_watched(self, connection: Connection, now: float) -> int:
        """Return the bytes held for the peer; abort one that has stalled."""
        closing_at = connection.closing_at
        if closing_at is not None and now - closing_at > limits.CLOSING_SECONDS:
            connection.abort()
        if connection.stalled(now):
            logger.warning("event=peer_closed reason=stalled peer=%s", connection.address)
            connection.abort()
        if not connection.holding:
            del self._watched[connection]
        return connection.held_bytes

    def _make_room(self, held_bytes: int) -> None:
        """Abort the peers that hold most, until the rest is below the high-water mark."""
        for connection in sorted(self._all, key=lambda c: c.held_bytes, reverse=True):
            if held_bytes <= self._memory_high_bytes:
                return
            logger.warning(
                "event=peer_closed reason=memory peer=%s held_bytes=%d",
                connection.address,
                connection.held_bytes,
            )
            held_bytes -= connection.held_bytes
            connection.abort()

    def abort_all(self) -> None:
        """Abort every connection, and any that is still accepted: the node ends."""
        self._ended = True
        for connection in list(self._all):
            connection.abort()


def _sweep_sessionless(
    connection: Connection, now: float, redirect: Callable[[], Redirect]
) -> None:
    age = now - connection.made_at
    if connection.observer:
        beat(connection, now)
        if connection.reading and silent(connection, connection.heard_at, now):
            connection.abort()
    elif not connection.said_hello and age > limits.OPENING_SECONDS:
        connection.fail(Code.PROTOCOL, f"no hello within {limits.OPENING_SECONDS:g} s")
    elif age > limits.OPENING_LEADERLESS_SECONDS:
        connection.close(redirect())
