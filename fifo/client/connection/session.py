"""The session of one client object: its identity, its data connection, and pending requests.

Owns reconnecting, resuming, and handing each frame to its receiver. It outlives its connections:
unanswered frames are sent again by their owners once a leader welcomes us.
Runs on the user's loop; `identity` and `ledgers` are replaced, never changed, so that the control
thread may read them at any time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from fifo.client import limits
from fifo.client.connection.calls import EXPIRED, Call, Expected, Tries, until
from fifo.client.connection.dialing import Dialer
from fifo.client.connection.environment import Environment
from fifo.client.connection.link import Link
from fifo.client.connection.notices import NoticeAcks
from fifo.client.connection.options import Options
from fifo.client.connection.pair import Pair
from fifo.client.consuming import ranges
from fifo.client.consuming.delivery import Delivery
from fifo.client.consuming.lock_ledger import Held, LockLedger
from fifo.client.consuming.lock_watch import LockWatch
from fifo.client.durations import Duration, patience
from fifo.client.errors import (
    AuthenticationFailed,
    ClientClosed,
    ConnectionLost,
    FifoError,
    SessionEnded,
    SessionTaken,
    Timeout,
    again,
    from_code,
    reworded,
)
from fifo.client.metrics import Metrics
from fifo.wire import VERSION_MAX, VERSION_MIN, Buffer, Frame
from fifo.wire import limits as wire
from fifo.wire.messages import (
    NOTICE_ACTIVITY,
    NOTICE_CONSUMER_REMOVED,
    NOTICE_MESSAGE_TIMEOUT,
    NOTICE_SESSION_ENDED,
    NOTICE_TAKEN_BACK,
    ROLE_DATA,
    SESSION_RESUMED,
    VERB_RELEASE,
    Cancel,
    Confirms,
    Deliver,
    Error,
    Get,
    Hello,
    Message,
    Notice,
    Redirect,
    Resumed,
    Settle,
    Subscribe,
    Welcome,
)

_log = logging.getLogger("fifo.client")
_T = TypeVar("_T")


_CAPITAL: Final = re.compile(r"(?<=.)(?=[A-Z])")
"""Where a request's name falls into words: QueueQuery is shown as "queue query"."""


class Identity(NamedTuple):
    """Which session we are: `session` changes when one ended, `incarnation` never."""

    session: bytes
    incarnation: bytes
    established: bool


class SessionPart(Protocol):
    """A part of the client with unanswered frames of its own: publisher, settler, consumers."""

    def resumed(self) -> None:
        """A leader has welcomed us: send what is unanswered."""

    def detached(self) -> None:
        """The connection is gone."""

    def writable(self) -> None:
        """The connection takes bytes again."""

    def session_ended(self, error: SessionEnded, *, was_gone: bool) -> None:
        """Drop all that the session held; a new one begins. `was_gone`: a leader did not know it
        any more when we came back; otherwise it was ended under us."""

    def failed(self, error: FifoError) -> None:
        """Nothing will ever be answered again."""

    def owes(self) -> bool:
        """Whether answers are outstanding."""


class Sink(Protocol):
    """The receiver of the deliveries of one consumer number."""

    def deliver(self, delivery: Delivery) -> None:
        """Messages came."""

    def activity(self, active: bool) -> None:
        """The consumer became active, or waits."""

    def lost(self) -> None:
        """Some of its locks were lost."""

    def removed(self) -> None:
        """The node has removed the consumer: its queue was deleted."""


class Listener(Protocol):
    """The receiver of the deliveries of a durable consumer: they belong to no session."""

    def deliver(self, delivery: Delivery) -> None:
        """Messages came."""


class Session:
    """See the module. `start()` once, `close()` once; everything else in between."""

    def __init__(
        self,
        options: Options,
        environment: Environment,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.options = options
        self.environment = environment
        self.metrics = metrics
        self.loop = loop
        self.dialer = Dialer(options, environment)
        self.pair = Pair()
        self.link: Link | None = None
        self.welcome: Welcome | None = None
        self.identity = Identity(
            environment.entropy(16), environment.entropy(16), established=False
        )
        self.ledgers: dict[int, LockLedger[Any]] = {}
        self.locks = LockWatch(self, loop)
        self.parts: list[SessionPart] = []
        self.fatal: FifoError | None = None
        self.closing = False
        self.on_identity: Callable[[], object] | None = None
        self.on_connected: Callable[[str], object] | None = None
        self.on_disconnected: Callable[[FifoError], object] | None = None
        self._reported = False
        """Whether the connection was reported: only then is its loss."""
        self._sinks: dict[int, Sink] = {}
        self._listeners: dict[int, Listener] = {}
        self._found: frozenset[int] = frozenset()  # the node's consumers, not looked at yet
        self._orphans: dict[int, list[Delivery]] = {}
        self._removed: set[int] = set()
        self._expected: dict[int, Expected] = {}
        self._calls: dict[int, Call] = {}
        self._correlations = itertools.count(1)
        self._notices = NoticeAcks(self.next_correlation)
        self._keeper: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] = loop.create_future()
        self._lost: asyncio.Event = asyncio.Event()
        self._last_error: FifoError | None = None

    def __repr__(self) -> str:
        where = "not connected" if self.link is None else f"connected to {self.link.address}"
        return f"<session {self.identity.session.hex()[:8]}, {where}>"

    # The life of the connection.

    async def start(self) -> None:
        """Connect for the first time. Raises ConnectionLost that names what was tried."""
        self._keeper = self.loop.create_task(self._keep(), name="fifo session")
        deadline = self.loop.time() + self.options.connect_timeout
        if await until(self._first, deadline, self.loop) is EXPIRED:
            error = ConnectionLost(
                f"no leader within {self.options.connect_timeout:g} s; {self.dialer.explain()}"
            )
            self._fail(error)
            raise error

    async def _keep(self) -> None:
        """Connect, wait until it is lost, again; until closed or refused for good."""
        last: str | None = None
        while self.fatal is None:
            before = self.identity.session
            # A leader that hands over names the next one; one that is lost names none.
            lost = last is not None and self.dialer.hint == last
            try:
                link, welcome = await self.dialer.dial(self._hello, lost=lost)
            except SessionEnded as error:
                # The control connection may have reported it first: then this is about the old one.
                if self.identity.session == before:
                    self.end(error, was_gone=True)
                continue
            except FifoError as error:
                self._fail(error)
                return
            if not self.pair.join(ROLE_DATA, link):
                # The control connection was welcomed by a later leader meanwhile.
                link.close()
                await asyncio.sleep(limits.REDIAL_PATIENT_MAX_S)
                continue
            last = link.address
            self._lost.clear()
            self._attach(link, welcome)
            await self._lost.wait()

    @property
    def handle_key(self) -> bytes:
        """The secret from which the handles of this session's messages are derived."""
        return b"" if self.welcome is None else self.welcome.handle_key

    def _hello(self) -> Hello:
        identity, options = self.identity, self.options
        return hello(identity, options, ROLE_DATA)

    def _attach(self, link: Link, welcome: Welcome) -> None:
        self.link = link
        self.welcome = welcome
        self.metrics.connects += 1
        self.identity = self.identity._replace(established=True)
        if self.on_identity is not None:
            self.on_identity()
        _log.info("connected to %s at %s, term %d", welcome.node, link.address, welcome.term)
        if welcome.session_state == SESSION_RESUMED:
            for ledger in self.ledgers.values():
                ledger.resumed()
        link.attach(self, welcome.heartbeat_ms / 1000)
        if self.link is not link:
            return
        for call in list(self._calls.values()):
            call.sent_again = call.sent
            self._send_call(call)
        for part in self.parts:
            part.resumed()
        self._found = frozenset([one[0] for one in welcome.consumers])
        self._cancel_strangers()
        if not self._first.done():
            self._first.set_result(None)
        self._reported = True
        if self.on_connected is not None:
            _report("on_connected", self.on_connected, link.address)

    def follow(self, address: str) -> None:
        """The control connection was welcomed at `address`: go there, if it leads a later term."""
        self.dialer.hint = address
        if self.link is not None and self.link.retired:
            self.link.abort(ConnectionLost(f"{self.link.address}: {address} leads a later term"))

    def link_lost(self, link: Link, error: FifoError) -> None:
        """The data connection is gone: notify all parts, and connect again."""
        self.pair.leave(link)
        if self.link is not link:
            return
        self.link = None
        self._orphans.clear()
        self._removed.clear()
        if self.closing:
            # The node hangs up on a closed session: that is no loss, and nothing to come back from.
            self._fail(ClientClosed("the client is closed"))
            return
        self._last_error = error
        self.metrics.disconnects += 1
        if isinstance(error, SessionEnded):
            self.end(error)
        elif error.code == "session_taken" or self._is_refusal(error):
            self._fail(error)
        now = self.environment.monotonic()
        for ledger in self.ledgers.values():
            ledger.detached(now)
        for call in list(self._calls.values()):
            if call.sent and not call.safe:
                self._forget(call)
                call.fail(_unknown(error))
        for part in self.parts:
            part.detached()
        self._lost.set()
        if self.fatal is None:
            _log.info("lost the connection: %s", error)
        reported, self._reported = self._reported, False
        if reported and self.on_disconnected is not None:
            _report("on_disconnected", self.on_disconnected, error)

    def _is_refusal(self, error: FifoError) -> bool:
        """Whether this is for good: a token that has ended is not, where there is another one."""
        if isinstance(error, AuthenticationFailed) and self.options.renews_token:
            return False
        return isinstance(error, PermissionError)

    def link_writable(self, link: Link) -> None:
        """Unsent bytes have drained."""
        for part in self.parts:
            part.writable()

    def owes_answers(self) -> bool:
        """Whether the node owes us any answer."""
        return bool(self._calls) or any(part.owes() for part in self.parts)

    def end(self, error: SessionEnded, *, was_gone: bool = False) -> None:
        """The session is over: its tokens are void. The next connection begins a new one."""
        if self.fatal is not None:
            return
        level = logging.WARNING if self.ledgers or not was_gone else logging.INFO
        _log.log(level, "the session ended: %s", error)
        self.metrics.sessions_ended += 1
        self.identity = Identity(
            self.environment.entropy(16), self.identity.incarnation, established=False
        )
        for ledger in self.ledgers.values():
            self.flag_lost(ledger.end())
        self.ledgers = {}
        self._sinks.clear()
        self._orphans.clear()
        for part in self.parts:
            part.session_ended(error, was_gone=was_gone)
        if self.link is not None:
            self.link.abort(error)

    def ended_elsewhere(self, session: bytes, *, was_gone: bool = False) -> None:
        """The control connection heard that this session ended; `was_gone`: when it came back."""
        if session == self.identity.session and self.identity.established:
            error = SessionEnded("the node ended the session")
            error.code = "session_ended"
            if self.link is not None:
                self.link.abort(error)
            else:
                self.end(error, was_gone=was_gone)

    def _fail(self, error: FifoError) -> None:
        """End the session for good: every waiting caller gets the error."""
        if self.fatal is not None:
            return
        self.fatal = error
        self.locks.stop()
        for call in list(self._calls.values()):
            failed = again(error)
            failed.unknown |= call.tries.unknown
            call.fail(failed)
        self._calls.clear()
        self._expected.clear()
        for part in self.parts:
            part.failed(error)
        for ledger in self.ledgers.values():
            for message in ledger.end():
                message.lose_lock()
        self.ledgers = {}
        if not self._first.done():
            self._first.set_exception(error)
            self._first.exception()
        if self._keeper is not None and self._keeper is not asyncio.current_task():
            self._keeper.cancel()
        if self.link is not None:
            self.pair.leave(self.link)
            self.link.close()
            self.link = None

    def stop(self) -> None:
        """Close the connection now; callers that still wait get ClientClosed."""
        self._fail(ClientClosed("the client is closed"))

    async def close(self) -> None:
        """Stop, and wait until nothing dials any more."""
        self.stop()
        if self._keeper is not None:
            await asyncio.gather(self._keeper, return_exceptions=True)

    def refuse(self, error: FifoError) -> None:
        """From here on every use raises `error`: this is a forked child's copy."""
        self.fatal = error

    def check(self) -> None:
        """Raise the error that prevents any use."""
        if self.fatal is not None:
            raise again(self.fatal)
        running = asyncio._get_running_loop()
        if running is not None and running is not self.loop:
            raise ClientClosed(
                "this client belongs to another event loop: connect on this one as well,"
                " or use fifo.blocking, which all threads may share"
            )

    def patience(self, timeout: Duration | None) -> float:
        """Seconds that a call may take; by default those of the options."""
        return self.options.timeout if timeout is None else patience(timeout)

    # Frames out.

    def next_correlation(self) -> int:
        """A number for a request, never used again in this client."""
        return next(self._correlations)

    def expect(self, correlation: int, receiver: Expected) -> None:
        """Hand the frame with this correlation to `receiver`, until `forget`."""
        self._expected[correlation] = receiver

    def forget(self, correlation: int) -> None:
        """Drop the receiver of this correlation."""
        self._expected.pop(correlation, None)

    async def call(
        self,
        message: Message,
        timeout: Duration | None = None,
        *,
        safe: bool = True,
        raw: Sequence[Buffer] = (),
        on_answer: Callable[[Frame], Any] | None = None,
    ) -> Any:
        """Send a request and wait for its answer; the frame, or what `on_answer` made of it.

        Raises the node's error, ConnectionLost where it was never sent, Timeout where it was.
        """
        seconds = self.patience(timeout)
        call = self.begin(message, safe=safe, raw=raw, on_answer=on_answer)
        try:
            result = await until(call.future, self.loop.time() + seconds, self.loop)
        finally:
            self._forget(call)
        if result is EXPIRED:
            what = _CAPITAL.sub(" ", type(message).__name__).lower()
            raise self.expired(seconds, what, call.tries)
        return result

    def begin(
        self,
        message: Message,
        *,
        safe: bool = True,
        raw: Sequence[Buffer] = (),
        on_answer: Callable[[Frame], Any] | None = None,
    ) -> Call:
        """Send a request without waiting; the caller awaits its future, then forgets it."""
        self.check()
        call = Call(
            message,
            self.next_correlation(),
            self.loop.create_future(),
            safe=safe,
            raw=raw,
            on_answer=on_answer,
            retry=self._retry,
        )
        self._calls[call.correlation] = call
        self._send_call(call)
        return call

    def abandon(self, call: Call, again: Message) -> None:
        """No caller waits any more. What was never sent is dropped; the answer to what was sent
        still reaches `on_answer`, and after a reconnection `again` is sent in its place."""
        call.message = again
        if not call.sent:
            self._forget(call)

    def tell(self, message: Message) -> None:
        """Send a request whose answer no caller awaits, also after a resume; an error is logged."""
        if self.fatal is None:
            self.begin(message).future.add_done_callback(partial(_log_error, message))

    def expired(
        self, seconds: float, what: str, tries: Tries, *, goes_on: bool = False
    ) -> FifoError:
        """The error of a wait that is over; `what` names the request.

        Unknown where it may have happened, or `goes_on` to be tried; the node's own refusal where
        it refused it each time.
        """
        refusal = tries.refusal
        if tries.unknown or goes_on:
            last = f"; the last refusal: {refusal}" if refusal is not None else ""
            return Timeout(f"{what}: no answer within {seconds:g} s{last}", unknown=True)
        if refusal is not None:
            return reworded(refusal, f"{what}: refused for {seconds:g} s: {refusal}")
        if self.link is not None:
            return Timeout(f"{what}: could not be sent within {seconds:g} s")
        why = f" after {self._last_error}" if self._last_error is not None else ""
        return ConnectionLost(
            f"{what}: no leader within {seconds:g} s{why}; {self.dialer.explain()}"
        )

    def _send_call(self, call: Call) -> None:
        if self.link is not None and self._calls.get(call.correlation) is call:
            call.sent = True
            call.tries.begin()
            self.link.send(call.message, call.correlation, call.raw)

    def _retry(self, call: Call, error: FifoError) -> None:
        delay = self.options.ack_retry_backoff.delay_s(call.attempts)
        call.attempts += 1
        self.loop.call_later(delay * (0.75 + self.environment.chance() / 2), self._send_call, call)

    def _forget(self, call: Call) -> None:
        if self._calls.pop(call.correlation, None) is not None and (self._orphans or self._found):
            # After this turn: an answer binds what came before it first.
            self.loop.call_soon(self._give_orphans_back)
            self.loop.call_soon(self._cancel_strangers)

    # Frames in.

    def frame_received(self, link: Link, frame: Frame) -> None:
        """Hand the frame to its receiver."""
        message = frame.message
        if isinstance(message, Deliver):
            self._deliver(message, frame.raw)
        elif isinstance(message, Confirms):
            expected = self._expected
            for item in message.items:
                receiver = expected.get(item[0])
                if receiver is not None:
                    receiver.confirmed(item)
        elif isinstance(message, Notice):
            self.notice(message)
            self._notices.received(link, message.notice)
        elif isinstance(message, Resumed):
            self._all_sent_again()
        elif isinstance(message, Redirect):
            if message.address:
                self.dialer.hint = message.address
            link.abort(ConnectionLost(f"{link.address} does not lead any more"))
        elif isinstance(message, Error) and frame.correlation == 0:
            link.abort(from_code(message.code, message.text, message.detail))
        else:
            self._answered(frame.correlation, frame)

    def _answered(self, correlation: int, frame: Frame) -> None:
        call = self._calls.get(correlation)
        if call is None:
            expected = self._expected.get(correlation)
            if expected is not None:
                expected.answered(frame)
            return
        message = frame.message
        if not isinstance(message, Error):
            self._forget(call)
            call.succeed(frame)
            return
        error = from_code(message.code, message.text, message.detail, retryable=message.retryable)
        call.tries.refused(error)
        if message.retryable and not call.future.done():
            self._retry(call, error)
        else:
            self._forget(call)
            # What was taken over in between may have been done for us the first time.
            error.unknown |= call.sent_again and isinstance(error, SessionTaken)
            call.fail(error)

    # Deliveries and notices.

    def bind(self, ledger: LockLedger[Any], sink: Sink) -> None:
        """From here on the deliveries of this consumer number go to `sink`."""
        self.ledgers = {**self.ledgers, ledger.number: ledger}
        self._sinks[ledger.number] = sink
        for delivery in self._orphans.pop(ledger.number, ()):
            sink.deliver(delivery)
        if ledger.number in self._removed:
            self._removed.discard(ledger.number)
            self.loop.call_soon(sink.removed)

    def unbind(self, *numbers: int) -> None:
        """These consumer numbers are done with."""
        self.ledgers = {one: other for one, other in self.ledgers.items() if one not in numbers}
        for number in numbers:
            self._sinks.pop(number, None)

    def listen(self, number: int, listener: Listener) -> None:
        """From here on, whatever session we have, this durable consumer's deliveries go here."""
        self._listeners[number] = listener

    def _deliver(self, message: Deliver, raw: memoryview) -> None:
        environment = self.environment
        delivery = Delivery(message, raw, environment.monotonic(), environment.wall())
        sink = self._sinks.get(message.consumer) or self._listeners.get(message.consumer)
        if sink is not None:
            sink.deliver(delivery)
            return
        # Deliveries may come before the number of their consumer does. Those of an abandoned call
        # are given back.
        self._orphans.setdefault(message.consumer, []).append(delivery)
        self._give_orphans_back()

    def _give_orphans_back(self) -> None:
        """Release deliveries of consumers that no call here has asked for."""
        if not self._orphans or self._awaits_number():
            return
        orphans, self._orphans = self._orphans, {}
        for number, deliveries in orphans.items():
            found = ranges.Ranges(
                [(one.first_token, one.first_token + one.count - 1) for one in deliveries]
            )
            for tokens in ranges.chunks(found, wire.SETTLE_RANGES_MAX, limits.SETTLE_TOKENS):
                if self.link is not None:
                    release = Settle(number, VERB_RELEASE, tokens, automatic=True)
                    self.link.send(release, self.next_correlation())

    def _cancel_strangers(self) -> None:
        """Cancel what no call here has asked for: a program that had the session before us did.
        Its consumers would be sent messages that no program takes."""
        if not self._found or self.link is None or self._awaits_number():
            return
        sent = [call.message for call in self._calls.values()]
        left = {one.consumer for one in sent if isinstance(one, Cancel)}
        strangers = self._found - self.ledgers.keys() - self._listeners.keys() - left
        self._found = frozenset()
        for number in sorted(strangers):
            self.tell(Cancel(number))

    def _all_sent_again(self) -> None:
        """After a resume the node has sent all that is still ours: what it did not send is lost,
        whether a notice of it came or not."""
        for ledger in self.ledgers.values():
            gone = ledger.gone()
            if gone:
                self.lose(ledger, gone, suspected=False)
                self.report_lost(ledger.number)

    def _awaits_number(self) -> bool:
        """Whether an answer under way says the number of a consumer of ours."""
        return any(isinstance(call.message, Subscribe | Get) for call in self._calls.values())

    def notice(self, notice: Notice) -> None:
        """Handle a notice about a consumer; on the user's loop."""
        if notice.kind == NOTICE_MESSAGE_TIMEOUT:
            ledger = self.ledgers.get(notice.consumer)
            if ledger is not None:
                self.lose(ledger, notice.tokens, suspected=True)
                self.report_lost(notice.consumer)
        elif notice.kind == NOTICE_TAKEN_BACK:
            ledger = self.ledgers.get(notice.consumer)
            if ledger is not None:
                self.lose(ledger, notice.tokens, suspected=False)
                self.report_lost(notice.consumer)
        elif notice.kind == NOTICE_SESSION_ENDED:
            self.ended_elsewhere(self.identity.session)
        elif notice.kind == NOTICE_ACTIVITY:
            sink = self._sinks.get(notice.consumer)
            if sink is not None:
                sink.activity(notice.active)
        elif notice.kind == NOTICE_CONSUMER_REMOVED:
            sink = self._sinks.get(notice.consumer)
            if sink is not None:
                sink.removed()
            elif self._awaits_number():
                # On the control connection it overtakes the answer that names the consumer.
                self._removed.add(notice.consumer)
            else:
                self._removed.clear()

    def lose(
        self, ledger: LockLedger[Any], tokens: tuple[tuple[int, int], ...], *, suspected: bool
    ) -> None:
        """These locks are lost: flag their messages, on any thread."""
        self.flag_lost(ledger.lose(tokens, suspected=suspected))

    def flag_lost(self, messages: Iterable[Held]) -> None:
        """The node says that these locks are lost: tell the program; on any thread."""
        for message in messages:
            self.metrics.locks_lost += not (message.is_lost or message.has_run_out)
            message.lose_lock()

    def flag_run_out(self, messages: Iterable[Held]) -> None:
        """The deadlines of these locks have passed: tell the program; on any thread."""
        for message in messages:
            self.metrics.locks_lost += 1
            message.run_out()

    def report_lost(self, number: int) -> None:
        """The control thread has flagged lost locks: the consumer looks; on the user's loop."""
        sink = self._sinks.get(number)
        if sink is not None:
            sink.lost()


def hello(identity: Identity, options: Options, role: int, *, after_term: int = 0) -> Hello:
    """The first frame of a connection: it names the user; the secret is never in it, and the dialer
    adds the mechanism that proves who this is.

    `after_term`: only the leader of a later term welcomes us; any other node redirects.
    """
    return Hello(
        version_min=VERSION_MIN,
        version_max=VERSION_MAX,
        role=role,
        session=identity.session,
        incarnation=identity.incarnation,
        client=options.name or "fifo-python",
        user=options.user,
        heartbeat_ms=round(options.heartbeat * 1000),
        resume=identity.established,
        after_term=after_term,
    )


def _unknown(error: FifoError) -> FifoError:
    lost = ConnectionLost(f"the connection was lost before the answer came: {error}", unknown=True)
    lost.__cause__ = error
    return lost


def _log_error(message: Message, future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.info("%s: %s", type(message).__name__, error)


def _report(name: str, callback: Callable[[_T], object], value: _T) -> None:
    """Call the program: what it raises is its own, and ends no connection."""
    try:
        callback(value)
    except Exception:
        _log.exception("%s failed", name)
