"""The cost of the queue machine alone: per message, by depth, by locks, in memory, at the worst.

`python -m bench.machine` takes about four minutes. Every figure is a median of repeated
runs with the lowest and the highest, beside its aim; ratios hold the machine against a reference
(`machine_cycle.reference`) that is timed in turns with it, because only ratios of one run count:
absolute figures say what machine it ran on. `--out` draws the curves (those that `docs/machine.md`
shows: `--out docs/pictures`), `--json` prints plain data.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench import hardware, machine_held, machine_pictures
from bench.machine_cycle import LONG_MS, Cycle, reference
from bench.statistics import spread
from fifo.machine import commands
from fifo.machine.snapshot import bodies, format
from fifo.words import bounds
from node.collector import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BATCH = 500
MILLION = 1_000_000
DEPTHS = (1_000, 10_000, 100_000, MILLION)
EXPIRING = 10_000
MEMORY_MESSAGES = 40_000
"""Enough that a block's own cost and the growth of its arrays are averaged out."""


class MachineFigure(NamedTuple):
    """A line of the report. `curve` and `at` place it in a picture, where it is part of one."""

    name: str
    unit: str
    median: float
    lowest: float
    highest: float
    most: float | None = None  # the aim
    curve: str | None = None
    at: int = 0

    @property
    def met(self) -> bool | None:
        """Whether the aim is met; None where there is none."""
        return None if self.most is None else self.median <= self.most


def _figure(
    name: str,
    unit: str,
    values: Sequence[float],
    most: float | None = None,
    curve: str | None = None,
    at: int = 0,
) -> MachineFigure:
    return MachineFigure(name, unit, *spread(values), most, curve, at)


def _in_turns(works: Sequence[Callable[[], None]], rounds: int, repeats: int) -> list[list[float]]:
    """Nanoseconds per call of each work, `repeats` times, in turns; a first turn warms up."""
    found: list[list[float]] = [[] for _ in works]
    for turn in range(repeats + 1):
        for work, figures in zip(works, found, strict=True):
            gc.collect()
            started = time.perf_counter_ns()
            for _ in range(rounds):
                work()
            if turn:
                figures.append((time.perf_counter_ns() - started) / rounds)
    return found


def _ratios(figures: Sequence[float], bases: Sequence[float]) -> list[float]:
    return [figure / base for figure, base in zip(figures, bases, strict=True)]


def cycles(batch: int, rounds: int, repeats: int) -> list[MachineFigure]:
    """Publish, checkout and ack, plain and rich, beside the reference."""
    works = (reference(batch), Cycle(batch).work(), Cycle(batch, rich=True).work())
    found = _in_turns(works, rounds, repeats)
    base, plain, rich = ([each / batch for each in figures] for figures in found)
    single = batch == 1
    where = f"batches of {batch}"
    return [
        _figure(f"reference loop, {where}", "ns", base),
        _figure(f"plain, {where}", "ns", plain, 5_000 if single else 400),
        _figure(
            f"plain against the reference, {where}", "x", _ratios(plain, base), 4 if single else 1
        ),
        _figure(f"key, headers and ttl, {where}", "ns", rich, None if single else 2_500),
    ]


def depths(rounds: int, repeats: int) -> list[MachineFigure]:
    """The plain cycle with more and more messages ready, and locked."""
    found = []
    for what in ("ready", "locked"):
        levels = DEPTHS if what == "ready" else (0, *DEPTHS)
        works = [
            Cycle(
                BATCH,
                ready=level if what == "ready" else 0,
                locked=level if what == "locked" else 0,
            ).work()
            for level in levels
        ]
        timed = _in_turns(works, rounds, repeats)
        for level, figures in zip(levels, timed, strict=True):
            name = f"plain, {level:,} {what}"
            found.append(_figure(name, "ns", [each / BATCH for each in figures], None, what, level))
        last = _ratios(timed[-1], timed[0])
        found.append(_figure(f"most against fewest {what}", "x", last, 1.3))
    return found


def _expiries(others: int, repeats: int) -> list[float]:
    """Milliseconds to find and return 10 000 expired locks beside `others` that go on."""
    cycle = Cycle(BATCH, locked=others)
    short = [cycle.hold(EXPIRING, 1_000 + 1_000 * turn) for turn in range(repeats)]
    found = []
    for consumer in short:
        ends_ms = cycle.machine.first_deadline_ms(consumer)
        assert ends_ms is not None, "the holder holds nothing"
        later_ms = ends_ms - cycle.machine.cluster_time_ms + 1_000
        gc.collect()
        started = time.perf_counter_ns()
        ranges, _ = cycle.machine.expired(consumer, ends_ms + 1_000)
        named = tuple((consumer, first, last) for first, last in ranges)
        cycle.do(commands.Tick(named), later_ms=later_ms)
        while cycle.machine.first_deadline_ms(consumer) is not None:
            cycle.do(commands.Tick(named))
        found.append((time.perf_counter_ns() - started) / 1e6)
    return found


def expiring(repeats: int) -> list[MachineFigure]:
    """Ten thousand locks that end together, by how many others there are."""
    found = []
    base: list[float] = []
    for others in (0, *DEPTHS[1:]):
        figures = _expiries(others, min(repeats, 3))
        base = base or figures
        name = f"expiring {EXPIRING:,} beside {others:,} locks"
        found.append(_figure(name, "ms", figures, None, "expiring", others))
    ratio = _ratios(figures, [statistics.median(base)] * len(figures))
    return [*found, _figure("expiring beside most against alone", "x", ratio, 3)]


def memory() -> list[MachineFigure]:
    """Bytes per message that the state holds, by how it came and where it is."""
    found = []
    for name, batch, rich, most in (
        ("plain, in batches", BATCH, False, 24),
        ("plain, one by one", 1, False, 64),
        ("key, headers and ttl, in batches", BATCH, True, 150),
        ("key, headers and ttl, one by one", 1, True, 150),
    ):
        cycle = Cycle(batch, rich=rich)
        tracemalloc.start()
        for _ in range(MEMORY_MESSAGES // batch):
            cycle.publish()
        ready_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        bytes_each = ready_bytes / MEMORY_MESSAGES
        found.append(_figure(f"ready, {name}", "bytes", [bytes_each], most, "memory"))
        tracemalloc.start()
        for part in range(4):
            cycle.subscribe(f"holder {part}", MEMORY_MESSAGES // 4)
        locked_bytes, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        more = locked_bytes / MEMORY_MESSAGES
        found.append(_figure(f"more when locked, {name}", "bytes", [more], 16, "memory"))
    return found


def longest() -> list[MachineFigure]:
    """The longest apply of each kind while a million messages are held, garbage collected as in a
    node."""
    with Collector() as collector:
        times = _longest_in_a_crowd(collector.look) | _longest_of_a_lifetime(collector.look)
    return [
        _figure(f"longest apply: {name}", "ms", [max(each)], 50, "longest")
        for name, each in times.items()
    ]


def _longest_in_a_crowd(look: Callable[[], None]) -> dict[str, list[float]]:
    """Half a million ready, as many locked."""
    cycle = Cycle(BATCH, ready=MILLION // 2, locked=MILLION // 2, look=look)
    # What stands ready goes to the next consumer, so both are handed what was published first.
    short = cycle.subscribe("short", EXPIRING, 1_000)
    taker = cycle.subscribe("taker", EXPIRING, LONG_MS)
    times: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        look()
        started = time.perf_counter_ns()
        work()
        times.setdefault(name, []).append((time.perf_counter_ns() - started) / 1e6)

    nack = commands.Settle(cycle.session, taker, 1, ((1, bounds.SETTLE_MESSAGES_MAX),))
    timed("a nack of 1 000, handed out again", lambda: cycle.do(nack))
    timed("a consumer that takes 10 000", lambda: cycle.subscribe("another", EXPIRING, LONG_MS))
    cycle.consumer = cycle.subscribe("worker", 4 * BATCH)
    for _ in range(300):
        timed(f"publish of {BATCH}", cycle.publish)
        timed(f"ack of {BATCH}", cycle.settle)
    for _ in range(4):
        timed(f"nack of {BATCH}", lambda: cycle.settle(1))
    ends_ms = cycle.machine.first_deadline_ms(short) or 0
    late_ms = max(ends_ms - cycle.machine.cluster_time_ms, 0) + 1
    ranges, _ = cycle.machine.expired(short, ends_ms + late_ms)
    named = tuple((short, first, last) for first, last in ranges)
    tick = commands.Tick(named)
    timed("a tick that expires 10 000", lambda: cycle.do(tick, later_ms=late_ms))
    timed("a change of leader", lambda: cycle.do(commands.Lead(2)))
    timed("a freeze", cycle.machine.freeze)
    timed("the first publish after it", cycle.publish)
    frozen = cycle.machine.freeze()
    pieces: list[bytes] = []
    walks: dict[str, Iterator[object]] = {
        "a step of looking for live entries": bodies.live(frozen),
        "a step of writing a snapshot": map(pieces.append, format.chunks(frozen)),
        "a step of reading one": format.restoring(iter(pieces)),
    }
    for name, steps in walks.items():
        left = [True]
        while left[0]:
            timed(name, partial(_step, steps, left))
    timed("a purge's first step", lambda: cycle.do(commands.Purge("q")))
    return times


def held() -> list[MachineFigure]:
    """The longest apply with a million messages in each place where they can be held."""
    return [
        _figure(name, "ms", [took_ms])
        if name.startswith(machine_held.FULL)
        else _figure(f"longest apply: {name}", "ms", [took_ms], 50, "held")
        for name, took_ms in machine_held.longest().items()
    ]


def _step(steps: Iterator[object], left: list[bool]) -> None:
    """Take one step; note in `left` when it was the last."""
    end = object()
    left[0] = next(steps, end) is not end


def _longest_of_a_lifetime(look: Callable[[], None]) -> dict[str, list[float]]:
    """A resume of a session that holds a million, a delete of that, and a million delays ending."""
    times: dict[str, list[float]] = {}
    cycle = Cycle(BATCH, locked=MILLION, look=look)
    cycle.alone = cycle.hold_singly(EXPIRING)

    def timed(name: str, work: Callable[[], object]) -> None:
        look()
        started = time.perf_counter_ns()
        work()
        times.setdefault(name, []).append((time.perf_counter_ns() - started) / 1e6)

    timed("a resume that sends a million again, first step", cycle.resume)
    while cycle.machine.next_due_ms() == cycle.machine.cluster_time_ms:
        timed("a resume, the next steps", lambda: cycle.do(commands.Tick()))
    nack = commands.Settle(cycle.session, cycle.alone, 1, ((1, bounds.SETTLE_MESSAGES_MAX),))
    timed("a nack of 1 000 that were handed out one by one", lambda: cycle.do(nack))
    timed("a delete of a million locked", lambda: cycle.do(commands.DeleteQueue("q")))
    while cycle.machine.state.remains:
        timed("what lets a deleted queue go", lambda: cycle.do(commands.Tick()))
    cycle = Cycle(BATCH, look=look)
    cycle.delay(MILLION, 60_000)
    timed("a freeze beside a million delayed", cycle.machine.freeze)
    timed("the first publish after that", cycle.publish)
    cycle.machine.freeze().release()
    timed("a tick that ends 10 000 delays", lambda: cycle.do(commands.Tick(), later_ms=60_001))
    timed("a delete of a million delayed", lambda: cycle.do(commands.DeleteQueue("q")))
    while cycle.machine.state.remains:
        timed("what lets a deleted queue go", lambda: cycle.do(commands.Tick()))
    return times


def _line(figure: MachineFigure) -> str:
    aim = ""
    if figure.most is not None:
        aim = f"{'meets' if figure.met else 'MISSES'} {figure.most:g}"
    span = f"({figure.lowest:.2f}-{figure.highest:.2f})"
    return f"{figure.name:58} {figure.median:10.2f} {figure.unit:5} {span:22} {aim}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table, or plain data, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="of every figure; odd is best")
    parser.add_argument("--messages", type=int, default=50_000, help="per repeat, in batches")
    parser.add_argument("--json", action="store_true", help="print plain data, not a table")
    parser.add_argument("--out", type=Path, help="a folder for pictures of the curves")
    options = parser.parse_args(arguments)
    rounds = max(options.messages // BATCH, 1)
    parts: tuple[Callable[[], list[MachineFigure]], ...] = (
        lambda: cycles(BATCH, rounds, options.repeats),
        lambda: cycles(1, max(options.messages // 25, 1), options.repeats),
        lambda: depths(rounds, options.repeats),
        lambda: expiring(options.repeats),
        memory,
        longest,
        held,
    )
    if not options.json:
        print(hardware.describe())
        print(f"publish + checkout + ack per message; medians of {options.repeats} (range)")
    figures: list[MachineFigure] = []
    for part in parts:
        found = part()
        figures += found
        if not options.json:
            print("\n".join(map(_line, found)), flush=True)
    if options.json:
        rows = [{**figure._asdict(), "met": figure.met} for figure in figures]
        print(json.dumps({"machine": hardware.machine(), "figures": rows}, indent=2))
    if options.out is not None:
        machine_pictures.draw(figures, options.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
