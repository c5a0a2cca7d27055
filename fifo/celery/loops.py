"""Event loops beside the program's own way of waiting.

Owns threads that run a loop. Where gevent has made greenlets of threads there is one loop for the
process: two of asyncio's cannot share a thread, and a loop on a thread of the system could not wake
a greenlet. Must not know clients.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading

from fifo.celery import limits
from fifo.client import Environment
from fifo.client.connection.threads import SameLoop


class LoopThread:
    """A thread, or a greenlet, that runs an event loop until it is ended."""

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

    def end(self, *, wait: bool = True) -> None:
        """Stop the loop, and wait for the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        if wait:
            self._thread.join(limits.CLOSE_S)


class Loops:
    """Hands out event loops: one for each client or, with greenlets, the same for all."""

    def __init__(self) -> None:
        self._shared: LoopThread | None = None

    @property
    def has_greenlets(self) -> bool:
        """Whether gevent has replaced threads in this program."""
        monkey = sys.modules.get("gevent.monkey")
        return monkey is not None and bool(monkey.is_module_patched("threading"))

    def get(self) -> LoopThread:
        """A loop that runs."""
        if not self.has_greenlets:
            return LoopThread()
        if self._shared is None or self._shared.pid != os.getpid():
            self._shared = LoopThread()
        return self._shared

    def put_back(self, thread: LoopThread, *, wait: bool = True) -> None:
        """End the loop of a client that is closed, but for one that others share."""
        if thread is not self._shared:
            thread.end(wait=wait)

    def environment(self) -> Environment:
        """The environment of a client on such a loop: its control connection runs there too."""
        return Environment(own_loop=SameLoop) if self.has_greenlets else Environment()


LOOPS = Loops()
"""The loops of this process."""
