"""Requests about queues themselves: declare, update, delete, purge, pause and resume.

Owns the steps of a purge until it is complete. Must not know messages or consumers.
"""

from __future__ import annotations

from collections.abc import Callable

from fifo.machine.contract import Command, Machine, Reply, commands, replies
from fifo.wire import Code, Frame
from fifo.wire.messages import Declare, Ok, QueueAction, Update
from node.broker.connections.connection import Binding, Connection
from node.broker.requests.proposer import Proposer, message_of, ok

_ACTIONS: dict[str, Callable[[str], Command]] = {
    "delete": commands.DeleteQueue,
    "purge": commands.Purge,
    "pause": commands.PauseQueue,
    "resume": commands.ResumeQueue,
}


class Queues:
    """Handler of requests that create, change or empty a queue."""

    def __init__(self, machine: Machine, proposer: Proposer, *, queues_max: int) -> None:
        self._machine = machine
        self._proposer = proposer
        self._queues_max = queues_max

    def declare(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Create a queue, or find it with the same options."""
        message = message_of(frame, Declare)
        machine, proposer = self._machine, self._proposer
        if not machine.has_queue(message.queue) and machine.queue_count() >= self._queues_max:
            text = f"this cluster has its maximum of {self._queues_max} queues"
            connection.refuse(frame.correlation, Code.LIMIT, text)
            return

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Declared)
            connection.send(Ok({"created": reply.created}), frame.correlation)

        def decided() -> None:
            proposer.declaring -= 1

        command = commands.Declare(message.queue, message.spec)
        if proposer.ask(connection, frame, command, answer, decided=decided):
            proposer.declaring += 1

    def update(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Change options of a live queue."""
        message = message_of(frame, Update)
        if not self._proposer.lacks_queue(connection, frame.correlation, message.queue):
            command = commands.UpdateQueue(message.queue, message.changes)
            self._proposer.ask(connection, frame, command, ok(connection, frame))

    def action(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Delete, purge, pause or resume a queue."""
        message = message_of(frame, QueueAction)
        make = _ACTIONS.get(message.action)
        if make is None:
            text = f"unknown queue action {message.action!r}: use one of {', '.join(_ACTIONS)}"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)
            return
        if self._proposer.lacks_queue(connection, frame.correlation, message.queue):
            return
        before = self._machine.purged(message.queue)

        def answer(reply: Reply) -> None:
            if isinstance(reply, replies.Purged) and reply.more:
                self._continue_purge(connection, frame, message.queue, before)
                return
            result = None
            if isinstance(reply, (replies.Deleted, replies.Purged)):
                result = {"messages": reply.messages}
            connection.send(Ok(result), frame.correlation)

        self._proposer.ask(connection, frame, make(message.queue), answer)

    def _continue_purge(self, connection: Connection, frame: Frame, name: str, before: int) -> None:
        """Answer when the purge is complete: ticks carry it on, and each is requested here."""

        def step() -> None:
            self._proposer.ask(connection, frame, commands.Tick(), answer)

        def answer(reply: Reply) -> None:
            if self._machine.is_purging(name):
                if connection.open:
                    step()
                return
            # Messages of a queue that was deleted meanwhile are gone as well, but not counted.
            purged = max(self._machine.purged(name) - before, 0)
            connection.send(Ok({"messages": purged}), frame.correlation)

        step()
