"""The control connection: a daemon thread with its own loop that renews locks and hears notices.

Owns heartbeats, renewals and notices of a session, so that a handler that blocks the user's loop,
or burns its CPU, neither looks dead nor loses its locks. Opened with the first consumer.
It reads what the user's loop replaces (`identity`, `ledgers`), and each ledger under its own
lock; it hands everything else over with `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import warnings
from functools import partial
from typing import Any, Final

from fifo.client import limits
from fifo.client.connection.dialing import Dialer
from fifo.client.connection.link import Link
from fifo.client.connection.notices import NoticeAcks
from fifo.client.connection.patience import LOOKS, Patience
from fifo.client.connection.session import Identity, Session, hello
from fifo.client.connection.threads import OwnLoop, call_in
from fifo.client.consuming import ranges
from fifo.client.consuming.lock_ledger import LockLedger
from fifo.client.errors import FifoError, SessionEnded, from_code
from fifo.wire import Code, Frame
from fifo.wire import limits as wire
from fifo.wire.messages import (
    NOTICE_MESSAGE_TIMEOUT,
    NOTICE_TAKEN_BACK,
    ROLE_CONTROL,
    Close,
    Error,
    Notice,
    Redirect,
    Renew,
    Renewed,
    Welcome,
)

_log = logging.getLogger("fifo.client")

_IDLE_S: Final = 1.0
"""Seconds between looks for locks to renew while nothing is held."""

_LOOP_LOOK_S: Final = 5.0
"""Longest time without a look whether the user's loop was closed: then nothing is renewed."""

_LOOK_AGAIN_S: Final = 0.25
"""While it waits for the data connection: a word from the other thread may come just too early."""


class Control:
    """The control connection of one client. `start`, `nudge`, `stop`: from the user's loop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._user_loop = session.loop
        self._environment = session.environment
        self._dialer = Dialer(session.options, session.environment)
        self._thread: OwnLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._lost: asyncio.Event | None = None
        self.link: Link | None = None
        self._identity: Identity | None = None
        self._correlations = itertools.count(1)
        self._notices = NoticeAcks(lambda: next(self._correlations))
        self._sent: dict[int, float] = {}
        self._patience = Patience()
        self._renew_at = 0.0

    def __repr__(self) -> str:
        return f"<control {'off' if self._thread is None else repr(self.link)}>"

    @property
    def running(self) -> bool:
        """Whether the thread has been started."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread is None and not self._stopping:
            self._thread = self._environment.own_loop()
            self._thread.start(self._main)

    def nudge(self) -> None:
        """A lock may be shorter than those before: look at once. From any thread."""
        loop = self._loop
        if loop is not None:
            call_in(loop, self._look_now)

    async def stop(self) -> None:
        """End the thread; waits for it without blocking the user's loop."""
        self._stopping = True
        thread, loop = self._thread, self._loop
        if thread is None:
            return
        if loop is not None:
            call_in(loop, self._cancel)
        await thread.join()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    # On the control thread from here on.

    def _look_now(self) -> None:
        self._renew_at = 0.0
        self._set_wake()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._session.locks.move(self._loop)
        self._wake = asyncio.Event()
        self._lost = asyncio.Event()
        self._task = asyncio.current_task()
        try:
            while not self._stopping:
                await self._one_session()
        finally:
            self._drop(self.link)

    async def _one_session(self) -> None:
        """Wait for the session, connect, and renew until the connection or the session is over."""
        await self._until_established()
        identity = self._identity = self._session.identity
        data = self._session.link
        self._dialer.hint = data.address if data is not None else self._session.dialer.hint
        link = await self._find(identity)
        while link is not None:
            link = await self._stay(link, identity)

    async def _find(self, identity: Identity, beside: Link | None = None) -> Link | None:
        """A connection to the leader, attached; None where the search has to begin anew.

        `beside`: one that has gone silent, and stays; only the leader of a later term takes its
        place.
        """
        options, term = self._session.options, 0 if beside is None else beside.term
        try:
            link, welcome = await self._dialer.dial(
                lambda: hello(identity, options, ROLE_CONTROL, after_term=term),
                beside=None if beside is None else beside.address,
            )
        except SessionEnded:
            told = partial(self._session.ended_elsewhere, was_gone=True)
            self._tell(told, identity.session)
            await self._until_another(identity)
            return None
        except FifoError as error:
            _log.warning("the control connection was refused: %s", error)
            await asyncio.sleep(limits.REDIAL_MAX_S)
            return None
        if not self._session.pair.join(ROLE_CONTROL, link):
            # The data connection was welcomed by a later leader meanwhile.
            link.close()
            await asyncio.sleep(limits.REDIAL_PATIENT_MAX_S)
            return None
        self._attach(link, welcome)
        return link

    def _attach(self, link: Link, welcome: Welcome) -> None:
        assert self._lost is not None, "made in _main"
        if self.link is not None:
            self.link.close()
        self.link = link
        self._sent.clear()
        self._patience.answered()
        self._renew_at = 0.0
        self._lost.clear()
        link.attach(self, welcome.heartbeat_ms / 1000)
        self._tell(self._session.follow, link.address)

    async def _stay(self, link: Link, identity: Identity) -> Link | None:
        """Renew over this connection while it is ours; the one that takes its place, or None.

        While renewals are unanswered, the other nodes are asked which of them leads.
        """
        assert self._wake is not None, "made in _main"
        assert self._lost is not None, "made in _main"
        search: asyncio.Task[Link | None] | None = None
        try:
            while not self._lost.is_set():
                if self._user_loop.is_closed():
                    await self._end_session(link)
                    break
                if search is not None and search.done():
                    return search.result()
                if not self._belongs(link, identity):
                    break
                self._wake.clear()
                self._renew_if_due()
                silent = self._patience.is_over(self._environment.monotonic(), self._patience_s())
                if search is None and silent and self._dialer.knows_another(link.address):
                    search = asyncio.ensure_future(self._ask_others(link, identity))
                    search.add_done_callback(lambda _: self._set_wake())
                elif search is not None and not self._patience.runs:
                    search.cancel()
                    search = None
                await self._rest(self._pause())
        finally:
            if search is not None:
                search.cancel()
            if self.link is link:
                self._drop(link)
        return None

    async def _ask_others(self, link: Link, identity: Identity) -> Link | None:
        """Look for the leader of a later term; not all clients of a node in the same instant."""
        await asyncio.sleep(self._patience_s() * self._environment.chance() / 2)
        return await self._find(identity, link)

    def _drop(self, link: Link | None) -> None:
        if link is not None:
            self._session.pair.leave(link)
            link.close()
        self.link = None

    async def _rest(self, seconds: float) -> None:
        """Wait until it is nudged, or until the next renewal, and look at the user's loop."""
        assert self._wake is not None, "made in _main"
        while seconds > 0 and not self._wake.is_set() and not self._user_loop.is_closed():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, _LOOP_LOOK_S)):
                    await self._wake.wait()
            seconds -= _LOOP_LOOK_S

    async def _end_session(self, link: Link) -> None:
        """The program closed its event loop and not its client: nothing can be settled any more,
        so nothing is renewed, and all that was held goes back."""
        assert self._lost is not None, "made in _main"
        self._stopping = True
        text = (
            f"{self._session!r}: its event loop was closed, and the client was not:"
            " use `async with fifo.connect(...)`, or close() it"
        )
        # Said before anything is done: the program may end as soon as its messages are elsewhere.
        try:
            warnings.warn(text, ResourceWarning, source=self._session, stacklevel=2)
        finally:
            link.send(Close(), next(self._correlations))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._session.options.close_timeout):
                    await self._lost.wait()
            self._lost.set()

    def _belongs(self, link: Link, identity: Identity) -> bool:
        """Whether this connection is ours: of this session, and of the latest leader known.

        The data connection may find the next leader first, where the old one only hangs.
        """
        return self._session.identity.session == identity.session and not link.retired

    async def _until_another(self, identity: Identity) -> None:
        """The session ended: wait until the user's loop has begun another."""
        while self._session.identity.session == identity.session:
            await self._woken()

    async def _until_established(self) -> None:
        """Wait until the data connection has a session that can be resumed."""
        while not self._session.identity.established or self._session.fatal is not None:
            await self._woken()

    async def _woken(self) -> None:
        """Wait for a word from the user's loop; the pause is for one that came just before."""
        assert self._wake is not None, "made in _main"
        if self._user_loop.is_closed():
            self._cancel()
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_AGAIN_S):
                await self._wake.wait()

    def _period_s(self) -> float:
        """Between two renewals: a third of the shortest lock that is held."""
        locks = [
            ledger.lock_s
            for ledger in self._session.ledgers.values()
            if ledger.renewable and not ledger.void
        ]
        return min([*locks, limits.LOCK_S_MAX]) / limits.RENEWALS_PER_LOCK if locks else _IDLE_S

    def _patience_s(self) -> float:
        """The time that a renewal may be unanswered."""
        return min(self._period_s() * limits.RENEWAL_PATIENCE, limits.STALL_S)

    def _pause(self) -> float:
        """Until the next renewal, or the next look for the answer to one."""
        pause = max(0.0, self._renew_at - self._environment.monotonic())
        return min(pause, self._patience_s() / LOOKS) if self._patience.runs else pause

    def _renew_if_due(self) -> None:
        now = self._environment.monotonic()
        if now >= self._renew_at:
            self._renew_at = now + self._period_s()
            self._renew()

    def _renew(self) -> None:
        """Send a frame (or as many as the ranges need) that names all held locks."""
        link = self.link
        if link is None:
            return
        now = self._environment.monotonic()
        items: list[tuple[int, tuple[ranges.Range, ...]]] = []
        room = wire.SETTLE_RANGES_MAX
        for number, ledger in self._session.ledgers.items():
            for part in ranges.chunks(
                ledger.to_renew(now), wire.SETTLE_RANGES_MAX, limits.RENEW_TOKENS
            ):
                if len(part) > room or len(items) >= wire.ITEMS_MAX:
                    self._send(link, items, now)
                    items, room = [], wire.SETTLE_RANGES_MAX
                items.append((number, part))
                room -= len(part)
        self._send(link, items, now)

    def _send(
        self, link: Link, items: list[tuple[int, tuple[ranges.Range, ...]]], now: float
    ) -> None:
        if items:
            correlation = next(self._correlations)
            self._sent[correlation] = now
            self._patience.asked(now)
            link.send(Renew(tuple(items)), correlation)

    def frame_received(self, link: Link, frame: Frame) -> None:
        """A renewal's answer, a notice, or the end."""
        message = frame.message
        if isinstance(message, Renewed):
            self._renewed(message, self._sent.pop(frame.correlation, None))
        elif isinstance(message, Notice):
            self._notice(link, message)
        elif isinstance(message, Redirect):
            if message.address:
                self._dialer.hint = message.address
            link.abort(from_code(Code.MOVED, f"{link.address} does not lead any more"))
        elif isinstance(message, Error):
            renewal = self._sent.pop(frame.correlation, None)
            if frame.correlation == 0:
                link.abort(from_code(message.code, message.text, message.detail))
            elif message.retryable and renewal is not None:
                # Not an answer: it does not lead, or not yet.
                self._renew_at = self._environment.monotonic() + limits.RENEW_RETRY_S
                self._set_wake()
            elif renewal is not None and not self._session.closing:
                self._patience.answered()
                _log.warning("a renewal was refused: %s", message.text)

    def _renewed(self, answer: Renewed, sent_at: float | None) -> None:
        self._patience.answered()
        ledgers = self._session.ledgers
        for number, granted, lost in answer.items:
            ledger = ledgers.get(number)
            if ledger is None:
                continue
            if sent_at is not None and granted:
                ledger.renewed(granted, sent_at)
                self._session.metrics.renewals += ranges.count([one[:2] for one in granted])
            if lost:
                # What was settled just before the renewal came is named as lost, too: not a sign
                # that the node suspects us.
                self._lose(ledger, lost, suspected=False)

    def _notice(self, link: Link, notice: Notice) -> None:
        if notice.kind in (NOTICE_MESSAGE_TIMEOUT, NOTICE_TAKEN_BACK):
            ledger = self._session.ledgers.get(notice.consumer)
            if ledger is not None:
                suspected = notice.kind == NOTICE_MESSAGE_TIMEOUT
                self._lose(ledger, notice.tokens, suspected=suspected)
        else:
            self._tell(self._session.notice, notice)
        self._notices.received(link, notice.notice)

    def _lose(
        self, ledger: LockLedger[Any], tokens: tuple[tuple[int, int], ...], *, suspected: bool
    ) -> None:
        """Flag the messages here and now: a handler that blocks the user's loop can look."""
        self._session.lose(ledger, tokens, suspected=suspected)
        self._tell(self._session.report_lost, ledger.number)

    def _tell_ended(self, identity: Identity) -> None:
        self._tell(self._session.ended_elsewhere, identity.session)

    def _tell(self, callback: object, argument: object) -> None:
        assert callable(callback), "a method of the session"
        call_in(self._user_loop, callback, argument)

    def link_lost(self, link: Link, error: FifoError) -> None:
        """The control connection is gone: another one, at once."""
        if isinstance(error, SessionEnded) and self._identity is not None:
            self._tell_ended(self._identity)
        if self.link is link and self._lost is not None:
            self._lost.set()
            self._set_wake()

    def _set_wake(self) -> None:
        if self._wake is not None:
            self._wake.set()

    def link_writable(self, link: Link) -> None:
        """Renewals are small: they never waited."""

    def owes_answers(self) -> bool:
        """Whether a renewal is unanswered."""
        return bool(self._sent)
