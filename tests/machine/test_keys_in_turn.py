"""Keys that are taken, waited for and passed on by stretches: the same as message by message."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from unittest.mock import patch

import pytest

from fifo.machine import checkout, commands
from fifo.machine.effects import Deliver
from fifo.machine.state import ordering
from fifo.machine.state.records import Queue, Step
from fifo.words.settlement import Verb
from tests.support.machine import Bench

PREFETCHES = (1, 7, 100, 3_000)
KEYS_MAX = 1_000
SEEDS = 8


@contextmanager
def one_by_one() -> Iterator[None]:
    """Every message is looked at alone."""

    def all_finished(step: Step, queue: Queue, first: int, count: int) -> None:
        for position in range(first, first + count):
            ordering.finished(step, queue, position)

    with (
        patch.object(checkout, "_take_in_turn", lambda *_: None),
        patch.object(ordering, "all_finished", all_finished),
    ):
        yield


class Story:
    """Publishers and consumers of a queue where keys order, at random."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bench = Bench(check=False)
        self.bench.declare("q", ordering="key", priorities=self.chance.random() < 0.3)
        self.session = self.bench.attach()
        self.keys = self.chance.choice((3, 40, KEYS_MAX))
        # What came back has a record, and goes alone; so there are stories without.
        self.verbs = (Verb.ACK,) * 8 + self.chance.choice(((), (Verb.NACK, Verb.RELEASE)))
        self.held: dict[int, list[tuple[int, int]]] = {}
        self.consumers = 0
        self.hashes: list[int] = []

    def tell(self, entries: int) -> tuple[list[int], bytes]:
        """The running hash after each entry, and the state at the end."""
        self.subscribe()
        acts: tuple[Callable[[], None], ...] = (
            self.publish,
            self.settle,
            self.subscribe,
            self.wait,
        )
        for _ in range(entries):
            (act,) = self.chance.choices(acts, (6, 10, 1, 1))
            act()
            for effect in self.bench.effects:
                if isinstance(effect, Deliver):
                    count = sum([run.count for run in effect.runs])
                    tokens = (effect.first_token, effect.first_token + count - 1)
                    self.held.setdefault(effect.consumer, []).append(tokens)
            self.hashes.append(self.bench.machine.state.running_hash)
        return self.hashes, self.bench.machine.snapshot()

    def subscribe(self) -> None:
        """Add a consumer."""
        self.consumers += 1
        prefetch = self.chance.choice(PREFETCHES)
        self.bench.subscribe(self.session, "q", str(self.consumers), prefetch=prefetch)

    def publish(self) -> None:
        """A batch; some without keys, some that expire, are delayed or have other priorities."""
        chance, count = self.chance, self.chance.choice((1, 10, 300, 1_000))
        columns: dict[str, object] = {}
        if chance.random() < 0.9:
            names = [b"%d" % chance.randrange(self.keys) for _ in range(count)]
            columns["keys"] = [name if chance.random() < 0.9 else b"" for name in names]
        if chance.random() < 0.3:
            columns["ttls"] = [chance.choice((0, 5, 50)) for _ in range(count)]
        if chance.random() < 0.2:
            columns["delays"] = [chance.choice((0, 3, 20)) for _ in range(count)]
        if chance.random() < 0.2:
            columns["priorities"] = [chance.randrange(10) for _ in range(count)]
        self.bench.publish(self.session, "q", *[b"-"] * count, **columns)

    def settle(self) -> None:
        """A consumer settles some of what it holds, mostly by acks."""
        if not self.held:
            return
        consumer = self.chance.choice(list(self.held))
        held = self.held[consumer]
        first, last = held.pop(self.chance.randrange(len(held)))
        if not held:
            del self.held[consumer]
        verb = self.chance.choice(self.verbs)
        self.bench.settle(consumer, verb, (first, min(last, first + 999)))

    def wait(self) -> None:
        """Time passes, mostly without a look at what is due; sometimes a get comes by."""
        self.bench.advance(self.chance.choice((1, 10, 1_000)))
        if self.chance.random() < 0.3:
            self.bench.tick()
        if self.chance.random() < 0.3:
            self.bench.do(commands.Get(self.session, "q", self.chance.choice((1, 50))))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_keys_in_turn_come_to_what_they_come_to_one_by_one(seed: int) -> None:
    together = Story(seed).tell(60)
    with one_by_one():
        assert Story(seed).tell(60) == together


def calls_of(work: Callable[[], object]) -> int:
    """Calls of Python functions in it."""
    calls = 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def test_a_message_takes_few_calls_where_its_key_is_free_busy_and_passed_on() -> None:
    bench = Bench(check=False)
    bench.declare("q", ordering="key")
    session = bench.attach()
    consumer = bench.subscribe(session, "q", prefetch=2_000).consumer
    count = 500
    keys = [b"%d" % number for number in range(count)]
    bodies = [b"-"] * count
    free = calls_of(lambda: bench.publish(session, "q", *bodies, keys=keys))
    busy = calls_of(lambda: bench.publish(session, "q", *bodies, keys=keys))
    passed_on = calls_of(lambda: bench.ack(consumer, (1, count)))
    assert bench.machine.state.consumers[consumer].held == count
    assert free < 3 * count  # one by one: 14
    assert busy < 9 * count  # one by one: 17
    assert passed_on < 15 * count  # one by one: 37
