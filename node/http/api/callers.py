"""Clients on behalf of HTTP callers: one for each credentials, pooled, bounded, ended when unused.

Owns their number and their ends. A client is a session of the cluster like any other, with the
rights and quotas of its user, and finds the leader as any client does. Must not know routes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import NamedTuple

from fifo.client import (
    AuthenticationFailed,
    Client,
    ClientClosed,
    Connecting,
    FifoError,
    Message,
    MessageNotFound,
    Options,
    PermissionDenied,
    QueueNotFound,
    SessionEnded,
)
from fifo.wire import Code
from node.http import limits
from node.http.api.locks import Lock
from node.http.api.problems import Problem

logger = logging.getLogger("fifo.http")


class Credentials(NamedTuple):
    """A caller's user and password, or token, or subject of its certificate; nothing where there
    are no users.

    `remote`: the address of one who changes something, which the audit log shows. `groups`: of a
    user that tokens of an identity provider prove, whichever of them.
    """

    user: str | None = None
    password: str | None = None
    token: str | None = None
    subject: str | None = None
    remote: str | None = None
    groups: frozenset[str] | None = None


class Caller:
    """A client that is being opened, or open; `uses`: requests that have it.

    It knows the messages that it holds locked for its callers: while there are any its session
    stays.
    """

    def __init__(self, opening: asyncio.Future[Client]) -> None:
        self.opening = opening
        self.uses = 0
        self.timer: asyncio.TimerHandle | None = None
        self.watch: asyncio.TimerHandle | None = None
        self._held: dict[tuple[int, int], Message] = {}
        self._held_bytes = 0
        self._renewed: dict[tuple[int, int], asyncio.TimerHandle] = {}
        """The ends of renewals that were asked for."""

    @property
    def client(self) -> Client:
        """The client, once it is open."""
        return self.opening.result()

    @property
    def holds(self) -> bool:
        """Whether a lock may be held."""
        return bool(self._held)

    def check_room(self) -> None:
        """Refuse a get of a caller that holds its share already. Raises Problem."""
        if (
            self._held_bytes >= limits.API_HELD_BYTES_MAX
            or len(self._held) >= limits.API_HELD_MESSAGES_MAX
        ):
            text = (
                f"{len(self._held)} messages ({self._held_bytes} bytes) are held through this node,"
                f" and at most {limits.API_HELD_MESSAGES_MAX} ({limits.API_HELD_BYTES_MAX} bytes)"
                " may be: settle some, or ask another node"
            )
            raise Problem(Code.OVERLOADED, text)

    def hold(self, message: Message, renewals: int = 0) -> None:
        """Remember a message that is handed out; its client renews it for so many locks' time."""
        key = message.consumer, message.token
        self._held[key] = message
        self._held_bytes += len(message.body)
        if renewals:

            def over() -> None:
                self._renewed.pop(key, None)
                message.ledger.do_not_renew(message.token, message.token)

            loop = asyncio.get_running_loop()
            self._renewed[key] = loop.call_later(renewals * message.remaining, over)

    def held(self, lock: Lock) -> Message | None:
        """The message of a lock that was handed out here. Raises Problem where the handle is
        wrong."""
        message = self._held.get((lock.consumer, lock.token))
        if message is not None and (message.handle, message.queue) != (lock.handle, lock.queue):
            raise Problem(Code.PERMISSION_DENIED, "handle: this is not the one of that message")
        return message

    def let_go(self, lock: Lock) -> None:
        """Forget a message that is settled."""
        self._let_go((lock.consumer, lock.token))

    def _let_go(self, key: tuple[int, int]) -> None:
        message = self._held.pop(key, None)
        if message is not None:
            self._held_bytes -= len(message.body)
        ends = self._renewed.pop(key, None)
        if ends is not None:
            ends.cancel()

    def give_back(self, messages: Iterable[Message]) -> None:
        """Release messages whose caller has gone before it got them."""
        for message in messages:
            self._let_go((message.consumer, message.token))
            message.ledger.settler.take_back(message)

    async def look(self) -> None:
        """Forget the messages whose locks are over. One that is over by this node's clock alone is
        looked up: another node may renew it."""
        overdue = [(key, one) for key, one in self._held.items() if not one.remaining]
        for key, message in overdue[: limits.API_CHECKED_LOCKS_MAX]:
            if message.is_lost or not await self._is_locked(message):
                self._let_go(key)
                message.ledger.settler.give_up(message)

    async def _is_locked(self, message: Message) -> bool:
        try:
            place = (await self.client.message(message.queue, message.id)).place
        except (MessageNotFound, QueueNotFound, PermissionDenied):
            return False
        return (place.consumer, place.token) == (message.consumer, message.token)


class Callers:
    """The open clients. `options` makes those of a connection; `refused` is called with credentials
    that the cluster refuses."""

    def __init__(
        self,
        options: Callable[[Credentials], Options],
        refused: Callable[[Credentials], None],
    ) -> None:
        self._options = options
        self._refused = refused
        self._callers: dict[Credentials, Caller] = {}
        self._ending: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._callers)

    @asynccontextmanager
    async def client(self, credentials: Credentials) -> AsyncIterator[Client]:
        """The caller's client, opened where there is none. Raises Problem, FifoError."""
        async with self.caller(credentials) as caller:
            yield caller.client

    @asynccontextmanager
    async def caller(self, credentials: Credentials) -> AsyncIterator[Caller]:
        """The caller, with its client open. Raises Problem, FifoError."""
        caller = self._callers.get(credentials)
        if caller is None:
            self._make_room()
            caller = Caller(asyncio.ensure_future(self._open(credentials)))
            self._callers[credentials] = caller
        caller.uses += 1
        if caller.timer is not None:
            caller.timer.cancel()
        usable = False
        try:
            await asyncio.shield(caller.opening)
            usable = True
            yield caller
        except (ClientClosed, SessionEnded):
            usable = False
            raise
        except AuthenticationFailed:
            usable = False
            self._refused(credentials)
            raise
        finally:
            caller.uses -= 1
            self._watch(credentials, caller)
            opened = not caller.opening.done() or caller.opening.exception() is None
            if not usable and caller.opening.done():
                self._drop(credentials, caller)
            elif opened and not caller.uses:
                self._rest(credentials, caller)

    def _rest(self, credentials: Credentials, caller: Caller) -> None:
        """End a caller that is unused for a while and holds nothing."""

        def rested() -> None:
            if caller.holds:
                self._rest(credentials, caller)
            else:
                self._drop(credentials, caller)

        loop = asyncio.get_running_loop()
        caller.timer = loop.call_later(limits.API_CALLER_IDLE_SECONDS, rested)

    def _watch(self, credentials: Credentials, caller: Caller) -> None:
        """Look after the locks of a caller, now and then, for as long as it holds any."""
        if caller.watch is not None or not caller.holds:
            return

        async def look() -> None:
            try:
                async with asyncio.timeout(limits.API_ANSWER_SECONDS):
                    await caller.look()
            except (FifoError, TimeoutError) as error:
                logger.debug("event=locks_not_looked_at reason=%s", error)
            caller.watch = None
            if self._callers.get(credentials) is caller:
                self._watch(credentials, caller)

        def start() -> None:
            looking = asyncio.ensure_future(look())
            self._ending.add(looking)
            looking.add_done_callback(self._ending.discard)

        loop = asyncio.get_running_loop()
        caller.watch = loop.call_later(limits.API_CALLER_IDLE_SECONDS, start)

    async def _open(self, credentials: Credentials) -> Client:
        return await Connecting(self._options(credentials))

    def _make_room(self) -> None:
        if len(self._callers) < limits.API_CALLERS_MAX:
            return
        for credentials, caller in self._callers.items():
            if not caller.uses and not caller.holds:
                self._drop(credentials, caller)
                return
        text = f"this node serves its maximum of {limits.API_CALLERS_MAX} callers; retry"
        raise Problem(Code.OVERLOADED, text)

    def _drop(self, credentials: Credentials, caller: Caller) -> None:
        """End a client; harmless when repeated."""
        if self._callers.get(credentials) is not caller:
            return
        del self._callers[credentials]
        for timer in (caller.timer, caller.watch):
            if timer is not None:
                timer.cancel()
        ending = asyncio.ensure_future(_end(caller))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all of them."""
        for credentials, caller in list(self._callers.items()):
            self._drop(credentials, caller)
        await asyncio.gather(*self._ending)


async def _end(caller: Caller) -> None:
    caller.opening.cancel()
    try:
        client = await caller.opening
        # What a caller holds it settles through another node.
        await client.close(leave=caller.holds)
    except (FifoError, asyncio.CancelledError) as error:
        logger.debug("event=caller_ended reason=%s", error)
