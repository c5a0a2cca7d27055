"""A settlement: the messages of a frame, what is asked for them, and what became of it.

Owns the record, which each of its messages refers to from the moment that it is settled: a second
settlement of a message finds the first one here, waits for it, and is answered from its receipt.
Must not know how settlements are sent; `settler` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from fifo.client.connection.calls import Tries
from fifo.client.consuming.ranges import Range, Ranges
from fifo.client.consuming.verbs import SettleResult, Settling, Status
from fifo.client.errors import FifoError
from fifo.wire import Frame
from fifo.wire.messages import Confirms

OK: Final = SettleResult(Status.OK)
ALREADY: Final = SettleResult(Status.ALREADY_SETTLED)
LOST: Final = SettleResult(Status.LOCK_LOST)
SENT: Final = SettleResult(Status.SENT)


class Settleable(Protocol):
    """A message, as its settlement sees it."""

    settlement: Any

    @property
    def token(self) -> int:
        """The token of its lock."""


class Asker(Protocol):
    """The sender of a settlement, which takes its answer."""

    def answered(self, settlement: Any, frame: Frame) -> None:
        """Take the receipt of a settlement, or its error."""


_M = TypeVar("_M", bound=Settleable)
_L = TypeVar("_L")


class Follower(NamedTuple, Generic[_M]):
    """A later settlement of a message, which waits for the outcome of this one.

    `future` gets its result; None where no caller waits.
    """

    message: _M
    what: Settling
    future: asyncio.Future[SettleResult] | None


class Settlement(Generic[_M, _L]):
    """Messages that are settled together: gathered, sent, and at last `ended`."""

    __slots__ = (
        "_default",
        "_results",
        "attempts",
        "correlation",
        "ended",
        "error",
        "followers",
        "future",
        "is_many",
        "ledger",
        "messages",
        "ranges",
        "retry",
        "sent_at",
        "settler",
        "tries",
        "what",
    )

    def __init__(
        self,
        settler: Asker,
        ledger: _L,
        messages: list[_M],
        what: Settling,
        future: asyncio.Future[Any] | None = None,
    ) -> None:
        self.settler = settler
        self.ledger = ledger
        self.messages = messages
        self.what = what
        self.future = future
        self.followers: list[Follower[_M]] = []
        self.ranges: tuple[Range, ...] = ()
        self.is_many = False
        self.correlation = 0
        self.attempts = 0
        self.tries = Tries()
        self.sent_at: float | None = None
        self.retry: asyncio.TimerHandle | None = None
        self.ended = False
        self.error: FifoError | None = None
        self._default = OK
        self._results: Mapping[int, SettleResult] = {}

    def parted(self, pieces: Sequence[tuple[Range, ...]]) -> Sequence[Settlement[_M, _L]]:
        """A settlement for each of these pieces of its tokens: itself, where there is one."""
        if len(pieces) == 1:
            return (self,)
        assert self.future is None, "what a caller waits for goes into one frame"
        found = []
        for piece in pieces:
            inside = Ranges(piece)
            mine = [message for message in self.messages if message.token in inside]
            part = Settlement(self.settler, self.ledger, mine, self.what)
            part.followers = [one for one in self.followers if one.message.token in inside]
            for message in mine:
                message.settlement = part
            found.append(part)
        return found

    def confirmed(self, item: tuple[Any, ...]) -> None:
        """Take what no node answers to a settlement, as `answered` takes it."""
        self.answered(Frame(Confirms((item,)), item[0]))

    def answered(self, frame: Frame) -> None:
        """A receipt or an error."""
        self.settler.answered(self, frame)

    def __str__(self) -> str:
        """The settlement as an error names it."""
        messages = self.messages
        one = repr(messages[0]) if len(messages) == 1 else f"{len(messages)} messages"
        return f"settlement of {one}"

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for it: where none does, a failure is an event."""
        return self.future is not None and not self.future.done()

    def received(self, default: SettleResult, results: Mapping[int, SettleResult]) -> None:
        """Its receipt: what became of each token, `default` for those not named."""
        self._default, self._results = default, results

    def result(self, token: int) -> SettleResult:
        """Return what the receipt says of this token."""
        return self._results.get(token, self._default)

    def later(self, token: int) -> SettleResult:
        """The answer to a settlement of this token that comes after the receipt."""
        result = self.result(token)
        return ALREADY if result.status is Status.OK else result

    def at_once(self, token: int) -> SettleResult:
        """The answer to a settlement of this token that comes later and does not wait."""
        if not self.ended:
            return SENT
        return self.later(token) if self.error is None else LOST

    def resolve(self) -> None:
        """Answer the caller that waits, from the receipt."""
        assert self.future is not None, "a caller waits for it"
        if self.is_many:
            self.future.set_result({one: self.result(one.token) for one in self.messages})
        else:
            self.future.set_result(self.result(self.messages[0].token))

    def end(self) -> list[Follower[_M]]:
        """No more is to be expected; the later settlements that waited for this."""
        self.ended = True
        # The messages refer to this: kept on both sides, one would keep a whole frame alive.
        self.messages = []
        followers, self.followers = self.followers, []
        return followers
