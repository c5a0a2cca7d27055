"""The connections of each session, on the leader, in one term.

Owns the volatile side of semantics.md section 4: binding a connection to its session, role and
epoch, closing those of an older epoch, heartbeats, and detecting silent peers. The session itself
and its locks are replicated state; this table lives as long as the term. Must not know requests,
locks or how commands travel.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from math import inf

from fifo.wire import Code
from fifo.wire.limits import HEARTBEATS_MISSED_MAX
from fifo.wire.messages import ROLE_CONTROL, ROLE_DATA, Ping
from node.broker.connections.connection import Connection


@dataclass(slots=True, eq=False)
class Session:
    """A session with at least one connection here. `ending`: its client has asked to close it.
    `look`: the number of its next scheduled check."""

    number: int
    session_id: bytes
    connections: list[Connection] = field(default_factory=list)
    epochs: list[int] = field(default_factory=lambda: [0, 0])
    ending: bool = False
    look: int = 0

    def connection(self, role: int) -> Connection | None:
        """The newest open connection of that role."""
        for connection in reversed(self.connections):
            if connection.role == role and connection.open:
                return connection
        return None

    @property
    def data(self) -> Connection | None:
        """The connection for deliveries."""
        return self.connection(ROLE_DATA)

    @property
    def speaker(self) -> Connection | None:
        """The connection for notices: that of the client's own thread, or else the other."""
        return self.connection(ROLE_CONTROL) or self.connection(ROLE_DATA)

    def heard_at(self) -> float:
        """Time at which any of its connections was heard last."""
        return max([connection.heard_at for connection in self.connections], default=0.0)

    def due_at(self) -> float:
        """Time at which the first of its connections needs a heartbeat or has been silent for too
        long. Only a connection that comes or goes can make that earlier."""
        heard_at = self.heard_at()
        due_at = inf
        for connection in self.connections:
            speak_at = connection.spoke_at + connection.heartbeat_s
            cut_at = heard_here(connection, heard_at) + patience(connection)
            due_at = min(due_at, speak_at, cut_at)
        return due_at


class Farewell(Enum):
    """Consequence of a closed connection for its session."""

    NOTHING = "nothing"
    DETACH = "detach"
    DISCONNECT = "disconnect"


class Sessions:
    """All sessions that are connected to this leader."""

    def __init__(self) -> None:
        self._by_number: dict[int, Session] = {}
        self._looks: list[tuple[float, int, Session]] = []
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._by_number)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_number.values()))

    def get(self, number: int) -> Session | None:
        """The session with this number, where it is connected here."""
        return self._by_number.get(number)

    def bind(
        self, connection: Connection, number: int, session_id: bytes, role: int, epoch: int
    ) -> Session:
        """Bind a connection to the session that it was attached to. An older one in its role is
        fenced by an effect of the same entry, which knows whether to report that as taken."""
        session = self._by_number.get(number)
        if session is None:
            session = self._by_number[number] = Session(number, session_id)
        connection.session, connection.role, connection.epoch = session, role, epoch
        session.epochs[role] = max(session.epochs[role], epoch)
        session.connections.append(connection)
        self._look_at(session, 0.0)
        return session

    def unbind(self, connection: Connection) -> Farewell:
        """Remove a closed connection; return the consequence that the machine has to learn.

        A connection that was bound in an earlier term has none: its session is not in this table.
        """
        bound = connection.session
        session = None if bound is None else self._by_number.get(bound.number)
        if session is not bound or session is None or connection not in session.connections:
            return Farewell.NOTHING
        session.connections.remove(connection)
        if not session.connections:
            self._by_number.pop(session.number, None)
            session.look = 0
            return Farewell.NOTHING if session.ending else Farewell.DISCONNECT
        self._look_at(session, 0.0)
        newest = session.epochs[connection.role] == connection.epoch
        return Farewell.DETACH if newest and not session.ending else Farewell.NOTHING

    def fence(self, number: int, role: int, epoch: int, *, taken: bool) -> None:
        """Close the connections of this role up to that epoch; `taken`: by another client."""
        session = self._by_number.get(number)
        for connection in list(session.connections) if session is not None else ():
            if connection.role == role and connection.epoch <= epoch:
                if taken:
                    connection.fail(
                        Code.SESSION_TAKEN, "this session was opened by another client object"
                    )
                else:
                    connection.close()

    def close(self, number: int) -> None:
        """Close the connections of a session whose end is committed."""
        session = self._by_number.get(number)
        for connection in list(session.connections) if session is not None else ():
            connection.close()

    def _look_at(self, session: Session, due_at: float) -> None:
        """Schedule the session's next check; an earlier schedule is void."""
        session.look = next(self._numbers)
        heapq.heappush(self._looks, (due_at, session.look, session))

    def sweep(self, now: float) -> None:
        """Send heartbeats that are due; abort peers that were silent for two heartbeats.

        Checks only sessions of which something may be due, so that thousands of idle ones cost
        little.
        """
        due = []
        while self._looks and self._looks[0][0] <= now:
            _, look, session = heapq.heappop(self._looks)
            if session.look == look:
                due.append(session)
        for session in due:
            heard_at = session.heard_at()
            for connection in list(session.connections):
                beat(connection, now)
                if connection.reading and silent(connection, heard_here(connection, heard_at), now):
                    connection.abort()
            if session.connections:
                self._look_at(session, session.due_at())


def heard_here(connection: Connection, heard_at: float) -> float:
    """Time at which the peer counts as heard; its session was heard at `heard_at`.

    A data connection may be silent while the control connection speaks: the handler blocks the
    user's event loop. So a data connection counts as heard with its session.
    """
    return connection.heard_at if connection.role == ROLE_CONTROL else heard_at


def patience(connection: Connection) -> float:
    """Seconds of silence after which a peer counts as gone."""
    return HEARTBEATS_MISSED_MAX * connection.heartbeat_s


def beat(connection: Connection, now: float) -> None:
    """Send a heartbeat after a silence of one interval."""
    if connection.open and now - connection.spoke_at >= connection.heartbeat_s:
        connection.send_ahead(Ping(), connection.opening.next_correlation())


def silent(connection: Connection, heard_at: float, now: float) -> bool:
    """Whether a peer last heard at `heard_at` has been silent for too long."""
    return now - heard_at > patience(connection)
