"""Requests about queues themselves: declare, update, delete, purge, pause and resume.

Owns the steps of a purge until it is complete. Must not know messages or consumers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from fifo.machine.contract import Command, Machine, Reply, commands, replies
from fifo.wire import Code, Frame
from fifo.wire.messages import Declare, Ok, QueueAction, Update
from node.broker import views
from node.broker.connections.connection import Binding, Connection
from node.broker.quotas import Quotas
from node.broker.requests.proposer import Proposer, message_of, ok, user_of
from node.users import Quota

_ACTIONS: dict[str, Callable[[str], Command]] = {
    "delete": commands.DeleteQueue,
    "purge": commands.Purge,
    "pause": commands.PauseQueue,
    "resume": commands.ResumeQueue,
}


class Queues:
    """Handler of requests that create, change or empty a queue."""

    def __init__(self, machine: Machine, proposer: Proposer, quotas: Quotas) -> None:
        self._machine = machine
        self._proposer = proposer
        self._quotas = quotas
        self._updating: Counter[str] = Counter()

    def declare(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Create a queue, or find it with the same options."""
        message = message_of(frame, Declare)
        proposer = self._proposer
        anew = not self._machine.has_queue(message.queue)
        adds = 1 + self._adds_dead_letter(message.spec) if anew else 0

        def answer(reply: Reply) -> None:
            assert isinstance(reply, replies.Declared)
            connection.send(Ok({"created": reply.created, "queue": reply.queue}), frame.correlation)

        def decided() -> None:
            proposer.declaring -= 1

        command = commands.Declare(message.queue, message.spec, user_of(connection))
        if proposer.ask_for(
            self._quotas, Quota.QUEUES, adds, connection, frame, command, answer, decided=decided
        ):
            proposer.declaring += 1

    def _adds_dead_letter(self, spec: Mapping[str, Any]) -> int:
        """Count the queues that these options create as well: a missing dead-letter queue."""
        target = spec.get("dead_letter")
        return int(isinstance(target, str) and not self._machine.has_queue(target))

    def update(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Change options of a live queue."""
        message = message_of(frame, Update)
        queue = message.queue
        if self._proposer.lacks_queue(connection, frame.correlation, queue):
            return
        if message.version is not None and not self._is_as_seen(connection, frame, message):
            return
        command = commands.UpdateQueue(queue, message.changes, user_of(connection))
        adds = self._adds_dead_letter(message.changes)

        def decided() -> None:
            self._updating[queue] -= 1
            if not self._updating[queue]:
                del self._updating[queue]

        answer = ok(connection, frame)
        if self._proposer.ask_for(
            self._quotas, Quota.QUEUES, adds, connection, frame, command, answer, decided=decided
        ):
            self._updating[queue] += 1

    def _is_as_seen(self, connection: Connection, frame: Frame, message: Update) -> bool:
        """Whether the queue is as its client has seen it; otherwise the request is refused. While
        another update is in flight that is not known."""
        queue = message.queue
        if self._updating[queue] or self._proposer.declaring:
            text = f"another change of queue {queue!r} is under way; retry"
            connection.refuse(frame.correlation, Code.NOT_NOW, text)
            return False
        version = views.queue_version(self._machine, queue)
        if version == message.version:
            return True
        text = (
            f"queue {queue!r} is not as it was seen: its version is {version}, not"
            f" {message.version}; look at it again"
        )
        connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text, {"version": version})
        return False

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
            self._proposer.ask(connection, frame, commands.Tick(), answer, continues=True)

        def answer(reply: Reply) -> None:
            if self._machine.is_purging(name):
                if connection.open:
                    step()
                return
            # Messages of a queue that was deleted meanwhile are gone as well, but not counted.
            purged = max(self._machine.purged(name) - before, 0)
            connection.send(Ok({"messages": purged}), frame.correlation)

        step()
