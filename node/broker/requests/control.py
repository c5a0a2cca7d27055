"""Requests about the session and the cluster: close, and a transfer of leadership.

Owns their answers. A transfer is answered with success only by the node that leads: the old
leader's connections end with its term, and its clients retry at the node they are redirected to.
Must not know how a transfer works: `node.raft` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from fifo.machine.contract import Reply, commands
from fifo.wire import Code, Frame
from fifo.wire.messages import Ok, TransferLeadership
from node.broker.audit import BEGUN
from node.broker.connections.connection import Binding, Connection
from node.broker.requests.proposer import Proposer, fence, message_of
from node.raft import RaftNode, TransferRefused

logger = logging.getLogger(__name__)


class Control:
    """Handler of `Close` and `TransferLeadership`."""

    def __init__(
        self,
        raft: RaftNode,
        proposer: Proposer,
        *,
        own_name: str,
        close_session: Callable[[int], None],
    ) -> None:
        """`close_session` closes the connections of the session with this number."""
        self._raft = raft
        self._proposer = proposer
        self._own_name = own_name
        self._close_session = close_session

    def close(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """End the session: its locks are released without a count, and its connections close."""
        session.ending = True

        def answer(reply: Reply) -> None:
            connection.close(Ok(), frame.correlation)
            self._close_session(session.number)

        command = commands.EndSession(session.number, 0, fence(connection))
        self._proposer.ask(connection, frame, command, answer)

    def transfer(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Begin a transfer of leadership, or refuse it; one to this node succeeds at once."""
        target = message_of(frame, TransferLeadership).node
        correlation = frame.correlation
        if target == self._own_name:
            connection.send(Ok({"leader": target, "term": self._raft.term}), correlation)
            return

        def failed(reason: str) -> None:
            logger.warning("event=transfer_failed target=%s reason=%s", target, reason)
            connection.refuse(correlation, Code.NOT_NOW, reason)

        if self._raft.transferring:
            text = "a transfer of leadership is already in progress"
            connection.refuse(correlation, Code.NOT_NOW, text)
            return

        def begin() -> None:
            try:
                self._raft.transfer(target, failed, yields=True)
            except TransferRefused as refused:
                connection.refuse(correlation, Code.INVALID_ARGUMENT, str(refused))
                return
            logger.info("event=transfer target=%s term=%d", target, self._raft.term)

        # Before the transfer, for its leader takes no more entries then.
        self._proposer.note(connection, frame.message, BEGUN, begin)
