"""Handing leadership over, because an operator asks for it.

Owns the answers to one request. It is answered with success by the node that leads, and by nobody
else: the old leader's connections end with its leadership, and its clients ask again where they
are sent. Must not know how a transfer works: `node.raft` does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fifo.wire import Code, Frame
from fifo.wire.messages import Message, Ok, TransferLeadership
from node.raft import RaftNode, TransferRefused

if TYPE_CHECKING:
    from node.broker.connections.connection import Connection
    from node.broker.connections.sessions import Session
    from node.broker.requests.requests import Handler

logger = logging.getLogger(__name__)


class Handover:
    """The handler of `TransferLeadership`."""

    def __init__(self, own_name: str) -> None:
        self._own_name = own_name
        self._raft: RaftNode
        self.handlers: dict[type[Message], Handler] = {TransferLeadership: self.transfer}

    def attach(self, raft: RaftNode) -> None:
        """What can hand over."""
        self._raft = raft

    def transfer(self, connection: Connection, session: Session, frame: Frame) -> None:
        """Begin a transfer, or say why not; this node's own name asks for what is so already."""
        message = frame.message
        assert isinstance(message, TransferLeadership)
        correlation, target = frame.correlation, message.node
        if target == self._own_name:
            connection.send(Ok({"leader": target, "term": self._raft.term}), correlation)
            return

        def failed(reason: str) -> None:
            logger.warning("event=transfer_failed target=%s reason=%s", target, reason)
            connection.refuse(correlation, Code.NOT_NOW, reason)

        if self._raft.transferring:
            connection.refuse(correlation, Code.NOT_NOW, "leadership is on its way already")
            return
        try:
            self._raft.transfer(target, failed)
        except TransferRefused as refused:
            connection.refuse(correlation, Code.INVALID_ARGUMENT, str(refused))
            return
        logger.info("event=transfer target=%s term=%d", target, self._raft.term)
