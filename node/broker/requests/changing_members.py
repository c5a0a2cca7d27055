"""Changes of the members: for an operator, one at a time.

Owns the request. What a change has to meet, and how it is made, is the log's (`node/raft`); what
this node knows of the members is `node/broker/members.py`.
"""

from __future__ import annotations

from fifo.wire import Code, Frame
from fifo.wire.membership import ChangeMembers
from fifo.wire.messages import Ok
from node.broker.audit import BEGUN
from node.broker.connections.connection import Binding, Connection
from node.broker.members import Members, why_none_changes
from node.broker.requests.proposer import Proposer, message_of
from node.broker.upgrade import Upgrade
from node.raft import ChangeRefused


class ChangingMembers:
    """Handler of `ChangeMembers`."""

    def __init__(self, members: Members, upgrade: Upgrade, proposer: Proposer) -> None:
        self._members = members
        self._upgrade = upgrade
        self._proposer = proposer

    def change(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Begin a change once the note about it is committed, or say why there is none."""
        request, correlation = message_of(frame, ChangeMembers), frame.correlation
        reason = why_none_changes(self._upgrade.used)
        if reason:
            connection.refuse(correlation, Code.INVALID_ARGUMENT, reason)
            return

        def begin() -> None:
            try:
                found = self._members.change(request)
            except ChangeRefused as refused:
                connection.refuse(correlation, Code.INVALID_ARGUMENT, str(refused))
                return
            place = {"term": found.place.term, "index": found.place.index}
            answer = {"number": found.number, "wanted": list(found.wanted)}
            connection.send(Ok(answer | place), correlation)

        # Behind the note a leader has committed an entry of its term: before, it changes nothing.
        self._proposer.note(connection, frame.message, BEGUN, begin)
