"""A TCP proxy with the faults of bad networks, for links without a firewall of their own.

Owns one listening port and the connections through it, each direction with its own faults. Bytes
are never lost inside a connection, only late, as TCP has it: a cut stalls them, and a connection
that is broken is reset. Must not know what the bytes are.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import time
from dataclasses import dataclass
from typing import TypeAlias

CHUNK_BYTES = 1 << 16

LOSS_SECONDS = 0.2
"""A lost packet costs one retransmission timeout, which is this on Linux."""

CHUNKS_ON_THE_WAY = 256
"""Chunks that a slow direction holds at most (16 MiB): what comes behind waits at its sender."""

REDIAL_SECONDS = 0.05
"""A connection to a port without a listener is closed after this, as on a slow network."""


@dataclass
class Direction:
    """Faults of one direction of a link."""

    cut: bool = False
    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    """Probability that a chunk waits for a retransmission."""


_Line: TypeAlias = asyncio.Queue[tuple[float, bytes]]
"""Chunks on their way, and when each arrives; an empty one is the end of the connection."""


class Proxy:
    """A port that leads to another one. `there` is towards the target, `back` from it."""

    def __init__(
        self,
        target: tuple[str, int],
        rng: random.Random,
        *,
        host: str = "127.0.0.1",
        source: str | None = None,
    ) -> None:
        """`host`: where it listens; `source`: the address that its own connections come from."""
        self.host = host
        self._source = None if source is None else (source, 0)
        self.there = Direction()
        self.back = Direction()
        self._target = target
        self._rng = rng
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accepted, self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close all."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.reset()

    def heal(self) -> None:
        """Nothing is wrong any more; what was stalled goes on."""
        self.there, self.back = Direction(), Direction()
        self.wake()

    def wake(self) -> None:
        """Tell those who wait at a cut that something has changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    def reset(self) -> None:
        """Break all connections, as a reset does."""
        for writer in list(self._writers):
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError, AttributeError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        self._writers.clear()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is served by a task"
        self._tasks.add(task)
        try:
            await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            # Cancelled by `stop` only; asyncio's streams would log it as an error.
            writer.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._passable("there")
        try:
            onward, away = await asyncio.open_connection(*self._target, local_addr=self._source)
        except OSError:
            await asyncio.sleep(REDIAL_SECONDS)
            raise
        self._writers |= {writer: None, away: None}
        try:
            async with asyncio.TaskGroup() as both:
                for source, sink, way in ((reader, away, "there"), (onward, writer, "back")):
                    line: _Line = asyncio.Queue(CHUNKS_ON_THE_WAY)
                    both.create_task(self._take(source, line, way))
                    both.create_task(self._bring(line, sink, way))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for one in (writer, away):
                self._writers.pop(one, None)
                one.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, line: _Line, way: str) -> None:
        """Put what comes on its way, which others are on already: each has its own delay."""
        due = 0.0
        while data := await reader.read(CHUNK_BYTES):
            faults: Direction = getattr(self, way)
            wait = faults.delay_s + self._rng.random() * faults.jitter_s
            if self._rng.random() < faults.loss:
                wait += LOSS_SECONDS
            due = max(due, time.monotonic() + wait)
            await line.put((due, data))
        await line.put((due, b""))

    async def _bring(self, line: _Line, writer: asyncio.StreamWriter, way: str) -> None:
        """Bring it, in order; raises at the end of the connection, so that the other way ends."""
        while True:
            due, data = await line.get()
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            await self._passable(way)
            if not data:
                raise ConnectionResetError("the other side has ended")
            writer.write(data)
            await writer.drain()

    async def _passable(self, way: str) -> None:
        while getattr(self, way).cut:
            await self._changed.wait()
