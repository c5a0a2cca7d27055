"""The module-level seams of pysyncobj: clock, randomness, and everything that must never run.

Owns what `pysyncobj.syncobj` finds under the names of its own imports. The library reads one
clock and one random source per process; nodes of one process (tests, simulation) each have their
own, so both are chosen by which node is running: every way into a node calls `run_as` first.

pickle is poisoned: a path into it that we missed fails loudly instead of executing input.
Update `pin.py` when a seam is added.
"""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, NoReturn

import pysyncobj.syncobj

from node.raft.errors import RaftStopped

if TYPE_CHECKING:
    from collections.abc import Callable


class Forbidden:
    """Stands in for a module that must never be used; any use stops the node."""

    def __init__(self, what: str) -> None:
        self.__dict__["_what"] = what

    def __getattr__(self, name: str) -> NoReturn:
        raise RaftStopped(
            f"raft: {self.__dict__['_what']}.{name} was called: "
            "PySyncObj took a path that must never run"
        )


class NoSerializer:
    """Stands in for the library's serializer, which pickles and forks. Snapshots are ours; every
    path of the library that would use it is overridden, so any use stops the node."""

    def __init__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> NoReturn:
        raise RaftStopped(
            f"raft: serializer.{name} was called: PySyncObj took a path that must never run"
        )


class NoPoller:
    """The transport lives on the owner's loop: nothing is polled inside a tick."""

    def poll(self, timeout: float) -> None:
        """Nothing to wait for."""


class _Running(threading.local):
    """Clock and randomness of the node that is running now, on each thread.

    Nodes on a thread of their own run at the same time as those of another thread. On an instance:
    to set an attribute of a class makes the interpreter forget what it had cached of that class's,
    and this is set with every message.
    """

    def __init__(self) -> None:
        self.of: object = None
        """The node that set them; None: none did."""
        self.clock: Callable[[], float] = time.monotonic
        self.rng = random.Random()

    def random(self) -> float:
        """Draw for the library's `random.random()`: the election timeouts."""
        return self.rng.random()


running = _Running()


def run_as(clock: Callable[[], float], rng: random.Random) -> None:
    """From here on the library sees this clock and this randomness, on this thread."""
    running.of, running.clock, running.rng = None, clock, rng


def _monotonic() -> float:
    return running.clock()


def _no_poller(_poller_type: str) -> NoPoller:
    return NoPoller()


def install() -> None:
    """Put our objects where `pysyncobj.syncobj` looks its imports up. Idempotent."""
    module = pysyncobj.syncobj
    module.pickle = Forbidden("pickle")
    module.time = Forbidden("time")
    module.random = running
    module.monotonicTime = _monotonic
    module.createPoller = _no_poller
    module.Serializer = NoSerializer
    module.PIPE_NOTIFIER_ENABLED = False
