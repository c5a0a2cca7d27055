"""The pool of processes for handlers that may block: started when needed, one call at a time each.

Owns their life and their end: a call that is given up ends its process, and a process that ends
fails its call alone. Must not know messages or how they are settled.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from asyncio.subprocess import Process
from typing import Any

from fifo.client import tracing
from fifo.worker import bodies, frames, limits
from fifo.worker.errors import ChildDied, TimeLimit
from fifo.worker.frames import Answer, Request
from fifo.worker.tasks import AnyTask


class Child:
    """A process, and the socket to it."""

    def __init__(
        self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer
        self.gone = asyncio.create_task(process.wait())

    async def receive(self) -> Any:
        """Receive one frame. Raises ChildDied where the process ends first."""
        reading = asyncio.create_task(self._read())
        try:
            # Both: what it forked may hold the socket open after its end.
            both: set[asyncio.Task[Any]] = {reading, self.gone}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():  # What it wrote last is on its way.
                await asyncio.wait({reading}, timeout=limits.LAST_WORDS_SECONDS)
            if reading.done() and reading.exception() is None:
                return frames.unpacked(reading.result())
        finally:
            reading.cancel()
        code = await asyncio.shield(self.gone)
        raise ChildDied(f"the process that ran it ended {_how(code)}")

    async def _read(self) -> bytes:
        head = await self._reader.readexactly(frames.LENGTH.size)
        return await self._reader.readexactly(*frames.LENGTH.unpack(head))

    async def call(self, request: Request) -> Answer:
        """Run one call. Raises ChildDied."""
        with contextlib.suppress(ConnectionError):  # Receiving says how it ended.
            self._writer.write(frames.packed(request))
            await self._writer.drain()
        return Answer(*await self.receive())

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self._writer.close()

    async def close(self) -> None:
        """Give it a while to end its dependencies, and then end it."""
        self._writer.close()
        try:
            async with asyncio.timeout(limits.RELEASE_SECONDS):
                await asyncio.shield(self.gone)
        except TimeoutError:
            self.kill()
            await self.gone


class Children:
    """Up to `count` processes that have imported the app `target`."""

    def __init__(self, target: str, count: int, log_level: str, log_format: str) -> None:
        self._arguments = (target, log_level, log_format)
        self._places = asyncio.Semaphore(count)
        self._idle: list[Child] = []
        self._ended: set[asyncio.Task[int]] = set()

    async def run(self, task: AnyTask, arguments: dict[str, Any], *, wants_result: bool) -> Any:
        """Run a handler in a process. Raises what it raised; ChildDied where the process ended.

        Cancelled, or at the time limit of the task, which counts from the beginning of the call, it
        ends the process: nothing else stops a handler that does not wait.
        """
        codec = bodies.CODECS["msgpack"]
        body = bodies.encode(codec, arguments, f"{task.name}: arguments")
        request = Request(
            task.name, body, task.rules.soft_time_limit_s, wants_result, tracing.carried()
        )
        limit_s = task.rules.time_limit_s
        async with self._places:
            child = await self._child()
            try:
                async with asyncio.timeout(limit_s) as limit:
                    answer = await child.call(request)
            except BaseException as error:
                self._end(child)
                if isinstance(error, TimeoutError) and limit.expired():
                    raise TimeLimit(f"over its time limit of {limit_s:g} s") from None
                raise
            self._idle.append(child)
        if answer.kind != "result":
            raise frames.raised(answer)
        return bodies.decode(answer.result, codec.content_type) if wants_result else None

    async def _child(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.process.returncode is None:
                return child
        return await self._start()

    async def _start(self) -> Child:
        ours, theirs = socket.socketpair()
        target, *logs = self._arguments
        with theirs:
            descriptor = theirs.fileno()
            command = (sys.executable, "-m", "fifo.worker.child", target, str(descriptor), *logs)
            process = await asyncio.create_subprocess_exec(*command, pass_fds=(descriptor,))
        child = Child(process, *await asyncio.open_connection(sock=ours))
        try:
            await child.receive()
        except BaseException:
            self._end(child)
            raise
        return child

    def _end(self, child: Child) -> None:
        child.kill()
        if not child.gone.done():
            self._ended.add(child.gone)
            child.gone.add_done_callback(self._ended.discard)

    async def close(self) -> None:
        """End all processes."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*[child.close() for child in idle], *self._ended)


def _how(code: int) -> str:
    if code < 0:
        return f"by {signal.Signals(-code).name}"
    return f"with exit code {code}"
