"""Processes of the floor: an echo, followers that sync, and a leader that passes frames to them.

Owns what each does with a frame of 1 KB, on the event loop that nodes use. A process serves until
the pipe to its parent ends; asked on it for its CPU time, it answers. Knows no load.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Final, cast

from fifo.loop import new_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

    Serve = Callable[[], Coroutine[None, None, int]]

HOST: Final = "127.0.0.1"
FRAME_BYTES: Final = 1_024
ANSWER_BYTES: Final = 16
ANSWER: Final = bytes(ANSWER_BYTES)
FRAME: Final = bytes(FRAME_BYTES)

DISK_BYTES: Final = 64 << 20
"""Zeros that are written and synced before, as a journal has them ahead of its log."""


class Disk:
    """A file that is written from its beginning to its end, and then anew."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT)
        self._at = 0
        os.pwrite(self._file, bytes(DISK_BYTES), 0)
        os.fsync(self._file)

    def keep(self, frame: bytes) -> None:
        """Write a frame and sync it."""
        os.pwrite(self._file, frame, self._at)
        os.fdatasync(self._file)
        self._at = (self._at + len(frame)) % (DISK_BYTES - FRAME_BYTES)


class Counting(asyncio.Protocol):
    """A connection on which pieces of one size come; `came` is called for each."""

    def __init__(self, size: int, came: Callable[[Counting], None]) -> None:
        self._size = size
        self._came = came
        self._bytes = 0
        self.transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport to write to."""
        self.transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Count what is whole."""
        self._bytes += len(data)
        while self._bytes >= self._size:
            self._bytes -= self._size
            self._came(self)


class Leader:
    """Passes each frame to two followers, syncs it, and answers at the first of their answers."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._followers: list[Counting] = []
        self._answers: dict[Counting, int] = {}
        self._waiting: list[Counting] = []
        self._answered = 0

    async def connect(self, ports: Sequence[int]) -> None:
        """Connect to the followers."""
        loop = asyncio.get_running_loop()
        for port in ports:
            _, made = await loop.create_connection(
                lambda: Counting(ANSWER_BYTES, self.kept), HOST, port
            )
            self.add(made)

    def add(self, follower: Counting) -> None:
        """Pass frames to this one, too."""
        self._followers.append(follower)
        self._answers[follower] = 0

    def take(self, client: Counting) -> None:
        """A client's frame has come."""
        for follower in self._followers:
            follower.transport.write(FRAME)
        self._waiting.append(client)
        self._disk.keep(FRAME)

    def kept(self, follower: Counting) -> None:
        """A follower has the next frame."""
        self._answers[follower] += 1
        if self._answers[follower] > self._answered:
            self._answered += 1
            self._waiting.pop(0).transport.write(ANSWER)


def answer(client: Counting) -> None:
    """Answer a frame at once."""
    client.transport.write(ANSWER)


def echo(pipe: Connection) -> None:
    """Serve as an echo."""

    async def serve() -> int:
        return await _listening(answer)

    _run(pipe, serve)


def follower(pipe: Connection, path: Path) -> None:
    """Serve as a follower with a disk: write, sync, answer."""
    disk = Disk(path)

    def keep(leader: Counting) -> None:
        disk.keep(FRAME)
        answer(leader)

    async def serve() -> int:
        return await _listening(keep)

    _run(pipe, serve)


def leader(pipe: Connection, path: Path, ports: Sequence[int]) -> None:
    """Serve as a leader with a disk and these followers."""

    async def serve() -> int:
        leading = Leader(Disk(path))
        await leading.connect(ports)
        return await _listening(leading.take)

    _run(pipe, serve)


def writer(pipe: Connection, path: Path, seconds: float) -> None:
    """Write and sync one frame after the other, once asked to; send the seconds of each."""
    disk = Disk(path)
    pipe.send(0)
    pipe.recv()
    taken = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        disk.keep(FRAME)
        taken.append(time.perf_counter() - began)
    pipe.send(taken)


async def _listening(came: Callable[[Counting], None]) -> int:
    server = await asyncio.get_running_loop().create_server(
        lambda: Counting(FRAME_BYTES, came), HOST, 0, backlog=1_024
    )
    return int(server.sockets[0].getsockname()[1])


def _run(pipe: Connection, serve: Serve) -> None:
    """Serve, send the port, and answer questions for the CPU time until the parent is gone."""

    async def work() -> None:
        ended = asyncio.Event()

        def asked() -> None:
            try:
                pipe.recv()
            except (EOFError, ConnectionError):
                ended.set()
            else:
                pipe.send(time.process_time())

        pipe.send(await serve())
        asyncio.get_running_loop().add_reader(pipe.fileno(), asked)
        await ended.wait()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work())
