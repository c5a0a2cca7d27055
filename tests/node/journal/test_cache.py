"""The cache of commands: its bound, and what a full one costs."""

from __future__ import annotations

import time

from node.journal.commands import ENTRY_OVERHEAD_BYTES, CommandCache

COUNT = 60_000


def seconds_to_put(cache: CommandCache, first: int) -> float:
    started = time.process_time()
    for index in range(first, first + COUNT):
        cache.put(index, b"x")
        cache.trim(index)
    return time.process_time() - started


def test_a_full_cache_evicts_the_oldest_at_constant_cost() -> None:
    """Eviction used to take the square of the commands: thirty times as long for these."""
    cache = CommandCache(COUNT * (1 + ENTRY_OVERHEAD_BYTES))
    filling = seconds_to_put(cache, 1)
    full = seconds_to_put(cache, COUNT + 1)
    assert full < 10 * filling
    assert len(cache) == COUNT
    assert cache.get(COUNT) is None
    assert cache.get(COUNT + 1) == b"x"


def test_a_look_leaves_the_order_as_it_is_and_a_use_does_not() -> None:
    cache = CommandCache(2 * (1 + ENTRY_OVERHEAD_BYTES))
    for use, dropped in ((cache.peek, 1), (cache.get, 2)):
        cache.clear()
        cache.put(1, b"a")
        cache.put(2, b"b")
        assert use(1) == b"a"
        assert cache.peek(3) is None
        cache.put(3, b"c")
        cache.trim(3)
        assert [index for index in (1, 2, 3) if cache.peek(index) is None] == [dropped]


def test_a_command_that_comes_twice_counts_once_and_as_used() -> None:
    cache = CommandCache(2 * (1 + ENTRY_OVERHEAD_BYTES))
    cache.put_run(1, [b"a", b"b"], 2)
    cache.put(1, b"a")
    assert (len(cache), cache.held_bytes) == (2, 2 * (1 + ENTRY_OVERHEAD_BYTES))
    cache.put(3, b"c")
    cache.trim(3)
    assert [cache.peek(index) for index in (1, 2, 3)] == [b"a", None, b"c"]
    cache.drop_range(1, 3)
    assert (len(cache), cache.held_bytes) == (0, 0)
    cache.put_run(1, [b"d", b"e", b"f"], 3)
    cache.trim(3)
    assert [cache.peek(index) for index in (1, 2, 3)] == [None, b"e", b"f"]


def test_recently_read_entries_stay_longest_and_unwritten_entries_always() -> None:
    cache = CommandCache(3 * (1 + ENTRY_OVERHEAD_BYTES))
    for index in (1, 2, 3):
        cache.put(index, b"x")
    assert cache.get(1) == b"x"
    cache.put(4, b"x")
    cache.trim(4)
    assert [cache.get(index) for index in (1, 2, 3, 4)] == [b"x", None, b"x", b"x"]
    cache.put(5, b"x")
    cache.trim(0)
    assert len(cache) == 4
    cache.clear()
    assert (len(cache), cache.held_bytes) == (0, 0)
