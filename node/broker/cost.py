"""How much of an entry a command takes up: microseconds that its apply may take, at the worst.

Owns the figures, which are those of `docs/machine.md`, rounded up: a command of the machine is
bounded by itself, and an entry of many is bounded by their sum. What is not in the table has an
entry of its own, so that a new command cannot be forgotten here. Handing out has one bound for the
whole entry in the machine, and none here. Must not decide what becomes of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from fifo.machine import commands
from fifo.machine.types import Range
from fifo.words import bounds
from fifo.words.settlement import Verb
from node.broker import limits

COMMAND: Final = 30
"""What a small command takes."""

STORED: Final = 10
"""A message of a publish that comes with a priority or dedup id of its own."""

DROPPED: Final = 60
"""The same for which the oldest one goes to its dead-letter queue."""

ACKED: Final = 16
"""A token that passes its key on, or whose message came back before."""

RETURNED: Final = 45
"""A token of any other verb."""

HELD: Final = 25
"""A message that a session holds, which is sent again at a resume and returned at the end."""

CONSUMER: Final = 6
"""A consumer of a session that goes or comes back."""

Plain: TypeAlias = Sequence[Any]


class Held(Protocol):
    """What the weights ask of the state."""

    def drops_oldest(self, queue: str) -> bool:
        """Whether a publish to this queue may drop others."""

    def burden(self, session: int) -> tuple[int, int]:
        """How many consumers a session has, and how many messages they hold."""

    def session_of(self, session_id: bytes) -> int:
        """A session's number, 0 for a new one."""


def published(held: Held, queue: str, count: int) -> int:
    """The weight of a publish of so many."""
    return COMMAND + count * (DROPPED if held.drops_oldest(queue) else STORED)


def settled(verb: int, ranges: Iterable[Range]) -> int:
    """The weight of a settlement; one of too many tokens is refused, which is cheap."""
    tokens = min(sum([last - first + 1 for first, last in ranges]), bounds.SETTLE_MESSAGES_MAX)
    return COMMAND + tokens * (ACKED if verb == Verb.ACK else RETURNED)


def _of_session(held: Held, session: int) -> int:
    consumers, messages = held.burden(session)
    return COMMAND + consumers * CONSUMER + messages * HELD


_SMALL: Final = (
    commands.Subscribe,
    commands.Credit,
    commands.Get,
    commands.Alive,
    commands.NoticeAck,
    commands.OpenProducer,
    commands.Declare,
)

_WEIGHTS: Final[dict[int, Callable[[Held, Plain], int]]] = {
    commands.code_of(commands.Publish): lambda held, plain: published(held, plain[3], plain[6]),
    commands.code_of(commands.Settle): lambda _, plain: settled(plain[3], plain[4]),
    commands.code_of(commands.Cancel): lambda _, plain: settled(
        Verb.RELEASE, plain[3] if len(plain) > 3 else ()
    ),
    commands.code_of(commands.Attach): lambda held, plain: _of_session(
        held, held.session_of(plain[1])
    ),
    commands.code_of(commands.Detach): lambda held, plain: _of_session(held, plain[1]),
    commands.code_of(commands.Disconnect): lambda held, plain: _of_session(held, plain[1]),
    commands.code_of(commands.EndSession): lambda held, plain: _of_session(held, plain[1]),
    **{commands.code_of(kind): lambda _, __: COMMAND for kind in _SMALL},
}


def weight(held: Held, plain: Plain) -> int:
    """The weight of a command in its plain form."""
    find = _WEIGHTS.get(plain[0])
    return limits.GATHER_MICROSECONDS_MAX if find is None else find(held, plain)
