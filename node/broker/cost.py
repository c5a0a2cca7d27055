"""The weight of a command in an entry: microseconds that applying it may take, at worst.

Owns the costs, which are those of `docs/machine.md`, rounded up. The machine bounds a single
command; the sum of these weights bounds an entry. A command that is not in the table gets an entry
of its own, so that a new one cannot be forgotten. Deliveries have one bound per entry, in the
machine, and none here. Must not decide the fate of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from fifo.machine.contract import Range, code_of, commands
from fifo.words import bounds
from fifo.words.settlement import Verb
from node.broker import limits

COMMAND: Final = 30
"""A small command."""

TAKING: Final = 50
"""A subscription or a get, of a session and queue of its own, with what it is handed."""

STORED: Final = 10
"""A message of a publish with a key, a delay or a deduplication id of its own."""

STORED_ALONE: Final = 35
"""The same with another priority than its neighbour, or a number that does not follow."""

DROPPED: Final = 60
"""The same if it evicts the oldest one to the dead-letter queue."""

ACKED: Final = 16
"""A token that releases its key, or whose message was redelivered."""

RETURNED: Final = 45
"""A token of any other verb."""

ACTED: Final = 80
"""An action on one message that is not locked: it goes to the end of another queue, perhaps as the
first change of both after a freeze."""

HELD: Final = 25
"""A locked message of a session, delivered again at a resume and released at its end."""

CONSUMER: Final = 18
"""A consumer of a session that disconnects or resumes, of a queue of its own."""

Plain: TypeAlias = Sequence[Any]


class SizedState(Protocol):
    """The queries of the state that weights depend on."""

    def drops_oldest(self, queue: str) -> bool:
        """Whether a publish to this queue may evict older messages."""

    def burden(self, session: int) -> tuple[int, int]:
        """(consumers of a session, messages that they hold)."""

    def session_of(self, session_id: bytes) -> int | None:
        """The number of a session; None for a new one."""

    def returned_by_expiry(self, consumer: int, tokens: int) -> int:
        """Messages that go back when so many locks of a consumer end."""


def stored(state: SizedState, queue: str, *, alone: bool) -> int:
    """The weight of a message of a publish; `alone`: it is not like its neighbours."""
    if state.drops_oldest(queue):
        return DROPPED
    return STORED_ALONE if alone else STORED


def published(state: SizedState, queue: str, count: int) -> int:
    """The weight of a publish of `count` messages."""
    return COMMAND + count * stored(state, queue, alone=False)


def published_across(
    state: SizedState, queues: Sequence[str], counts: Sequence[int], *, alone: bool
) -> int:
    """The weight of a publish to several queues, with so many messages for each."""
    return sum(
        [
            COMMAND + count * stored(state, queue, alone=alone)
            for queue, count in zip(queues, counts, strict=True)
        ]
    )


def _published_across(state: SizedState, plain: Plain) -> int:
    """The same as far as the command says it: each message may be for the dearest of the queues."""
    queues: Sequence[str] = plain[3]
    count: int = plain[4]
    dearest = max([stored(state, queue, alone=True) for queue in queues], default=0)
    return len(queues) * COMMAND + count * dearest


def _acted(plain: Plain) -> int:
    """The weight of an action on one message. One that takes a lock may have all look for their
    turn who wait on a single-active queue, and gets an entry of its own."""
    is_locked = len(plain) > 5 and plain[5]
    return limits.GATHER_MICROSECONDS_MAX if is_locked else ACTED


def settled(verb: int, ranges: Iterable[Range]) -> int:
    """The weight of a settlement; one with too many tokens is refused, which is cheap."""
    tokens = min(sum([last - first + 1 for first, last in ranges]), bounds.SETTLE_MESSAGES_MAX)
    return COMMAND + tokens * (ACKED if verb == Verb.ACK else RETURNED)


def expired(state: SizedState, ranges: Iterable[tuple[int, int, int]]) -> int:
    """The weight of a tick that takes these locks (consumer, first, last), and has nothing else
    to do."""
    tokens: dict[int, int] = {}
    for consumer, first, last in ranges:
        tokens[consumer] = tokens.get(consumer, 0) + last - first + 1
    returned = sum([state.returned_by_expiry(*ended) for ended in tokens.items()])
    return COMMAND + len(tokens) * COMMAND + returned * RETURNED


def _of_session(state: SizedState, session: int) -> int:
    consumers, messages = state.burden(session)
    return COMMAND + consumers * CONSUMER + messages * HELD


_SMALL: Final = (
    commands.Credit,
    commands.Alive,
    commands.NoticeAck,
    commands.OpenProducer,
    commands.Declare,
)

_WEIGHTS: Final[dict[int, Callable[[SizedState, Plain], int]]] = {
    code_of(commands.Publish): lambda state, plain: published(state, plain[3], plain[6]),
    code_of(commands.PublishAcross): _published_across,
    code_of(commands.Settle): lambda _, plain: settled(plain[3], plain[4]),
    code_of(commands.Cancel): lambda _, plain: settled(
        Verb.RELEASE, plain[3] if len(plain) > 3 else ()
    ),
    code_of(commands.Attach): lambda state, plain: _of_session(
        state, state.session_of(plain[1]) or 0
    ),
    code_of(commands.Detach): lambda state, plain: _of_session(state, plain[1]),
    code_of(commands.Disconnect): lambda state, plain: _of_session(state, plain[1]),
    code_of(commands.EndSession): lambda state, plain: _of_session(state, plain[1]),
    code_of(commands.MessageAction): lambda _, plain: _acted(plain),
    code_of(commands.Subscribe): lambda _, __: TAKING,
    code_of(commands.Get): lambda _, __: TAKING,
    **{code_of(kind): lambda _, __: COMMAND for kind in _SMALL},
}


def weight(state: SizedState, plain: Plain) -> int:
    """The weight of a command in its plain form."""
    find = _WEIGHTS.get(plain[0])
    return limits.GATHER_MICROSECONDS_MAX if find is None else find(state, plain)
