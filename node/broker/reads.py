"""Requests that are answered from the leader's memory, once the answer is certain to be current.

Owns the wait for that: a majority has to answer a round that was sent after the request came
(raft.md 3.8). Then no later leader had been elected before the request, so everything that was
confirmed until then is in this node's state. A lease would not do: a later leader may have begun
while it lasts. Must not know what is asked, or how rounds are sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, TypeAlias

from fifo.wire import Code, Frame
from node.broker import limits
from node.broker.connections.connection import Connection

WhenCurrent: TypeAlias = Callable[[Connection, Frame, Iterator[None]], object]
"""`Reads.answer`, for handlers."""


class Rounds(Protocol):
    """The part of Raft that proves who leads."""

    def ask_round(self) -> None:
        """Send a round at once; turns follow as it is answered."""

    def led_at(self) -> float:
        """The newest instant at which this node certainly led."""


class _Question(NamedTuple):
    asked_at: float
    decided: Callable[[bool], object]


class Reads:
    """The questions of one term that wait for their proof."""

    def __init__(self, rounds: Rounds, now: Callable[[], float]) -> None:
        """`now`: seconds of the clock of Raft's rounds."""
        self._rounds = rounds
        self._now = now
        self.waiting: deque[_Question] = deque()
        """In the order of asking; looked at in each turn while there are any."""

    def ask(self, decided: Callable[[bool], object]) -> None:
        """Call `decided(True)` as soon as this node's state is certain to hold all that was
        confirmed before this call; `decided(False)` where that cannot be shown in time."""
        now = self._now()
        if self._rounds.led_at() >= now:
            decided(True)  # Alone, or a round was answered in this very instant.
        elif len(self.waiting) >= limits.READS_WAITING_MAX:
            decided(False)
        else:
            self.waiting.append(_Question(now, decided))
            self._rounds.ask_round()

    def look(self) -> None:
        """Decide what is proven by now, and what has waited for too long."""
        waiting = self.waiting
        led_at = self._rounds.led_at()
        while waiting and waiting[0].asked_at <= led_at:
            waiting.popleft().decided(True)
        overdue_at = self._now() - limits.READ_WAIT_SECONDS
        while waiting and waiting[0].asked_at < overdue_at:
            waiting.popleft().decided(False)

    def stop(self) -> None:
        """Nothing more can be proven: the term is over."""
        waiting, self.waiting = self.waiting, deque()
        for one in waiting:
            one.decided(False)

    def answer(self, connection: Connection, frame: Frame, pieces: Iterator[None]) -> None:
        """Answer a request by `pieces` once its answer is current, or by `not_now`.

        The peer's next frames wait meanwhile, so no peer has more than one request waiting. To be
        called while the frame is handled.
        """
        current: bool | None = None

        def decided(found: bool) -> None:
            nonlocal current
            current = found
            connection.start_reading("proof")

        def answering() -> Iterator[None]:
            if current:
                yield from pieces
            else:
                text = "this node cannot be sure that it still leads; retry"
                connection.refuse(frame.correlation, Code.NOT_NOW, text)

        connection.answer_in_pieces(frame, answering())
        self.ask(decided)
        if current is None:
            connection.stop_reading("proof")

    async def current(self) -> bool:
        """Wait until this node's state is certain to be current; False where it may not be."""
        found: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def decided(current: bool) -> None:
            if not found.done():
                found.set_result(current)

        self.ask(decided)
        return await found


def at_once(answer: Callable[[], object]) -> Iterator[None]:
    """An answer in one piece, for `Reads.answer`."""
    answer()
    yield from ()
