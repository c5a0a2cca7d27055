"""Locks: deadlines, floors, the index, and the cost of finding the expired ones."""

import random
import time

import pytest

from fifo.machine import commands, limits, queries, replies
from fifo.words.settlement import Verb
from tests.support.machine import Bench, expect, refused


def test_a_lock_ends_at_its_deadline_and_not_before() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=5_000)
    bench.attach()
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q")
    assert bench.machine.first_deadline_ms(1) == 5_000
    assert bench.machine.expired(1, 4_999) == ([], 5_000)
    assert bench.machine.expired(1, 5_000) == ([(1, 1)], None)
    bench.now = 4_999
    bench.do(commands.Tick(((1, 1, 1),)))
    assert bench.counts("q") == (0, 1, 0)


def test_there_is_one_index_entry_per_consumer_and_duration() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=5_000)
    bench.attach()
    bench.subscribe(1, "q", prefetch=100)
    for _ in range(20):
        bench.advance(10)
        bench.publish(1, "q", "a")
    assert list(bench.machine.lock_consumers()) == [(5_010, 1)]
    bench.subscribe(1, "q", prefetch=100, lock_ms=9_000)
    bench.publish(1, "q", "b")
    assert list(bench.machine.lock_consumers()) == [(5_010, 1), (9_200, 1)]
    bench.ack(1, (1, 21))
    assert list(bench.machine.lock_consumers()) == []


def test_an_evaluation_lifts_the_bound_to_the_next_deadline() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=5_000)
    bench.attach()
    bench.subscribe(1, "q", prefetch=100)
    bench.publish(1, "q", "a")
    bench.advance(1_000)
    bench.publish(1, "q", "b")
    bench.advance(4_000)
    bench.tick_all()
    assert list(bench.machine.lock_consumers()) == [(6_000, 1)]


def test_a_change_of_leader_lengthens_every_lock_within_max_lock() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=5_000, max_lock_ms=7_000)
    bench.attach()
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q", prefetch=1)
    bench.advance(4_000)
    bench.do(commands.Lead(1))
    assert bench.machine.first_deadline_ms(1) == 7_000
    bench.attach()
    bench.subscribe(1, "q", prefetch=2)
    # The one that was handed out after it has its own deadline.
    assert bench.machine.expired(1, 8_999) == ([(1, 1)], 9_000)
    held = bench.machine.held(1, [(1, 2)])
    assert held is not None
    assert [part.deadline_ms for part in held.ranges] == [7_000, 9_000]


def test_two_changes_of_leader_before_the_resume_count_both() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=5_000)
    bench.attach()
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q", prefetch=1)
    for term in (1, 2):
        bench.advance(4_000)
        bench.do(commands.Lead(term))
    assert bench.machine.first_deadline_ms(1) == 13_600
    bench.attach()
    assert bench.machine.first_deadline_ms(1) == 13_600
    refused(bench.do(commands.Lead(2)), "stale")


def test_a_floor_covers_what_a_former_leader_grants_until_its_lease_ends() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=5_000)
    bench.attach()
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q", prefetch=1)
    bench.advance(4_000)
    bench.do(commands.Lead(1))
    # The leader before it grants a whole lock in the last moment of its lease.
    granted_ms = 4_000 + limits.LEASE_MS + 5_000
    bench.do(commands.Tick(((1, 1, 1),)))
    bench.now = granted_ms - 1
    bench.do(commands.Tick(((1, 1, 1),)))
    assert bench.counts("q") == (0, 1, 0)
    bench.now = granted_ms
    bench.do(commands.Tick(((1, 1, 1),)))
    assert bench.counts("q")[1] == 0


def test_two_changes_of_leader_within_one_lease_cover_the_grants_of_both() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=5_000)
    bench.attach()
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q", prefetch=1)
    bench.do(commands.Lead(1))
    bench.attach()
    bench.advance(limits.LEASE_MS // 2)
    bench.disconnect(1)
    bench.do(commands.Lead(2))
    # The first leader grants until its lease ends, by a connection that the others know not of.
    assert bench.machine.first_deadline_ms(1) == limits.LEASE_MS + 5_000


def test_no_grace_ends_while_a_former_leader_may_grant() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=5_000, disconnect_grace_ms=0)
    bench.attach()
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q", prefetch=1)
    bench.advance(1_000)
    bench.do(commands.Lead(1))
    bench.attach()
    bench.disconnect(1)
    bench.now = 1_000 + limits.LEASE_MS - 1
    bench.tick()
    assert bench.counts("q")[1] == 1
    bench.now += 1
    bench.tick()
    assert bench.counts("q")[1] == 0


def test_a_session_that_was_gone_already_gets_no_floor() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=5_000)
    bench.attach()
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q", prefetch=1)
    bench.disconnect(1)
    bench.advance(4_000)
    bench.do(commands.Lead(1))
    assert bench.machine.first_deadline_ms(1) == 5_000


def test_expired_finds_tokens_under_a_floor_and_those_behind_it() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=2_000)
    bench.attach()
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q", prefetch=1)
    bench.disconnect(1, ((1, 60_000),))
    bench.attach()
    bench.subscribe(1, "q", prefetch=2)
    # Token 1 was granted until 60 s; token 2, handed out later, ends at 2 s.
    assert bench.machine.expired(1, 2_000) == ([(2, 2)], 60_000)


def renewed_by_the_leader(renewals: int = 2, **spec: int) -> Bench:
    """A message that consumer 1 holds, with locks of 5 s that the leader renews."""
    bench = Bench()
    bench.declare("q", lock_ms=5_000, **spec)
    bench.attach()
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q", prefetch=1, renewals=renewals)
    return bench


def test_the_leader_renews_for_so_many_locks_and_within_max_lock() -> None:
    assert renewed_by_the_leader(2).machine.first_deadline_ms(1) == 15_000
    assert renewed_by_the_leader(2, max_lock_ms=12_000).machine.first_deadline_ms(1) == 12_000
    assert renewed_by_the_leader(0).machine.first_deadline_ms(1) == 5_000
    assert renewed_by_the_leader(2).machine.max_lock_ms(1) == 15_000


def test_a_lock_that_the_leader_renews_is_looked_at_within_one_lock() -> None:
    bench = renewed_by_the_leader(2)
    assert bench.machine.expired(1, 5_000) == ([], 10_000)
    assert bench.machine.expired(1, 12_000) == ([], 15_000)
    bench.now = 7_000
    bench.disconnect(1)
    # Each look comes before any end that a disconnect after the look before can have brought.
    assert bench.machine.expired(1, 10_000) == ([], 12_000)


def test_a_renewal_of_what_the_leader_renews_grants_what_is_certain() -> None:
    bench = renewed_by_the_leader(4)
    bench.now = 7_000
    bench.do(commands.Tick())
    for_operators, for_a_renewal = (bench.machine.held(1, [(1, 1)], at) for at in (None, 7_000))
    assert for_operators is not None
    assert for_a_renewal is not None
    assert for_operators.ranges[0].deadline_ms == 25_000
    assert for_a_renewal.ranges[0].deadline_ms == 12_000


def test_two_disconnects_renew_twice_and_never_beyond_the_longest() -> None:
    bench = renewed_by_the_leader(2)
    for now in (6_000, 8_000):
        bench.now = now
        bench.disconnect(1)
        assert bench.machine.first_deadline_ms(1) == now + 5_000
        bench.attach()
        assert bench.machine.first_deadline_ms(1) == 15_000
    bench.now = 14_000
    bench.disconnect(1)
    assert bench.machine.first_deadline_ms(1) == 15_000


def test_a_session_that_a_change_of_leader_left_alone_is_renewed_until_it_is_disconnected() -> None:
    bench = renewed_by_the_leader(9)
    bench.advance(20_000)
    bench.do(commands.Lead(1))
    assert bench.machine.first_deadline_ms(1) == 50_000
    bench.advance(9_999)
    bench.tick()
    assert bench.machine.session_status(1) == "detached"
    assert bench.machine.first_deadline_ms(1) == 50_000
    bench.advance(1)
    bench.tick()
    assert bench.machine.session_status(1) == "disconnected"
    assert bench.machine.first_deadline_ms(1) == 35_000


def test_locks_of_two_durations_end_by_the_longer_one_after_a_disconnect() -> None:
    bench = renewed_by_the_leader(2)
    bench.subscribe(1, "q", prefetch=2, renewals=2, lock_ms=2_000)
    bench.publish(1, "q", "b")
    bench.disconnect(1)
    # The floor is one per consumer: it lengthens the shorter lock, up to its longest.
    assert bench.machine.expired(1, 4_999) == ([], 5_000)


def test_the_tokens_that_expire_in_one_step_are_bounded() -> None:
    bench = Bench(check=False)
    bench.declare("q", lock_ms=1_000)
    bench.attach()
    for _ in range(3):
        bench.publish(1, "q", *(b"x" for _ in range(5_000)))
    bench.subscribe(1, "q", prefetch=15_000)
    bench.tick()
    assert bench.counts("q")[1] == 15_000
    bench.advance(2_000)
    ranges, next_ms = bench.machine.expired(1, bench.now, 10_000)
    assert sum(last - first + 1 for first, last in ranges) == 10_000
    assert next_ms == bench.now
    bench.do(commands.Tick(((1, 1, 15_000),)))
    assert bench.counts("q") == (2_500, 12_500, 0)


def _spread(bench: Bench, sessions: int, each: int) -> None:
    for number in range(sessions):
        bench.attach(f"s{number}")
    first = next(iter(bench.machine.state.sessions))
    for number in bench.machine.state.sessions:
        bench.subscribe(number, "q", prefetch=each)
        for _ in range(each // 5_000):
            bench.publish(first, "q", *(b"" for _ in range(5_000)))
        bench.advance(1)


def test_expiring_some_of_many_locks_costs_in_proportion_to_what_expires() -> None:
    def seconds(sessions: int) -> float:
        bench = Bench(check=False)
        bench.declare("q", lock_ms=5_000)
        _spread(bench, sessions, 5_000)
        assert bench.counts("q")[1] == sessions * 5_000
        bench.now = 5_000
        best = 9.0
        for _ in range(5):
            start = time.perf_counter()
            for _, consumer in bench.machine.lock_consumers():
                _, next_ms = bench.machine.expired(consumer, bench.now, 10_000)
                if next_ms is not None and next_ms > bench.now:
                    break
            best = min(best, time.perf_counter() - start)
        return best

    # A hundred times more locks, of which as many have expired: the look costs about the same.
    assert seconds(40) < max(20 * seconds(2), 0.005)


def test_renewing_ranges_shows_only_what_is_held() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=5_000)
    bench.attach()
    bench.publish(1, "q", *"abcdef")
    bench.subscribe(1, "q")
    bench.ack(1, (2, 3))
    held = bench.machine.held(1, [(1, 4), (6, 9)])
    assert held is not None
    assert [(part.first, part.last) for part in held.ranges] == [(1, 1), (4, 4), (6, 6)]
    assert bench.machine.held(99, [(1, 1)]) is None


def promised(held: queries.Held, now_ms: int) -> dict[int, int]:
    """When the lock of each token would end after a renewal, as the leader's clock grants it."""
    return {
        token: max(min(now_ms + one.lock_ms, one.checkout_ms + held.max_lock_ms), one.deadline_ms)
        for one in held.ranges
        for token in range(one.first, one.last + 1)
    }


@pytest.mark.parametrize("seed", range(20))
def test_a_renewal_of_joined_locks_gives_each_what_it_would_get_alone(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench()
    bench.declare("q", lock_ms=5_000, max_lock_ms=12_000)
    bench.attach()
    for tag, lock_ms in (("a", 5_000), ("b", 3_000)):
        bench.subscribe(1, "q", tag, prefetch=rng.randint(5, 30), lock_ms=lock_ms)
    joined = 0
    for step in range(60):
        bench.publish(1, "q", *"abc"[: rng.randint(1, 3)])
        bench.advance(rng.choice((0, 10, 700)))
        number = rng.randrange(2) + 1
        if rng.random() < 0.5:
            bench.ack(number, rng.randint(1, 3 + step))
        if rng.random() < 0.03:
            bench.do(commands.Lead(step + 1))
            bench.attach()
        ranges = [(rng.randint(1, 20), rng.randint(20, 60)), (70, 90)]
        alone = bench.machine.held(number, ranges)
        together = bench.machine.held(number, ranges, bench.now)
        assert alone is not None
        assert together is not None
        assert promised(together, bench.now) == promised(alone, bench.now)
        joined += len(together.ranges) < len(alone.ranges)
    assert joined > 5, "the schedule has to meet what can be joined"


def test_a_thousand_locks_taken_one_by_one_are_renewed_as_one() -> None:
    """Each was a range of its own in the clock of the leader, ten thousand times a second."""
    bench = Bench(check=False)
    bench.declare("q", lock_ms=30_000)
    bench.attach()
    for tag in "ab":
        bench.subscribe(1, "q", tag, prefetch=1_000)
    for _ in range(1_000):
        bench.publish(1, "q", "a")
        bench.advance(5)
    alone = bench.machine.held(1, [(1, 1_000)])
    together = bench.machine.held(1, [(1, 1_000)], bench.now)
    assert alone is not None
    assert together is not None
    assert len(alone.ranges) > 400
    assert [(one.first, one.last) for one in together.ranges] == [(1, alone.ranges[-1].last)]


def test_a_consumer_holds_locks_of_a_bounded_number_of_durations() -> None:
    bench = Bench()
    bench.declare("q")
    bench.attach()
    bench.publish(1, "q", *"abcdefghijklmnopqrst")
    for step in range(16):
        got = bench.do(commands.Get(1, "q", 1, 1_000 + step))
        assert expect(replies.Got, got).count == 1
    refused(bench.do(commands.Get(1, "q", 1, 9_000)), "limit")
    bench.settle(1, Verb.ACK, 1)
    assert expect(replies.Got, bench.do(commands.Get(1, "q", 1, 9_000))).count == 1
