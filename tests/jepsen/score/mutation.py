"""The record of a mutation: a named change of a good history, and what a checker has to say of it.

Owns the three kinds (one that breaks a rule, a harmless one, one that no history can show) and the
looks at a message that several mutations share. Must not know any one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tests.jepsen.score.tape import Hand, Life, NotHere, Settling, Tape

STRAY = 1_000_000
"""Added to a token, it is one that was never handed out."""

HARMLESS, UNSEEN = "harmless", "unseen"
"""In the place of a rule: nothing is broken; something is, and the history does not show it."""

OfMessage = Callable[[Tape, Life], None]
OfHistory = Callable[[Tape], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change. `of_message` is tried on one message after the other, `of_history` once."""

    name: str
    rule: str
    """That it breaks, or HARMLESS or UNSEEN."""
    says: str
    """The event, as a sentence."""
    of_message: OfMessage | None = None
    of_history: OfHistory | None = None


Registry = dict[str, Mutation]


def message(into: Registry, rule: str) -> Callable[[OfMessage], OfMessage]:
    """Register a change of one message; its docstring is the sentence."""

    def register(change: OfMessage) -> OfMessage:
        name, says = _words(change)
        into[name] = Mutation(name, rule, says, of_message=change)
        return change

    return register


def history(into: Registry, rule: str) -> Callable[[OfHistory], OfHistory]:
    """Register a change of a whole history."""

    def register(change: OfHistory) -> OfHistory:
        name, says = _words(change)
        into[name] = Mutation(name, rule, says, of_history=change)
        return change

    return register


def _words(change: Callable[..., None]) -> tuple[str, str]:
    return change.__name__.replace("_", " "), " ".join((change.__doc__ or "").split()).rstrip(".")


def need(*true: object) -> None:
    """Leave this message alone where one of these is not so."""
    if not all(true):
        raise NotHere


def alive(tape: Tape, life: Life) -> list[Hand]:
    """Its hand-outs outside of dead-letter queues."""
    return [hand for hand in life.hands if hand.queue not in tape.good.graves]


def last_alive(tape: Tape, life: Life) -> Hand:
    """The last of them."""
    found = alive(tape, life)
    need(found)
    return found[-1]


def dead_of(tape: Tape, life: Life) -> list[Hand]:
    """Its hand-outs as a dead letter."""
    return [hand for hand in life.hands if hand.queue in tape.good.graves]


def dead(tape: Tape, life: Life) -> list[Hand]:
    """The same; NotHere where there are none."""
    found = dead_of(tape, life)
    need(found)
    return found


def ordering(tape: Tape, hand: Hand) -> str:
    """The promise of order of its queue."""
    return str(tape.good.specs.get(hand.queue, {}).get("ordering", "none"))


def acked_once(tape: Tape, life: Life) -> tuple[Hand, Settling]:
    """The only hand-out of a confirmed message, and its ack that was carried out in time."""
    need(len(life.hands) == 1, not life.strays, life.confirm)
    (hand,) = life.hands
    need(hand.queue not in tape.good.graves, hand.deliver["value"]["attempt"] == 1)
    ack = hand.settled("ack")
    need(ack.answer is not None and not ack.answer["value"].get("late"))
    return hand, ack


def neighbours(tape: Tape, life: Life, *, single: bool = False) -> tuple[Hand, Hand]:
    """Two hand-outs of a message, the next one to another holder. A queue with a single active
    consumer only where it is asked for: its holder loses locks with others'."""
    for first, second in pairwise(alive(tape, life)):
        one, other = first.deliver["value"], second.deliver["value"]
        if (
            first.queue == second.queue
            and other["attempt"] == one["attempt"] + 1
            and (single or ordering(tape, first) != "single_active")
        ):
            return first, second
    raise NotHere


def unsettled_neighbours(tape: Tape, life: Life) -> tuple[Hand, Hand]:
    """Two hand-outs, in whatever queue, of which no settlement of the first was carried out."""
    first, second = neighbours(tape, life, single=True)
    need(not any(one.done for one in first.settlings))
    return first, second


def returned(tape: Tape, life: Life, verb: str) -> tuple[Hand, Settling, Hand]:
    """A hand-out that was nacked or released with `ok`, and the next one of the message."""
    first, second = neighbours(tape, life, single=True)
    return first, first.settled(verb), second
