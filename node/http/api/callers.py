"""Clients on behalf of HTTP callers: one for each credentials, pooled, bounded, ended when unused.

Owns their number and their ends. A client is a session of the cluster like any other, with the
rights and quotas of its user, and finds the leader as any client does. Must not know routes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from fifo.client import Client, ClientClosed, Connecting, FifoError, Options, SessionEnded
from fifo.wire import Code
from node.http import limits
from node.http.api.problems import Problem

logger = logging.getLogger("fifo.http")


class Credentials(NamedTuple):
    """A caller's user and password, or token; nothing where there are no users."""

    user: str | None = None
    password: str | None = None
    token: str | None = None


class _Caller:
    """A client that is being opened, or open; `uses`: requests that have it."""

    def __init__(self, opening: asyncio.Future[Client]) -> None:
        self.opening = opening
        self.uses = 0
        self.timer: asyncio.TimerHandle | None = None


class Callers:
    """The open clients. `options` makes those of a connection."""

    def __init__(self, options: Callable[[Credentials], Options]) -> None:
        self._options = options
        self._callers: dict[Credentials, _Caller] = {}
        self._ending: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._callers)

    @asynccontextmanager
    async def client(self, credentials: Credentials) -> AsyncIterator[Client]:
        """The caller's client, opened where there is none. Raises Problem, FifoError."""
        caller = self._callers.get(credentials)
        if caller is None:
            self._make_room()
            caller = _Caller(asyncio.ensure_future(self._open(credentials)))
            self._callers[credentials] = caller
        caller.uses += 1
        if caller.timer is not None:
            caller.timer.cancel()
        usable = False
        try:
            client = await asyncio.shield(caller.opening)
            usable = True
            yield client
        except (ClientClosed, SessionEnded):
            usable = False
            raise
        finally:
            caller.uses -= 1
            opened = not caller.opening.done() or caller.opening.exception() is None
            if not usable and caller.opening.done():
                self._drop(credentials, caller)
            elif opened and not caller.uses:
                loop = asyncio.get_running_loop()
                caller.timer = loop.call_later(
                    limits.API_CALLER_IDLE_SECONDS, self._drop, credentials, caller
                )

    async def _open(self, credentials: Credentials) -> Client:
        return await Connecting(self._options(credentials))

    def _make_room(self) -> None:
        if len(self._callers) < limits.API_CALLERS_MAX:
            return
        for credentials, caller in self._callers.items():
            if not caller.uses:
                self._drop(credentials, caller)
                return
        text = f"this node serves its maximum of {limits.API_CALLERS_MAX} callers; retry"
        raise Problem(Code.OVERLOADED, text)

    def _drop(self, credentials: Credentials, caller: _Caller) -> None:
        """End a client; harmless when repeated."""
        if self._callers.get(credentials) is not caller:
            return
        del self._callers[credentials]
        if caller.timer is not None:
            caller.timer.cancel()
        ending = asyncio.ensure_future(_end(caller))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """End all of them."""
        for credentials, caller in list(self._callers.items()):
            self._drop(credentials, caller)
        await asyncio.gather(*self._ending)


async def _end(caller: _Caller) -> None:
    caller.opening.cancel()
    try:
        client = await caller.opening
        await client.close()
    except (FifoError, asyncio.CancelledError) as error:
        logger.debug("event=caller_ended reason=%s", error)
