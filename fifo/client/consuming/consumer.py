"""A consumer: messages are pushed, and the program takes them one by one or in batches.

Owns the buffer of what was delivered and not yet handed out, and the life of one subscription
across reconnections and sessions. Runs on the user's loop. Messages are made when they are handed
out. Must not know how settlements travel, or who renews.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Generic, TypeVar

from fifo.client import checks, limits
from fifo.client.connection.calls import EXPIRED, Call, until
from fifo.client.connection.session import Session
from fifo.client.connection.threads import call_in
from fifo.client.consuming import ranges
from fifo.client.consuming.consume_options import ConsumeOptions
from fifo.client.consuming.delivery import Delivery
from fifo.client.consuming.leaving import leave, let_go
from fifo.client.consuming.lock_ledger import LockLedger
from fifo.client.consuming.message import Ledger, LockedMessage
from fifo.client.consuming.ranges import Range
from fifo.client.consuming.settler import Settler
from fifo.client.consuming.tuning import Tuning
from fifo.client.consuming.verbs import SettleResult
from fifo.client.durations import Duration, patience
from fifo.client.errors import FifoError, QueueNotFound, again, reworded
from fifo.wire import Frame, RemoteProtocolError
from fifo.wire import limits as wire
from fifo.wire.errors import Code
from fifo.wire.messages import SESSION_RESUMED, Alive, Credit, Subscribed

_log = logging.getLogger("fifo.client")

M = TypeVar("M", bound=LockedMessage)


class Consumer(Generic[M]):
    """The result of `client.consume(...)`: a context manager and async iterator over messages.

    Entering subscribes; leaving cancels, and gives back what was not handed out. Several tasks may
    iterate at once. Cancelling ends the iteration; messages in hand can still be settled.
    """

    def __init__(
        self,
        session: Session,
        settler: Settler,
        options: ConsumeOptions,
        factory: Callable[[Delivery, int], M],
        on_start: Callable[[], None],
    ) -> None:
        self.queue = options.subscribe.queue
        self.tag = options.subscribe.tag
        self.active = False
        self.on_activity: Callable[[bool], object] | None = None
        self.cancelled = False
        self._session = session
        self._settler = settler
        self._options = options
        self._factory = factory
        self._on_start = on_start
        self._ledger: Ledger | None = None
        self._feed: Feed[M] | None = None
        self._subscribing: Call | None = None
        self._error: FifoError | None = None
        self._buffer: deque[tuple[Delivery, int, int]] = deque()
        self._delivery: Delivery | None = None
        self._index = self._stop = 0
        self._fresh_until = 0.0
        self._usable_s: float | None = None
        self._leader_renews = False
        self._waiters: deque[asyncio.Future[Any]] = deque()
        self._turn = 0
        self._subscribed_once = False
        self._answered_once = False
        self._patient_until = 0.0
        self._credit_left = 0 if options.subscribe.pull else None
        self._tuning: Tuning | None = None

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled else "active" if self.active else "waiting"
        number = "-" if self._ledger is None else self._ledger.number
        return f"<consumer {number} of {self.queue}, {state}, {self.buffered} buffered>"

    # The program's side.

    @property
    def number(self) -> int | None:
        """The consumer's number, for `client.settle` from elsewhere; None before it has one."""
        return None if self._ledger is None else self._ledger.number

    @property
    def buffered(self) -> int:
        """Messages delivered and not yet handed out."""
        rest = sum([stop - start for _, start, stop in self._buffer])
        return rest + self._stop - self._index

    async def __aenter__(self) -> Consumer[M]:
        await self.subscribe()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.cancel()

    def __aiter__(self) -> AsyncIterator[M]:
        return self

    async def __anext__(self) -> M:
        message = self._take()
        if message is None:
            found = await self._wait(None)
            if found is None:
                raise StopAsyncIteration
            return found
        self._turn += 1
        if self._turn >= limits.TURN_MESSAGES:
            self._turn = 0
            await asyncio.sleep(0)
        return message

    async def next(self, timeout: Duration | None = None) -> M | None:
        """The next message; None when `timeout` seconds are over, or the consumer was cancelled."""
        message = self._take()
        if message is not None:
            return message
        return await self._wait(timeout)

    async def next_batch(self, count: int, timeout: Duration | None = None) -> list[M]:
        """At least one and at most `count` messages: all that are there.

        Empty when `timeout` seconds are over without one, or the consumer was cancelled.
        """
        messages = self._take_many(count)
        if not messages:
            first = await self._wait(timeout)
            if first is not None:
                messages = [first, *self._take_many(count - 1)]
        return messages

    async def batches(self, count: int = limits.FRAME_MESSAGES) -> AsyncIterator[list[M]]:
        """Lists of messages, each of at most `count`, until the consumer is cancelled."""
        while True:
            messages = await self.next_batch(count)
            if not messages:
                return
            yield messages
            # Lets acks and deliveries through when the handler itself never waits.
            await asyncio.sleep(0)

    def ack_many(self, messages: list[M]) -> None:
        """Ack all of these without waiting, in as few frames as can be."""
        self._settler.gather_many(messages)

    async def settle_many(self, messages: list[M]) -> list[SettleResult]:
        """Ack all of these and wait for the receipts, in the same order."""
        return await self._settler.settle_many(messages)

    async def alive(self) -> None:
        """Report that the program is alive: a suspected consumer gets messages again."""
        if self._ledger is not None:
            self._ledger.suspected = False
            await self._session.call(Alive(self._ledger.number))

    async def credit(self, count: int, *, drain: bool = False) -> None:
        """Set the credit of a pulling consumer: the number of messages it asks for.

        It replaces the previous credit. With `drain` the rest is cancelled once all ready messages
        are handed out.

        Raises InvalidArgument where the consumer did not subscribe to pull. What is left of it goes
        along where the consumer has to subscribe anew.
        """
        checks.integer(count, "count", 0, wire.CREDIT_MAX)
        checks.flag(drain, "drain")
        await self.subscribe()
        if self._credit_left is not None:
            self._credit_left = count
        if self._ledger is not None:
            self._ledger.suspected = False
            await self._session.call(Credit(self._ledger.number, count, drain))
            if drain:
                self._credit_left = 0

    async def subscribe(self) -> None:
        """Subscribe now; entering the context or asking for a message does it as well."""
        if self._subscribed_once:
            return
        self._subscribed_once = True
        session = self._session
        call = session.begin(self._options.subscribe, on_answer=self._subscribed)
        seconds = session.options.timeout
        try:
            answer = await until(_copy(call), session.loop.time() + seconds, session.loop)
            if answer is EXPIRED:
                raise session.expired(seconds, f"subscribe to {self.queue!r}", call.tries)
        except BaseException as error:
            if call.future.done() and isinstance(error, FifoError):
                # Refused: there is no consumer, for others that wait either. Asking asks again.
                self._end(error)
                self._error = None
            else:
                # The answer may still come: it then finds a consumer to be cancelled.
                self.cancelled = True
            raise
        self._on_start()

    async def cancel(self) -> None:
        """End deliveries; give back, uncounted, the messages that were not handed out."""
        if self.cancelled:
            return
        self.cancelled = True
        self.active = False
        self._stop_tuning()
        unopened = self._unopened()
        self._forget_buffer()
        self._wake_all()
        ledger = self._ledger
        if ledger is None or ledger.void or self._session.fatal is not None:
            return
        call = leave(self._session, self._settler, ledger, unopened)
        seconds = min(self._session.options.timeout, self._session.options.close_timeout)
        loop = self._session.loop
        # Waited for a moment only; what becomes of it then is no concern of the program.
        with contextlib.suppress(FifoError):
            await until(_copy(call), loop.time() + seconds, loop)

    def __del__(self) -> None:
        """Give back what the program lets go of; on whatever thread drops it last."""
        session, ledger, tuning = self._session, self._ledger, self._tuning
        if tuning is not None and not session.loop.is_closed():
            call_in(session.loop, tuning.end)
        if self.cancelled or session.fatal is not None:
            return
        if ledger is None and not self._subscribed_once:
            return
        if session.loop.is_closed():
            return  # The control thread finds that out, and gives everything back.
        if ledger is not None:
            call_in(session.loop, let_go, session, self._settler, ledger, self._unopened())
        text = (
            f"{self!r} was not left: use `async with client.consume(...)`, or cancel() it;"
            " what it had not handed out goes back now"
        )
        warnings.warn(text, ResourceWarning, source=self, stacklevel=2)

    # Handing out.

    def _take(self) -> M | None:
        """The next message in the buffer, or None."""
        ledger = self._ledger
        if ledger is not None and ledger.suspected and not ledger.asked:
            self._ask(ledger)
        while self._index < self._stop or self._advance():
            delivery = self._delivery
            assert delivery is not None, "a slice of the buffer has its delivery"
            index = self._index
            self._index = index + 1
            message = self._factory(delivery, index)
            ledger = message.ledger
            now = self._session.environment.monotonic()
            token = message.token
            if ledger.lost and token in ledger.lost:
                ledger.resolve(((token, token),))
                continue
            if now >= self._fresh_until and not self._still_fresh(ledger, token, now):
                continue
            ledger.opened(message, now)
            return message
        return None

    def _take_many(self, count: int) -> list[M]:
        """Up to `count` messages of the buffer."""
        messages: list[M] = []
        ledger = self._ledger
        if ledger is not None and ledger.suspected and not ledger.asked:
            self._ask(ledger)
        while len(messages) < count and (self._index < self._stop or self._advance()):
            delivery, factory = self._delivery, self._factory
            assert delivery is not None, "a slice of the buffer has its delivery"
            owner = delivery.ledger
            now = self._session.environment.monotonic()
            if (
                owner is None
                or owner.lost
                or owner.handler_timeout_s is not None
                or now >= self._fresh_until
            ):
                message = self._take()
                if message is None:
                    break
                messages.append(message)
                continue
            start = self._index
            stop = self._index = min(self._stop, start + count - len(messages))
            fresh = [factory(delivery, index) for index in range(start, stop)]
            first = delivery.first_token
            owner.open.update(zip(range(first + start, first + stop), fresh, strict=True))
            messages += fresh
        return messages

    def _advance(self) -> bool:
        """Go to the next slice of the buffer; False where there is none."""
        if not self._buffer:
            self._delivery = None
            return False
        self._delivery, self._index, self._stop = self._buffer.popleft()
        delivery = self._delivery
        if delivery.ledger is None:
            return False
        if self._tuning is not None:
            self._tuning.handed_out(delivery)
        token = delivery.first_token + self._index
        self._fresh_until = self._limit(delivery.ledger, delivery, token)
        delivery.ledger.hand_out(self._fresh_until)
        return True

    def _limit(self, ledger: Ledger, delivery: Delivery, token: int) -> float:
        """Until when a message may be handed out: its lock's end, or the end of its renewals."""
        end = ledger.deadline(token, delivery)
        if self._usable_s is not None:
            usable = delivery.received + self._usable_s
            if self._leader_renews and self._session.link is not None:
                return max(end, usable)  # it does while we are connected, and does not say so
            end = min(end, usable)
        return end

    def _still_fresh(self, ledger: Ledger, token: int, now: float) -> bool:
        """Whether a message may be handed out; one that may not is given back, uncounted."""
        assert self._delivery is not None, "asked about a message of the buffer"
        self._fresh_until = self._limit(ledger, self._delivery, token)
        ledger.hand_out(self._fresh_until)
        if now < self._fresh_until:
            return True
        self._settler.release_unopened(ledger, ((token, token),))
        return False

    def _ask(self, ledger: Ledger) -> None:
        """Ask for more where the node suspects this consumer: it goes on while a place is free,
        beside those of lost messages whose handlers still run."""
        ledger.asked = True
        running = ledger.lost_running()
        if self._tuning is not None:
            self._tuning.make_room_beside(running)
        ledger.suspected = running > 0
        self._session.tell(Alive(ledger.number, running))

    async def _wait(self, timeout: Duration | None) -> M | None:
        """Wait for a message; None when cancelled or too late. Raises what ended the consumer."""
        if self._error is None and not self._subscribed_once and not self.cancelled:
            await self.subscribe()
        loop = self._session.loop
        deadline = None if timeout is None else loop.time() + patience(timeout)
        while True:
            message = self._take()
            if message is not None:
                if self._tuning is not None and self._waiters and not self.buffered:
                    self._tuning.starved()
                return message
            if self._error is not None:
                error = self._error
                if self._session.fatal is None:
                    self._error = None
                raise again(error)
            if self.cancelled:
                return None
            waiter: asyncio.Future[Any] = loop.create_future()
            self._waiters.append(waiter)
            if self._tuning is not None:
                self._tuning.starved()
            try:
                if deadline is None:
                    await waiter
                elif await until(waiter, deadline, loop) is EXPIRED:
                    return None
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                    # Woken and cancelled at once: the message is for somebody else.
                    self._wake(1)
                raise

    def _wake(self, count: int) -> None:
        waiters = self._waiters
        while waiters and count > 0:
            waiter = waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1

    def _wake_all(self) -> None:
        self._wake(len(self._waiters))

    def _unopened(self) -> tuple[Range, ...]:
        """The tokens in the buffer that are still ours."""
        slices = list(self._buffer)
        if self._delivery is not None and self._index < self._stop:
            slices.insert(0, (self._delivery, self._index, self._stop))
        found = ranges.Ranges()
        for delivery, start, stop in slices:
            found.add(delivery.first_token + start, delivery.first_token + stop - 1)
        return tuple(found)

    def _forget_buffer(self) -> None:
        if self._credit_left is not None:
            self._credit_left += self.buffered
        self._buffer.clear()
        self._delivery = None
        self._index = self._stop = 0

    # The session's side.

    def _subscribed(self, frame: Frame) -> None:
        """The node's answer; at once, for deliveries may come right behind it."""
        message = frame.message
        if not isinstance(message, Subscribed):
            raise RemoteProtocolError(
                Code.PROTOCOL,
                f"expected Subscribed in reply to Subscribe, got {type(message).__name__}",
            )
        self._subscribing = None
        self._answered_once = True
        self.active = message.active
        if self._ledger is None or self._ledger.number != message.consumer:
            self._replace(message)
        if self.cancelled and self._ledger is not None:
            # Cancelled while the answer was on its way: what comes goes back as it comes.
            leave(self._session, self._settler, self._ledger)

    def _replace(self, message: Subscribed) -> None:
        if self._ledger is not None:
            for lost in self._ledger.end():
                lost.lose_lock()
            self._forget_buffer()
            self._session.unbind(self._ledger.number)
        options = self._options
        lock_s, max_lock_s = message.lock_ms / 1000, message.max_lock_ms / 1000
        ledger: Ledger = LockLedger(
            message.consumer,
            self.queue,
            self._settler,
            lock_s=lock_s,
            max_lock_s=max_lock_s,
            renewable=options.auto_renew,
            handle_key=self._session.handle_key,
            tag=self.tag,
        )
        if options.renewals is not None:
            # Held for one lock, and renewed for so many more: by us, or at most that by the leader.
            ledger.renewed_for_s = options.renewals * lock_s
            max_lock_s = min(max_lock_s, ledger.renewed_for_s + lock_s)
        ledger.together = message.together
        ledger.handler_timeout_s = options.handler_timeout_s
        ledger.nack_delay = options.nack_delay
        self._usable_s = None
        if not options.auto_renew and options.renewals:
            ledger.leader_renews_s = max_lock_s
        self._leader_renews = not options.auto_renew and bool(options.renewals)
        is_renewed = options.auto_renew or self._leader_renews
        if is_renewed and max_lock_s >= limits.RENEWALS_PER_LOCK * lock_s:
            self._usable_s = max_lock_s - lock_s
        self._ledger = ledger
        self._feed = Feed(self, ledger, self._settler)
        self._stop_tuning()
        self._tuning = Tuning(self._session, ledger, self._waiters) if options.is_tuned else None
        self._session.bind(ledger, self._feed)
        if self._credit_left:
            self._session.tell(Credit(ledger.number, self._credit_left, automatic=True))

    def _stop_tuning(self) -> None:
        if self._tuning is not None:
            self._tuning.end()
        self._tuning = None

    def deliver(self, delivery: Delivery) -> None:
        """Messages came: keep what is new."""
        ledger, feed = self._ledger, self._feed
        if ledger is None or feed is None:
            return
        new = ledger.admit(delivery)
        if ledger.together:
            # It may end before those that came before it, and take them along.
            self._fresh_until = min(self._fresh_until, delivery.received + delivery.remaining_s)
        count = 0
        for start, stop in new:
            count += stop - start
            if not self.cancelled:
                self._buffer.append((delivery, start, stop))
        if self._credit_left is not None:
            self._credit_left = max(0, self._credit_left - count)
        if self._tuning is not None:
            self._tuning.delivered(delivery, waiting=bool(self._waiters))
        metrics = self._session.metrics
        metrics.delivered += count
        metrics.repeats_dropped += delivery.count - count
        if self.cancelled:
            feed.give_back(delivery, new)
            return
        self._wake(count)

    def activity(self, active: bool) -> None:
        """The node says whether this is the active consumer of its queue."""
        if active is self.active or self.cancelled:
            return  # after a resume the node says it again
        self.active = active
        if self.on_activity is not None:
            self.on_activity(active)

    def lost(self) -> None:
        """Wake all waiting tasks: asking again shows the node that this consumer is alive."""
        self._wake_all()

    def removed(self) -> None:
        """The queue was deleted: all locks are lost. Where another has its name, or has it soon,
        this consumer goes on there; else the program hears it once."""
        ledger, self._ledger = self._ledger, None
        self._stop_tuning()
        self._forget_buffer()
        if ledger is not None:
            self._session.lose(ledger, ledger.unresolved(), suspected=False)
            self._session.unbind(ledger.number)
        if not self.cancelled and self._subscribed_once:
            self.active = False
            self._subscribe_anew()

    def session_ended(self) -> None:
        """Drop all that it held; it subscribes again with the next session."""
        self._ledger = None
        self._stop_tuning()
        self._subscribing = None
        self._forget_buffer()

    def resumed(self) -> None:
        """Connected: subscribe again where the node does not know this consumer any more."""
        welcome = self._session.welcome
        if self._ledger is not None and welcome is not None:
            known = [one[0] for one in welcome.consumers]
            resumed = welcome.session_state == SESSION_RESUMED
            if not resumed or self._ledger.number in known:
                return
        elif not self._answered_once:
            return
        self._subscribe_anew()

    def _subscribe_anew(self) -> None:
        """Subscribe to the queue that has the name now, and for a moment wait until one has it."""
        self._patient_until = self._session.loop.time() + limits.REPLACED_S
        self._subscribe_again()

    def _subscribe_again(self) -> None:
        if self.cancelled or not self._subscribed_once or self._error is not None:
            return
        if self._subscribing is None and self._session.fatal is None:
            self._subscribing = self._session.begin(
                self._options.subscribe, on_answer=self._subscribed
            )
            self._subscribing.future.add_done_callback(self._subscribed_again)

    def _subscribed_again(self, future: asyncio.Future[Any]) -> None:
        if self._subscribing is not None and self._subscribing.future is future:
            self._subscribing = None
        if future.cancelled():
            return
        error = future.exception()  # looked at in any case, or asyncio reports it as unheard
        if self.cancelled:
            return
        loop = self._session.loop
        if isinstance(error, QueueNotFound) and loop.time() < self._patient_until:
            loop.call_later(limits.REPLACED_LOOK_S, self._subscribe_again)
        elif isinstance(error, QueueNotFound):
            text = f"queue {self.queue!r} was deleted, and no other has its name: {error}"
            self._end(reworded(error, text))
        elif isinstance(error, FifoError):
            self._end(error)
        elif error is None and self._ledger is not None:
            _log.warning("%r subscribed anew: its session ended, or its queue was deleted", self)

    def _end(self, error: FifoError) -> None:
        """The subscription is over: all who wait hear it, else who asks next. Asking once more
        subscribes anew, to the queue that then has the name."""
        self._subscribed_once = False
        self.active = False
        waiting = [waiter for waiter in self._waiters if not waiter.done()]
        self._waiters.clear()
        for waiter in waiting:
            waiter.set_exception(again(error))
        self._error = None if waiting else error

    def fail(self, error: FifoError) -> None:
        """End for good: for waiting tasks now, for others once the buffer is empty."""
        self._error = error
        self._stop_tuning()
        self._wake_all()


class Feed(Generic[M]):
    """The receiver of deliveries and notices of the session, which keeps no consumer alive.

    Where the program has let go of the consumer, what still comes goes back as it comes.
    """

    def __init__(self, consumer: Consumer[M], ledger: Ledger, settler: Settler) -> None:
        self._consumer = weakref.ref(consumer)
        self._ledger = ledger
        self._settler = settler

    def deliver(self, delivery: Delivery) -> None:
        """Messages came."""
        consumer = self._consumer()
        if consumer is not None:
            consumer.deliver(delivery)
        else:
            self.give_back(delivery, self._ledger.admit(delivery))

    def give_back(self, delivery: Delivery, new: list[tuple[int, int]]) -> None:
        """Release the messages at these positions, which no program will see."""
        first = delivery.first_token
        crossed = tuple([(first + start, first + stop - 1) for start, stop in new])
        self._settler.release_unopened(self._ledger, crossed)

    def activity(self, active: bool) -> None:
        """The consumer became active, or waits."""
        if (consumer := self._consumer()) is not None:
            consumer.activity(active)

    def lost(self) -> None:
        """Some of its locks were lost."""
        if (consumer := self._consumer()) is not None:
            consumer.lost()

    def removed(self) -> None:
        """The node has removed the consumer: its queue was deleted."""
        if (consumer := self._consumer()) is not None:
            consumer.removed()


def _copy(call: Call) -> asyncio.Future[Any]:
    """A future of one's own for a call that goes on when one stops waiting."""
    loop = call.future.get_loop()
    copy: asyncio.Future[Any] = loop.create_future()

    def done(future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if copy.done():
            return
        if error is not None:
            copy.set_exception(error)
        else:
            copy.set_result(None)

    call.future.add_done_callback(done)
    return copy
