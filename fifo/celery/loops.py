"""Event loops beside the program's own way of waiting.

Owns threads that run a loop. A cluster in the process (`fifo.testing`) lends its own, so that its
clients have its time. Where gevent has made greenlets of threads there is one loop for the
process: two of asyncio's cannot share a thread, and a loop on a thread of the system could not wake
a greenlet. Must not know clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from fifo.celery import limits
from fifo.client import Environment, InvalidArgument
from fifo.client.connection.in_process import Home, home_of
from fifo.client.connection.options import from_url
from fifo.client.connection.threads import SameLoop


class RunningLoop(Protocol):
    """An event loop that another thread runs."""

    loop: asyncio.AbstractEventLoop

    @property
    def is_here(self) -> bool:
        """Whether this thread runs it, and would wait for itself."""

    def client_environment(
        self, stop: Callable[[], None]
    ) -> contextlib.AbstractContextManager[Environment]:
        """The environment of a client on it, for as long as the client is open; entered there.

        `stop` begins to end the client, if the loop is to end before.
        """

    def end(self, *, wait: bool = True) -> None:
        """Give it up, and wait until it has ended."""


class LoopThread:
    """A thread, or a greenlet, that runs an event loop until it is ended."""

    is_here = False  # No program has this thread; a greenlet shares it, and may wait.

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop: asyncio.AbstractEventLoop
        self._runs = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fifo celery", daemon=True)
        self._thread.start()
        self._runs.wait()

    def _run(self) -> None:
        with asyncio.Runner() as runner:  # which cancels, in the end, what is still under way
            self.loop = runner.get_loop()
            self.loop.call_soon(self._runs.set)
            self.loop.run_forever()

    @contextlib.contextmanager
    def client_environment(self, stop: Callable[[], None]) -> Iterator[Environment]:
        """Its control connection has a thread of its own, unless threads are greenlets."""
        yield Environment(own_loop=SameLoop) if has_greenlets() else Environment()

    def end(self, *, wait: bool = True) -> None:
        """Stop the loop, and wait for the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        if wait:
            self._thread.join(limits.CLOSE_S)


class HomeLoop:
    """The loop of a cluster in this process. Raises InvalidArgument on that loop's own thread."""

    def __init__(self, home: Home) -> None:
        self.loop = home.loop
        self._home = home
        if self.is_here:
            raise InvalidArgument(
                "url: kombu would stop the event loop that its cluster runs on: use it in a thread"
                " (`await asyncio.to_thread(...)`), or in a test without an event loop (`with"
                " fifo.testing.cluster() as cluster:`)"
            )

    @property
    def is_here(self) -> bool:
        """Whether this thread runs it: that of an asynchronous test."""
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    @contextlib.contextmanager
    def client_environment(self, stop: Callable[[], None]) -> Iterator[Environment]:
        """The cluster's clock, which goes as for people: kombu's threads wait in their own ways."""
        with self._home.paced(stop):
            yield self._home.environment()

    def end(self, *, wait: bool = True) -> None:
        """Leave it to its cluster."""


class Loops:
    """Hands out event loops: one for each client or, with greenlets, the same for all."""

    def __init__(self) -> None:
        self._shared: LoopThread | None = None

    def get(self, url: str) -> RunningLoop:
        """A loop that runs, for a client of this URL. Raises InvalidArgument."""
        home = home_of(from_url(url).addresses)
        if home is not None:
            return HomeLoop(home)
        if not has_greenlets():
            return LoopThread()
        if self._shared is None or self._shared.pid != os.getpid():
            self._shared = LoopThread()
        return self._shared

    def put_back(self, thread: RunningLoop, *, wait: bool = True) -> None:
        """End the loop of a client that is closed, but for one that others share."""
        if thread is not self._shared:
            thread.end(wait=wait)


def has_greenlets() -> bool:
    """Whether gevent has replaced threads in this program."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched("threading"))


LOOPS = Loops()
"""The loops of this process."""
