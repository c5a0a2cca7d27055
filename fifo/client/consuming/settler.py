"""Settlements: gathered, sent as ranges, retried until answered (semantics.md 8).

Owns what has been said about messages and not been answered yet. Runs on the user's loop.
Acks of one turn of the loop travel in one frame; while an earlier settlement of the consumer is
unanswered they wait a moment for company. Nothing is dropped: an answer, a lost lock, the session's
end or exhausted retries are the only ways out, and each is reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from fifo.client import limits
from fifo.client.connection.calls import EXPIRED, until
from fifo.client.connection.session import Session
from fifo.client.consuming import ranges
from fifo.client.consuming.message import OPEN, SETTLED, SETTLING, Ledger, LockedMessage
from fifo.client.consuming.ranges import Range
from fifo.client.consuming.verbs import ACK, STATUSES, SettleResult, Settling, Status
from fifo.client.errors import (
    AckRetriesExhausted,
    ConnectionLost,
    FifoError,
    LockLost,
    SessionEnded,
    from_code,
)
from fifo.wire import Code, Frame
from fifo.wire import limits as wire
from fifo.wire.messages import (
    STATUS_OK,
    STATUS_UNKNOWN_CONSUMER,
    VERB_ACK,
    VERB_NACK,
    VERB_RELEASE,
    VERB_TERMINATE,
    Error,
    Receipt,
    Renew,
    Renewed,
    Settle,
)

_log = logging.getLogger("fifo.client")

_IN_ONE_FRAME = min(wire.SETTLE_RANGES_MAX, limits.SETTLE_TOKENS)
"""Messages that one frame settles whatever the gaps between them: each has its own receipt."""

_SENT = SettleResult(Status.SENT)
_OK = SettleResult(Status.OK)
_ALREADY = SettleResult(Status.ALREADY_SETTLED)
_LOST = SettleResult(Status.LOCK_LOST)


class Settlement:
    """A settle frame without a receipt yet."""

    __slots__ = (
        "attempts",
        "correlation",
        "future",
        "ledger",
        "messages",
        "ranges",
        "sent_at",
        "settler",
        "waiting",
        "what",
    )

    def __init__(
        self,
        settler: Settler,
        ledger: Ledger,
        messages: Sequence[LockedMessage],
        tokens: tuple[Range, ...],
        what: Settling,
        future: asyncio.Future[Any] | None,
    ) -> None:
        self.settler = settler
        self.ledger = ledger
        self.messages = messages
        self.ranges = tokens
        self.what = what
        self.future = future
        self.attempts = 0
        self.sent_at: float | None = None
        self.waiting = False
        self.correlation = settler.session.next_correlation()

    def answered(self, frame: Frame) -> None:
        """A receipt or an error."""
        self.settler.answered(self, frame)


class Settler:
    """All settlements of one client."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.loop = session.loop
        self.environment = session.environment
        self.on_unsettled: Callable[[LockedMessage, FifoError], object] | None = None
        self._outstanding: dict[int, Settlement] = {}
        self._drained: list[asyncio.Future[None]] = []
        self._sweeping: asyncio.TimerHandle | None = None
        session.parts.append(self)

    # What programs say.

    def gather(self, message: LockedMessage) -> SettleResult:
        """Ack without waiting: with the others of this turn."""
        if message.state != OPEN:
            return _ALREADY
        ledger = message.ledger
        message.state = SETTLING
        if ledger.void:
            self._unsettled(message, _session_over())
            return _LOST
        ledger.open.pop(message.token, None)
        ledger.acks.append(message)
        if not ledger.acks_due:
            ledger.acks_due = True
            if ledger.in_flight:
                self.loop.call_later(limits.ACKS_WAIT_S, self.flush, ledger)
            else:
                self.loop.call_soon(self.flush, ledger)
        elif len(ledger.acks) >= limits.ACKS_GATHERED:
            self.flush(ledger)
        return _SENT

    def gather_many(self, messages: Sequence[LockedMessage]) -> None:
        """Ack many without waiting; those that are settled already are left out."""
        for message in messages:
            ledger = message.ledger
            if message.state == OPEN and ledger.acks_due and not ledger.void:
                # As in `gather`, without its call: this is the hot path of batches.
                message.state = SETTLING
                ledger.open.pop(message.token, None)
                ledger.acks.append(message)
            else:
                self.gather(message)
        for ledger in self.session.ledgers.values():
            if len(ledger.acks) >= limits.ACKS_GATHERED:
                self.flush(ledger)

    def flush(self, ledger: Ledger) -> None:
        """Send the gathered acks now."""
        ledger.acks_due = False
        messages, ledger.acks = ledger.acks, []
        if messages and not ledger.void:
            self._say(ledger, messages, ACK, None)

    def send(
        self, message: LockedMessage, what: Settling, future: asyncio.Future[Any] | None = None
    ) -> SettleResult:
        """Settle one message; `future` gets its SettleResult."""
        if message.state != OPEN:
            return _ALREADY
        ledger = message.ledger
        message.state = SETTLING
        if ledger.void:
            if future is None:
                self._unsettled(message, _session_over())
            return _LOST
        ledger.open.pop(message.token, None)
        self._say(ledger, (message,), what, future)
        return _SENT

    async def settle(
        self, message: LockedMessage, what: Settling, *, receipt: bool
    ) -> SettleResult:
        """Settle one message, and with `receipt` wait until a majority has it.

        Raises Timeout (unknown: it is retried on), NoDeadLetterQueue, SessionEnded.
        """
        if not receipt:
            return self.send(message, what)
        self.session.check()
        future: asyncio.Future[SettleResult] = self.loop.create_future()
        result = self.send(message, what, future)
        if result is not _SENT:
            return result
        seconds = self.session.options.timeout
        answer = await until(future, self.loop.time() + seconds, self.loop)
        if answer is EXPIRED:
            raise self.session.expired(seconds, "Settle", sent=True)
        assert isinstance(answer, SettleResult)
        return answer

    async def settle_many(
        self, messages: Sequence[LockedMessage], what: Settling = ACK
    ) -> list[SettleResult]:
        """Settle messages in as few frames as can be, and wait for all receipts, in order."""
        groups: dict[int, list[LockedMessage]] = {}
        results: dict[LockedMessage, SettleResult] = {}
        for message in messages:
            if message.state != OPEN:
                results[message] = _ALREADY
            elif message.ledger.void:
                results[message] = _LOST
            else:
                message.state = SETTLING
                message.ledger.open.pop(message.token, None)
                groups.setdefault(message.ledger.number, []).append(message)
        futures: list[asyncio.Future[dict[LockedMessage, SettleResult]]] = []
        for group in groups.values():
            for at in range(0, len(group), _IN_ONE_FRAME):
                part = group[at : at + _IN_ONE_FRAME]
                futures.append(self.loop.create_future())
                self._say(part[0].ledger, part, what, futures[-1], many=True)
        seconds = self.session.options.timeout
        deadline = self.loop.time() + seconds
        for future in futures:
            answer = await until(future, deadline, self.loop)
            if not isinstance(answer, dict):
                raise self.session.expired(seconds, "Settle", sent=True)
            results.update(answer)
        return [results[message] for message in messages]

    def give_up(self, message: LockedMessage) -> None:
        """The program is done with a message whose lock is lost, and says nothing about it."""
        message.state = SETTLED
        message.ledger.open.pop(message.token, None)
        message.ledger.resolve(((message.token, message.token),))

    async def renew(self, message: LockedMessage) -> None:
        """Renew one lock, by the program's own word. Raises LockLost."""
        ledger, token = message.ledger, message.token
        if message.is_lost or ledger.void or message.state == SETTLED:
            raise LockLost(f"the lock of {message!r} is lost")
        sent_at = self.environment.monotonic()
        frame = await self.session.call(Renew(((ledger.number, ((token, token),)),), explicit=True))
        granted = False
        if isinstance(frame.message, Renewed):
            for number, renewed, lost in frame.message.items:
                if number != ledger.number:
                    continue
                ledger.renewed(renewed, sent_at)
                granted = granted or bool(renewed)
                if lost:
                    self.session.lose(ledger, lost, suspected=False)
        if not granted:
            self.session.lose(ledger, ((token, token),), suspected=False)
            raise LockLost(f"the lock of {message!r} is lost")
        ledger.suspected = False

    # Sending.

    def _say(
        self,
        ledger: Ledger,
        messages: Sequence[LockedMessage],
        what: Settling,
        future: asyncio.Future[Any] | None,
        *,
        many: bool = False,
    ) -> None:
        tokens = ranges.from_tokens([message.token for message in messages])
        ledger.settling(tokens)
        for part in ranges.chunks(tokens, wire.SETTLE_RANGES_MAX, limits.SETTLE_TOKENS):
            said = messages
            if part != tokens:
                inside = ranges.Ranges(part)
                said = [message for message in messages if message.token in inside]
            settlement = Settlement(self, ledger, said, part, what, future)
            settlement.waiting = many
            self._outstanding[settlement.correlation] = settlement
            self.session.expect(settlement.correlation, settlement)
            ledger.in_flight += 1
            ledger.suspected = False
            self._send(settlement)
        if self._sweeping is None:
            self._sweep_later()

    def release_unopened(self, ledger: Ledger, unopened: tuple[Range, ...]) -> None:
        """Give back messages that the program never saw, uncounted."""
        for part in ranges.chunks(unopened, wire.SETTLE_RANGES_MAX, limits.SETTLE_TOKENS):
            self._say_tokens(ledger, part, Settling(VERB_RELEASE))

    def finish(self, ledger: Ledger) -> None:
        """All of a cancelled consumer is settled: say so, for the node keeps it until then."""
        if not ledger.void and self.session.fatal is None:
            self._say_tokens(ledger, (), ACK)

    def _say_tokens(self, ledger: Ledger, tokens: tuple[Range, ...], what: Settling) -> None:
        settlement = Settlement(self, ledger, (), tokens, what, None)
        self._outstanding[settlement.correlation] = settlement
        self.session.expect(settlement.correlation, settlement)
        ledger.in_flight += 1
        self._send(settlement)
        if self._sweeping is None:
            self._sweep_later()

    def _send(self, settlement: Settlement) -> None:
        link = self.session.link
        if link is None or settlement.correlation not in self._outstanding:
            return
        settlement.sent_at = self.loop.time()
        what = settlement.what
        link.send(
            Settle(
                settlement.ledger.number,
                what.verb,
                settlement.ranges,
                settlement.ledger.resolved_below,
                what.delay_ms,
                what.reason,
                what.description,
                what.exception_type,
                what.exception_text,
                what.stack,
            ),
            settlement.correlation,
        )

    def _again(self, settlement: Settlement) -> bool:
        """Count one more attempt; False where there may be none, and it is given up."""
        options = self.session.options
        settlement.attempts += 1
        most = options.max_ack_retries if options.auto_retry_acks else 0
        if most is not None and settlement.attempts > most:
            self.session.metrics.settlements_exhausted += len(settlement.messages)
            error = AckRetriesExhausted(
                f"no receipt for a settlement after {settlement.attempts} attempts", unknown=True
            )
            self._end(settlement)
            self._fail(settlement, error)
            return False
        self.session.metrics.settlements_retried += ranges.count(settlement.ranges)
        return True

    # Answers.

    def answered(self, settlement: Settlement, frame: Frame) -> None:
        """The node's receipt, or its error."""
        message = frame.message
        if isinstance(message, Receipt):
            self._end(settlement)
            self._receipt(settlement, message)
        elif isinstance(message, Error):
            self._error(settlement, message)

    def _receipt(self, settlement: Settlement, receipt: Receipt) -> None:
        ledger = settlement.ledger
        ledger.resolve(settlement.ranges)
        total = ranges.count(settlement.ranges)
        if settlement.attempts:
            self.session.metrics.settlements_succeeded_after_retry += total
        results = receipt.results
        if all(one[2] == STATUS_OK and not (len(one) > 3 and one[3]) for one in results):
            self._count(settlement.what.verb, total)
            if settlement.future is not None and not settlement.future.done():
                self._resolve(settlement, dict.fromkeys(settlement.messages, _OK))
        else:
            self._mixed(settlement, receipt)
        if ledger.acks:
            self.flush(ledger)
        elif ledger.retired and not ledger.has_unresolved():
            if settlement.ranges:
                self.finish(ledger)
            else:
                self.session.unbind(ledger.number)

    def _mixed(self, settlement: Settlement, receipt: Receipt) -> None:
        """Not all were simply ok: each message gets its own result."""
        by_token: dict[int, SettleResult] = {}
        for one in receipt.results:
            status = STATUSES[one[2]] if one[2] < len(STATUSES) else Status.LOCK_LOST
            late = len(one) > 3 and one[3]
            for token in range(one[0], one[1] + 1):
                by_token[token] = SettleResult(status, late)
        results: dict[LockedMessage, SettleResult] = {}
        for message in settlement.messages:
            result = results[message] = by_token.get(message.token, _LOST)
            if result.status in (Status.LOCK_LOST, Status.UNKNOWN_CONSUMER):
                if not message.is_lost:
                    self.session.metrics.locks_lost += 1
                    message.lose_lock()
            elif result.status is Status.OK or (
                result.status is Status.ALREADY_SETTLED and settlement.attempts
            ):
                # Already settled by the attempt whose answer was lost.
                self._count(settlement.what.verb, 1)
            if settlement.future is None and _failed_silently(result, settlement.what):
                text = f"{message!r} was not settled: {result.status.value}"
                self._unsettled(message, LockLost(text))
        if settlement.future is not None and not settlement.future.done():
            self._resolve(settlement, results)

    def _resolve(self, settlement: Settlement, results: dict[LockedMessage, SettleResult]) -> None:
        assert settlement.future is not None
        if settlement.waiting:
            settlement.future.set_result(results)
        else:
            settlement.future.set_result(results[settlement.messages[0]])

    def _error(self, settlement: Settlement, message: Error) -> None:
        if message.code == Code.UNKNOWN_CONSUMER:
            self._end(settlement)
            if not settlement.ranges:
                self.session.unbind(settlement.ledger.number)
                return
            all_of_it = (
                settlement.ranges[0][0],
                settlement.ranges[-1][1],
                STATUS_UNKNOWN_CONSUMER,
                False,
            )
            settlement.ledger.resolve(settlement.ranges)
            self._mixed(settlement, Receipt(settlement.ledger.number, (all_of_it,)))
            return
        error = from_code(message.code, message.text, message.detail, retryable=message.retryable)
        if message.retryable:
            if self._again(settlement):
                backoff = self.session.options.ack_retry_backoff
                delay = backoff.delay_s(settlement.attempts - 1)
                settlement.sent_at = None
                jitter = 0.75 + self.environment.chance() / 2
                self.loop.call_later(delay * jitter, self._send, settlement)
            return
        self._end(settlement)
        for one in settlement.messages:
            # Refused, so it is as before: locked, and in the program's hands.
            if not one.is_lost and not settlement.ledger.void:
                one.state = OPEN
                settlement.ledger.open[one.token] = one
        self._fail(settlement, error)

    def _fail(self, settlement: Settlement, error: FifoError) -> None:
        if settlement.future is not None:
            if not settlement.future.done():
                settlement.future.set_exception(error)
                return
            if not settlement.future.cancelled():
                return
        for message in settlement.messages:
            self._unsettled(message, error)

    def _end(self, settlement: Settlement) -> None:
        if self._outstanding.pop(settlement.correlation, None) is not None:
            self.session.forget(settlement.correlation)
            settlement.ledger.in_flight -= 1
        if not self._outstanding:
            for waiter in self._drained:
                if not waiter.done():
                    waiter.set_result(None)
            self._drained.clear()

    def _unsettled(self, message: LockedMessage, error: FifoError) -> None:
        self.session.metrics.settlements_failed += 1
        message.ack_failed.set()
        if self.on_unsettled is None:
            _log.warning("%r was not settled: %s", message, error)
            return
        try:
            self.on_unsettled(message, error)
        except Exception:
            _log.exception("on_unsettled failed")

    def _count(self, verb: int, messages: int) -> None:
        metrics = self.session.metrics
        if verb == VERB_ACK:
            metrics.acked += messages
        elif verb == VERB_NACK:
            metrics.nacked += messages
        elif verb == VERB_RELEASE:
            metrics.released += messages
        elif verb == VERB_TERMINATE:
            metrics.terminated += messages

    # The session's events.

    def resumed(self) -> None:
        """Connected again: all that is unanswered, in order."""
        for settlement in list(self._outstanding.values()):
            if settlement.sent_at is None or self._again(settlement):
                self._send(settlement)

    def detached(self) -> None:
        """Not connected: without retries, what was sent has failed."""
        if self.session.options.auto_retry_acks:
            return
        for settlement in list(self._outstanding.values()):
            if settlement.sent_at is not None:
                self._end(settlement)
                self._fail(settlement, ConnectionLost("lost before the receipt", unknown=True))

    def writable(self) -> None:
        """Settlements are small: they never waited."""

    def session_ended(self, error: SessionEnded) -> None:
        """Every token is void."""
        self._abandon(error)

    def failed(self, error: FifoError) -> None:
        """Abandon everything: no answer will come."""
        self._abandon(error)
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _abandon(self, error: FifoError) -> None:
        for settlement in list(self._outstanding.values()):
            self._end(settlement)
            self._fail(settlement, error)
        for ledger in self.session.ledgers.values():
            messages, ledger.acks = ledger.acks, []
            for message in messages:
                self._unsettled(message, error)

    def owes(self) -> bool:
        """Whether receipts are outstanding."""
        return bool(self._outstanding)

    def _sweep_later(self) -> None:
        self._sweeping = self.loop.call_later(limits.SETTLE_ANSWER_S / 4, self._sweep)

    def _sweep(self) -> None:
        """Send again what a live connection has not answered for too long."""
        self._sweeping = None
        now = self.loop.time()
        for settlement in list(self._outstanding.values()):
            patience = limits.SETTLE_ANSWER_S * 2 ** min(settlement.attempts, 4)
            if self.session.link is None or settlement.sent_at is None:
                continue
            if now - settlement.sent_at >= patience and self._again(settlement):
                self._send(settlement)
        if self._outstanding:
            self._sweep_later()

    async def drain(self, seconds: float) -> int:
        """Send what is gathered and wait for receipts; how many messages are left unsettled."""
        for ledger in self.session.ledgers.values():
            self.flush(ledger)
        if self._outstanding:
            waiter: asyncio.Future[None] = self.loop.create_future()
            self._drained.append(waiter)
            await until(waiter, self.loop.time() + seconds, self.loop)
        return sum([len(one.messages) for one in self._outstanding.values()])


def _failed_silently(result: SettleResult, what: Settling) -> bool:
    """Whether a settlement failed without an error: lock lost, or dead-lettered otherwise."""
    if result.status in (Status.LOCK_LOST, Status.UNKNOWN_CONSUMER):
        return True
    return result.status is Status.DEAD_LETTERED and what.verb in (VERB_ACK, VERB_RELEASE)


def _session_over() -> SessionEnded:
    return SessionEnded("the session that held this message has ended")
