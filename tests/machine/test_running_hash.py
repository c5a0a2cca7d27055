"""The running hash: replicas that did the same share it, one that did something else does not."""

from array import array
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from fifo.machine import Machine, commands, effects, replies, running_hash
from fifo.machine.effects import Deliver, Notify, Run
from fifo.machine.running_hash import fold
from fifo.words.settlement import Verb
from tests.machine import pinned
from tests.support.machine import Area, Bench, publish_command


def replayed(bench: Bench, leaves_out: Callable[[commands.Command], bool]) -> Machine:
    """A replica that applies the same log, but for commands that it leaves out."""
    machine = Machine()
    for meta, batch in bench.log:
        machine.apply_batch(meta, [one for one in batch if not leaves_out(one)])
    return machine


def worked() -> Bench:
    """A bench with a few of each thing that happens all the time."""
    bench = Bench(Machine())
    bench.do(commands.Lead(1))
    bench.declare("q", lock_ms=5_000)
    session = bench.attach()
    consumer = bench.subscribe(session, "q", prefetch=10).consumer
    bench.publish(session, "q", *"abcdefgh")
    bench.ack(consumer, (1, 3))
    bench.nack(consumer, 4)
    bench.advance(6_000)
    bench.tick_all()
    bench.do(commands.Alive(session, consumer))
    bench.publish(session, "q", "i")
    return bench


def test_replicas_that_apply_the_same_log_share_it() -> None:
    bench = pinned.build()
    machine = replayed(bench, lambda _: False)
    assert machine.state.running_hash == bench.machine.state.running_hash != 0


@pytest.mark.parametrize("kind", ["Settle", "Publish", "Tick", "Alive", "Subscribe"])
def test_a_replica_that_leaves_a_command_out_has_another_one_for_ever(kind: str) -> None:
    bench = worked()
    seen: list[commands.Command] = []

    def first_of_its_kind(command: commands.Command) -> bool:
        if type(command).__name__ == kind:
            seen.append(command)
        return len(seen) == 1 and command is seen[0]

    machine = replayed(bench, first_of_its_kind)
    assert seen, "the log has none of these"
    assert machine.state.running_hash != bench.machine.state.running_hash
    for _ in range(20):
        bench.publish(1, "q", "later")
        meta, batch = bench.log[-1]
        machine.apply_batch(meta, batch)
        assert machine.state.running_hash != bench.machine.state.running_hash


def test_a_replica_that_delivers_to_another_consumer_has_another_one() -> None:
    bench = worked()
    other = replayed(bench, lambda _: False)
    queue = other.state.queues[1]
    queue.service = []  # What it holds is the same, but no consumer is served.
    bench.publish(1, "q", "x")
    meta, batch = bench.log[-1]
    other.apply_batch(meta, batch)
    assert other.state.running_hash != bench.machine.state.running_hash


def test_a_snapshot_keeps_it() -> None:
    bench = worked()
    machine = Machine.restore(bench.machine.snapshot())
    assert machine.state.running_hash == bench.machine.state.running_hash
    area = Area()
    again = publish_command(area, "q", [b"z"], session=1, previous=9, number=10)
    meta = bench.log[-1][0]._replace(index=bench.index + 1, area=memoryview(bytes(area.data)))
    for one in (machine, bench.machine):
        one.apply_batch(meta, [again])
    assert machine.state.running_hash == bench.machine.state.running_hash


RUN = Run(1, 2, 3, array("I", [1, 1]), 2, None, None, 4, 5, 6, 7, None, None, None, None)

OUTCOMES: list[tuple[Any, dict[str, Any]]] = [
    (
        replies.Published(1, 2, 3, 4, None, ()),
        {
            "queue": 9,
            "producer": 9,
            "stored": 9,
            "duplicates": 9,
            "refused": replies.Refused("full", "it is full"),
            "repeats": (replies.Repeat(1, 2, 3, 4),),
        },
    ),
    (
        replies.Receipt(1, ((2, 3, 0, False),)),
        {"consumer": 9, "ranges": ((2, 3, 1, False),)},
    ),
    (replies.Refused("full", "it is full"), {"code": "gap"}),
    (replies.Got(1, 2, 3), {"count": 9, "first_token": 9}),
    (
        Deliver(1, 2, "q", 3, 4, 5, (RUN,), False, ""),
        {
            "session": 9,
            "consumer": 9,
            "first_token": 9,
            "deadline_ms": 9,
            "runs": (RUN._replace(number=9),),
        },
    ),
    (
        Notify(1, 2, "message_timeout", 3, ((4, 4),), ""),
        {"session": 9, "notice": 9, "kind": "taken_back", "consumer": 9, "ranges": ((4, 5),)},
    ),
    (effects.Activity(1, 2, True, ""), {"session": 9, "consumer": 9, "active": False}),
    (effects.SessionEnded(1, 2), {"session": 9, "cause": 9}),
]


@pytest.mark.parametrize(("outcome", "changed"), OUTCOMES, ids=lambda one: type(one).__name__)
def test_each_of_these_fields_is_in_it(outcome: Any, changed: dict[str, Any]) -> None:
    before = fold(7, [1], [outcome], [])
    assert fold(7, [1], [outcome], []) == before
    assert {field.name for field in fields(outcome)} >= changed.keys()
    for name, value in changed.items():
        assert fold(7, [1], [replace(outcome, **{name: value})], []) != before, name


def test_the_text_of_a_refusal_is_not_in_it() -> None:
    said = replies.Refused("full", "it is full"), replies.Refused("full", "the queue is full")
    assert fold(0, [], [said[0]], []) == fold(0, [], [said[1]], [])


def test_what_a_queue_holds_is_in_it() -> None:
    bench = worked()
    queue = bench.machine.state.queues[1]
    assert running_hash.holds(queue) == (1, queue.ready, queue.locked, queue.bytes)
    settle = commands.Settle(1, 1, int(Verb.ACK), ((99, 99),))
    before = bench.machine.state.running_hash
    bench.do(settle)
    assert bench.machine.state.running_hash != before, "a reply without an effect"
