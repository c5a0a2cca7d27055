"""Updating a live queue: each option that may change does, at once, and what is held stays held."""

from typing import Any

import pytest

from fifo.machine import commands, invariants, replies
from fifo.words.codes import RefusalCode
from fifo.words.options import Kind, Option
from fifo.words.queue_options import QUEUE_OPTIONS
from tests.support.machine import Bench, expect, refused

CHANGEABLE = [option for option in QUEUE_OPTIONS if option.changeable]
FIXED = [option for option in QUEUE_OPTIONS if not option.changeable]
BASE = {"dead_letter": "dlq"}
"""The spec of the live queue: limits of deliveries and dead overflow want a dead-letter queue."""


def another_value(option: Option) -> Any:
    """A good value that is neither the default nor the one in BASE."""
    match option.kind:
        case Kind.DURATION | Kind.COUNT | Kind.SIZE:
            value = min(option.high, max(option.low, 40_000))
            return value if value != option.default else option.low
        case Kind.FLAG:
            return not option.default
        case Kind.CHOICE:
            return next(one for one in option.choices if one != option.default)
        case Kind.QUEUE | Kind.TEXT | Kind.SECRET:
            return "another"
        case Kind.BACKOFF:
            return "fixed:2s"
    raise AssertionError(f"no queue has an option of the kind {option.kind}")


def live() -> tuple[Bench, int]:
    """A queue with a message ready, one locked and one delayed, and its consumer."""
    bench = Bench()
    bench.declare("q", **BASE)
    session = bench.attach()
    consumer = bench.subscribe(session, "q", prefetch=1).consumer
    bench.publish(session, "q", "locked", "ready")
    bench.publish(session, "q", "delayed", delays=[60_000])
    return bench, consumer


def shown(bench: Bench, name: str) -> Any:
    return bench.overview("q")["spec"][name]


def update(bench: Bench, **changes: Any) -> replies.Reply:
    return bench.do(commands.UpdateQueue("q", changes))


@pytest.mark.parametrize("option", CHANGEABLE, ids=lambda option: option.name)
def test_an_option_of_a_live_queue_takes_a_new_value_and_its_default_again(
    option: Option,
) -> None:
    bench, consumer = live()
    value, name = another_value(option), option.wire_name
    assert shown(bench, name) != value
    expect(replies.Done, update(bench, **{name: value}))
    assert shown(bench, name) == value
    expect(replies.Done, update(bench, **{name: None}))
    assert shown(bench, name) == option.default
    assert bench.counts("q") == (1, 1, 1)
    assert bench.ack(consumer, 1) == ["ok"]
    assert bench.bodies() == ["ready"]
    invariants.check(bench.machine.state)


@pytest.mark.parametrize("option", FIXED, ids=lambda option: option.name)
def test_a_fixed_option_refuses_the_whole_update(option: Option) -> None:
    bench, _ = live()
    before = bench.overview("q")
    changes = {"max_length": 5, option.wire_name: another_value(option)}
    refusal = refused(update(bench, **changes), RefusalCode.INVALID)
    assert refusal.text == f"{option.wire_name}: cannot be changed while the queue exists"
    assert bench.overview("q") == before


def test_a_lower_limit_takes_nothing_out_and_refuses_what_comes() -> None:
    bench, consumer = live()
    expect(replies.Done, update(bench, max_length=2))
    assert bench.counts("q") == (1, 1, 1)
    published = expect(replies.Published, bench.publish(1, "q", "more"))
    assert published.stored == 0
    refused(published.refused, RefusalCode.QUEUE_FULL)
    bench.ack(consumer, 1, 2)
    assert bench.counts("q") == (0, 1, 1)


def test_a_lower_limit_of_a_queue_that_drops_evicts_the_oldest_at_once() -> None:
    bench, _ = live()
    expect(replies.Done, update(bench, max_length=2, overflow="drop_oldest"))
    assert bench.counts("q") == (0, 1, 1)


def test_a_limit_of_deliveries_holds_from_the_next_failure() -> None:
    bench, consumer = live()
    bench.nack(consumer, 1, delay_ms=0)
    expect(replies.Done, update(bench, max_deliveries=1))
    assert bench.counts("q") == (1, 1, 1), "one failure already, and it stays"
    assert bench.nack(consumer, 2, delay_ms=0) == ["dead_lettered"]


def test_a_new_lock_duration_is_that_of_later_subscriptions() -> None:
    bench, consumer = live()
    expect(replies.Done, update(bench, lock_ms=7_000))
    bench.ack(consumer, 1)
    assert [one.deadline_ms for one in bench.delivered()] == [30_000], "as it subscribed"
    assert bench.subscribe(1, "q", "later").lock_ms == 7_000


def test_an_update_of_a_queue_that_is_not_there_is_refused() -> None:
    bench = Bench()
    refused(update(bench, max_length=5), RefusalCode.QUEUE_NOT_FOUND)
