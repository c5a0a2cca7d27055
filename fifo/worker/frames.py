"""Frames between a worker and the processes of its handlers: a length, and msgpack.

Owns the form of requests and answers, and errors as plain data. No format that could run code when
it is read. Must not know processes.
"""

from __future__ import annotations

import struct
import traceback
from typing import Any, Final, NamedTuple

import msgpack

from fifo.client import Terminal
from fifo.client.durations import seconds
from fifo.worker.errors import Retry, UnknownTask
from fifo.worker.failures import own

LENGTH: Final = struct.Struct(">I")


class Request(NamedTuple):
    """A call of a handler: its arguments as plain data."""

    task: str
    arguments: bytes
    soft_time_limit_s: float | None
    wants_result: bool
    context: dict[str, str]
    """That of the span in which it runs; empty where there is none."""


class Answer(NamedTuple):
    """The end of a call: a result, or the error that the handler raised."""

    kind: str
    """`result`, `error`, `terminal`, `retry` or `unknown`: no such task there."""
    name: str = ""
    text: str = ""
    description: str | None = None
    stack: str = ""
    result: bytes = b""
    delay_s: float | None = None


class HandlerError(Exception):
    """An error of a handler in another process: named as it was there, its stack as a note."""


def packed(frame: Request | Answer | None) -> bytes:
    """Format a frame with its length; None is the sign of a process that is ready."""
    body: bytes = msgpack.packb(frame)
    return LENGTH.pack(len(body)) + body


def answer_of(error: BaseException) -> Answer:
    """The answer for what a handler raised."""
    if isinstance(error, Terminal):
        cause = error.__cause__ or error
        return Answer(
            "terminal", type(cause).__name__, error.reason, error.description, _stack(cause)
        )
    if isinstance(error, Retry):
        delay_s = None if error.delay is None else seconds(error.delay, "delay")
        return Answer("retry", text=error.reason, delay_s=delay_s)
    if isinstance(error, UnknownTask):
        return Answer("unknown", text=str(error))
    return Answer("error", type(error).__name__, _text(error), stack=_stack(error))


def raised(answer: Answer) -> Exception:
    """The error to raise for an answer that is no result."""
    if answer.kind == "retry":
        return Retry(answer.delay_s, answer.text)
    if answer.kind == "unknown":
        return UnknownTask(answer.text)
    kind = type(answer.name, (HandlerError,), {})
    error = kind(answer.text)
    error.add_note(f"In its own process:\n{answer.stack}")
    if answer.kind == "terminal":
        terminal = Terminal(answer.text, answer.description)
        terminal.__cause__ = error
        return terminal
    found: Exception = error
    return found


def unpacked(body: bytes) -> Any:
    """Plain data of a frame."""
    return msgpack.unpackb(body, strict_map_key=False)


def _stack(error: BaseException) -> str:
    return "".join(traceback.format_exception(own(error))).encode(errors="replace").decode()


def _text(error: BaseException) -> str:
    return str(error).encode(errors="replace").decode()
