"""The longest single apply with a million messages held, in each place where messages can be.

Owns how a machine is filled so (ready, locked, returned, delayed, released, with keys, with dedup
ids, ...) and what is then done to it: the first change after a freeze, which finds everything
shared with the view, and the largest commands there are. Garbage is collected as in a node
(`node.collector`), whose looks between two applies are timed by themselves, and so is a full
collection, which a node begins only when what it holds has grown by half. Knows nothing of how
figures are printed.
"""

from __future__ import annotations

import gc
import time
from array import array
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from bench.machine_cycle import HOLDER_MESSAGES, LONG_MS, Cycle
from fifo.machine import commands, limits, replies
from fifo.words import bounds
from fifo.words.settlement import Verb
from node.collector import Collector

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

MILLION = 1_000_000
MOST = limits.STEP_MESSAGES
SETTLED = bounds.SETTLE_MESSAGES_MAX
"""Messages that the largest command touches, and those of the largest settlement."""

TICKS = 50
"""Ticks that are watched of those that what is due at once takes."""

BATCH = 500
WINDOW_MS = 3_600_000

FULL = "a full collection with a million"
"""Prefixes of the names of figures that are no apply."""


class Watch:
    """Milliseconds of CPU by name, the longest of each kept: other processes do not count."""

    def __init__(self, collector: Collector) -> None:
        self.longest: dict[str, float] = {}
        self.look = collector.look

    def cycle(self, batch: int = BATCH, **filled: Any) -> Cycle:
        """A machine that is filled while the collector looks."""
        return Cycle(batch, look=self.look, **filled)

    def time(self, name: str, work: Callable[[], T]) -> T:
        """Do it, and keep how long it took if that is the longest of its name."""
        self._time("a look for garbage", self.look)
        return self._time(name, work)

    def _time(self, name: str, work: Callable[[], T]) -> T:
        started = time.process_time_ns()
        came = work()
        took_ms = (time.process_time_ns() - started) / 1e6
        self.longest[name] = max(took_ms, self.longest.get(name, 0.0))
        return came

    def after_freeze(self, held: str, cycle: Cycle, *works: Callable[[], object]) -> None:
        """Each of the works, and a publish, as the first change after a freeze."""
        gc.unfreeze()
        self._time(f"{FULL} {held}", gc.collect)
        gc.freeze()
        for work in (cycle.publish, *works):
            frozen = self.time("a freeze", cycle.machine.freeze)
            self.time(f"first change after a freeze, a million {held}", work)
            frozen.release()

    def ticks(self, name: str, cycle: Cycle, *, later_ms: int = 0) -> None:
        """Ticks while more is due, the first of them so much later."""
        self.time(name, lambda: cycle.do(commands.Tick(), later_ms=later_ms))
        for _ in range(TICKS):
            due_ms = cycle.machine.next_due_ms()
            if due_ms is None or due_ms > cycle.machine.cluster_time_ms:
                return
            self.time(name, lambda: cycle.do(commands.Tick()))


def longest() -> dict[str, float]:
    """Milliseconds of the longest apply by what it did, over all the ways to hold a million."""
    with Collector() as collector:
        watch = Watch(collector)
        for scenario in (
            _ready, _leaving, _singly, _returned, _released, _delayed, _keyed, _remembered, _wide,
        ):  # fmt: skip
            scenario(watch)
    return watch.longest


def _ready(watch: Watch) -> None:
    watch.after_freeze("ready", watch.cycle(ready=MILLION))


def _leaving(watch: Watch) -> None:
    """All ready, to become dead letters: by a program, by a limit, by their ttl."""
    spec = {
        "ttl_ms": WINDOW_MS,
        "overflow": "drop_oldest",
        "max_length": MILLION,
        "dead_letter": "d",
        "dead_letter_overflow": True,
    }
    cycle = watch.cycle(ready=MILLION, spec=spec)
    consumer = cycle.subscribe("holder", SETTLED, LONG_MS)
    end = _settling(cycle, consumer, Verb.TERMINATE, 1)
    watch.after_freeze("to become dead letters", cycle, lambda: cycle.do(end))
    state = cycle.machine.state
    while state.queues[state.queue_names["q"]].total < MILLION:
        cycle.publish()
    for _ in range(4):
        watch.time("a publish of 500 for which as many go", cycle.publish)
    lower = commands.UpdateQueue("q", {"max_length": MILLION // 2})
    watch.time("a limit that is lowered, a step", lambda: cycle.do(lower))
    watch.ticks("a limit that is lowered, a step", cycle)
    watch.ticks("a tick of 500 whose ttl is over", cycle, later_ms=WINDOW_MS)


def _holders(cycle: Cycle) -> list[int]:
    return list(cycle.machine.state.sessions[cycle.session].consumers)


def _settling(
    cycle: Cycle, consumer: int, verb: Verb, first: int, delay_ms: int | None = None
) -> commands.Settle:
    ranges = ((first, first + SETTLED - 1),)
    return commands.Settle(cycle.session, consumer, int(verb), ranges, delay_ms)


def _singly(watch: Watch) -> None:
    """All locked, one by one: a hold for each message."""
    cycle = watch.cycle()
    for _ in range(MILLION // HOLDER_MESSAGES):
        cycle.hold_singly(HOLDER_MESSAGES)
    first = _holders(cycle)[0]
    cycle.do(commands.PauseQueue("q"))
    nack = _settling(cycle, first, Verb.NACK, 1, 0)
    release = _settling(cycle, first, Verb.RELEASE, MOST + 1)
    ack = _settling(cycle, first, Verb.ACK, 2 * MOST + 1)
    watch.after_freeze("locked one by one", cycle, lambda: cycle.do(nack), cycle.resume)
    watch.ticks("a resume that sends again what is held, a step", cycle)
    watch.time("a release of 1,000 locked one by one", lambda: cycle.do(release))
    watch.time("an ack of 1,000 locked one by one", lambda: cycle.do(ack))
    ends_ms = cycle.machine.first_deadline_ms(first)
    assert ends_ms is not None, "the holder holds nothing"
    ranges, _ = cycle.machine.expired(first, ends_ms + LONG_MS)
    named = commands.Tick(tuple((first, low, high) for low, high in ranges))
    later_ms = ends_ms + LONG_MS - cycle.machine.cluster_time_ms
    name = "a tick of 10,000 that expire, locked one by one"
    watch.time(name, lambda: cycle.do(named, later_ms=later_ms))
    while cycle.machine.expired(first, ends_ms)[0]:
        watch.time(name, lambda: cycle.do(named))


def _returned(watch: Watch) -> None:
    """All came back, and are ready with a record each."""
    cycle = watch.cycle(locked=MILLION)
    cycle.do(commands.PauseQueue("q"))
    for consumer in _holders(cycle):
        for first in range(1, HOLDER_MESSAGES, SETTLED):
            nack = _settling(cycle, consumer, Verb.NACK, first, 0)
            watch.time("a nack of 1,000", partial(cycle.do, nack))
    for consumer in _holders(cycle):
        cycle.do(commands.Cancel(cycle.session, consumer))
    cycle.do(commands.ResumeQueue("q"))
    watch.after_freeze("returned", cycle, lambda: cycle.subscribe("taker", MOST, LONG_MS))
    watch.ticks("a consumer that takes 10,000 returned, a step", cycle)
    opened = cycle.do(commands.OpenDurable("q", "reader", {"lock_ms": LONG_MS}))
    assert isinstance(opened, replies.DurableOpened), opened
    reader = opened.consumer
    reserve = commands.Reserve(reader, 1, MOST, cycle.session)
    watch.time("a reserve of 10,000 returned", lambda: cycle.do(reserve))
    held = cycle.machine.held_count(reader)
    while held < MOST:
        watch.time("a reserve of 10,000 returned", lambda: cycle.do(reserve))
        held = cycle.machine.held_count(reader)
    fetch = commands.Fetch(reader, 1, 1, MOST, cycle.session)
    watch.time("a fetch of 10,000 returned", lambda: cycle.do(fetch))
    watch.ticks("a fetch of 10,000 returned", cycle)


def _released(watch: Watch) -> None:
    """All given back by who had them, who does not get them for a second."""
    cycle = watch.cycle(locked=MILLION)
    cycle.do(commands.PauseQueue("q"))
    for consumer in _holders(cycle):
        for first in range(1, HOLDER_MESSAGES, SETTLED):
            release = _settling(cycle, consumer, Verb.RELEASE, first)
            watch.time("a release of 1,000", partial(cycle.do, release))
    watch.after_freeze("released", cycle)
    watch.ticks("a tick that ends 10,000 waits after a release", cycle, later_ms=10_000)


def _delayed(watch: Watch) -> None:
    """All delayed, each to a time of its own that has nothing to do with its place."""
    cycle = watch.cycle()
    times = array("Q", [60_000 + place * 7_919 % MILLION for place in range(MILLION)])
    at = len(cycle.data)
    for first in range(0, MILLION, BATCH):
        area = cycle.data + times[first : first + BATCH].tobytes()
        cycle.publish_with(area, delays_at=at)
    soon_ms = 60_000 + 3 * MOST

    def tick() -> None:
        cycle.do(commands.Tick(), later_ms=soon_ms)

    watch.after_freeze("delayed", cycle, tick)
    watch.ticks("a tick that ends 500 delays", cycle)
    watch.time("a delete of a million delayed", lambda: cycle.do(commands.DeleteQueue("q")))
    while cycle.machine.state.remains:
        watch.time("what lets a deleted queue go", lambda: cycle.do(commands.Tick()))


def _keyed(watch: Watch) -> None:
    """All wait for a hundred thousand keys, which a consumer holds."""
    keys = MILLION // 10
    cycle = watch.cycle(spec={"ordering": "key"})
    for part in range(2):
        cycle.subscribe(f"holder {part}", bounds.PREFETCH_MAX, LONG_MS)
    sizes = array("I", [8] * BATCH).tobytes()
    at = len(cycle.data)
    for first in range(0, MILLION, BATCH):
        names = b"".join(b"%08d" % (place % keys) for place in range(first, first + BATCH))
        cycle.publish_with(cycle.data + sizes + names, keys=(at, at + len(sizes)))
    assert len(cycle.machine.state.queues[1].in_line) == MILLION - keys, "few wait for their key"
    ack = _settling(cycle, 1, Verb.ACK, 1)
    nack = _settling(cycle, 1, Verb.NACK, MOST + 1)
    watch.after_freeze("behind their keys", cycle, lambda: cycle.do(ack), lambda: cycle.do(nack))


def _remembered(watch: Watch) -> None:
    """None left, but a million ids remembered in a dedup window."""
    cycle = watch.cycle(spec={"dedup_window_ms": WINDOW_MS, "dedup_max": MILLION})
    cycle.consumer = cycle.subscribe("worker", 2 * BATCH)
    sizes = array("I", [8] * BATCH).tobytes()
    at = len(cycle.data)
    for first in range(0, MILLION, BATCH):
        names = b"".join(b"%08d" % place for place in range(first, first + BATCH))
        cycle.publish_with(cycle.data + sizes + names, dedup=(at, at + len(sizes)))
        cycle.settle()
    watch.after_freeze("dedup ids", cycle)
    watch.ticks("a tick that forgets 10,000 dedup ids", cycle, later_ms=WINDOW_MS)


def _wide(watch: Watch) -> None:
    """As many consumers and producers as a queue can have, and its end."""
    cycle = watch.cycle(1, spec={})
    for place in range(limits.CONSUMERS_PER_QUEUE):
        if place % 1_000 == 0:
            session = _attach(cycle, place)
        cycle.do(commands.Subscribe(session, f"t{place}", "q", {"prefetch": 1}))
        watch.look()
    for place in range(limits.SESSIONS // 2):
        session = _attach(cycle, place + MILLION)
        cycle.session, cycle.number = session, 0
        cycle.publish()
        watch.look()
    watch.after_freeze("in a queue of 10,000 consumers and 50,000 producers", cycle)
    watch.time("a delete of that queue", lambda: cycle.do(commands.DeleteQueue("q")))
    watch.ticks("a tick after that", cycle)


def _attach(cycle: Cycle, number: int) -> int:
    attached = cycle.do(commands.Attach(number.to_bytes(16, "big"), 0, bytes(16), bytes(16)))
    assert isinstance(attached, replies.Attached), attached
    return attached.session
