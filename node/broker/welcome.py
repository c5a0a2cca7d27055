"""How a connection opens: hello, and then a welcome, a redirect or an error.

Owns the order of semantics.md section 4 for one hello: who may come in, which session is attached,
and that nobody is welcomed before this leader's own `lead` is applied. Must not know requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fifo.machine.commands import Attach, EndSession
from fifo.machine.replies import Attached, Refused, Reply
from fifo.wire import Code, State, agree
from fifo.wire import limits as wire_limits
from fifo.wire.messages import (
    ROLE_OBSERVER,
    SESSION_NEW,
    SESSION_RESUMED,
    Hello,
    Nodes,
    Redirect,
    Welcome,
)
from node.broker import limits
from node.broker.connection import Connection
from node.broker.machine_host import MachineHost
from node.broker.proposals import Proposals, Waiter
from node.broker.refusals import wire_code
from node.broker.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this node is, for its welcomes and redirects."""

    node: str
    cluster_id: bytes
    nodes: Nodes
    limits: tuple[tuple[str, int], ...]


class Doorkeeper:
    """Answers hellos."""

    def __init__(
        self,
        identity: Identity,
        host: MachineHost,
        proposals: Proposals,
        sessions: Sessions,
        *,
        sessions_max: int,
        leader: Callable[[], str | None],
        term: Callable[[], int],
        gone: Callable[[Connection], None],
    ) -> None:
        """`leader()`: name of the leader as last heard; `gone`: a bound connection is closed."""
        self._identity = identity
        self._host = host
        self._proposals = proposals
        self._sessions = sessions
        self._sessions_max = sessions_max
        self._leader = leader
        self._term = term
        self._gone = gone
        self._parked: dict[Connection, Hello] = {}

    def redirect(self, *, moved: bool) -> Redirect:
        """Where to go instead; a leader that is not known yet is asked for again soon."""
        leader = self._leader()
        if leader == self._identity.node:
            leader = None  # It was me; who it will be, nobody knows yet.
        address = dict(self._identity.nodes).get(leader) if leader is not None else None
        retry_ms = 0 if address is not None else limits.RETRY_LEADERLESS_MS
        return Redirect(leader, address, retry_ms, self._identity.nodes, moved)

    def hello(self, connection: Connection, hello: Hello, *, leads: bool, led: bool) -> None:
        """The first frame of a client. Raises RemoteProtocolError where no version is common."""
        version = agree(hello)
        connection.said_hello = True
        connection.version = version
        beat_ms = min(max(hello.heartbeat_ms, limits.HEARTBEAT_MS_MIN), limits.HEARTBEAT_MS_MAX)
        connection.heartbeat_s = beat_ms / 1000
        if hello.user is not None or hello.mechanism is not None:
            connection.fail(
                Code.AUTHENTICATION_FAILED,
                "this cluster knows no users: connect without user and mechanism",
            )
        elif hello.role == ROLE_OBSERVER:
            connection.observer = True
            self._open(connection, hello, session_state=SESSION_NEW, epoch=0, consumers=())
        elif not leads:
            connection.close(self.redirect(moved=False))
        elif not led:
            self._parked[connection] = hello
        else:
            self._attach(connection, hello)

    def led(self) -> None:
        """This leader's own `lead` is applied: who waited for that is let in now."""
        parked, self._parked = self._parked, {}
        for connection, hello in parked.items():
            if connection.open:
                self._attach(connection, hello)

    def forget(self, connection: Connection) -> None:
        """The connection is closed."""
        self._parked.pop(connection, None)

    def clear(self) -> None:
        """Leadership is lost."""
        self._parked.clear()

    def _attach(self, connection: Connection, hello: Hello) -> None:
        known = self._host.knows_session(hello.session)
        if hello.resume and not known:
            self._session_ended(connection)
            return
        if not known and self._host.session_count() >= self._sessions_max:
            connection.fail(Code.LIMIT, f"this cluster has its {self._sessions_max} sessions")
            return
        command = Attach(hello.session, hello.role, hello.incarnation, "", connection.address)

        def answer(reply: Reply) -> None:
            self._attached(connection, hello, reply)

        self._proposals.propose(command, Waiter(answer, lost=connection.lose))

    def _attached(self, connection: Connection, hello: Hello, reply: Reply) -> None:
        if isinstance(reply, Refused):
            connection.fail(wire_code(reply), reply.text)
            return
        assert isinstance(reply, Attached)
        if hello.resume and not reply.resumed:
            # It ended between the look at the state and the attach; nobody wants the new one.
            self._proposals.propose(EndSession(reply.session), None)
            self._session_ended(connection)
            return
        self._sessions.bind(connection, reply.session, hello.session, hello.role, reply.epoch)
        if connection.lost:
            self._gone(connection)  # It was closed while its attach was on its way.
            return
        state = SESSION_RESUMED if reply.resumed else SESSION_NEW
        self._open(
            connection, hello, session_state=state, epoch=reply.epoch, consumers=reply.consumers
        )

    def _session_ended(self, connection: Connection) -> None:
        connection.fail(
            Code.SESSION_ENDED, "this session has ended: its locks are lost; open a new one"
        )

    def _open(
        self,
        connection: Connection,
        hello: Hello,
        *,
        session_state: int,
        epoch: int,
        consumers: tuple[tuple[int, str, str, int], ...],
    ) -> None:
        if connection.opening.state is not State.OPENING:
            return  # It broke the protocol while it waited, and is being closed.
        connection.opening.opened()
        connection.send(
            Welcome(
                version=connection.version,
                node=self._identity.node,
                cluster=self._identity.cluster_id,
                term=self._term(),
                session_state=session_state,
                epoch=epoch,
                heartbeat_ms=int(connection.heartbeat_s * 1000),
                features=(),
                nodes=self._identity.nodes,
                consumers=consumers[: wire_limits.ITEMS_MAX],
                limits=self._identity.limits,
            )
        )
