"""The past that a frozen view shows: every message in its one place, whatever happens meanwhile."""

import random
from array import array
from collections.abc import Generator
from itertools import chain
from typing import Any, TypeVar

import pytest

from fifo.machine import Machine, commands, past_queue
from fifo.machine.limits import NUMBER_MAX
from fifo.machine.past import Past
from fifo.machine.past_queue import DEAD, PastQueue, Seen, Sought
from fifo.machine.search import LOCKED, PLACES, READY, Wanted
from fifo.machine.snapshot import format
from fifo.machine.state.blocks import Block
from tests.machine.test_fuzz import SPECS, Fuzz
from tests.support.machine import Bench

T = TypeVar("T")


def exhausted(steps: Generator[None, None, T]) -> T:
    """The result of steps, all taken."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def opened(machine: Machine) -> Past:
    """The past as it is now."""
    past = Past(machine.freeze())
    for _ in past.opening():
        pass
    return past


def read(past: Past, name: str) -> PastQueue:
    """A queue of the past, ready to be read."""
    return exhausted(past.reading(name))


def paged(
    queue: PastQueue, sought: Sought, most: int, first: int = 0, end: int = NUMBER_MAX
) -> Any:
    """All pages of a queue, as what a search says of each message."""
    found, after = [], first
    while True:
        page, after = exhausted(queue.page(sought, after, end, most))
        assert sum(seen.run.count for seen in page) <= most
        found += [line for seen in page for line in lines(seen)]
        if not after:
            return found


def lines(seen: Seen) -> list[Any]:
    """A line for each message of a run: its id, its place and who holds it."""
    run = seen.run
    return [
        (
            seen.position + ahead,
            (run.queue_number, run.producer, run.number + ahead),
            seen.place,
            (seen.consumer, seen.token + ahead if seen.consumer else 0, seen.since_ms),
            seen.until_ms,
            seen.cause,
            (run.sizes[ahead], run.index, run.bodies_at + sum(run.sizes[:ahead])),
            run.attempts[ahead] if run.attempts else 1,
            run.failures[ahead] if run.failures else 0,
            run.dead_letter,
        )
        for ahead in range(run.count)
    ]


def searched(machine: Machine, name: str) -> list[Any]:
    """The same of the state as it is, by the search for one message after the other."""
    found, _ = exhausted(machine.search(name, Wanted(), 0, 100_000))
    return [
        (
            one.position,
            (one.run.queue_number, one.run.producer, one.run.number),
            one.place,
            (one.consumer, one.token, one.checkout_ms),
            one.deadline_ms or one.due_ms,
            one.cause,
            (one.run.sizes[0], one.run.index, one.run.bodies_at),
            one.run.attempts[0] if one.run.attempts else 1,
            one.run.failures[0] if one.run.failures else 0,
            one.run.dead_letter,
        )
        for one in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(900, 906))
def test_pages_show_each_queue_as_it_was(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(past_queue, "PAST_RUNS", 3)
    monkeypatch.setattr(past_queue, "PAST_ROWS", 2)
    fuzz, rng = Fuzz(seed), random.Random(seed)
    fuzz.bench.check = False
    fuzz.run(60)
    views: list[tuple[Past, dict[str, Any], dict[str, Any]]] = []
    for _ in range(8):
        machine = fuzz.bench.machine
        names = [name for name in SPECS if machine.has_queue(name)]
        then = {name: searched(machine, name) for name in names}
        shown = {name: (machine.queue_overview(name), machine.consumers_of(name)) for name in names}
        views.append((opened(machine), then, shown))
        fuzz.run(20)
        past, then, shown = views.pop(rng.randrange(len(views)) if len(views) > 3 else 0)
        assert past.queues() == list(then) or sorted(past.queues()) == sorted(then)
        for name, wanted in then.items():
            queue = read(past, name)
            assert paged(queue, Sought(), rng.choice((1, 7, 1000))) == wanted
            assert queue.messages == len(wanted)
            halves = [paged(queue, Sought(), 1000, *cut) for cut in queue.ranges(2)]
            assert list(chain.from_iterable(halves)) == wanted
            for place in PLACES:
                here = [line for line in wanted if line[2] == place]
                assert paged(queue, Sought(place), 7) == here
            dead = [line for line in wanted if line[9] is not None]
            assert paged(queue, Sought(DEAD), 7) == dead
            assert (past.overview(name), past.consumers_of(name, 0, 1000)) == (
                shown[name][0],
                sorted(shown[name][1], key=lambda one: one["consumer"]),
            )
        past.release()
    for past, _, _ in views:
        past.release()
    assert fuzz.bench.machine.state.frozen == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(910, 914))
def test_views_of_several_times_are_kept_beside_each_other(seed: int) -> None:
    fuzz, rng = Fuzz(seed), random.Random(seed)
    fuzz.bench.check = False
    fuzz.run(40)
    views: list[Any] = []
    for _ in range(12):
        views.append((fuzz.bench.machine.freeze(), format.encode(fuzz.bench.machine.state)))
        fuzz.run(8)
        if len(views) == 4:
            view, then = views.pop(rng.randrange(4))
            assert format.encode(view) == then
            view.release()
    for view, then in views:
        assert format.encode(view) == then


def test_views_share_the_one_copy_of_what_neither_saw_change() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    bench.publish(session, "q", "one")
    first, second = bench.machine.freeze(), bench.machine.freeze()
    bench.publish(session, "q", "two")
    assert first.item("queue", 1) is second.item("queue", 1)
    assert first.item("queue", 1).total == 1
    third = bench.machine.freeze()
    bench.publish(session, "q", "three")
    assert (first.item("queue", 1).total, third.item("queue", 1).total) == (1, 2)


def test_a_view_keeps_nothing_of_what_is_younger() -> None:
    bench = Bench()
    view = bench.machine.freeze()
    bench.declare("q")
    bench.machine.freeze().release()
    session = bench.attach()
    bench.publish(session, "q", "one")
    assert view.numbers("queue") == []
    assert view.kept("queue") == []


def test_a_deleted_queue_is_read_to_its_end() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    bench.publish(session, "q", *"abcdef")
    bench.subscribe(session, "q", prefetch=2)
    past = opened(bench.machine)
    then = searched(bench.machine, "q")
    bench.do(commands.DeleteQueue("q"))
    for _ in range(20):
        bench.tick()
    assert paged(read(past, "q"), Sought(), 4) == then
    assert [line[2] for line in then] == [LOCKED, LOCKED, READY, READY, READY, READY]


def test_dead_letters_are_chosen_by_reason_exception_and_key() -> None:
    bench = Bench()
    bench.declare("dead")
    bench.declare("q", dead_letter="dead")
    session = bench.attach()
    consumer = bench.subscribe(session, "q", prefetch=9).consumer
    bench.publish(session, "q", *"abcd", keys=[b"x", b"y", b"x", b"z"])
    for token, kind in ((1, "ValueError"), (2, "KeyError"), (3, None)):
        bench.terminate(consumer, token, exception_type=kind)
    bench.publish(session, "dead", "e", keys=[b"x"])
    queue = read(opened(bench.machine), "dead")

    def numbers(sought: Sought) -> list[int]:
        return [line[1][2] for line in paged(queue, sought, 10)]

    assert numbers(Sought(exception_type="KeyError")) == [2]
    assert numbers(Sought(exception_type="")) == [3]
    assert numbers(Sought(reason="terminated")) == [1, 2, 3]
    assert numbers(Sought(reason="expired")) == []
    assert numbers(Sought(key=b"x")) == [1, 3, 1]
    assert numbers(Sought(DEAD, key=b"x")) == [1, 3]
    assert numbers(Sought(LOCKED)) == []


def test_a_page_ends_within_a_run_and_goes_on_there() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    bench.publish(session, "q", *(str(one) for one in range(10)), keys=[b"k"] * 10)
    queue = read(opened(bench.machine), "q")
    page, after = exhausted(queue.page(Sought(), 0, NUMBER_MAX, 4))
    assert [seen.run.count for seen in page] == [4]
    assert page[0].run.keys is not None
    assert page[0].run.keys.blob_bytes == 4
    assert after == page[0].position + 4
    assert paged(queue, Sought(), 4) == searched(bench.machine, "q")


def test_the_index_of_a_view_is_numbers() -> None:
    """A row of it costs 8 bytes, not an object: a dead-letter queue may hold millions."""
    bench = Bench()
    bench.declare("dead")
    bench.declare("q", dead_letter="dead")
    session = bench.attach()
    consumer = bench.subscribe(session, "q", prefetch=100).consumer
    bench.publish(session, "q", *(str(one) for one in range(100)))
    bench.terminate(consumer, (1, 100))
    queue = read(opened(bench.machine), "dead")
    assert [type(found) for found in queue._records.values()] == [array]
    assert all(isinstance(block, Block) for block in queue._queue.blocks.values())
