"""The costs of what counts for more than one message in a step: consumers, blocks, deliveries,
queues of a producer. A command of many of them does no more than one of many messages.

Owns one test for each cost. Must not know how long any takes: `python -m bench.sweep` does.
"""

from itertools import pairwise
from typing import Any

import pytest

from fifo.machine import Machine, commands, effects, invariants, limits, replies
from fifo.words import bounds
from tests.machine.test_bounds import carry_on
from tests.support.machine import Area, Bench, expect, present, publish_command, refused


def forgotten_in_ticks(how: str) -> None:
    """A producer of more queues than one command forgets is gone at once, its numbers later."""
    bench = Bench(check=False)
    session = bench.attach()
    count = limits.STEP_OBJECTS + 50
    opened = expect(replies.ProducerOpened, bench.do(commands.OpenProducer("p")))
    number = opened.producer if how == "forgotten" else 1
    for place in range(count):
        bench.declare(f"q{place}")
        area = Area()
        named, of_session = (number, 0) if how == "forgotten" else (0, session)
        publish = publish_command(
            area,
            f"q{place}",
            [b""],
            producer=named,
            session=of_session,
            previous=0,
            number=1,
        )
        bench.apply(publish, area=area)
    queues = bench.machine.state.queues.values()
    ends = how == "ends"
    bench.do(commands.EndSession(session) if ends else commands.ForgetProducer("p"))
    assert number not in bench.machine.state.producers, "it is unknown at once"
    assert bench.machine.producers_of("q0", 9) == []
    left = [sum(number in queue.last_numbers for queue in queues)]
    assert left == [count], "a command forgets all of them"
    restored = Machine.restore(bench.machine.snapshot())
    assert restored.snapshot() == bench.machine.snapshot()
    bench.machine = restored
    queues = bench.machine.state.queues.values()
    while bench.tick():
        left.append(sum(number in queue.last_numbers for queue in queues))
    assert len(left) >= 2
    assert not any(number in queue.last_numbers for queue in queues)
    most = limits.STEP_MESSAGES // limits.CONSUMER_COST + 1
    assert all(0 < high - low <= most for high, low in pairwise(left))
    invariants.check(bench.machine.state)


@pytest.mark.slow
def test_a_named_producer_of_very_many_queues_is_forgotten_in_ticks() -> None:
    forgotten_in_ticks("forgotten")


@pytest.mark.slow
def test_the_producer_of_a_session_that_ends_is_forgotten_in_ticks() -> None:
    forgotten_in_ticks("ends")


@pytest.mark.slow
def test_consumers_that_lose_a_lock_each_count_for_more_than_their_locks() -> None:
    bench = Bench(check=False)
    bench.declare("q")
    count = limits.CONSUMERS_PER_SESSION
    session = bench.attach()
    for place in range(count):
        bench.subscribe(session, "q", f"t{place}", prefetch=1)
    bench.publish(session, "q", *[b""] * count)
    bench.tick_all()
    bench.do(commands.PauseQueue("q"))
    bench.advance(bounds.LOCK_MS_DEFAULT)
    most = limits.STEP_MESSAGES // (limits.CONSUMER_COST + 2 * limits.RECORD_COST) + 1
    before = bench.counts("q")[1]
    assert before == count
    assert bench.tick()
    assert 0 < before - bench.counts("q")[1] <= most
    carry_on(bench)
    assert bench.counts("q") == (count, 0, 0)


def test_consumers_whose_grace_ends_count_for_more_than_their_locks() -> None:
    bench = Bench(check=False)
    bench.declare("q", disconnect_grace_ms=limits.LEASE_MS)
    most = -(-limits.STEP_MESSAGES // (limits.CONSUMER_COST + 2 * limits.RECORD_COST))
    count = most + 50
    assert count < limits.STEP_OBJECTS
    session = bench.attach()
    for place in range(count):
        bench.subscribe(session, "q", f"t{place}", prefetch=1)
    bench.publish(session, "q", *[b""] * count)
    bench.disconnect(session)
    bench.advance(limits.LEASE_MS)
    assert bench.tick()
    assert bench.counts("q") == (most, 50, 0)
    carry_on(bench)
    assert bench.counts("q") == (count, 0, 0)


def test_a_ttl_that_ends_on_locked_messages_is_looked_at_in_ticks() -> None:
    in_a_tick = -(-limits.STEP_MESSAGES // (limits.BLOCK_COST + limits.BLOCK_MESSAGES))
    blocks = 3 * in_a_tick
    bench = Bench(check=False)
    bench.declare("q", ttl_ms=1_000)
    session = bench.attach()
    count = blocks * limits.BLOCK_MESSAGES
    for first in range(0, count, bounds.PREFETCH_MAX):
        bench.subscribe(session, "q", f"t{first}", prefetch=bounds.PREFETCH_MAX)
    for first in range(0, count, bounds.PUBLISH_MESSAGES_MAX):
        bench.publish(session, "q", *[b""] * min(bounds.PUBLISH_MESSAGES_MAX, count - first))
    bench.tick_all()
    queue = bench.machine.state.queues[1]
    assert len(queue.expiries) == blocks
    bench.advance(1_000)
    assert bench.tick()
    assert blocks - len(queue.expiries) == in_a_tick
    carry_on(bench)
    assert bench.counts("q") == (0, count, 0)


def locked_singly(count: int, **spec: Any) -> Bench:
    """A queue with a consumer that holds so many messages, each under a lock of its own."""
    bench = Bench(check=False)
    bench.declare("q", **spec)
    session = bench.attach()
    bench.subscribe(session, "q", prefetch=count)
    for _ in range(count):
        bench.publish(session, "q", b"")
        bench.advance(1)
    bench.do(commands.PauseQueue("q"))
    return bench


def end_in_ticks(cost: int, dead_letter: str | None) -> None:
    """Locks of one message each end together, so many in a tick as this cost allows."""
    most = limits.STEP_MESSAGES // (2 * cost)
    count = most + 100
    bench = locked_singly(count, dead_letter=dead_letter)
    bench.advance(bounds.LOCK_MS_DEFAULT)
    bench.tick()
    lost = count - bench.counts("q")[1]
    assert 0.9 * most < lost <= most
    carry_on(bench)
    assert bench.counts("q") == (count, 0, 0)


def test_locks_of_one_message_each_count_as_a_message_more() -> None:
    end_in_ticks(limits.RECORD_COST, None)


def test_a_lock_whose_end_may_make_a_dead_letter_counts_for_more() -> None:
    end_in_ticks(limits.DROP_COST, "d")


def test_messages_that_came_back_count_for_more_where_they_are_handed_out_again() -> None:
    most = -(-limits.BATCH_CHECKOUT_MESSAGES // limits.HAND_OUT_COST)
    bench = locked_singly(most + 100)
    bench.do(commands.EndSession(1))
    bench.tick_all()
    assert bench.counts("q") == (most + 100, 0, 0)
    bench.do(commands.ResumeQueue("q"))
    bench.subscribe(bench.attach("other"), "q", prefetch=most + 100)
    assert len(bench.delivered()) == most
    bench.tick_all()
    assert bench.counts("q") == (0, most + 100, 0)


def test_each_delivery_counts_for_more_than_its_messages() -> None:
    most = -(-limits.BATCH_CHECKOUT_MESSAGES // (limits.DELIVERY_COST + 1))
    count = limits.CONSUMERS_PER_SESSION
    bench = Bench(check=False)
    bench.declare("q")
    session = bench.attach()
    for place in range(count):
        bench.subscribe(session, "q", f"t{place}", prefetch=1)
    bench.publish(session, "q", *[b""] * count)
    assert len(present(bench.effects, effects.Deliver)) == most
    bench.tick_all()
    assert bench.counts("q") == (0, count, 0)


def test_a_producer_looks_at_the_queues_that_it_knows_at_each_doubling_alone() -> None:
    bench = Bench(check=False)
    session = bench.attach()
    calls = []
    for place in range(130):
        bench.declare(f"q{place}")
        area = Area()
        name = f"q{place}"
        publish = publish_command(area, name, [b""], session=session, previous=0, number=1)
        looked: list[int] = []
        state = bench.machine.state

        class Watched(dict[int, Any]):
            def __contains__(self, number: object, looked: list[int] = looked) -> bool:
                looked.append(1)
                return super().__contains__(number)

        state.queues = Watched(state.queues)
        bench.apply(publish, area=area)
        state.queues = dict(state.queues)
        calls.append(len(looked))
    few = max(calls[65:128])
    assert calls[64] >= few + 64, "gone queues are never forgotten"
    assert max(calls[33:64]) == few, "all of them are looked at for each new one"


def test_a_prefetch_above_the_limit_of_a_single_active_queue_is_refused() -> None:
    bench = Bench()
    bench.declare("q", ordering="single_active")
    bench.declare("any")
    session = bench.attach()
    most = limits.SINGLE_ACTIVE_PREFETCH
    above = commands.Subscribe(session, "t", "q", {"prefetch": most + 1})
    refused(bench.do(above), "invalid")
    assert bench.subscribe(session, "q", prefetch=most).prefetch == most
    assert bench.subscribe(session, "any", "t2", prefetch=most + 1).prefetch == most + 1
