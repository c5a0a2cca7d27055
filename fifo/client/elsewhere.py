"""Settle and renew by number: also what another client of the same user holds.

Owns these methods of the client, and which consumers are known to be of which queue. Must not know
how a message came here: its handle says that it was seen.
"""

from __future__ import annotations

from typing import Any

from fifo.client import checks, limits
from fifo.client.connection.session import Session
from fifo.client.consuming.settler import Settler
from fifo.client.consuming.verbs import STATUSES, SettleResult, Status, settling
from fifo.client.durations import Duration
from fifo.client.errors import InvalidArgument, LockLost, PermissionDenied, ProtocolError
from fifo.wire.messages import Message, Ok, QueueQuery, Receipt, Renew, Renewed, Settle


class SettlesElsewhere:
    """The methods of a client about locks that it names by consumer and token."""

    _session: Session
    _settler: Settler
    _consumer_queues: dict[int, str]

    async def settle(
        self,
        queue: str,
        consumer: int,
        token: int,
        verb: str = "ack",
        *,
        handle: str | None = None,
        delay: Duration | None = None,
        reason: str | None = None,
        description: str | None = None,
        exception: BaseException | None = None,
        timeout: Duration | None = None,
    ) -> SettleResult:
        """Settle a message by its (queue, consumer, token), also one that is held elsewhere.

        One that another client holds needs its `handle` as well (`message.handle` there), unless
        the cluster has no users. Raises PermissionDenied without it, or where it is wrong, and
        InvalidArgument where this client's consumer is one of another queue. Where the queue has no
        such consumer (any more) nothing is settled: the status is `unknown_consumer`.
        """
        checks.name(queue, "queue")
        checks.integer(consumer, "consumer", 1, 2**63 - 1)
        checks.integer(token, "token", 1, 2**63 - 1)
        handles = () if handle is None else (checks.handle(handle),)
        what = settling(verb, delay, reason, description, exception)
        ledger = self._session.ledgers.get(consumer)
        if ledger is not None and ledger.queue != queue:
            text = f"consumer {consumer} is one of queue {ledger.queue!r}, not of {queue!r}"
            raise InvalidArgument(text)
        held = None if ledger is None else ledger.open.get(token)
        if held is not None:
            if handles and handle != held.handle:
                raise PermissionDenied(f"handle: this is not the one of {held!r}")
            return await self._settler.settle(held, what, receipt=True)
        if ledger is None and not await self._has_consumer(queue, consumer, timeout):
            return SettleResult(Status.UNKNOWN_CONSUMER)
        request = Settle(consumer, what.verb, ((token, token),), 0, *what[1:], handles=handles)
        frame = await self._session.call(request, timeout)
        message = frame.message
        if not isinstance(message, Receipt) or not message.results:
            raise _unexpected(Receipt, Settle, message)
        result = message.results[0]
        late = len(result) > 3 and result[3]
        return SettleResult(STATUSES[min(result[2], len(STATUSES) - 1)], late)

    async def renew_lock(
        self, consumer: int, token: int, *, handle: str, timeout: Duration | None = None
    ) -> float:
        """Renew a lock that another client of the user holds; return the seconds that are left.

        `handle` is the one of the message there, which keeps the settlement too. Raises LockLost,
        and PermissionDenied where the handle is wrong.
        """
        checks.integer(consumer, "consumer", 1, 2**63 - 1)
        checks.integer(token, "token", 1, 2**63 - 1)
        request = Renew(
            ((consumer, ((token, token),)),), explicit=True, handles=(checks.handle(handle),)
        )
        frame = await self._session.call(request, timeout)
        if not isinstance(frame.message, Renewed):
            raise _unexpected(Renewed, Renew, frame.message)
        left = [ms for _, renewed, _ in frame.message.items for first, last, ms in renewed]
        if not left:
            raise LockLost(f"the lock of token {token} of consumer {consumer} is lost")
        return float(left[0] / 1000)

    async def _has_consumer(self, queue: str, consumer: int, timeout: Duration | None) -> bool:
        """Ask whether this is a consumer of the queue: a settlement names only its number, which
        stays one of its queue."""
        if self._consumer_queues.get(consumer) == queue:
            return True
        if not await self._consumers_of(queue, consumer, timeout):
            return False
        if len(self._consumer_queues) >= limits.CONSUMERS_KNOWN_MAX:
            self._consumer_queues.clear()
        self._consumer_queues[consumer] = queue
        return True

    async def _consumers_of(self, queue: str, consumer: int, timeout: Duration | None) -> Any:
        query = QueueQuery(queue, "consumers", 1, consumer)
        frame = await self._session.call(query, timeout)
        if not isinstance(frame.message, Ok):
            raise _unexpected(Ok, QueueQuery, frame.message)
        return frame.message.result


def _unexpected(expected: type[Message], request: type[Message], answer: Message) -> ProtocolError:
    return ProtocolError(
        f"expected {expected.__name__} in reply to {request.__name__}, got {type(answer).__name__}"
    )
