"""How a connection opens: hello, and then a welcome, a redirect or an error.

Owns the order of semantics.md section 4 for one hello: who it is, which session is attached, and
that nobody is welcomed before this leader's own `lead` is applied. Must not know requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fifo.machine.commands import Attach, EndSession
from fifo.machine.replies import Attached, Refused, Reply
from fifo.wire import Code, RemoteProtocolError, State, agree
from fifo.wire import limits as wire_limits
from fifo.wire.messages import (
    ROLE_OBSERVER,
    SESSION_NEW,
    SESSION_RESUMED,
    Authenticate,
    Challenge,
    Hello,
    Nodes,
    Redirect,
    Status,
    Welcome,
)
from node.broker import limits
from node.broker.connections.authentication import MECHANISMS, Authentication, Denied, Verdict
from node.broker.connections.connection import Connection
from node.broker.connections.sessions import Sessions
from node.broker.machine_host import MachineHost
from node.broker.proposals import Proposals, Waiter
from node.broker.refusals import wire_code
from node.users import Permission


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
        authentication: Authentication,
        leads: Callable[[], bool],
        led: Callable[[], bool],
        leader: Callable[[], str | None],
        term: Callable[[], int],
        known: Callable[[Connection], None],
        gone: Callable[[Connection], None],
    ) -> None:
        """`leader()`: name of the leader as last heard. `leads()`: this node does; `led()`: and has
        applied its own `lead`. `known`: it is clear who this is; `gone`: a bound connection is
        closed."""
        self._identity = identity
        self._host = host
        self._proposals = proposals
        self._sessions = sessions
        self._sessions_max = sessions_max
        self._authentication = authentication
        self._leads = leads
        self._led = led
        self._leader = leader
        self._term = term
        self._known = known
        self._gone = gone
        self._challenged: dict[Connection, Hello] = {}
        self._parked: dict[Connection, Hello] = {}

    def redirect(self, *, moved: bool) -> Redirect:
        """Where to go instead; a leader that is not known yet is asked for again soon."""
        leader = self._leader()
        if leader == self._identity.node:
            leader = None  # It was me; who it will be, nobody knows yet.
        address = dict(self._identity.nodes).get(leader) if leader is not None else None
        retry_ms = 0 if address is not None else limits.RETRY_LEADERLESS_MS
        return Redirect(leader, address, retry_ms, self._identity.nodes, moved)

    def hello(self, connection: Connection, hello: Hello) -> None:
        """The first frame of a client. Raises RemoteProtocolError where no version is common."""
        version = agree(hello)
        connection.said_hello = True
        connection.version = version
        beat_ms = min(max(hello.heartbeat_ms, limits.HEARTBEAT_MS_MIN), limits.HEARTBEAT_MS_MAX)
        connection.heartbeat_s = beat_ms / 1000
        if not self._authentication.required:
            self._without_users(connection, hello)
        elif hello.role != ROLE_OBSERVER and not self._leads():
            # Before it is asked for a secret: only the leader has to know it.
            self._known(connection)
            connection.close(self.redirect(moved=False))
        else:
            self._ask_who(connection, hello)

    def _without_users(self, connection: Connection, hello: Hello) -> None:
        if hello.user is None and hello.mechanism is None:
            self._let_in(connection, hello)
        else:
            connection.fail(
                Code.AUTHENTICATION_FAILED,
                "this cluster knows no users: connect without user, password and token",
            )

    def _ask_who(self, connection: Connection, hello: Hello) -> None:
        """Ask for the secret, where the client has said how it will prove who it is."""
        mechanism = hello.mechanism
        if mechanism is None and hello.user is None:
            verdict = self._authentication.without_credentials(connection.host)
            self._decided(connection, hello, verdict)
        elif mechanism not in MECHANISMS:
            text = f"the mechanism must be one of {', '.join(MECHANISMS)}"
            connection.fail(Code.AUTHENTICATION_FAILED, text)
        else:
            self._challenged[connection] = hello
            connection.send(Challenge(mechanism))

    def authenticate(self, connection: Connection, message: Authenticate) -> None:
        """The answer to a challenge. Raises RemoteProtocolError where there was none."""
        hello = self._challenged.pop(connection, None)
        if hello is None:
            raise RemoteProtocolError(Code.PROTOCOL, "nobody asked for authentication")
        if message.mechanism != hello.mechanism:
            raise RemoteProtocolError(Code.PROTOCOL, "this is not the mechanism of the challenge")

        def decided(verdict: Verdict) -> None:
            self._decided(connection, hello, verdict)

        self._authentication.check(
            connection.host, message.mechanism, hello.user or "", message.payload, decided
        )

    def _decided(self, connection: Connection, hello: Hello, verdict: Verdict) -> None:
        if not connection.open:
            return
        if isinstance(verdict, Denied):
            connection.fail(verdict.code, verdict.text)
        elif hello.role == ROLE_OBSERVER and not verdict.may_monitor:
            connection.fail(Code.PERMISSION_DENIED, verdict.refusal(Status()) or "")
        else:
            connection.rights = verdict
            self._let_in(connection, hello)

    def _let_in(self, connection: Connection, hello: Hello) -> None:
        """Who it is, is clear: now whether this is the node to go to."""
        self._known(connection)
        if hello.role == ROLE_OBSERVER:
            connection.observer = True
            self._open(connection, hello, session_state=SESSION_NEW, epoch=0, consumers=())
        elif not self._leads():
            connection.close(self.redirect(moved=False))
        elif not self._led():
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
        self._challenged.pop(connection, None)

    def clear(self) -> None:
        """Leadership is lost."""
        self._parked.clear()
        self._challenged.clear()

    def _attach(self, connection: Connection, hello: Hello) -> None:
        known = self._host.knows_session(hello.session)
        if hello.resume and not known:
            self._session_ended(connection)
            return
        if not known and self._host.session_count() >= self._sessions_max:
            connection.fail(Code.LIMIT, f"this cluster has its {self._sessions_max} sessions")
            return
        user = "" if connection.rights is None else connection.rights.user.name
        command = Attach(hello.session, hello.role, hello.incarnation, user, connection.address)

        def answer(reply: Reply) -> None:
            self._attached(connection, hello, reply)

        self._proposals.propose(command, Waiter(answer, lost=connection.lose))

    def _attached(self, connection: Connection, hello: Hello, reply: Reply) -> None:
        if isinstance(reply, Refused):
            connection.fail(wire_code(reply), reply.text)
            return
        assert isinstance(reply, Attached)
        if (hello.resume and not reply.resumed) or _has_lost_a_right(connection, reply):
            # It ended between the look at the state and the attach, and nobody wants the new one;
            # or it consumes what its user may not consume any more.
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


def _has_lost_a_right(connection: Connection, reply: Attached) -> bool:
    rights = connection.rights
    return rights is not None and not all(
        rights.may(Permission.CONSUME, queue) for _, _, queue, _ in reply.consumers
    )
