"""Which connections belong to which session, on the leader, in this term.

Owns the soft side of semantics.md section 4: binding a connection to its session, role and epoch,
closing those of an older epoch, heartbeats, and noticing that nobody speaks any more. What a
session is and holds stands in the replicated state; this table is empty when a term begins and
forgotten when it ends. Must not know requests, locks or how commands travel.
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


@dataclass(slots=True)
class Session:
    """A session with at least one connection here. `ending`: it asked to be closed. `look`: the
    number of the look at it that is to come."""

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
        """Where deliveries go."""
        return self.connection(ROLE_DATA)

    @property
    def speaker(self) -> Connection | None:
        """Where notices go: the connection of the client's own thread, or else the other."""
        return self.connection(ROLE_CONTROL) or self.connection(ROLE_DATA)

    def heard_at(self) -> float:
        """When any of its connections was heard last."""
        return max([connection.heard_at for connection in self.connections], default=0.0)

    def due_at(self) -> float:
        """When the first of its connections has been silent, or we towards it, for too long. Only
        a connection that comes or goes can make that earlier."""
        heard_at = self.heard_at()
        due_at = inf
        for connection in self.connections:
            speak_at = connection.spoke_at + connection.heartbeat_s
            cut_at = heard_here(connection, heard_at) + patience(connection)
            due_at = min(due_at, speak_at, cut_at)
        return due_at


class Farewell(Enum):
    """What a closed connection means for its session."""

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
        """A connection was attached to a session. An older one in its role is fenced by an effect
        of the same entry, which knows whether to call that taken."""
        session = self._by_number.get(number)
        if session is None:
            session = self._by_number[number] = Session(number, session_id)
        connection.session, connection.role, connection.epoch = session, role, epoch
        session.epochs[role] = max(session.epochs[role], epoch)
        session.connections.append(connection)
        self._look_at(session, 0.0)
        return session

    def unbind(self, connection: Connection) -> Farewell:
        """A connection is closed; what to tell the machine of it."""
        session = connection.session
        if session is None or connection not in session.connections:
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
        """Close the connections of this role up to that epoch."""
        session = self._by_number.get(number)
        for connection in list(session.connections) if session is not None else ():
            if connection.role == role and connection.epoch <= epoch:
                if taken:
                    connection.fail(
                        Code.SESSION_TAKEN, "another client object has opened this session"
                    )
                else:
                    connection.close()

    def clear(self) -> None:
        """Leadership is lost: nobody has a session here any more."""
        for session in self._by_number.values():
            session.connections.clear()
        self._by_number.clear()
        self._looks.clear()

    def _look_at(self, session: Session, due_at: float) -> None:
        """The next sweep from then on looks at the session, and no other that was meant to."""
        session.look = next(self._numbers)
        heapq.heappush(self._looks, (due_at, session.look, session))

    def sweep(self, now: float) -> None:
        """Say something where we were silent; cut what has been silent for two heartbeats.

        Looks only at those of whom something may be due, so that thousands of idle ones cost
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
    """When its peer was heard, whose session was heard at `heard_at`.

    A data connection alone may be silent while the control connection speaks: the handler blocks
    the user's loop. So it is the session that is heard, for its data connection.
    """
    return connection.heard_at if connection.role == ROLE_CONTROL else heard_at


def patience(connection: Connection) -> float:
    """Seconds of silence after which a peer is given up."""
    return HEARTBEATS_MISSED_MAX * connection.heartbeat_s


def beat(connection: Connection, now: float) -> None:
    """Send a heartbeat where we have been silent for one."""
    if connection.open and now - connection.spoke_at >= connection.heartbeat_s:
        connection.send_ahead(Ping(), connection.opening.next_correlation())


def silent(connection: Connection, heard_at: float, now: float) -> bool:
    """Whether what was last heard then is too long ago."""
    return now - heard_at > patience(connection)
