"""The node's own garbage collection: little at a time, between turns, and no cycle is kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from fifo.machine import commands
from node.collector import Collector
from tests.support.machine import Bench

pytestmark = pytest.mark.slow


@contextmanager
def full_collections() -> Iterator[list[int]]:
    """Number of objects that each full collection looked at, of those that begin meanwhile."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            found.append(len(gc.get_objects()))

    gc.callbacks.append(note)
    try:
        yield found
    finally:
        gc.callbacks.remove(note)


class Cyclic:
    """Garbage that only a collection finds."""

    def __init__(self) -> None:
        self.me = self
        self.more = [[self] for _ in range(10)]


def filled(look: Callable[[], None]) -> list[int]:
    """Full collections while a machine takes messages that are remembered one by one; `look` is
    called between two entries."""
    bench = Bench(check=False)
    bench.declare("q", dedup_window_ms=1_000_000)
    session = bench.attach()
    with full_collections() as found:
        for first in range(0, 150_000, 1_000):
            names = [b"%d" % place for place in range(first, first + 1_000)]
            bench.publish(session, "q", *[b""] * 1_000, dedup=names)
            applied = len(found)
            look()
            del found[applied:]
    bench.do(commands.DeleteQueue("q"))
    return found


def test_no_full_collection_begins_while_an_entry_is_applied() -> None:
    gc.freeze()
    gc.collect()  # Python counts what is left now: nothing, as in a program that has little else
    try:
        assert filled(lambda: None), "Python begins some here automatically"
    finally:
        gc.unfreeze()
    with Collector() as collector:
        assert not filled(collector.look)
        assert collector.collected.recent_total > 3


def test_what_is_made_in_a_turn_is_collected_once() -> None:
    """Python's own settings look at what stays three times, with that of a look."""
    began: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            began.append(info["generation"])

    with Collector() as collector:
        gc.callbacks.append(note)
        try:
            held = [[place] for place in range(20_000)]
            collector.look()
        finally:
            gc.callbacks.remove(note)
    assert held
    assert began == [2]


def test_a_look_sees_new_objects_and_no_older_ones() -> None:
    held: list[list[int]] = []
    sizes = []
    with Collector() as collector, full_collections() as found:
        for _ in range(12):
            held += [[place] for place in range(25_000)]
            collector.look()
        sizes = found[:]
    assert len(sizes) == 12
    assert max(sizes) < 40_000, sizes


def test_garbage_that_was_put_aside_before_it_was_garbage_is_found_when_it_adds_up() -> None:
    turns = 0
    with Collector(grown_objects_min=100_000) as collector:
        here = gc.get_freeze_count()  # of which half may join before all is looked at
        seen: list[weakref.ref[Cyclic]] = []
        while not collector.collected.full_total:
            held = [Cyclic() for _ in range(2_500)]
            seen += [weakref.ref(one) for one in held[::100]]
            collector.look()
            del held  # garbage now, and no longer among the recent objects
            turns += 1
            assert turns * 2_500 * 13 < 3 * max(100_000, here // 2), "it piles up"
        assert turns > 2, "it is not kept at all"
        assert sum(ref() is not None for ref in seen) <= 25, "none but the last is left"


def test_a_state_that_only_changes_is_not_walked_again() -> None:
    with Collector(grown_objects_min=100_000) as collector:
        held = [[place] for place in range(200_000)]
        collector.adopt()
        for turn in range(60):
            held[turn % 10 :: 10] = [[turn] for _ in range(20_000)]
            collector.look()
        assert held
        assert collector.collected.recent_total > 30, "a million have come and gone"
        assert collector.collected.full_total == 0


def test_restored_objects_are_put_aside_without_a_look() -> None:
    with Collector() as collector, full_collections() as found:
        held = [[place] for place in range(200_000)]
        collector.adopt()
        for _ in range(3):
            collector.look()
    assert held
    assert sum(found) < 1_000, found


@pytest.mark.parametrize("fails", [False, True])
def test_the_settings_of_the_collector_are_restored(fails: bool) -> None:
    before = gc.get_threshold()
    try:
        with Collector():
            assert gc.get_threshold()[0] > 10 * before[0]
            assert min(gc.get_threshold()[1:]) > 1_000_000
            if fails:
                raise KeyError
    except KeyError:
        pass
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_a_look_at_all_waits_until_there_is_time_and_is_overdue_at_last() -> None:
    with Collector(grown_objects_min=20_000) as collector:
        held: list[list[int]] = []
        grown = max(20_000, gc.get_freeze_count() // 2)
        while not collector.overdue:
            held += [[place] for place in range(25_000)]
            collector.look(at_all=False)
            assert len(held) < 6 * grown, "it is never overdue"
        assert len(held) > 3 * grown
        assert collector.collected.full_total == 0
        collector.look()
        assert collector.collected.full_total == 1
        assert not collector.overdue
