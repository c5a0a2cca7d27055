"""The lock of each message, as an object: is there an order of what clients saw that it allows?

Owns the search (Wing and Gong, with Lowe's memory of what was tried) and the sequential rules of
one message's lock. It judges what the interval rules judge, in another way, and combinations that
they do not; a lock may run out at any time here, for how early is the business of S9. Rule L.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.jepsen.checkers.sorting import (
    NEVER,
    Key,
    Settle,
    SortedHistory,
    Violation,
    index_of,
    key_of,
)

STEPS_MAX = 20_000
"""A message whose search takes longer is given up as not decided; a lock has few operations."""


class Lock(NamedTuple):
    """A message's lock: who holds it, who had it last, in which attempt, and whether it is gone."""

    holder: Key | None = None
    last: Key | None = None
    attempt: int = 0
    done: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation as a client saw it: it took effect at one moment from `start` to `end`."""

    kind: str
    key: Key
    start: int
    end: int
    attempt: int = 0
    optional: bool = False
    """Of unknown outcome: perhaps it never took effect."""


def after(operation: Operation, lock: Lock) -> Lock | None:
    """The lock after an operation, or None where it cannot be. Its holder may lose it."""
    mine = lock.holder == operation.key and not lock.done
    match operation.kind:
        case "take":
            if lock.done or operation.attempt <= lock.attempt:
                return None
            return Lock(operation.key, operation.key, operation.attempt)
        case "holds":
            return lock if mine else None
        case "give back":
            return lock._replace(holder=None) if mine else None
        case "end":
            return lock._replace(holder=None, done=True) if mine else None
        case "end late":
            free = lock.holder in (None, operation.key) and lock.last == operation.key
            return lock._replace(holder=None, done=True) if free and not lock.done else None
        case "lost":
            return lock._replace(holder=None) if mine else lock
    raise ValueError(operation.kind)


def possible(operations: list[Operation]) -> bool | None:
    """Whether some order explains all; None where the search was given up."""
    # What ended first is tried first, so that a history without faults is its own explanation.
    operations = sorted(operations, key=lambda one: one.end)
    needed = sum(1 << place for place, one in enumerate(operations) if not one.optional)
    seen: set[tuple[int, Lock]] = set()
    steps = 0
    open_: list[tuple[int, Lock]] = [(0, Lock())]
    while open_:
        taken, lock = open_.pop()
        if taken & needed == needed:
            return True
        steps += 1
        if steps > STEPS_MAX:
            return None
        rest = [place for place in range(len(operations)) if not taken >> place & 1]
        first_end = min(operations[place].end for place in rest)
        for place in reversed(rest):
            one = operations[place]
            if one.start > first_end:
                continue
            then = after(one, lock)
            if then is None:
                continue
            state = taken | 1 << place, then
            if state not in seen:
                seen.add(state)
                open_.append(state)
    return False


def operations_of(history: SortedHistory, number: str) -> list[Operation]:
    """The operations that clients saw on one message in its source queue."""
    found = []
    ours: dict[Key, None] = {}
    for one in history.hand_outs.get(number, ()):
        if not history.is_grave(one):
            ours[key_of(one)] = None
            attempt = one["value"]["attempt"]
            found.append(Operation("take", key_of(one), -1, index_of(one), attempt))
    found += [
        Operation("holds", key_of(sure), index_of(sure), index_of(sure))
        for sure in history.sure.get(number, ())
        if key_of(sure) in ours and not history.single_active(sure)
    ]
    for settle in history.settles.get(number, ()):
        if key_of(settle.asked) in ours:
            found += _settled(settle)
    return found


def _settled(settle: Settle) -> Iterator[Operation]:
    key, start, end = key_of(settle.asked), index_of(settle.asked), index_of(settle.answer)
    ends = settle.verb in ("ack", "terminate")
    if settle.answer["type"] == "info":
        kind = "end late" if ends else "give back"
        yield Operation(kind, key, start, NEVER, optional=True)
    elif settle.done:
        late = "end late" if settle.late else "end"
        yield Operation(late if ends else "give back", key, start, end)
    elif settle.answer["value"].get("status") == "dead_lettered" and not ends:
        yield Operation("end", key, start, end)
    elif settle.answer["value"].get("status") == "lock_lost":
        yield Operation("lost", key, start, end)


def linearizable(history: SortedHistory) -> Iterator[Violation]:
    """L: what clients saw of each message's lock is what one lock can do."""
    if history.redriven:
        return  # A message's life begins anew: its attempts do not order it any more.
    for number in history.hand_outs:
        operations = operations_of(history, number)
        if possible(operations) is False:
            shown = tuple(history.hand_outs[number])
            yield Violation("L", number, "no order explains what its lock did", shown)
