"""The way from a partition to the driver: clock, progress, history, and the word to end.

Owns the partition's end of it. The clock of all events is the driver's: monotonic clocks of two
hosts have nothing in common, so each partition measures how far its own is from it. Needs no folder
that hosts share: the driver listens, as it does for Spark's executors. Must not know what a job
does.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

CONNECT_S: Final = 10.0
"""Seconds to reach the driver, which is up."""

LOOKS: Final = 16
"""Questions for the driver's time: the quickest answer is the most exact one."""

CHUNK_BYTES: Final = 1 << 20
"""Bytes of a file that are sent at once."""

KEPT_S: Final = 60.0
"""Seconds that the driver may take to keep a file."""


class Address(NamedTuple):
    """Where the driver listens, the secret that proves both ends, and the name of its clock."""

    host: str
    port: int
    secret: bytes
    clock: str


def clock_name() -> str:
    """Equal where two processes have one monotonic clock: the same boot, and the same namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return socket.gethostname()


class Link:
    """The connection of one process. Closed by `with`."""

    stopped: bool = False
    """Whether the driver wants an early end, or is gone."""
    published: bool = False
    """Whether every producer has ended."""
    offset_ns: int = 0
    """Nanoseconds by which this process's monotonic clock is behind the driver's."""
    error_ns: int = 0
    """By how much that may be wrong: half of the quickest answer's way."""

    def __init__(self, address: Address) -> None:
        """Connect. Raises OSError, or AuthenticationError where it is another driver."""
        connected = socket.create_connection((address.host, address.port), timeout=CONNECT_S)
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection: Connection[bytes, bytes] = Connection(connected.detach())
        answer_challenge(self._connection, address.secret)
        deliver_challenge(self._connection, address.secret)
        self._sending = threading.Lock()
        self._kept = threading.Semaphore(0)
        if address.clock != clock_name():
            self._measure()
        self._thread = threading.Thread(target=self._listen, name="load link", daemon=True)
        self._thread.start()

    def tell(self, **what: Any) -> None:
        """Tell the driver something; a driver that is gone ends the partition."""
        try:
            with self._sending:
                self._connection.send_bytes(json.dumps(what).encode())
        except OSError:
            self.stopped = True

    def send_file(self, path: Path, name: str) -> None:
        """Have the driver keep a file. Raises TimeoutError where it does not."""
        with self._sending, path.open("rb") as file:
            size = path.stat().st_size
            self._connection.send_bytes(json.dumps({"file": name, "bytes": size}).encode())
            while chunk := file.read(CHUNK_BYTES):
                self._connection.send_bytes(chunk)
        if not self._kept.acquire(timeout=KEPT_S):
            raise TimeoutError(f"the driver has not kept {name} within {KEPT_S:.0f} s")

    def close(self) -> None:
        """End it."""
        self.tell(bye=True)
        self._thread.join(CONNECT_S)
        self._connection.close()

    def __enter__(self) -> Link:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _measure(self) -> None:
        """Ask for the driver's time: it was read somewhere between question and answer."""
        best: tuple[int, int] | None = None
        for _ in range(LOOKS):
            asked = time.monotonic_ns()
            self._connection.send_bytes(b'{"time": true}')
            there = self._answered()
            came = time.monotonic_ns()
            found = (came - asked + 1) // 2, there - (asked + came) // 2
            best = found if best is None else min(best, found)
        assert best is not None, "it has asked"
        self.error_ns, self.offset_ns = best

    def _answered(self) -> int:
        """The driver's time; what it says to all may come before."""
        while "time" not in (said := json.loads(self._connection.recv_bytes())):
            self._hear(said)
        return int(said["time"])

    def _hear(self, said: dict[str, Any]) -> None:
        self.stopped |= bool(said.get("stop"))
        self.published |= bool(said.get("published"))
        if "kept" in said:
            self._kept.release()

    def _listen(self) -> None:
        """Take what the driver says, until it says good-bye."""
        try:
            while not (said := json.loads(self._connection.recv_bytes())).get("bye"):
                self._hear(said)
        except (OSError, EOFError):
            self.stopped = True
