"""Acknowledgements of notices: they wait for the next look of the lock clock.

Owns those that wait. One covers all notices up to its number, and nothing depends on how soon it is
in the log, so each connection's last one shares the entry of that look's tick, or waits a while for
one that has room: locks that end one after the other cost an entry per look, and not another one
per notice. Must not know what a notice is about.
"""

from __future__ import annotations

from collections.abc import Callable

from fifo.machine.contract import Refused, Reply, commands
from fifo.wire import Frame
from fifo.wire.messages import NoticeAck, Ok
from node.broker import limits
from node.broker.connections.connection import Binding, Connection
from node.broker.proposals import Proposals, Waiter
from node.broker.requests.proposer import fence, message_of, refuse


class NoticeAcks:
    """Handler of `NoticeAck`."""

    def __init__(self, proposals: Proposals, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds."""
        self._proposals = proposals
        self._now = now
        self._since = 0.0
        self._waiting: dict[Connection, list[Frame]] = {}

    def acknowledge(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Keep an acknowledgement until the next look."""
        connection.begin(0, 0)
        if not self._waiting:
            self._since = self._now()
        self._waiting.setdefault(connection, []).append(frame)

    def look(self, *, full: bool) -> None:
        """Propose what was acknowledged since the last look, once for each connection; `full`: the
        entry of this look's tick has no room for more.

        That of a connection which closed meanwhile is dropped: its session's notices come again.
        """
        if full and self._now() - self._since < limits.NOTICE_ACK_SECONDS:
            return
        waiting, self._waiting = self._waiting, {}
        for connection, frames in waiting.items():
            if connection.open and connection.session is not None:
                self._propose(connection, connection.session, frames)

    def _propose(self, connection: Connection, session: Binding, frames: list[Frame]) -> None:
        last = max([message_of(frame, NoticeAck).notice for frame in frames])

        def answer(reply: Reply) -> None:
            for frame in frames:
                connection.end(0, 0)
                if type(reply) is Refused:
                    refuse(connection, frame.correlation, reply)
                else:
                    connection.send(Ok(), frame.correlation)

        command = commands.NoticeAck(session.number, last, fence(connection))
        self._proposals.propose_command(command, Waiter(answer, lost=connection.lose))
