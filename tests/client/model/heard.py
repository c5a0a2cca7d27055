"""The side of the programs: calls, messages in hand, settlements, and how each of them ended.

Owns the records. What of it may be true is the business of `promises`, whose they are of `acting`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import fifo
from fifo.words.settlement import Verb
from tests.client.model.truth import Lock

if TYPE_CHECKING:
    from tests.client.model.acting import Actor


class Verdict(Enum):
    """The end of a call, for its program."""

    OPEN = auto()
    """Not yet."""
    OK = auto()
    SENT = auto()
    """A settlement without a receipt: all is well unless an event says otherwise."""
    NO = auto()
    """Not happened: by an error that is not unknown, or a receipt that says so."""
    UNKNOWN = auto()


class Body(bytes):
    """Content of a message: its own name, and filling where it is to be large."""

    def __repr__(self) -> str:
        return self.split(b" ", 1)[0].decode()


@dataclass
class Publishing:
    """A message that a program published. `body` is its alone."""

    actor: Actor
    queue: str
    body: Body
    began: float
    dedup: str | None = None
    number: int | None = None
    """Under a named producer."""
    verdict: Verdict = Verdict.OPEN
    confirm: fifo.Confirm | None = None
    error: fifo.FifoError | None = None
    ended: float = 0.0

    def says_the_same_as(self, other: Publishing) -> bool:
        """Whether it names the same message by its dedup id, or its producer's number."""
        known = (self.dedup, self.number, self.queue)
        return known == (other.dedup, other.number, other.queue)


@dataclass
class Asking:
    """A settlement that a program asked for."""

    letter: Letter
    verb: Verb
    verdict: Verdict = Verdict.OPEN
    result: fifo.SettleResult | None = None
    error: fifo.FifoError | None = None
    is_elsewhere: bool = False
    """By another program than the one that holds the message."""

    @property
    def is_receipt(self) -> bool:
        """Whether the program that holds the message knows what became of it."""
        found = None if self.is_elsewhere else self.result
        return found is not None and found.status is not fifo.Status.SENT


@dataclass
class Letter:
    """A message in a program's hands. `slack_s`: seconds of its lock that are in doubt."""

    actor: Actor
    message: Any
    lock: Lock
    slack_s: float
    at: float
    asked: list[Asking] = field(default_factory=list)
    unsettled: list[fifo.FifoError] = field(default_factory=list)
    """Events: what `on_unsettled` was called with."""
    in_block: bool = False
    """Inside a `process()` block, which has not settled it yet."""
    renews: bool = True
    """Whether its client renews its lock."""

    def __str__(self) -> str:
        return f"{self.actor.name}'s {self.message.id} {self.lock}"

    @property
    def seconds_left(self) -> float:
        """Until its deadline, as its client knows it; by the program's clock."""
        return float(self.message.lock_ends_at - self.actor.program.clock())

    @property
    def is_over(self) -> bool:
        """Whether its program has the receipt of a settlement."""
        return any(one.is_receipt for one in self.asked)

    @property
    def is_free(self) -> bool:
        """Whether the program may take it for locked and not settled: nothing that it asked for
        can have happened."""
        return all(one.verdict is Verdict.NO for one in self.asked)


@dataclass
class Heard:
    """Everything of one run."""

    publishings: list[Publishing] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    open_calls: dict[int, str] = field(default_factory=dict)
    """Calls that programs wait for."""
    kinds: dict[str, int] = field(default_factory=dict)
    """The comparisons of each promise: without one it proves nothing."""

    def compared(self, promise: str) -> None:
        """Count a comparison."""
        self.kinds[promise] = self.kinds.get(promise, 0) + 1
