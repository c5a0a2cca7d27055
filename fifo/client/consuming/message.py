"""Messages as programs see them: a light view onto a delivery, and the verbs that settle it.

Owns `StoredMessage` (what peek shows), `LockedMessage` (one that we hold), `Message` (with asyncio
verbs; `fifo.blocking` has the twin) and `process()`. How a settlement travels is `settler`'s
business. Made once per message on the hot path: everything that can wait is computed on access.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from fifo.client.consuming.lock_ledger import LockLedger
from fifo.client.consuming.settlement import Settlement
from fifo.client.consuming.signals import Signal
from fifo.client.consuming.verbs import (
    ACK,
    SettleResult,
    chosen_delay,
    nacking,
    releasing,
    terminating,
    words_of,
)
from fifo.client.durations import Duration
from fifo.client.errors import LockLost, Terminal
from fifo.wire.columns import decode_headers
from fifo.words.handles import handle_of

if TYPE_CHECKING:
    from fifo.client.consuming.delivery import DeadLetter, Delivery

_log = logging.getLogger("fifo.client")


class StoredMessage:
    """A message as it is stored: what `peek` shows."""

    __slots__ = ("_delivery", "_index", "body")

    def __init__(self, delivery: Delivery, index: int) -> None:
        self.body = delivery.bodies[index]
        self._delivery = delivery
        self._index = index

    def __repr__(self) -> str:
        return f"<message {self.id} of {self.queue}, {len(self.body)} bytes>"

    @property
    def id(self) -> str:
        """`queue number.producer number.number`; stays through dead-letter, redrive and move."""
        return self._delivery.id(self._index)

    @property
    def queue(self) -> str:
        """The queue that it was delivered from."""
        return self._delivery.queue

    @property
    def key(self) -> str | bytes | None:
        """The key: text where its bytes are UTF-8, else bytes; None without one."""
        found = self._delivery.key(self._index)
        if not found:
            return None
        try:
            return found.decode()
        except UnicodeDecodeError:
            return found

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; empty where there are none."""
        return decode_headers(self._delivery.headers(self._index))

    @property
    def priority(self) -> int:
        """0 to 9, 9 first."""
        return self._delivery.priority(self._index)

    @property
    def attempt(self) -> int:
        """Deliveries so far, this one included: from 1."""
        return self._delivery.attempt(self._index)

    @property
    def failures(self) -> int:
        """Returns so far that counted: what limits and backoff use."""
        return self._delivery.failures(self._index)

    @property
    def published_at(self) -> datetime:
        """When it was published (aware, UTC)."""
        return self._delivery.published_at(self._index)

    @property
    def dead_letter(self) -> DeadLetter | None:
        """Why it is a dead letter, or None."""
        return self._delivery.dead_letter(self._index)


class LockedMessage(StoredMessage):
    """A message that this client holds: its token, its lock, and what became of both.

    `settlement` (None until it is settled) and `ledger` are the client's; programs read `settled`.
    """

    __slots__ = (
        "__weakref__",
        "_ack_failed",
        "_lock_lost",
        "_lost",
        "_ran_out",
        "ledger",
        "settlement",
        "token",
    )

    def __init__(self, delivery: Delivery, index: int) -> None:
        # Not through super(): this is the hot path of a consumer.
        self.body = delivery.bodies[index]
        self._delivery = delivery
        self._index = index
        self.token = delivery.first_token + index
        ledger = delivery.ledger
        assert ledger is not None, "a locked message belongs to a consumer"
        self.ledger: Ledger = ledger
        self.settlement: LockSettlement | None = None
        self._lost = self._ran_out = False
        self._lock_lost: Signal | None = None
        self._ack_failed: Signal | None = None

    @property
    def consumer(self) -> int:
        """The number of the consumer that holds it: with the token, what settles it elsewhere."""
        return self.ledger.number

    @property
    def handle(self) -> str:
        """The right to settle this message from another client: pass it to `client.settle` there,
        with `consumer` and `token`."""
        return handle_of(self.ledger.handle_key, self.consumer, self.token).hex()

    @property
    def settled(self) -> bool:
        """Whether the program has settled it (the receipt may be outstanding).

        False again once that was refused, or was given up without an answer.
        """
        return self.settlement is not None

    @property
    def remaining(self) -> float:
        """Seconds until the lock ends, renewals included; 0 once it is over or lost."""
        if self._lost or self.ledger.void:
            return 0.0
        now = self.ledger.settler.environment.monotonic()
        return max(0.0, self.ledger.deadline(self.token, self._delivery) - now)

    @property
    def lock_ends_at(self) -> float:
        """Used by the client: when it takes the lock for lost, by its monotonic clock."""
        return self.ledger.ends_at(self.token, self._delivery)

    @property
    def deadline(self) -> datetime:
        """When the lock ends, by the local clock (aware, UTC)."""
        wall = self.ledger.settler.environment.wall()
        return datetime.fromtimestamp(wall + self.remaining, UTC)

    @property
    def lock_lost(self) -> Signal:
        """Set when the lock is lost: another consumer may get the message.

        The node said so, or the deadline has passed without an answer to a renewal. The cluster may
        have kept the lock then, and it is renewed on: settle the message in any case (`release()`
        gives it back), and the receipt says what became of it.
        """
        signal = self._lock_lost
        if signal is None:
            signal = self._lock_lost = Signal()
            if self._lost or self._ran_out:
                signal.set()
        return signal

    @property
    def ack_failed(self) -> Signal:
        """Set when a settlement that was sent without waiting has failed."""
        signal = self._ack_failed
        if signal is None:
            signal = self._ack_failed = Signal()
        return signal

    def lose_lock(self) -> None:
        """Called by the client, on any thread: the lock is gone."""
        # The flag first: a signal that is made after this looks at the flag.
        self._lost = True
        if self._lock_lost is not None:
            self._lock_lost.set()

    def run_out(self) -> None:
        """Called by the client, on any thread: the lock is gone for all that we know."""
        self._ran_out = True
        if self._lock_lost is not None:
            self._lock_lost.set()

    @property
    def is_lost(self) -> bool:
        """Whether the lock is known to be lost."""
        return self._lost

    @property
    def has_run_out(self) -> bool:
        """Whether its deadline has passed once without a word from a node; it may hold again."""
        return self._ran_out


Ledger: TypeAlias = LockLedger[LockedMessage]
LockSettlement: TypeAlias = Settlement[LockedMessage, Ledger]


class Message(LockedMessage):
    """A message in an asyncio program."""

    __slots__ = ()

    async def ack(self, receipt: bool = False) -> SettleResult:
        """Acknowledge. Returns at once; with `receipt`, after a majority has stored it.

        Retried until answered (semantics.md 8); a failure after the return is reported by
        `ack_failed` and `client.on_unsettled`.
        """
        if not receipt:
            return self.ledger.settler.gather(self)
        return await self.ledger.settler.settle(self, ACK, receipt=True)

    async def nack(
        self,
        delay: Duration | None = None,
        reason: str | None = None,
        *,
        receipt: bool = True,
    ) -> SettleResult:
        """Report a failure: count it; redeliver after `delay` seconds or the queue's backoff."""
        what = nacking(self.failures, self.ledger.nack_delay, delay, reason)
        return await self.ledger.settler.settle(self, what, receipt=receipt)

    async def release(self, delay: Duration | None = None, *, receipt: bool = True) -> SettleResult:
        """Give the message back without counting a failure, after `delay` seconds if given."""
        return await self.ledger.settler.settle(self, releasing(delay), receipt=receipt)

    async def terminate(
        self,
        reason: str,
        description: str | None = None,
        exception: BaseException | None = None,
        *,
        receipt: bool = True,
    ) -> SettleResult:
        """Reject permanently: move the message to the dead-letter queue, in one step.

        Raises NoDeadLetterQueue where there is none; the message then stays locked.
        """
        what = terminating(reason, description, exception)
        return await self.ledger.settler.settle(self, what, receipt=receipt)

    async def renew(self) -> datetime:
        """Renew the lock; return the new deadline. Raises LockLost."""
        await self.ledger.settler.renew(self)
        return self.deadline

    def process(
        self,
        *,
        on_error: Callable[[Message, Exception], Duration | None] | None = None,
        reraise: bool = False,
        cancel_on_lock_lost: bool = False,
    ) -> Processing:
        """`async with message.process():` settles by how the block ends.

        Normal end: ack, without waiting. `fifo.Terminal`: terminate. Cancelled (or interrupted):
        release, and the cancellation goes on. Any other exception: nack; it is logged and goes no
        further, so that a loop over messages lives on, unless `reraise`. `on_error(message, error)`
        may give the delay of the nack. A block that has settled the message itself is left alone.
        With `cancel_on_lock_lost` the task is cancelled and LockLost raised when the lock is lost.
        """
        block = Processing(self, on_error, reraise, cancel_on_lock_lost)
        spans = self.ledger.settler.spans
        return block if spans is None else spans.handling(self, block)


class Processing:
    """The async context manager of `message.process()`."""

    __slots__ = ("_cancelled", "_cancels", "_message", "_on_error", "_reraise", "_watch")

    def __init__(
        self,
        message: Message,
        on_error: Callable[[Message, Exception], Duration | None] | None,
        reraise: bool,
        cancels: bool,
    ) -> None:
        self._message = message
        self._on_error = on_error
        self._reraise = reraise
        self._cancels = cancels
        self._cancelled = False
        self._watch: Callable[[], None] | None = None

    async def __aenter__(self) -> Message:
        self._message.ledger.busy.add(self._message.token)
        if self._cancels:
            self._cancel_when_lost()
        return self._message

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        message = self._message
        message.ledger.busy.discard(message.token)
        if self._watch is not None:
            message.lock_lost.remove_callback(self._watch)
        if error is None:
            if not message.settled:
                message.ledger.settler.gather(message)
            return False
        if self._cancelled and isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is None or task.uncancel() == 0:
                message.ledger.settler.give_up(message)
                raise LockLost(f"the lock of {message!r} was lost while it was handled") from error
        return await self._failed(error)

    async def _failed(self, error: BaseException) -> bool:
        message = self._message
        if isinstance(error, Terminal):
            if not message.settled:
                cause = error.__cause__ or error
                result = await message.terminate(error.reason, error.description, cause)
                message.ledger.settler.report(message, result)
            return True
        if not isinstance(error, Exception):
            # Cancelled, interrupted or leaving: not the message's fault. Nothing is awaited, for a
            # cancelled task must end.
            if not message.settled:
                message.ledger.settler.send(message, releasing(None))
            return False
        if not message.settled:
            _log.warning("handling %r failed; nacked", message, exc_info=error)
            on_error, delay = self._on_error, None
            if on_error is not None:
                delay = chosen_delay(lambda: on_error(message, error), "on_error")
            words = f"{type(error).__name__}: {words_of(error)}"
            await message.nack(delay, words, receipt=False)
        return not self._reraise

    def _cancel_when_lost(self) -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            self._cancelled = True
            if task is not None:
                task.cancel()

        def watch() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(cancel)

        self._watch = watch
        self._message.lock_lost.add_callback(watch)
