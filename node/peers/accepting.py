"""Accepting connections, so that an accepted socket belongs to somebody at every moment.

Owns listening sockets, and each accepted one until `take_in` has made a connection of it; closing
leaves none of them open. Owns spare descriptors too, given up so that a port accepts where the
process or the system has none left. Both ports of a node accept here: a server of the loop would
bound neither the number nor the age of connections that never shake hands, and what such a server
(or a cancelled `sock_accept`) has just accepted when it is closed has no owner. Must not know what
is spoken.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from node.journal.io.seats import NO_DESCRIPTOR_ERRNOS
from node.peers import limits

logger = logging.getLogger(__name__)

TakeIn: TypeAlias = Callable[[socket.socket, Any], Coroutine[None, None, None]]
"""Makes a connection of an accepted socket, which is closed where this is cancelled or raises; the
second is the peer's address."""


def listening_socket(family: int, address: tuple[object, ...]) -> socket.socket:
    """A socket that listens at an address. Raises OSError."""
    # With the protocol named, asyncio switches off the delay of small frames (TCP_NODELAY).
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(limits.LISTEN_BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


class _Spares:
    """Open descriptors of no use, to be given up where one is needed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[int] = []

    def resize(self, count: int) -> None:
        """Hold so many from now on."""
        self._count = count
        while len(self._held) > count:
            self.give_up_one()

    def fill(self) -> bool:
        """Hold as many as there should be; False where the system has too few."""
        with contextlib.suppress(OSError):
            while len(self._held) < self._count:
                # A file of its own, not a copy of another: the system counts those too (ENFILE).
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        return len(self._held) == self._count

    def give_up_one(self) -> bool:
        """Close one; False where none is left."""
        if self._held:
            os.close(self._held.pop())
            return True
        return False

    def close(self) -> None:
        """Close all. Idempotent."""
        while self.give_up_one():
            pass


class Acceptor:
    """Accepts on its sockets until closed: a failure costs a pause, never the port (b13)."""

    def __init__(
        self,
        take_in: TakeIn,
        *,
        under_way_max: int,
        crowded_out: Callable[[], None] = lambda: None,
        failed: Callable[[], None] = lambda: None,
        spares: int = 0,
    ) -> None:
        """`under_way_max`: sockets that are no connection yet, beyond which the oldest is cut and
        `crowded_out` is called; `failed` is called where the system had no descriptor left, nor
        this one of its `spares`."""
        self._take_in = take_in
        self._under_way_max = under_way_max
        self._crowded_out = crowded_out
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._sockets: dict[socket.socket, None] = {}
        self._under_way: dict[asyncio.Task[None], socket.socket] = {}
        self._failing = False
        self._spares = _Spares(spares)
        self._filling: asyncio.TimerHandle | None = None

    def watch(self, listening: socket.socket) -> None:
        """Accept on this socket, and close it in the end."""
        self._sockets[listening] = None
        self._spares.fill()
        self._loop.add_reader(listening.fileno(), self._accept, listening)

    def keep_spares(self, count: int) -> None:
        """Hold so many spare descriptors from now on."""
        self._spares.resize(count)
        if self._sockets:
            self._spares.fill()

    def close(self) -> list[asyncio.Task[None]]:
        """Stop accepting and cut what is no connection yet; return the tasks that this ends."""
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()
        self._spares.close()
        if self._filling is not None:
            self._filling.cancel()
        for task in self._under_way:
            task.cancel()
        return list(self._under_way)

    def _accept(self, listening: socket.socket) -> None:
        """Take in who waits, at most a backlog at once: the loop has other work too."""
        for _ in range(limits.LISTEN_BACKLOG):
            try:
                accepted, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                self._spares.fill()  # One may have been given up where no connection waits.
                return
            except OSError as error:
                if error.errno in NO_DESCRIPTOR_ERRNOS and self._spares.give_up_one():
                    self._fill_later()
                    continue
                if not self._failing:
                    logger.error("event=accept_failed error=%s", error)
                self._failing = True
                self._failed()
                self._loop.remove_reader(listening.fileno())
                self._loop.call_later(limits.ACCEPT_RETRY_SECONDS, self._again, listening)
                return
            self._failing = False
            accepted.setblocking(False)
            if len(self._under_way) >= self._under_way_max:
                self._crowded_out()
                next(iter(self._under_way)).cancel()
            task = self._loop.create_task(self._take_in(accepted, peer))
            self._under_way[task] = accepted
            task.add_done_callback(self._done)

    def _fill_later(self) -> None:
        """Have the spare descriptors again once the system has some."""
        if self._filling is None:
            self._filling = self._loop.call_later(limits.ACCEPT_RETRY_SECONDS, self._fill)

    def _fill(self) -> None:
        self._filling = None
        if self._sockets and not self._spares.fill():
            self._fill_later()

    def _again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self.watch(listening)

    def _done(self, task: asyncio.Task[None]) -> None:
        accepted = self._under_way.pop(task)
        if task.cancelled():
            accepted.close()
        elif task.exception() is not None:
            accepted.close()
            logger.error("event=accepted_failed", exc_info=task.exception())
