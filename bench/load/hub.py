"""The driver's end of the links: what partitions report, their histories, and the word to end.

Owns the port to which every partition connects. What a partition reported last stays here, so that
a job that fails or is interrupted has a report of what it did until then.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from bench.load.link import CHUNK_BYTES, Address, clock_name
from bench.load.partition import Row

NAME: Final = re.compile(r"[\w-][\w.-]*", re.ASCII)
"""Names of files that are kept."""

UNFINISHED: Final = ".part"


class Hub:
    """Listens until it is closed; `events` is the folder where files are kept."""

    def __init__(self, host: str, bind: str, events: Path, producers: int) -> None:
        """`host`: the driver's name for executors; `bind`: the address to listen on."""
        self._server = socket.create_server((bind, 0))
        port = self._server.getsockname()[1]
        self.address = Address(host, port, secrets.token_bytes(32), clock_name())
        self._events = events
        self._producers = producers
        self._lock = threading.Lock()
        self._served: set[_Served] = set()
        """Every connection, and of these the ones that have proved what they are."""
        self._links: set[_Served] = set()
        self._rows: dict[tuple[str, int, str], tuple[Row, int]] = {}
        self._ended: set[int] = set()
        self.stops = False
        """Whether partitions have been asked to end."""
        events.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._accept, name="load hub", daemon=True)
        self._thread.start()

    def rows(self) -> list[tuple[Row, int]]:
        """The last report of each partition, and of each process of one that crashes on purpose:
        its row so far, and what was delivered to it."""
        with self._lock:
            return list(self._rows.values())

    def stop(self) -> None:
        """Have every partition end."""
        with self._lock:
            self.stops = True
            links = list(self._links)
        _tell(links, stop=True)

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._server.close()
        self._thread.join()
        with self._lock:
            served = list(self._served)
        for link in served:
            link.close()

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._server.accept()
            except OSError:
                return
            served = _Served(connected)
            with self._lock:
                self._served.add(served)
            threading.Thread(target=self._serve, args=(served,), daemon=True).start()

    def _serve(self, link: _Served) -> None:
        """Everything that one process says."""
        try:
            link.prove(self.address.secret)
            with self._lock:
                self._links.add(link)
            self._catch_up(link)
            while not (said := link.receive()).get("bye"):
                self._take(link, said)
            link.tell(bye=True)
        except (OSError, EOFError, AuthenticationError, ValueError):
            pass  # A process that has died says no good-bye, and strangers are not served.
        finally:
            with self._lock:
                self._links.discard(link)
                self._served.discard(link)
            link.close()

    def _take(self, link: _Served, said: dict[str, Any]) -> None:
        if "time" in said:
            link.tell(time=time.monotonic_ns())
        elif "file" in said:
            self._keep(link, str(said["file"]), int(said["bytes"]))
        elif "row" in said:
            row = Row(**said["row"])
            with self._lock:
                self._rows[row.role, row.partition, said["process"]] = row, said["delivered"]
        elif "ended" in said:
            with self._lock:
                self._ended.add(said["ended"])
                links = list(self._links)
            for one in links:
                self._catch_up(one)

    def _catch_up(self, link: _Served) -> None:
        """Say what has been said to all."""
        with self._lock:
            stops, published = self.stops, len(self._ended) >= self._producers
        if stops or published:
            _tell([link], stop=stops, published=published)

    def _keep(self, link: _Served, name: str, size: int) -> None:
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a file")
        path = self._events / (name + UNFINISHED)
        with path.open("wb") as file:
            while file.tell() < size:
                file.write(link.receive_chunk())
        os.replace(path, self._events / name)
        link.tell(kept=name)


class _Served:
    """A connection. Its thread alone receives; any may tell."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection: Connection[bytes, bytes] = Connection(connected.detach())
        self._sending = threading.Lock()

    def prove(self, secret: bytes) -> None:
        """Both ends prove that they have the secret."""
        deliver_challenge(self._connection, secret)
        answer_challenge(self._connection, secret)

    def receive(self) -> dict[str, Any]:
        """The next message."""
        return dict(json.loads(self._connection.recv_bytes(CHUNK_BYTES)))

    def receive_chunk(self) -> bytes:
        """The next part of a file."""
        return self._connection.recv_bytes(CHUNK_BYTES)

    def tell(self, **what: Any) -> None:
        """Send a message."""
        with self._sending:
            self._connection.send_bytes(json.dumps(what).encode())

    def close(self) -> None:
        """Hang up, once."""
        with contextlib.suppress(OSError), self._sending:
            if not self._connection.closed:
                # Its thread may be waiting in a read, which a close alone does not end.
                with socket.socket(fileno=os.dup(self._connection.fileno())) as connected:
                    connected.shutdown(socket.SHUT_RDWR)
                self._connection.close()


def _tell(links: Iterable[_Served], **what: Any) -> None:
    for link in links:
        with contextlib.suppress(OSError):
            link.tell(**what)
