"""The leader's clock of locks, over a table of locks that a test writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from fifo.machine.queries import Held, HeldRange
from node.broker import limits
from node.broker.counters import Counters
from node.broker.grants import Range
from node.broker.lock_clock import LockClock


class Table:
    """Locks by consumer and token: checkout times, with one duration."""

    def __init__(self, lock_ms: int = 1000, max_lock_ms: int = 10_000) -> None:
        self.lock_ms = lock_ms
        self.max_lock_ms = max_lock_ms
        self.checkouts: dict[int, dict[int, int]] = {}
        self.looks = 0

    def lock(self, consumer: int, tokens: range, at_ms: int) -> None:
        """Hand out tokens."""
        self.checkouts.setdefault(consumer, {}).update(dict.fromkeys(tokens, at_ms))

    def lock_consumers(self) -> Iterator[tuple[int, int]]:
        """By their first deadline."""
        for consumer, held in self.checkouts.items():
            if held:
                yield min(held.values()) + self.lock_ms, consumer

    def expired(self, consumer: int, now_ms: int, most: int) -> tuple[list[Range], int | None]:
        """Token by token."""
        self.looks += 1
        held = self.checkouts.get(consumer, {})
        ended = [t for t, at_ms in held.items() if at_ms + self.lock_ms <= now_ms][:most]
        rest = [at_ms + self.lock_ms for at_ms in held.values() if at_ms + self.lock_ms > now_ms]
        return [(token, token) for token in sorted(ended)], min(rest, default=None)

    def held(self, consumer: int, ranges: Sequence[Range]) -> Held | None:
        """Token by token."""
        held = self.checkouts.get(consumer)
        if held is None:
            return None
        parts = tuple(
            HeldRange(t, t, held[t], self.lock_ms, held[t] + self.lock_ms)
            for first, last in ranges
            for t in range(first, last + 1)
            if t in held
        )
        return Held(1, True, False, self.max_lock_ms, parts)

    def take(self, expired: Sequence[tuple[int, int, int]]) -> None:
        """Apply an evaluation."""
        for consumer, first, last in expired:
            for token in range(first, last + 1):
                del self.checkouts[consumer][token]


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def clock(table: Table) -> LockClock:
    return LockClock(table, Counters())


def handed_out(table: Table, clock: LockClock, consumer: int, tokens: range, at_ms: int) -> None:
    """Lock in the state, and report it to the clock."""
    table.lock(consumer, tokens, at_ms)
    clock.locked(consumer, at_ms + table.lock_ms)


def renewed(table: Table, clock: LockClock, tokens: range, now_ms: int) -> list[int]:
    """Renew tokens of consumer 1; their new deadlines."""
    ranges = [(tokens[0], tokens[-1])]
    held = table.held(1, ranges)
    assert held is not None
    renewal = clock.renew(1, held, ranges, now_ms)
    assert renewal is not None
    return [until_ms for _, _, until_ms in renewal.renewed]


def test_nothing_is_found_before_its_deadline_and_all_at_it(table: Table, clock: LockClock) -> None:
    handed_out(table, clock, 1, range(1, 4), 0)
    assert clock.look(999) == ()
    assert table.looks == 0, "an early look costs nothing"
    assert clock.look(1000) == ((1, 1, 1), (1, 2, 2), (1, 3, 3))


def test_proposed_tokens_are_not_found_again_until_decided(table: Table, clock: LockClock) -> None:
    handed_out(table, clock, 1, range(1, 2), 0)
    found = clock.look(1000)
    assert clock.look(2000) == ()
    clock.decided(2000, found, applied=False)
    assert clock.look(2000) == found, "the evaluation was lost, so it is found again"
    table.take(found)
    clock.decided(2000, found)
    assert clock.look(3000) == ()
    assert len(clock) == 0


def test_of_two_evaluations_on_their_way_each_is_decided_alone(
    table: Table, clock: LockClock
) -> None:
    many = limits.EVAL_MESSAGES_MAX
    handed_out(table, clock, 1, range(1, many + 6), 0)
    handed_out(table, clock, 2, range(1, 3), 0)
    first = clock.look(1000)
    second = clock.look(1000)
    assert {consumer for consumer, *_ in first} == {1}
    assert second == ((2, 1, 1), (2, 2, 2)), "the rest of a consumer waits for what it is in"
    table.take(second)
    clock.decided(1000, second)
    assert clock.undecided([(1, [(1, 1)])])
    assert clock.look(1000) == ()
    table.take(first)
    clock.decided(1000, first)
    assert len(clock.look(1000)) == 5


def test_a_renewal_moves_the_deadline_and_the_rest_expires(table: Table, clock: LockClock) -> None:
    handed_out(table, clock, 1, range(1, 4), 0)
    assert renewed(table, clock, range(2, 3), 800) == [1800]
    assert clock.look(1000) == ((1, 1, 1), (1, 3, 3))
    table.take([(1, 1, 1), (1, 3, 3)])
    clock.decided(1000, ((1, 1, 1), (1, 3, 3)))
    assert clock.look(1799) == ()
    assert clock.look(1800) == ((1, 2, 2),)


def test_a_renewal_ends_with_the_longest_lock(table: Table, clock: LockClock) -> None:
    table.max_lock_ms = 1500
    handed_out(table, clock, 1, range(1, 2), 0)
    assert renewed(table, clock, range(1, 2), 900) == [1500]
    assert clock.look(1499) == ()
    assert clock.look(1500) == ((1, 1, 1),)


def test_a_renewal_of_proposed_tokens_waits(table: Table, clock: LockClock) -> None:
    handed_out(table, clock, 1, range(1, 4), 0)
    found = clock.look(1000)
    assert clock.undecided([(1, [(3, 9)])])
    assert not clock.undecided([(1, [(4, 9)])])
    assert not clock.undecided([(2, [(1, 9)])])
    clock.decided(1000, found)
    assert not clock.undecided([(1, [(3, 9)])])


def test_lost_tokens_are_named(table: Table, clock: LockClock) -> None:
    handed_out(table, clock, 1, range(2, 4), 0)
    ranges = [(1, 5)]
    held = table.held(1, ranges)
    assert held is not None
    renewal = clock.renew(1, held, ranges, 100)
    assert renewal is not None
    assert renewal.lost == [(1, 1), (4, 5)]


def test_a_new_term_knows_the_locks_and_forgets_the_grants(table: Table, clock: LockClock) -> None:
    handed_out(table, clock, 1, range(1, 2), 0)
    renewed(table, clock, range(1, 2), 900)
    assert clock.floors([1, 2]) == ((1, 1900),)
    clock = LockClock(table, Counters())
    clock.begin()
    assert clock.floors([1, 2]) == ()
    assert clock.look(1000) == ((1, 1, 1),)


def test_one_evaluation_is_bounded_and_the_rest_follows(table: Table, clock: LockClock) -> None:
    many = limits.EVAL_MESSAGES_MAX + 5
    handed_out(table, clock, 1, range(1, many + 1), 0)
    found = clock.look(5000)
    assert len(found) == limits.EVAL_MESSAGES_MAX
    table.take(found)
    clock.decided(5000, found)
    assert [first for _, first, _ in clock.look(5000)] == list(range(many - 4, many + 1))


def test_an_earlier_deadline_is_not_hidden_behind_a_renewed_one(
    table: Table, clock: LockClock
) -> None:
    handed_out(table, clock, 1, range(1, 2), 0)
    renewed(table, clock, range(1, 2), 900)
    assert clock.look(1000) == ()  # put back until 1900
    handed_out(table, clock, 1, range(2, 3), 500)
    assert clock.look(1500) == ((1, 2, 2),)


def test_too_many_pieces_are_not_promised(
    table: Table, clock: LockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RENEWED_RANGES_MAX", 3)
    handed_out(table, clock, 1, range(1, 20), 0)
    ranges = [(token, token) for token in range(1, 20, 2)]
    held = table.held(1, ranges)
    assert held is not None
    assert clock.renew(1, held, ranges, 100) is None


def test_renewals_of_all_that_is_remembered_are_granted_again_and_again(
    table: Table, clock: LockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RENEWED_RANGES_MAX", 3)
    handed_out(table, clock, 1, range(1, 20), 0)
    lone = [(1, 1), (3, 3), (5, 5)]
    held = table.held(1, lone)
    assert held is not None
    for now_ms in (100, 200, 300):
        found = clock.renew(1, held, lone, now_ms)
        assert found is not None, f"the renewal at {now_ms} ms needs no new place"
        assert [until_ms for *_, until_ms in found.renewed] == 3 * [now_ms + 1000]
    another = table.held(1, [(7, 7)])
    assert another is not None
    assert clock.renew(1, another, [(7, 7)], 300) is None
