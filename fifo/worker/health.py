"""Probes of a worker: a port with `/live` and `/ready`, and a file that is touched while it lives.

Owns both forms. Must not know what makes a worker ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fifo.client import FifoError
from fifo.worker import limits
from fifo.worker.status import Reports


class CannotProbe(FifoError, OSError):
    """The port or the file of the probes cannot be used."""


@asynccontextmanager
async def probes(status: Reports, port: int | None, file: Path | None) -> AsyncIterator[None]:
    """Answer probes while the block runs. Raises CannotProbe."""
    async with contextlib.AsyncExitStack() as stack:
        if port is not None:
            await stack.enter_async_context(_port(status, port))
        if file is not None:
            await stack.enter_async_context(_file(status, file))
        yield


@asynccontextmanager
async def _port(status: Reports, port: int) -> AsyncIterator[None]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(limits.PROBE_SECONDS):
                writer.write(_response(status, await reader.readline()))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, port=port, limit=limits.PROBE_BYTES_MAX)
    except OSError as error:
        raise CannotProbe(f"health port {port}: {error.strerror or error}") from error
    async with server:
        yield


def _response(status: Reports, line: bytes) -> bytes:
    path = line.split(b" ")[1:2]
    known = {b"/live": status.alive, b"/ready": status.ready}
    if not path or path[0] not in known:
        code, text = "404 Not Found", "ask for /live or /ready"
    elif known[path[0]]:
        code, text = "200 OK", path[0][1:].decode()
    else:
        code, text = "503 Service Unavailable", f"not {path[0][1:].decode()}"
    return (
        f"HTTP/1.1 {code}\r\nContent-Type: text/plain\r\nContent-Length: {len(text) + 1}\r\n"
        f"Connection: close\r\n\r\n{text}\n"
    ).encode()


@asynccontextmanager
async def _file(status: Reports, file: Path) -> AsyncIterator[None]:
    def touch() -> None:
        if status.alive:
            file.write_text("ready\n" if status.ready else "live\n")

    async def keep() -> None:
        while True:
            await asyncio.sleep(limits.BEAT_SECONDS)
            with contextlib.suppress(OSError):  # A full disk: an old file says enough.
                touch()

    try:
        touch()
    except OSError as error:
        raise CannotProbe(f"health file {file}: {error.strerror or error}") from error
    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        keeping.cancel()
        _remove(file)


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
