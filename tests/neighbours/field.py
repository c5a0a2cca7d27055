"""Means of an attack: the nodes' addresses, the time it has, raw connections, and its cost.

Owns the connections of the attacking process and what they count. Bytes are written as they are:
frames come from `tests.conformance.peer`, which knows nothing of fifo. Must not know any attack.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.conformance.peer import AUTHENTICATE, DATA, HELLO, Broken, Peer, Target, frame_bytes

READ_BYTES: Final = 1 << 18
DIAL_SECONDS: Final = 5.0

TENANT = "tenant"
"""The user of an attack: every right on queues `tenant*`."""

STRANGER = "stranger"
"""A user without any right."""

READER = "reader"
"""A user who may consume from `tenant.empty`, and nothing else."""

WRITER = "writer"
"""A user who may publish to `tenant.queue`, and nothing else."""

WATCHER = "watcher"
"""A user who may see the state of nodes, and nothing else."""

DYING = "dying"
"""The user of programs that die: it may publish, and have fewer sessions than others."""


@dataclass
class Cost:
    """Cost of an attack to the attacker.

    `frames` are what it wrote: frames and requests, or pieces of them where it never ends one.
    """

    frames: int = 0
    connections: int = 0
    sent_bytes: int = 0
    cpu_seconds: float = 0.0


LOG_IN_FRAMES: Final = 2


def log_in(user: str, secret: bytes, mechanism: str = "token") -> bytes:
    """The two frames of a log-in that waits for no answer."""
    session = os.urandom(16)
    who = ["attacker", [], user, mechanism, 5000, False]
    hello = frame_bytes(HELLO, 0, 1, 1, DATA, session, session, *who)
    return hello + frame_bytes(AUTHENTICATE, 0, mechanism, secret)


class Field:
    """The attacked cluster, for `seconds`."""

    def __init__(self, plan: dict[str, Any], seconds: float, seed: str) -> None:
        """`plan`: `leader`, `cluster_id`, and of each of `nodes` its `client`, `peer`, `http`."""
        self.plan = plan
        self.random = random.Random(seed)
        self.cost = Cost()
        self._ends_at = time.monotonic() + seconds
        self._idle = threading.Event()
        self._held: list[socket.socket] = []

    @classmethod
    def of(cls, path: Path, seconds: float, seed: str) -> Field:
        """The field of a plan that the judge has written."""
        return cls(json.loads(path.read_text()), seconds, seed)

    def report(self) -> str:
        """The cost as one line of JSON."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.cost.cpu_seconds = usage.ru_utime + usage.ru_stime
        return json.dumps(asdict(self.cost))

    @property
    def open(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self._ends_at

    def rounds(self, pause: float = 0.0) -> Iterator[int]:
        """Count until the time is over, with a pause between two rounds."""
        done = 0
        while self.open:
            yield done
            done += 1
            if pause:
                self._idle.wait(pause)

    def rest(self) -> None:
        """Wait for the end of the time, holding what is open."""
        self._idle.wait(max(0.0, self._ends_at - time.monotonic()))

    def pause(self, seconds: float) -> None:
        """Wait."""
        self._idle.wait(seconds)

    # --- connections ------------------------------------------------------------------------------

    def ports(self, kind: str) -> list[int]:
        """The ports of this kind, of all nodes."""
        return [node[kind] for node in self.plan["nodes"].values()]

    def leaders(self, kind: str) -> int:
        """The port of this kind of the node that led at the beginning."""
        return int(self.plan["nodes"][self.plan["leader"]][kind])

    def dial(self, port: int, source: str = "127.0.0.1") -> socket.socket | None:
        """Open a connection that is kept; None where it is refused."""
        made = socket.socket()
        made.settimeout(DIAL_SECONDS)  # a full backlog answers nothing
        try:
            made.bind((source, 0))
            made.connect(("127.0.0.1", port))
        except OSError:
            made.close()
            return None
        made.setblocking(False)
        self.cost.connections += 1
        self._held.append(made)
        return made

    def drop(self, one: socket.socket) -> None:
        """Cut a connection."""
        with contextlib.suppress(ValueError):
            self._held.remove(one)
        one.close()

    def peer(self, user: str = TENANT, *, port: int | None = None, token: str = "") -> Peer:
        """A connection at the leader, without a hello."""
        target = Target("127.0.0.1", port or self.leaders("client"), user, token=f"{user}-token")
        if token:
            target = Target("127.0.0.1", target.port, user, token=token)
        self.cost.connections += 1
        return Peer(target)

    def welcome(self, user: str = TENANT) -> Peer:
        """A session at the leader."""
        return self.peer(user).open()

    def knock(self, user: str = TENANT) -> Peer:
        """A session at the leader, where the log-in is the attack: its two frames count."""
        self.cost.frames += LOG_IN_FRAMES
        return self.welcome(user)

    def welcomes(self, count: int, user: str = TENANT) -> list[Peer]:
        """As many sessions at the leader as are let in, at most `count`."""
        found: list[Peer] = []
        with contextlib.suppress(Broken, OSError):
            while len(found) < count and self.open:
                found.append(self.welcome(user))
        return found

    def again(
        self,
        opened: Callable[[], socket.socket | None],
        made: Callable[[], bytes],
        kept: int = 100,
        frames: int = 1,
    ) -> None:
        """Connection after connection that says what `made` makes (so many frames), until the time
        is over; the last `kept` stay open."""
        held: list[socket.socket] = []
        for _ in self.rounds(0.001):
            one = opened()
            if one is None:
                continue
            self.send(one, made(), frames)
            held.append(one)
            if len(held) > kept:
                self.drop(held.pop(0))

    def behind_log_in(self, user: str, data: bytes, frames: int) -> None:
        """Write requests right behind the log-in of a user who is let in to nothing."""
        self.again(
            self.dialing("client"),
            lambda: log_in(user, f"{user}-token".encode()) + data,
            frames=LOG_IN_FRAMES + frames,
        )

    def dialing(self, kind: str) -> Callable[[], socket.socket | None]:
        """Dials of this port of the leader."""
        return lambda: self.dial(self.leaders(kind))

    def session(self) -> socket.socket | None:
        """The socket of a new session; None where it was refused."""
        try:
            one = self.welcome().raw
        except (Broken, OSError):
            return None
        one.setblocking(False)
        return one

    # --- writing ----------------------------------------------------------------------------------

    def send(self, one: socket.socket, data: bytes, frames: int = 1) -> bool:
        """Write what the socket takes of this now; False where the connection is gone."""
        try:
            self.cost.sent_bytes += one.send(data)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.cost.frames += frames
        return True

    def pump(
        self,
        sockets: Sequence[socket.socket],
        made: Callable[[], bytes],
        frames: int = 1,
        *,
        reads: bool = True,
    ) -> None:
        """Write what `made` makes (so many frames) to every socket, again and again, until the time
        is over or all are closed; answers are read and dropped if it `reads`."""
        waiting = {one: memoryview(made()) for one in sockets}
        with selectors.DefaultSelector() as selector:
            both = selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0)
            for one in sockets:
                one.setblocking(False)
                selector.register(one, both)
            while waiting and self.open:
                for key, events in selector.select(0.1):
                    ready = key.fileobj
                    assert isinstance(ready, socket.socket)
                    try:
                        if events & selectors.EVENT_READ and not ready.recv(READ_BYTES):
                            raise ConnectionResetError
                        if events & selectors.EVENT_WRITE:
                            self._write(waiting, ready, made, frames)
                    except BlockingIOError:
                        continue
                    except OSError:
                        selector.unregister(ready)
                        del waiting[ready]

    def _write(
        self,
        waiting: dict[socket.socket, memoryview],
        one: socket.socket,
        made: Callable[[], bytes],
        frames: int,
    ) -> None:
        sent = one.send(waiting[one])
        self.cost.sent_bytes += sent
        waiting[one] = waiting[one][sent:]
        if not waiting[one]:
            self.cost.frames += frames
            waiting[one] = memoryview(made())

    def burst(self, peers: Sequence[Peer], data: bytes, frames: int, *, reads: bool = True) -> None:
        """Write this over sessions, again and again, until the time is over."""
        self.pump([one.raw for one in peers], lambda: data, frames, reads=reads)
