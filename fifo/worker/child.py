"""The process of handlers that may block: it imports the app, and runs one call after another.

Owns the loop over requests, the soft time limit (by a timer's signal), and the dependencies of its
handlers. Ends with its worker, whose socket is its only input. Must not know the client.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from contextlib import AsyncExitStack, suppress
from types import FrameType
from typing import Any

from fifo.client import tracing
from fifo.worker import bodies, frames, logs
from fifo.worker.app import App
from fifo.worker.dependencies import Dependencies
from fifo.worker.errors import CannotLoad, TimeLimit, UnknownTask
from fifo.worker.frames import Answer, Request
from fifo.worker.loading import load


class Handlers:
    """Runs the handlers of an app in the main thread."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._dependencies = Dependencies()
        self._loop = asyncio.new_event_loop()

    def answer(self, request: Request) -> Answer:
        """Run one call."""
        try:
            with tracing.within(request.context):
                result = self._run(request)
            if not request.wants_result:
                return Answer("result")
            encoded = bodies.encode(bodies.CODECS["msgpack"], result, f"{request.task}: result")
            return Answer("result", result=encoded)
        except (Exception, SystemExit) as error:
            return frames.answer_of(error)

    def _run(self, request: Request) -> Any:
        task = self._app.tasks.get(request.task)
        if task is None:
            raise UnknownTask(
                f"the process that is to run task {request.task!r:.80} has imported code without"
                " it: the code has changed since this worker began"
            )
        payload = bodies.decode(request.arguments, "application/msgpack")
        arguments = task.parameters.convert(payload)
        stack = AsyncExitStack()
        needed = task.parameters.dependencies
        if needed:
            made = self._loop.run_until_complete(self._dependencies.fill(stack, needed))
            arguments.update(made)
        try:
            result = _limited(request.soft_time_limit_s, task.handler, arguments)
        except BaseException as error:
            self._loop.run_until_complete(stack.__aexit__(type(error), error, error.__traceback__))
            raise
        self._loop.run_until_complete(stack.aclose())
        return result

    def close(self) -> None:
        """End the dependencies of this process."""
        self._loop.run_until_complete(self._dependencies.close())
        self._loop.close()


def _limited(soft_s: float | None, handler: Any, arguments: dict[str, Any]) -> Any:
    if soft_s is None:
        return handler(**arguments)

    def over(_number: int, _frame: FrameType | None) -> None:
        raise TimeLimit(f"over its soft time limit of {soft_s:g} s")

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, soft_s)
    try:
        return handler(**arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _received(link: socket.socket, size: int) -> bytes | None:
    """Exactly this number of bytes; None where the worker has gone."""
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _serve(link: socket.socket, handlers: Handlers) -> None:
    link.sendall(frames.packed(None))
    while (head := _received(link, frames.LENGTH.size)) is not None:
        body = _received(link, *frames.LENGTH.unpack(head))
        if body is None:
            return
        request = Request(*frames.unpacked(body))
        link.sendall(frames.packed(handlers.answer(request)))


def main(target: str, descriptor: str, log_level: str, log_format: str) -> int:
    """Serve the worker at the other end of a socket until it goes."""
    # Signals of the terminal, or of an orchestrator, are for the worker: it ends this process.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    logs.set_up(log_level, log_format)
    try:
        handlers = Handlers(load(target))
    except CannotLoad as error:
        print(f"fifo worker: {error}", file=sys.stderr)
        return 1
    with socket.socket(fileno=int(descriptor)) as link, suppress(ConnectionError):
        _serve(link, handlers)
    handlers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
