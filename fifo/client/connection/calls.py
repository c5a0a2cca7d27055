"""Requests and their answers: sent, sent again after a reconnection, ended by a deadline.

Owns what it means to wait: every wait ends with an answer, an error, or *unknown*. Must not know
which requests there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from fifo.client.errors import FifoError
from fifo.wire import Buffer, Frame
from fifo.wire.messages import Message

_T = TypeVar("_T")


class Expected(Protocol):
    """The receiver of the frame with a certain correlation."""

    def answered(self, frame: Frame) -> None:
        """Take the frame."""

    def confirmed(self, item: tuple[Any, ...]) -> None:
        """Take an item of `Confirms`."""


class _Expired:
    """The result of a future whose time is over; an exception would have to be retrieved."""


EXPIRED: Final = _Expired()


def expire(future: asyncio.Future[Any]) -> None:
    """End a wait."""
    if not future.done():
        future.set_result(EXPIRED)


async def until(
    future: asyncio.Future[_T], deadline: float, loop: asyncio.AbstractEventLoop
) -> _T | _Expired:
    """The future's result, or EXPIRED at the deadline (by the loop's clock).

    Cheaper than `asyncio.timeout`, and the future itself shows that the wait is over.
    """
    if future.done():
        return future.result()
    handle = loop.call_at(deadline, expire, future)
    try:
        return await future
    finally:
        handle.cancel()


class Tries:
    """The times that a request was on the wire, and what became of them.

    Each is refused, for the node says so, or unanswered: then it may have happened.
    """

    __slots__ = ("refusal", "unanswered")

    def __init__(self) -> None:
        self.unanswered = 0
        self.refusal: FifoError | None = None

    def begin(self) -> None:
        """Count one more."""
        self.unanswered += 1

    def refused(self, error: FifoError) -> None:
        """Note the node's refusal of one of them."""
        self.refusal = error
        if not error.unknown:
            self.unanswered -= 1

    def passed_over(self) -> None:
        """Note that the node refused one of them for another request, which stands before it."""
        self.unanswered -= 1

    @property
    def unknown(self) -> bool:
        """Whether one of them may have happened."""
        return self.unanswered > 0


class Call:
    """A request. `safe`: may be sent again after a reconnection, for twice does what once does.

    `sent_again` is true from then on: what the first time came to is not known.
    """

    __slots__ = (
        "attempts",
        "correlation",
        "future",
        "message",
        "on_answer",
        "raw",
        "retry",
        "safe",
        "sent",
        "sent_again",
        "tries",
    )

    def __init__(
        self,
        message: Message,
        correlation: int,
        future: asyncio.Future[Any],
        *,
        safe: bool,
        raw: Sequence[Buffer] = (),
        on_answer: Callable[[Frame], Any] | None = None,
        retry: Callable[[Call, FifoError], None],
    ) -> None:
        self.message = message
        self.correlation = correlation
        self.future = future
        self.safe = safe
        self.sent = self.sent_again = False
        self.tries = Tries()
        self.attempts = 0
        self.raw = raw
        self.on_answer = on_answer
        self.retry = retry

    def fail(self, error: FifoError) -> None:
        """End with an error."""
        if not self.future.done():
            self.future.set_exception(error)

    def succeed(self, frame: Frame) -> None:
        """End with an answer. What has to happen before the next frame happens here and now."""
        result = self.on_answer(frame) if self.on_answer is not None else frame
        if not self.future.done():
            self.future.set_result(result)
