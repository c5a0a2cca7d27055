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
from fifo.client.connection.calls import EXPIRED, Tries, until
from fifo.client.connection.session import Session
from fifo.client.consuming import ranges
from fifo.client.consuming.message import Ledger, LockedMessage, LockSettlement
from fifo.client.consuming.ranges import Range
from fifo.client.consuming.settlement import LOST, SENT, Follower, Settlement
from fifo.client.consuming.verbs import (
    ACK,
    STATUSES,
    Handles,
    SettleResult,
    Settling,
    Status,
    releasing,
)
from fifo.client.errors import (
    AckRetriesExhausted,
    FifoError,
    LockLost,
    SessionEnded,
    again,
    from_code,
    reworded,
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


class Settler:
    """All settlements of one client."""

    spans: Handles | None = None
    """The maker of spans of blocks that handle a message; None where there are none."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.loop = session.loop
        self.environment = session.environment
        self.on_unsettled: Callable[[LockedMessage, FifoError], object] | None = None
        self._outstanding: dict[int, LockSettlement] = {}
        self._drained: list[asyncio.Future[None]] = []
        self._sweeping: asyncio.TimerHandle | None = None
        session.parts.append(self)

    @property
    def address(self) -> str:
        """The node that the client is connected to; empty for none."""
        link = self.session.link
        return "" if link is None else link.address

    # What programs say.

    def gather(self, message: LockedMessage) -> SettleResult:
        """Ack without waiting: with the others of this turn."""
        if message.settlement is not None:
            return self._second(message.settlement, Follower(message, ACK, None))
        ledger = message.ledger
        if ledger.void:
            return self._too_late(message, None)
        gathered = ledger.gathered
        if gathered is None:
            gathered = ledger.gathered = Settlement(self, ledger, [], ACK)
            if ledger.in_flight:
                self.loop.call_later(limits.ACKS_WAIT_S, self.flush, ledger)
            else:
                self.loop.call_soon(self.flush, ledger)
        message.settlement = gathered
        ledger.open.pop(message.token, None)
        gathered.messages.append(message)
        if len(gathered.messages) >= limits.ACKS_GATHERED:
            self.flush(ledger)
        return SENT

    def gather_many(self, messages: Sequence[LockedMessage]) -> None:
        """Ack many without waiting; those that are settled already are left out."""
        for message in messages:
            ledger = message.ledger
            gathered = ledger.gathered
            if message.settlement is None and gathered is not None and not ledger.void:
                # As in `gather`, without its call: this is the hot path of batches.
                message.settlement = gathered
                ledger.open.pop(message.token, None)
                gathered.messages.append(message)
            else:
                self.gather(message)
        for ledger in self.session.ledgers.values():
            if ledger.gathered is not None and len(ledger.gathered.messages) >= (
                limits.ACKS_GATHERED
            ):
                self.flush(ledger)

    def flush(self, ledger: Ledger) -> None:
        """Send the gathered acks now."""
        gathered, ledger.gathered = ledger.gathered, None
        if gathered is None:
            return
        if ledger.void:
            self._fail(gathered, _session_over())
        else:
            self._say(gathered)

    def send(
        self,
        message: LockedMessage,
        what: Settling,
        future: asyncio.Future[SettleResult] | None = None,
    ) -> SettleResult:
        """Settle one message; where this returns `sent`, `future` gets its SettleResult."""
        if message.settlement is not None:
            return self._second(message.settlement, Follower(message, what, future))
        ledger = message.ledger
        if ledger.void:
            return self._too_late(message, future)
        settlement = message.settlement = Settlement(self, ledger, [message], what, future)
        ledger.open.pop(message.token, None)
        self._say(settlement)
        return SENT

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
        if result is not SENT:
            return result
        seconds = self.session.options.timeout
        answer = await until(future, self.loop.time() + seconds, self.loop)
        if answer is EXPIRED:
            raise self._expired(future, seconds, f"settlement of {message!r}")
        assert isinstance(answer, SettleResult)
        return answer

    async def settle_many(
        self, messages: Sequence[LockedMessage], what: Settling = ACK
    ) -> list[SettleResult]:
        """Settle messages in as few frames as can be, and wait for all receipts, in order."""
        self.session.check()
        results: dict[LockedMessage, SettleResult] = {}
        parts: dict[int, LockSettlement] = {}
        waiting: list[tuple[LockedMessage | None, asyncio.Future[Any]]] = []
        for message in messages:
            ledger = message.ledger
            if message.settlement is not None or ledger.void:
                future: asyncio.Future[Any] = self.loop.create_future()
                results[message] = self.send(message, what, future)
                if results[message] is SENT:
                    waiting.append((message, future))
                continue
            part = parts.get(ledger.number)
            if part is None or len(part.messages) >= _IN_ONE_FRAME:
                if part is not None:
                    self._say(part)
                future = self.loop.create_future()
                waiting.append((None, future))
                part = parts[ledger.number] = Settlement(self, ledger, [], what, future)
                part.is_many = True
            message.settlement = part
            ledger.open.pop(message.token, None)
            part.messages.append(message)
        for part in parts.values():
            self._say(part)
        await self._all(waiting, results)
        return [results[message] for message in messages]

    async def _all(
        self,
        waiting: Sequence[tuple[LockedMessage | None, asyncio.Future[Any]]],
        results: dict[LockedMessage, SettleResult],
    ) -> None:
        """Wait for the receipts of a call: of many messages, or of one that was settled before."""
        seconds = self.session.options.timeout
        deadline = self.loop.time() + seconds
        try:
            for message, future in waiting:
                answer: Any = await until(future, deadline, self.loop)
                if answer is EXPIRED:
                    what = None if message is None else f"settlement of {message!r}"
                    raise self._expired(future, seconds, what)
                results.update(answer if message is None else {message: answer})
        finally:
            for _, future in waiting:
                # One error is raised; of the others none is left unheard by anyone.
                if not future.cancel() and not future.cancelled():
                    future.exception()

    def _expired(self, future: asyncio.Future[Any], seconds: float, what: str | None) -> FifoError:
        """The error of a wait for a receipt that is over; the settlement itself goes on."""
        for one in self._outstanding.values():
            followers = [follower.future for follower in one.followers]
            if one.future is future or future in followers:
                return self.session.expired(seconds, what or str(one), one.tries, goes_on=True)
        return self.session.expired(seconds, what or "settlement", Tries(), goes_on=True)

    def _second(self, first: LockSettlement, follower: Follower[LockedMessage]) -> SettleResult:
        """A settlement of a message that has one: what became of that decides."""
        if not first.ended:
            first.followers.append(follower)
            return SENT
        if first.error is None:
            return first.later(follower.message.token)
        if follower.future is not None:
            raise _named(first.error, follower.message)
        self._unsettled(follower.message, first.error)
        return LOST

    def _too_late(
        self, message: LockedMessage, future: asyncio.Future[SettleResult] | None
    ) -> SettleResult:
        """The session that held the message has ended, and the message was not settled before."""
        message.settlement = Settlement(self, message.ledger, [], ACK)
        message.settlement.received(LOST, {})
        message.settlement.end()
        if future is None:
            self._unsettled(message, _session_over())
        return LOST

    def give_up(self, message: LockedMessage) -> None:
        """The program is done with a message whose lock is lost, and says nothing about it."""
        ledger, token = message.ledger, message.token
        if not (message.is_lost or message.settled):
            # It ran out by our own clock: where the cluster has kept the lock, it is given back.
            self.send(message, releasing(None))
            return
        ledger.open.pop(token, None)
        ledger.resolve(((token, token),))
        if ledger.suspected:
            # Its handler takes no place any more: who waits for a message asks anew.
            ledger.asked = False
            self.session.report_lost(ledger.number)

    def report(self, message: LockedMessage, result: SettleResult) -> None:
        """Report a receipt that says no and that no caller sees: that of a `process()` block."""
        if result.status in (Status.LOCK_LOST, Status.UNKNOWN_CONSUMER):
            self._unsettled(message, LockLost(result.status.value))

    def watch(self, at: float) -> None:
        """A lock may end at this time: look then."""
        self.session.locks.watch(at)

    async def renew(self, message: LockedMessage) -> None:
        """Renew one lock, by the program's own word. Raises LockLost."""
        ledger, token = message.ledger, message.token
        request = Renew(((ledger.number, ((token, token),)),), explicit=True)
        if message.is_lost or ledger.void:
            if not ledger.void:
                # The answer is known; the command shows the node that the program is alive.
                ledger.suspected = False
                self.session.tell(request)
            raise LockLost(f"the lock of {message!r} is lost")
        sent_at = self.environment.monotonic()
        frame = await self.session.call(request)
        ledger.suspected = False
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

    # Sending.

    def _say(self, settlement: LockSettlement) -> None:
        """Send a settlement, in as many frames as its ranges need."""
        ledger = settlement.ledger
        tokens = ranges.from_tokens([message.token for message in settlement.messages])
        ledger.settling(tokens)
        pieces = list(ranges.chunks(tokens, wire.SETTLE_RANGES_MAX, limits.SETTLE_TOKENS))
        for piece, tokens in zip(settlement.parted(pieces), pieces, strict=True):
            ledger.suspected = False
            self._begin(piece, tokens)

    def _begin(self, settlement: LockSettlement, tokens: tuple[Range, ...]) -> None:
        settlement.ranges = tokens
        settlement.correlation = self.session.next_correlation()
        self._outstanding[settlement.correlation] = settlement
        self.session.expect(settlement.correlation, settlement)
        settlement.ledger.in_flight += 1
        self._send(settlement)
        if self._sweeping is None:
            self._sweep_later()

    def release_unopened(self, ledger: Ledger, unopened: tuple[Range, ...]) -> None:
        """Give back messages that the program never saw, uncounted."""
        for part in ranges.chunks(unopened, wire.SETTLE_RANGES_MAX, limits.SETTLE_TOKENS):
            self._say_tokens(ledger, part, Settling(VERB_RELEASE))

    def take_back(self, message: LockedMessage) -> None:
        """Give back a message that was fetched for a program, which never saw it."""
        ledger, token = message.ledger, message.token
        ledger.open.pop(token, None)
        if ledger.is_lost(token):
            ledger.resolve(((token, token),))
        else:
            self.release_unopened(ledger, ((token, token),))

    def finish(self, ledger: Ledger) -> None:
        """All of a cancelled consumer is settled: say so, for the node keeps it until then."""
        if not ledger.void and self.session.fatal is None:
            self._say_tokens(ledger, (), ACK)

    def _say_tokens(self, ledger: Ledger, tokens: tuple[Range, ...], what: Settling) -> None:
        self._begin(Settlement(self, ledger, [], what), tokens)

    def _send(self, settlement: LockSettlement) -> None:
        if settlement.correlation not in self._outstanding:
            return
        link = self.session.link
        if link is None:
            self._retry_later(settlement)
            return
        settlement.tries.begin()
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
                automatic=not settlement.messages,
            ),
            settlement.correlation,
        )

    def _later(
        self, settlement: LockSettlement, delay_s: float, then: Callable[[LockSettlement], None]
    ) -> None:
        if settlement.retry is not None:
            settlement.retry.cancel()
        jitter = 0.75 + self.environment.chance() / 2
        settlement.retry = self.loop.call_later(delay_s * jitter, then, settlement)

    def _retry_later(self, settlement: LockSettlement) -> None:
        """Without a connection the next retry is due as it would be after a refusal."""
        delay_s = self.session.options.ack_retry_backoff.delay_s(settlement.attempts)
        self._later(settlement, max(delay_s, limits.RETRY_S), self._retry)

    def _retry(self, settlement: LockSettlement) -> None:
        """A retry that is due in an outage: it counts, though it cannot be sent."""
        if settlement.correlation in self._outstanding and self._again(settlement):
            settlement.sent_at = None
            self._send(settlement)

    def _again(self, settlement: LockSettlement) -> bool:
        """Count one more attempt; False where there may be none, and it is given up."""
        options = self.session.options
        settlement.attempts += 1
        most = options.max_ack_retries if options.auto_retry_acks else 0
        # What the client gives back on its own concerns no message of the program.
        if most is not None and settlement.attempts > most and settlement.messages:
            self.session.metrics.settlements_exhausted += len(settlement.messages)
            refusal = settlement.tries.refusal
            last = f"; the last refusal: {refusal}" if refusal is not None else ""
            if self.session.link is None:
                last += "; there is no connection to a leader"
            text = f"no receipt after {settlement.attempts} attempts{last}"
            self._fail(settlement, AckRetriesExhausted(text, unknown=settlement.tries.unknown))
            return False
        self.session.metrics.settlements_retried += ranges.count(settlement.ranges)
        return True

    # Answers.

    def answered(self, settlement: LockSettlement, frame: Frame) -> None:
        """The node's receipt, or its error."""
        message = frame.message
        if isinstance(message, Receipt):
            self._receipt(settlement, message)
        elif isinstance(message, Error):
            self._error(settlement, message)

    def _receipt(self, settlement: LockSettlement, receipt: Receipt) -> None:
        self._end(settlement)
        ledger = settlement.ledger
        ledger.resolve(settlement.ranges)
        total = ranges.count(settlement.ranges)
        if settlement.attempts:
            self.session.metrics.settlements_succeeded_after_retry += total
        if all(one[2] == STATUS_OK and not (len(one) > 3 and one[3]) for one in receipt.results):
            self._count(settlement.what.verb, total)
        else:
            self._mixed(settlement, receipt)
        awaited = settlement.is_awaited
        if awaited:
            settlement.resolve()
        self._follow(settlement, awaited=awaited)
        if ledger.gathered is not None:
            self.flush(ledger)
        elif ledger.retired and not ledger.has_unresolved():
            if settlement.ranges:
                self.finish(ledger)
            else:
                self.session.unbind(ledger.number)
        if ledger.on_resolved is not None:
            ledger.on_resolved()

    def _mixed(self, settlement: LockSettlement, receipt: Receipt) -> None:
        """Not all were simply ok: each message gets its own result."""
        by_token: dict[int, SettleResult] = {}
        for one in receipt.results:
            status = STATUSES[one[2]] if one[2] < len(STATUSES) else Status.LOCK_LOST
            late = len(one) > 3 and one[3]
            for token in range(one[0], one[1] + 1):
                by_token[token] = SettleResult(status, late)
        settlement.received(LOST, by_token)
        for message in settlement.messages:
            result = settlement.result(message.token)
            if result.status in (Status.LOCK_LOST, Status.UNKNOWN_CONSUMER):
                if not message.is_lost:
                    self.session.flag_lost((message,))
            elif result.status is Status.OK or (
                result.status is Status.ALREADY_SETTLED and settlement.attempts
            ):
                # Already settled by the attempt whose answer was lost.
                self._count(settlement.what.verb, 1)
            if not settlement.is_awaited and _failed_silently(result, settlement.what):
                self._unsettled(message, LockLost(result.status.value))

    def _follow(self, first: LockSettlement, *, awaited: bool) -> None:
        """Answer the later settlements of its messages; `awaited`: a caller heard of this one."""
        for message, what, future in first.end():
            if future is not None and future.done():
                future = None
            same = what.verb == first.what.verb
            if message.settlement is not first and not (same and first.error is not None):
                # Refused or given up, and the message is in the program's hands again.
                result = self.send(message, what, future)
                if result is not SENT and future is not None:
                    future.set_result(result)
            elif future is not None and first.error is not None:
                future.set_exception(_named(first.error, message))
            elif future is not None:
                token = message.token
                future.set_result(first.result(token) if same else first.later(token))
            elif awaited and first.error is not None:
                self._unsettled(message, first.error)
            elif awaited and _failed_silently(first.result(message.token), what):
                self._unsettled(message, LockLost(first.result(message.token).status.value))

    def _error(self, settlement: LockSettlement, message: Error) -> None:
        if message.code == Code.UNKNOWN_CONSUMER:
            if not settlement.ranges:
                self._end(settlement)
                self.session.unbind(settlement.ledger.number)
                return
            first, last = settlement.ranges[0][0], settlement.ranges[-1][1]
            nothing = (first, last, STATUS_UNKNOWN_CONSUMER, False)
            self._receipt(settlement, Receipt(settlement.ledger.number, (nothing,)))
            return
        error = from_code(message.code, message.text, message.detail, retryable=message.retryable)
        settlement.tries.refused(error)
        if message.retryable:
            if self._again(settlement):
                settlement.sent_at = None
                backoff = self.session.options.ack_retry_backoff
                self._later(settlement, backoff.delay_s(settlement.attempts - 1), self._send)
            return
        # Refused, so it is as before: locked, and in the program's hands.
        self._fail(settlement, error)

    def _fail(self, settlement: LockSettlement, error: FifoError) -> None:
        """End it without a receipt: it was refused, or none will come any more."""
        self._end(settlement)
        ledger = settlement.ledger
        settlement.error = error
        over = ledger.void or self.session.fatal is not None
        for message in settlement.messages:
            if not over:
                message.settlement = None
                if ledger.is_lost(message.token) and not message.is_lost:
                    self.session.flag_lost((message,))
                if not message.is_lost:
                    ledger.open[message.token] = message
                    ledger.watch(message.lock_ends_at)
            elif not error.unknown:
                message.settlement = None
                if ledger.void and not message.is_lost:
                    self.session.flag_lost((message,))
        awaited = settlement.is_awaited
        if awaited:
            assert settlement.future is not None, "a caller waits for it"
            settlement.future.set_exception(reworded(error, f"{settlement}: {error}"))
        else:
            for message in settlement.messages:
                self._unsettled(message, error)
        self._follow(settlement, awaited=awaited)

    def _end(self, settlement: LockSettlement) -> None:
        if settlement.retry is not None:
            settlement.retry.cancel()
        if self._outstanding.pop(settlement.correlation, None) is not None:
            self.session.forget(settlement.correlation)
            settlement.ledger.in_flight -= 1
        if not self._outstanding:
            for waiter in self._drained:
                if not waiter.done():
                    waiter.set_result(None)
            self._drained.clear()

    def _unsettled(self, message: LockedMessage, error: FifoError) -> None:
        """Report an error, whose text does not name the message, to the message and program."""
        self.session.metrics.settlements_failed += 1
        message.ack_failed.set()
        named = reworded(error, f"{message!r} was not settled: {error}")
        if self.on_unsettled is None:
            _log.warning("%s", named)
            return
        try:
            self.on_unsettled(message, named)
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
            if settlement.retry is not None:
                settlement.retry.cancel()
            if settlement.sent_at is None or self._again(settlement):
                self._send(settlement)

    def detached(self) -> None:
        """Not connected: retries are due, and count, all the same."""
        for settlement in self._outstanding.values():
            self._retry_later(settlement)

    def writable(self) -> None:
        """Settlements are small: they never waited."""

    def session_ended(self, error: SessionEnded, *, was_gone: bool) -> None:
        """Every token is void."""
        self._abandon(error)

    def failed(self, error: FifoError) -> None:
        """Abandon everything: no answer will come."""
        self._abandon(error)
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _abandon(self, error: FifoError) -> None:
        """No receipt will come: what was sent is unknown."""
        for settlement in list(self._outstanding.values()):
            cause = again(error)
            cause.unknown = settlement.tries.unknown
            self._fail(settlement, cause)

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


def _named(error: FifoError, message: LockedMessage) -> FifoError:
    """The error of a settlement for one of its messages, which it names."""
    return reworded(error, f"settlement of {message!r}: {error}")


def _session_over() -> SessionEnded:
    return SessionEnded("the session that held the lock has ended")
