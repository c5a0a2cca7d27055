"""The handshake of a connection: hello, authentication, and a welcome, a redirect or an error.

Owns the first two steps of semantics.md section 4: which user the client is, and whether this is
the node to connect to. A data or control connection is passed on to the term's `Admission`, which
attaches its session; an observer needs none. Must not know sessions or requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

from fifo.wire import Code, RemoteProtocolError, State, agree
from fifo.wire import limits as wire_limits
from fifo.wire.messages import (
    ROLE_OBSERVER,
    SESSION_NEW,
    Authenticate,
    Challenge,
    Hello,
    Nodes,
    Redirect,
    Welcome,
)
from node.broker import limits
from node.broker.connections.authentication import MECHANISMS, Authentication, Denied, Verdict
from node.broker.connections.connection import Connection
from node.broker.connections.registry import Connections
from node.broker.unreached import Complaints
from node.raft import RaftNode
from node.roster import Roster

_Waits: TypeAlias = tuple[float, Callable[[], None]]
"""Until when a client waits for a leader, and its hello again."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this node, for its welcomes and redirects."""

    node: str
    cluster_id: bytes
    roster: Roster
    limits: tuple[tuple[str, int], ...]

    @property
    def nodes(self) -> Nodes:
        """Name and client address of each member, as this node knows them now."""
        return self.roster.clients


class Admitting(Protocol):
    """A term that this node leads."""

    term: int

    def admit(self, connection: Connection, hello: Hello) -> None:
        """Attach the client's session, now or once the term's own `lead` is applied."""


class Handshake:
    """Answers hellos, on every node and in every term."""

    def __init__(
        self,
        identity: Identity,
        raft: RaftNode,
        connections: Connections,
        authentication: Authentication,
        leading: Callable[[], Admitting | None],
        now: Callable[[], float],
        complaints: Complaints,
    ) -> None:
        """`leading`: the term that this node leads, or None; `now`: monotonic seconds;
        `complaints`: of clients that cannot reach another leader."""
        self._identity = identity
        self._raft = raft
        self._connections = connections
        self._authentication = authentication
        self._leading = leading
        self._now = now
        self._complaints = complaints
        self.waiting: dict[Connection, _Waits] = {}
        """Clients that came while no leader was known; looked at in each turn."""
        self._challenged: dict[Connection, Hello] = {}

    def redirect(self, *, moved: bool) -> Redirect:
        """The frame that names the leader; if none is known, the client asks again soon."""
        leader = self._raft.leader
        if leader == self._identity.node and self._leading() is None:
            leader = None  # This node is resigning, and its successor is not known yet.
        address = dict(self._identity.nodes).get(leader) if leader is not None else None
        retry_ms = 0 if address is not None else limits.RETRY_LEADERLESS_MS
        return Redirect(leader, address, retry_ms, self._identity.nodes, moved)

    def hello(self, connection: Connection, hello: Hello) -> None:
        """Handle the first frame of a client. Raises RemoteProtocolError without a common
        version."""
        connection.version = agree(hello)
        connection.said_hello = True
        beat_ms = min(max(hello.heartbeat_ms, limits.HEARTBEAT_MS_MIN), limits.HEARTBEAT_MS_MAX)
        connection.heartbeat_s = beat_ms / 1000
        if not self._authentication.required:
            self._without_users(connection, hello)
        elif self._passed_on(hello) and not self._complains(hello):
            # Before asking for a secret: only the leader needs to see it.
            self._connections.known(connection)
            self._send_on(connection, partial(self._before_secret, connection, hello))
        else:
            self._identify(connection, hello)

    def _passed_on(self, hello: Hello) -> bool:
        """Whether another node has to welcome this client."""
        return hello.role != ROLE_OBSERVER and self._admitting(hello) is None

    def _complains(self, hello: Hello) -> bool:
        """Whether a client that is to be passed on has to say first who it is: it cannot reach the
        leader, and only the word of a user counts."""
        said = hello.unreached
        return bool(said) and self._complaints.wanted(hello.session, said)

    def _before_secret(self, connection: Connection, hello: Hello) -> None:
        if self._admitting(hello) is None:
            connection.close(self.redirect(moved=False))
        else:
            self._identify(connection, hello)

    def _send_on(self, connection: Connection, again: Callable[[], None]) -> None:
        """Name the leader; `again` handles, a little later, a client that came too early."""
        if self._raft.knows_leader() or len(self.waiting) >= limits.LEADER_WAITING_MAX:
            connection.close(self.redirect(moved=False))
        else:
            self.waiting[connection] = self._now() + limits.LEADER_WAIT_SECONDS, again

    def look(self) -> None:
        """Answer the clients that wait for a leader, if there is one or they have waited enough."""
        known, now = self._raft.knows_leader(), self._now()
        over = [one for one, (until, _) in self.waiting.items() if known or until <= now]
        for connection in over:
            _, again = self.waiting.pop(connection)
            if not connection.open:
                continue
            if known:
                again()
            else:
                connection.close(self.redirect(moved=False))

    def _without_users(self, connection: Connection, hello: Hello) -> None:
        if hello.user is None and hello.mechanism is None:
            connection.without_user = True
            self._let_in(connection, hello)
        else:
            connection.fail(
                Code.AUTHENTICATION_FAILED,
                "this cluster has no users: connect without user, password and token",
            )

    def _identify(self, connection: Connection, hello: Hello) -> None:
        """Challenge the client for its secret, if it has named a mechanism."""
        mechanism = hello.mechanism
        if mechanism is None and hello.user is None:
            if connection.subject is not None:
                verdict = self._authentication.by_certificate(connection.host, connection.subject)
                self._decided(connection, hello, verdict)
                return
            # A loopback address that a balancer names is of its machine, not of this one.
            host = "" if connection.proxied else connection.host
            verdict = self._authentication.without_credentials(host)
            self._decided(connection, hello, verdict)
        elif mechanism not in MECHANISMS:
            text = f"unknown mechanism {mechanism!r}: use one of {', '.join(MECHANISMS)}"
            connection.fail(Code.AUTHENTICATION_FAILED, text)
        else:
            self._challenged[connection] = hello
            connection.send(Challenge(mechanism))

    def authenticate(self, connection: Connection, message: Authenticate) -> None:
        """Handle the answer to a challenge. Raises RemoteProtocolError if there was none."""
        hello = self._challenged.pop(connection, None)
        if hello is None:
            raise RemoteProtocolError(Code.PROTOCOL, "authenticate without a challenge")
        if message.mechanism != hello.mechanism:
            text = f"authenticate by {message.mechanism!r}, challenged for {hello.mechanism!r}"
            raise RemoteProtocolError(Code.PROTOCOL, text)

        def decided(verdict: Verdict) -> None:
            self._decided(connection, hello, verdict)

        self._authentication.check(
            connection.host, message.mechanism, hello.user or "", message.payload, decided
        )

    def _decided(self, connection: Connection, hello: Hello, verdict: Verdict) -> None:
        if not connection.open:
            return
        if isinstance(verdict, Denied) and self._passed_on(hello):
            # Its word does not count. That is all: the leader may know users that are new.
            connection.close(self.redirect(moved=False))
        elif isinstance(verdict, Denied):
            connection.fail(verdict.code, verdict.text)
        elif (refusal := self._connections.take(connection, verdict)) is not None:
            connection.fail(refusal.code, refusal.text)
        else:
            connection.rights = verdict
            self._let_in(connection, hello)

    def _let_in(self, connection: Connection, hello: Hello) -> None:
        """Welcome an authenticated observer; attach or redirect any other client."""
        self._connections.known(connection)
        if hello.role == ROLE_OBSERVER:
            connection.observer = True
            self.welcome(connection, session_state=SESSION_NEW)
        elif (leadership := self._admitting(hello)) is not None:
            leadership.admit(connection, hello)
        else:
            if hello.unreached:
                self._complaints.note(hello.session, hello.unreached)
            self._send_on(connection, partial(self._let_in, connection, hello))

    def _admitting(self, hello: Hello) -> Admitting | None:
        """The term that this node leads, if it is later than the one that the client has.

        A client that looks for a later leader beside a silent connection costs no log entry, and
        loses nothing, where there is none.
        """
        leadership = self._leading()
        if leadership is None or leadership.term <= hello.after_term:
            return None
        return leadership

    def forget(self, connection: Connection) -> None:
        """Drop what a closed connection waits for."""
        self._challenged.pop(connection, None)
        self.waiting.pop(connection, None)

    def welcome(
        self,
        connection: Connection,
        *,
        session_state: int,
        epoch: int = 0,
        consumers: tuple[tuple[int, str, str, int], ...] = (),
        queue_below: int = 0,
        handle_key: bytes = b"",
    ) -> None:
        """Open the connection for requests, unless it broke the protocol meanwhile."""
        if connection.opening.state is not State.OPENING:
            return
        connection.opening.opened()
        connection.send(
            Welcome(
                version=connection.version,
                node=self._identity.node,
                cluster=self._identity.cluster_id,
                term=self._raft.term,
                session_state=session_state,
                epoch=epoch,
                heartbeat_ms=int(connection.heartbeat_s * 1000),
                features=(),
                nodes=self._identity.nodes,
                consumers=consumers[: wire_limits.ITEMS_MAX],
                limits=self._identity.limits,
                queue_below=queue_below,
                handle_key=handle_key,
            )
        )
