"""The verbs that settle a message: their details on the wire, and their outcomes.

Owns `Status`, `SettleResult`, `Settling` with a builder per verb, and `Settles`: the protocol by
which a message reaches the settler above it. Must not know messages, ledgers or connections.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from fifo.client import checks
from fifo.client.backoff import BackoffCallable
from fifo.client.connection.environment import Environment
from fifo.client.durations import Duration, milliseconds
from fifo.client.errors import InvalidArgument
from fifo.wire.messages import VERB_ACK, VERB_NACK, VERB_RELEASE, VERB_TERMINATE

_log = logging.getLogger("fifo.client")

_B = TypeVar("_B")
_M = TypeVar("_M", contravariant=True)


class Status(StrEnum):
    """The outcome of a settlement (semantics.md 8)."""

    OK = "ok"
    ALREADY_SETTLED = "already_settled"
    LOCK_LOST = "lock_lost"
    DEAD_LETTERED = "dead_lettered"
    UNKNOWN_CONSUMER = "unknown_consumer"
    SENT = "sent"
    """Not the node's word: the settlement was sent without waiting for a receipt."""


STATUSES: Final = tuple(Status)[:5]
"""By their number on the wire."""


class SettleResult(NamedTuple):
    """The receipt of a settlement. `late`: the lock was lost, but not yet another consumer's."""

    status: Status
    late: bool = False


class Settling(NamedTuple):
    """The verb of a settlement and its details."""

    verb: int
    delay_ms: int | None = None
    reason: str | None = None
    description: str | None = None
    exception_type: str | None = None
    exception_text: str | None = None
    stack: str | None = None


ACK: Final = Settling(VERB_ACK)


def nacking(
    failures: int, backoff: BackoffCallable | None, delay: Duration | None, reason: str | None
) -> Settling:
    """Build a nack: with the explicit delay, else the consumer's backoff, else the queue's."""
    if delay is None and backoff is not None:
        delay = chosen_delay(lambda: backoff(failures), "nack_backoff")
    delay_ms = None if delay is None else milliseconds(delay, "delay")
    return Settling(VERB_NACK, delay_ms, checks.letter_text(reason, "reason"))


def chosen_delay(choose: Callable[[], Duration | None], what: str) -> Duration | None:
    """The delay that a callable of the program chooses; None where it fails.

    Its error is logged: a nack that was not sent would keep the message locked and renewed.
    """
    try:
        delay = choose()
        if delay is not None:
            milliseconds(delay, what)
    except Exception:
        _log.exception("%s failed; nacked with the queue's own backoff", what)
        return None
    return delay


def words_of(error: BaseException) -> str:
    """The text of a program's exception, whose own `__str__` may fail."""
    try:
        return str(error)
    except Exception:
        _log.exception("an exception of type %s has no text", type(error).__name__)
        return ""


def releasing(delay: Duration | None) -> Settling:
    """Build a release."""
    return Settling(VERB_RELEASE, None if delay is None else milliseconds(delay, "delay"))


def terminating(reason: str, description: str | None, exception: BaseException | None) -> Settling:
    """Build a termination. Text over the limit is cut with "..."; a stack keeps its end."""
    if not isinstance(reason, str) or not reason:
        raise InvalidArgument(
            "reason: must be a non-empty text: why this message can never succeed"
        )
    kind = words = stack = None
    if exception is not None:
        kind = checks.text(type(exception).__name__, "exception")
        words = checks.letter_text(words_of(exception), "exception")
        lines = "".join(traceback.format_exception(exception))
        stack = checks.letter_text(lines, "exception", keep_end=True)
    return Settling(
        VERB_TERMINATE,
        None,
        checks.letter_text(reason, "reason"),
        checks.letter_text(description, "description"),
        kind,
        words,
        stack,
    )


def settling(
    verb: str,
    delay: Duration | None,
    reason: str | None,
    description: str | None,
    exception: BaseException | None,
) -> Settling:
    """Build the settlement of a verb by its name: ack, nack, release or terminate."""
    checks.one_of(verb, "verb", "ack", "nack", "release", "terminate")
    if verb == "ack":
        return ACK
    if verb == "release":
        return releasing(delay)
    if verb == "terminate":
        return terminating(reason or "terminated", description, exception)
    return nacking(0, None, delay, reason)


class Handles(Protocol):
    """The maker of spans, as a message sees it."""

    def handling(self, message: Any, block: _B) -> _B:
        """Give the block that handles a message a span."""


class Settles(Protocol[_M]):
    """The settler, as a message sees it. Used on `loop` only."""

    @property
    def spans(self) -> Handles | None:
        """The maker of spans of blocks that handle a message; None where there are none."""

    @property
    def address(self) -> str:
        """The node that the client is connected to; empty for none."""

    @property
    def environment(self) -> Environment:
        """The clocks of the client."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the client."""

    def gather(self, message: _M) -> SettleResult:
        """Ack without waiting, together with the others of this turn."""

    def send(self, message: _M, what: Settling) -> SettleResult:
        """Settle without waiting."""

    async def settle(self, message: _M, what: Settling, *, receipt: bool) -> SettleResult:
        """Settle; with `receipt` wait until a majority has it."""

    async def renew(self, message: _M) -> None:
        """Renew one lock. Raises LockLost."""

    def watch(self, at: float) -> None:
        """Look for locks that have ended at this time, at the latest; on any thread."""

    def report(self, message: _M, result: SettleResult) -> None:
        """Report a receipt that says no and that no caller sees."""

    def take_back(self, message: _M) -> None:
        """Give back a message that was fetched for a program, which never saw it."""

    def give_up(self, message: _M) -> None:
        """Forget a message whose lock is lost."""
