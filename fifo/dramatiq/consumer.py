"""A consumer of dramatiq's: messages of one queue, and how they end.

Owns the settlement of messages. Its methods have dramatiq's names, and are called by any thread of
a worker. Must not know how queues are declared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dramatiq import Message
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.errors import DecodeError

import fifo
from fifo.blocking import BlockingClient, BlockingMessage
from fifo.dramatiq import limits
from fifo.dramatiq.errors import broker_errors

_log = logging.getLogger("fifo.dramatiq")

_FORM: Final = {"actor_name": str, "message_id": str, "kwargs": dict, "options": dict}
"""Fields of a message that dramatiq takes as they are, with the types that it needs."""


class FifoMessage(MessageProxy):  # type: ignore[misc]  # mypy reads nothing of dramatiq
    """A message in a worker: dramatiq's, with the locked message that it came in."""

    def __init__(self, message: Message, locked: BlockingMessage) -> None:
        super().__init__(message)
        self.locked = locked

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before."""
        return self.locked.attempt > 1

    @property
    def error(self) -> BaseException | None:
        """The exception of the actor, while dramatiq keeps it."""
        error: BaseException | None = self._exception
        return error


class FifoConsumer(Consumer):  # type: ignore[misc]  # mypy reads nothing of dramatiq
    """Messages of a queue, no more than the prefetch at once; None after an idle time-out.

    `on_missing` is called where the queue is gone, before dramatiq begins anew.
    """

    def __init__(
        self,
        client: BlockingClient,
        queue: str,
        timeout_ms: int,
        options: Mapping[str, Any],
        on_missing: Callable[[str], None],
    ) -> None:
        self._queue = queue
        self._timeout_s = timeout_ms / 1000
        self._on_missing = on_missing
        with broker_errors():
            self._consumer = client.consume(queue, **options)
            self._consumer.subscribe()

    def __next__(self) -> FifoMessage | None:
        """The next message; a body that dramatiq cannot read is a dead letter at once."""
        with broker_errors():
            try:
                locked = self._consumer.next(self._timeout_s)
            except fifo.QueueNotFound as error:
                self._on_missing(self._queue)
                raise fifo.ConnectionLost(str(error)) from error
            if locked is None:
                return None
            try:
                return FifoMessage(_decoded(bytes(locked.body), self._queue), locked)
            except DecodeError as error:
                _log.exception("message %s of queue %s cannot be decoded", locked.id, self._queue)
                _end(locked, "cannot be decoded", error.__cause__ or error)
                return None

    def ack(self, message: FifoMessage) -> None:
        """Acknowledge, without waiting: the client sends it again until it is answered."""
        with broker_errors():
            message.locked.ack()

    def nack(self, message: FifoMessage) -> None:
        """Have done with it: to the dead-letter queue, with the exception of the actor."""
        with broker_errors():
            _end(message.locked, "rejected", message.error)

    def requeue(self, messages: Iterable[FifoMessage]) -> None:
        """Give messages back, uncounted, that no thread of the worker has begun."""
        with broker_errors():
            for message in messages:
                message.locked.release(receipt=False)

    def close(self) -> None:
        """End deliveries; messages in hand may still be settled."""
        with broker_errors():
            self._consumer.cancel()


def _decoded(body: bytes, queue: str) -> Message:
    """dramatiq's message, as one of the queue in which it was found. Raises DecodeError.

    dramatiq looks for the consumer of the queue that a message names, and a thread of its worker
    ends where there is none: after `fifo move`, for example.
    """
    message = Message.decode(body)
    for name, kind in _FORM.items():
        value = getattr(message, name)
        if not isinstance(value, kind):
            error = TypeError(f"{name}: must be {kind.__name__}, not {value!r:.80}")
            raise DecodeError("Failed to decode message.", body, error) from error
    return message if message.queue_name == queue else message.copy(queue_name=queue)


def _end(locked: BlockingMessage, reason: str, error: BaseException | None) -> None:
    """Terminate a message; without a dead-letter queue it stays, and is offered again later."""
    description = None if error is None else f"{type(error).__name__}: {error}"
    try:
        result = locked.terminate(reason, description, error)
    except fifo.NoDeadLetterQueue:
        _log.error(
            "message %s (%s) stays in queue %s, which has no dead-letter queue: offered again"
            " in %g s",
            locked.id,
            reason,
            locked.queue,
            limits.NO_DEAD_LETTER_DELAY_S,
        )
        locked.release(limits.NO_DEAD_LETTER_DELAY_S)
        return
    if result.status != "ok":
        _log.warning("message %s is not rejected, for it was %s", locked.id, result.status)
