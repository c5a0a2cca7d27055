"""Admission of authenticated clients in one term: their sessions are attached, then welcomed.

Owns the last step of semantics.md section 4: clients wait until this leader's own `lead` is
applied, then each session is attached through the log and its connection is bound. Must not know
authentication or requests.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fifo.machine.contract import EndCause, Machine, Refused, Reply, commands, replies
from fifo.wire import Code
from fifo.wire.messages import SESSION_NEW, SESSION_RESUMED, Hello
from fifo.words.handles import KEY_BYTES
from node.broker.connections.connection import Connection
from node.broker.connections.handshake import Handshake
from node.broker.connections.sessions import Sessions
from node.broker.proposals import Proposals, Waiter
from node.broker.quotas import Quotas
from node.broker.reads import Reads
from node.broker.refusals import wire_code
from node.users import Permission, Quota


class Admission:
    """Attaches the sessions of clients, on the leader."""

    def __init__(
        self,
        machine: Machine,
        proposals: Proposals,
        sessions: Sessions,
        handshake: Handshake,
        *,
        quotas: Quotas,
        reads: Reads,
        entropy: Callable[[int], bytes],
        gone: Callable[[Connection], None],
    ) -> None:
        """`reads`: whether this node still leads; `entropy` gives the secrets of sessions;
        `gone`: called for a connection that was closed while its attach was in flight."""
        self._machine = machine
        self._proposals = proposals
        self._sessions = sessions
        self._handshake = handshake
        self._quotas = quotas
        self._reads = reads
        self._entropy = entropy
        self._gone = gone
        self._waiting: dict[Connection, Hello] | None = {}

    def admit(self, connection: Connection, hello: Hello) -> None:
        """Attach the session of this connection, now or when the term has begun."""
        if self._waiting is None:
            self._attach(connection, hello)
        else:
            self._waiting[connection] = hello

    def begin(self) -> None:
        """Attach the clients that have waited: this leader's own `lead` is applied."""
        waiting, self._waiting = self._waiting or {}, None
        for connection, hello in waiting.items():
            if connection.open:
                self._attach(connection, hello)

    def forget(self, connection: Connection) -> None:
        """Drop a closed connection that waits."""
        if self._waiting is not None:
            self._waiting.pop(connection, None)

    def _attach(self, connection: Connection, hello: Hello) -> None:
        known = self._machine.session_of(hello.session) is not None
        if hello.resume and not known:
            self._reads.ask(partial(self._unknown, connection, hello))
            return
        rights = connection.rights
        if not known and not self._may_open(connection):
            return
        user = "" if rights is None else rights.user.name
        command = commands.Attach(
            hello.session,
            hello.role,
            hello.incarnation,
            self._entropy(KEY_BYTES),
            user,
            connection.address,
            hello.client,
            hello.resume,
        )

        decided = self._quotas.proposed(rights, Quota.SESSIONS, 0 if known else 1)

        def answer(reply: Reply) -> None:
            decided()
            self._attached(connection, hello, reply)

        def lost(outcome: object) -> None:
            decided()
            connection.lose(outcome)

        self._proposals.propose_command(command, Waiter(answer, lost=lost))

    def _unknown(self, connection: Connection, hello: Hello, current: bool) -> None:
        """Say that a session is gone, where that is certain."""
        if not connection.open:
            return
        if not current:  # Another node may lead, and know the session.
            connection.lose(None)
        elif self._machine.session_of(hello.session) is not None:
            self._attach(connection, hello)
        else:
            _session_ended(connection)

    def _may_open(self, connection: Connection) -> bool:
        """Whether the user may have another session; otherwise the connection fails."""
        rights = connection.rights
        if rights is not None and not rights.user.may_anything:
            text = f"user {rights.user.name} has no permission at all, and may open nothing"
            connection.fail(Code.PERMISSION_DENIED, text)
            return False
        found = self._quotas.refusal(rights, Quota.SESSIONS)
        if found is not None:
            connection.fail(found.code, found.text)
        return found is None

    def _attached(self, connection: Connection, hello: Hello, reply: Reply) -> None:
        if isinstance(reply, Refused):
            connection.fail(wire_code(reply), reply.text)
            return
        assert isinstance(reply, replies.Attached)
        if hello.resume and not reply.resumed:
            # The session ended between the check and the attach, and no client wants the new one.
            self._proposals.propose_command(commands.EndSession(reply.session), None)
            _session_ended(connection)
            return
        if _has_lost_a_right(connection, reply):
            # It has a consumer on a queue that its user may no longer consume: without consumers,
            # but with the numbers of what it published, it may come back.
            emptied = commands.EndSession(reply.session, int(EndCause.OPERATOR))
            self._proposals.propose_command(emptied, Waiter(lambda _: connection.lose(None)))
            return
        self._sessions.bind(connection, reply.session, hello.session, hello.role, reply.epoch)
        if connection.lost:
            self._gone(connection)  # It was closed while its attach was in flight.
            return
        self._handshake.welcome(
            connection,
            session_state=SESSION_RESUMED if reply.resumed else SESSION_NEW,
            epoch=reply.epoch,
            consumers=reply.consumers,
            queue_below=self._machine.next_queue,
            handle_key=reply.handle_key,
        )


def _session_ended(connection: Connection) -> None:
    connection.fail(
        Code.SESSION_ENDED, "this session has ended and its locks are lost: open a new one"
    )


def _has_lost_a_right(connection: Connection, reply: replies.Attached) -> bool:
    rights = connection.rights
    return rights is not None and not all(
        rights.may(Permission.CONSUME, queue) for _, _, queue, _ in reply.consumers
    )
