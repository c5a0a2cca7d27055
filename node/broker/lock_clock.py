"""The leader's lock clock: effective deadlines, renewals included (semantics.md 3 and 5).

Owns an index of consumers by a lower bound of their first effective deadline, the renewals granted
to each, and the tokens of an evaluation in flight. It is built from the replicated index when a
term begins, and lives as long as the term. Must not know connections, leases or Raft: the caller
that renews has made sure that this node may grant, and the caller of `look` proposes the expired
tokens.

A consumer costs one index entry, whatever it holds, and a look costs in proportion to what is due.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sortedcontainers import SortedList

from fifo.machine.contract import Held
from node.broker import limits
from node.broker.counters import Counters
from node.broker.grants import Granted, Range, meet, subtract

ALL_TOKENS: Range = (1, 1 << 62)
"""Every token that a consumer can ever have."""


class Locks(Protocol):
    """The queries of the replicated state that the lock clock depends on."""

    def lock_consumers(self) -> Iterator[tuple[int, int]]:
        """(lower bound of the first deadline, consumer) of all that hold locks."""

    def expired(self, consumer: int, now_ms: int, most: int) -> tuple[list[Range], int | None]:
        """Tokens whose replicated deadline has passed, and the next deadline of the others."""

    def held(self, consumer: int, ranges: Sequence[Range]) -> Held | None:
        """The part of these tokens that is locked; None without such a consumer."""


@dataclass(slots=True)
class Renewal:
    """The outcome for one consumer: ranges with their new deadline, and lost ranges."""

    consumer: int
    renewed: list[tuple[int, int, int]] = field(default_factory=list)
    lost: list[Range] = field(default_factory=list)


class LockClock:
    """Effective deadlines of everything locked, on the leader."""

    def __init__(self, locks: Locks, counters: Counters) -> None:
        self._locks = locks
        self._counters = counters
        self._index: SortedList[tuple[int, int]] = SortedList()
        self._bounds: dict[int, int] = {}
        self._granted: dict[int, Granted] = {}
        self._proposed: dict[int, list[Range]] = {}
        self._due: dict[int, list[tuple[int, int]]] = {}

    def __len__(self) -> int:
        """Consumers that hold locks, evaluations in flight included."""
        return len(self._bounds) + len(self._proposed.keys() - self._bounds.keys())

    def begin(self) -> None:
        """Build the index from the replicated state: a term begins without granted renewals."""
        for bound_ms, consumer in self._locks.lock_consumers():
            self.locked(consumer, bound_ms)

    def locked(self, consumer: int, deadline_ms: int) -> None:
        """Note that the consumer holds a lock with this deadline, or an earlier one."""
        bound_ms = self._bounds.get(consumer)
        if bound_ms is not None:
            if bound_ms <= deadline_ms:
                return
            self._index.remove((bound_ms, consumer))
        self._bounds[consumer] = deadline_ms
        self._index.add((deadline_ms, consumer))

    # --- expiry -----------------------------------------------------------------------------------

    def look(self, now_ms: int) -> tuple[tuple[int, int, int], ...]:
        """Everything that has expired, as (consumer, first token, last token), within bounds.

        The returned tokens count as proposed until `decided`.
        """
        found: list[tuple[int, int, int]] = []
        messages = limits.EVAL_MESSAGES_MAX
        for _ in range(limits.LOOK_CONSUMERS_MAX):
            if not self._index or self._index[0][0] > now_ms:
                break
            if messages <= 0 or len(found) >= limits.EVAL_RANGES_MAX:
                break
            _, consumer = self._index.pop(0)
            del self._bounds[consumer]
            if consumer in self._proposed:
                continue  # checked again when that is decided
            ranges = self._expired(consumer, now_ms)
            ranges = _first(ranges, limits.EVAL_RANGES_MAX - len(found), messages)
            if ranges:
                messages -= sum([last - first + 1 for first, last in ranges])
                self._proposed[consumer] = ranges
                self._due[consumer] = self._due_of(consumer, ranges)
                found += [(consumer, first, last) for first, last in ranges]
        return tuple(found)

    def _expired(self, consumer: int, now_ms: int) -> list[Range]:
        """The expired locks of this consumer; if there are none, it is indexed again."""
        ranges, next_ms = self._locks.expired(consumer, now_ms, limits.LOOK_TOKENS_MAX)
        left = list(ranges)
        granted = self._granted.get(consumer)
        if granted is not None:
            granted.forget_until(now_ms - limits.LAPSED_MS)
            left, promised_ms = granted.uncovered(ranges, now_ms)
            if promised_ms is not None:
                next_ms = promised_ms if next_ms is None else min(next_ms, promised_ms)
        if not left:
            if next_ms is not None:
                self.locked(consumer, next_ms)
            else:
                self._granted.pop(consumer, None)
        return left

    def _due_of(self, consumer: int, ranges: Sequence[Range]) -> list[tuple[int, int]]:
        """(deadline, number of tokens) of ranges that are proposed as expired."""
        held = self._locks.held(consumer, ranges)
        return [
            (max(one.deadline_ms, self.granted(consumer, one.last)[0]), one.last + 1 - one.first)
            for one in (() if held is None else held.ranges)
        ]

    def decided(
        self, now_ms: int, expired: Iterable[tuple[int, int, int]], *, applied: bool = True
    ) -> None:
        """Check the consumers of an evaluation again, what `look` returned: it is applied, or known
        not to be."""
        for consumer in dict.fromkeys([named[0] for named in expired]):
            del self._proposed[consumer]
            for due_ms, count in self._due.pop(consumer):
                if applied:
                    self._counters.lateness.note(max(0, now_ms - due_ms) / 1000, count)
            self.locked(consumer, now_ms)

    # --- renewal ----------------------------------------------------------------------------------

    def undecided(self, items: Iterable[tuple[int, Sequence[Range]]]) -> bool:
        """Whether any of these tokens is in an evaluation in flight, so that a renewal waits."""
        proposed = self._proposed
        return any(
            consumer in proposed and meet(ranges, proposed[consumer]) for consumer, ranges in items
        )

    def renew(
        self, consumer: int, held: Held, ranges: Sequence[Range], now_ms: int
    ) -> Renewal | None:
        """Grant now + lock, within `max_lock`, on the named tokens that are held.

        None if the consumer's grants are too fragmented to remember another one.
        """
        granted = self._granted.get(consumer)
        if granted is None:
            granted = self._granted[consumer] = Granted()
        granted.forget_until(now_ms - limits.LAPSED_MS)
        renewal = Renewal(consumer)
        parts = sorted(held.ranges)
        for part in parts:
            longest_ms = part.checkout_ms + held.max_lock_ms
            until_ms = max(min(now_ms + part.lock_ms, longest_ms), part.deadline_ms)
            if not granted.grant(part.first, part.last, until_ms):
                return None
            renewal.renewed.append((part.first, part.last, until_ms))
            self._counters.renewed_locks += part.last - part.first + 1
        renewal.lost = subtract(ranges, [(part.first, part.last) for part in parts])
        if not len(granted):
            del self._granted[consumer]
        return renewal

    def ends_together(self, whole: Renewal) -> None:
        """Take the end of the first lock that the consumer holds for that of all: it takes them
        along, and may be one that its client has not received yet, and did not name."""
        held = self._locks.held(whole.consumer, (ALL_TOKENS,))
        granted = self._granted.get(whole.consumer)
        ends: list[int] = []
        for part in () if held is None else held.ranges:
            left, promised_ms = [(part.first, part.last)], None
            if granted is not None:
                left, promised_ms = granted.uncovered(left, part.deadline_ms)
            if left:
                ends.append(part.deadline_ms)
            elif promised_ms is not None:
                ends.append(promised_ms)
        if ends:
            first_ms = min(ends)
            whole.renewed = [(a, b, min(end_ms, first_ms)) for a, b, end_ms in whole.renewed]

    def granted(self, consumer: int, token: int) -> tuple[int, int]:
        """(deadline granted by renewal, number of renewals) of one token; zeros without any."""
        granted = self._granted.get(consumer)
        return (0, 0) if granted is None else granted.of(token)

    def floors(self, consumers: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """(consumer, latest deadline granted), for the command that disconnects their session."""
        return tuple(
            [
                (consumer, self._granted[consumer].latest_ms)
                for consumer in consumers
                if consumer in self._granted
            ]
        )


def _first(ranges: Sequence[Range], count: int, messages: int) -> list[Range]:
    """The first `count` ranges, cut to `messages` tokens in total."""
    taken: list[Range] = []
    for first, last in ranges[:count]:
        if messages <= 0:
            break
        last = min(last, first + messages - 1)
        taken.append((first, last))
        messages -= last - first + 1
    return taken
