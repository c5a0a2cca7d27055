"""Tables, lines, sets and maps of positions: equal to plain ones, with views that stay.

Their purpose has a test too: the first change after a freeze copies a page, not the content.
"""

import random
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from fifo.machine.limits import BLOCK_MESSAGES
from fifo.machine.snapshot import format
from fifo.machine.state import tables
from fifo.machine.state.positions import PositionMap, Positions
from fifo.machine.state.tables import Line, Table
from tests.support.machine import Bench

SPAN = 4 * BLOCK_MESSAGES
"""Positions or keys in a test: enough for several pages, few enough to meet again."""


@pytest.mark.parametrize("seed", range(4))
def test_a_table_is_a_dict_and_its_views_stay(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "PAGE_ROWS", 16)
    monkeypatch.setattr(tables, "SPREAD_ROWS", 64)
    rng = random.Random(seed)
    table: Table[int, int] = Table()
    plain: dict[int, int] = {}
    views = []
    for place in range(6_000):
        key = rng.randrange(200)
        if rng.random() < 0.5 + 0.2 * (place // 1_000 % 2):
            assert table.take(key) == plain.pop(key, None)
        else:
            table[key] = plain[key] = place
        if place % 500 == 0:
            views.append((table.view(), list(plain.items())))
        assert (len(table), table.get(key, -1)) == (len(plain), plain.get(key, -1))
        assert (key in table) == (key in plain)
    assert isinstance(table.index, tables.Spread)
    views.append((table.view(), list(plain.items())))
    for view, then in views:
        assert (list(view.items()), len(view)) == (then, len(then))
        assert list(zip(view, view.values(), strict=True)) == then


def test_no_insertion_doubles_the_index_of_a_large_table_as_a_whole() -> None:
    table: Table[int, int] = Table()
    rows = 12 * tables.SPREAD_ROWS
    sizes: list[int] = []
    for key in range(rows):
        table[key] = key
        if key < 2 * tables.SPREAD_ROWS or key % 256:
            continue
        dicts = [part for part in table.parts() if part is not table._pages]
        now = [sys.getsizeof(part) for part in dicts]
        grown = [
            part for part, then, size in zip(dicts, sizes or now, now, strict=True) if size > then
        ]
        assert sum(map(len, grown)) < key / 5, "much of it is copied at about the same time"
        sizes = now
    assert sum(map(len, dicts)) == rows


def test_runs_of_keys_are_put_and_found_as_each_key_alone() -> None:
    """From and to any place beside where the dict of a large index changes."""
    run = 1 << tables.RUN_BITS
    changes = tables.SHARES[0] * run  # the first key of the second dict
    for before, count in [(1, 2), (0, run), (run + 5, 3 * run), (3, 3), (2, 0)]:
        spread = tables.Spread({})
        keys = range(changes - before, changes - before + count)
        first = keys.start
        spread.put(keys, 9)
        assert [key for key in range(changes + 5 * run) if key in spread] == list(keys)
        assert {spread[key] for key in keys} <= {9}
        for edge in {first - 1, first, first + count - 1, first + count}:
            for low, high in ((edge - run, edge), (edge, edge + 1), (edge + 1, edge + 3 * run)):
                looked = range(max(low, 0), high)
                assert spread.has_any(looked) == any(key in spread for key in looked)
        plain = tables.Spread({})
        plain.put(list(keys), 9)
        assert list(map(dict, plain.parts())) == list(map(dict, spread.parts()))


def test_a_page_of_a_table_is_copied_at_its_first_change_and_not_again() -> None:
    table: Table[int, int] = Table()
    positions: PositionMap[int] = PositionMap()
    for of in (table, positions):
        of[1], of[2] = 1, 2
    view, twin = table.view(), positions.copy()
    table[1] = positions[1] = 5
    page, values = table._pages[0], positions._values[0]
    table[2] = positions[2] = 6
    assert (page, values) == ({1: 5, 2: 6}, {1: 5, 2: 6}), "copied again"
    assert table._pages[0] is page
    assert positions._values[0] is values
    assert [*view.items()] == [*twin.items()] == [(1, 1), (2, 2)], "written without a copy"


@pytest.mark.parametrize("seed", range(4))
def test_a_line_is_a_deque_and_its_views_stay(seed: int) -> None:
    rng = random.Random(seed)
    line: Line[int] = Line()
    plain: deque[int] = deque()
    views = []
    for place in range(9_000):
        if plain and rng.random() < 0.3 + 0.4 * (place // 3_000 % 2):
            assert (line.first(), line.popleft()) == (plain[0], plain.popleft())
        else:
            line.append(place)
            plain.append(place)
        if place % 700 == 0:
            views.append((line.view(), list(plain)))
        assert len(line) == len(plain)
    for view, then in [*views, (line, list(plain))]:
        assert list(view) == then


def _ranges(places: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for place in places:
        if found and found[-1][1] == place:
            found[-1] = (found[-1][0], place + 1)
        else:
            found.append((place, place + 1))
    return found


def _change(rng: random.Random, positions: Positions, plain: set[int]) -> None:
    at = rng.randrange(SPAN)
    what = rng.random()
    if what < 0.3:
        assert positions.discard(at) == (at in plain)
        plain.discard(at)
    elif what < 0.6:
        positions.add(at)
        plain.add(at)
    elif what < 0.7:
        end = at + rng.choice((1, 5, BLOCK_MESSAGES + 3))
        positions.add_range(at, end)
        plain.update(range(at, end))
    elif what < 0.9:
        end = positions.pass_from(at)
        assert end not in plain
        assert plain.issuperset(range(at, end))
        plain.difference_update(range(at, end))
    elif plain:
        assert positions.first() == min(plain) == positions.pop_first()
        plain.remove(min(plain))


@pytest.mark.parametrize("seed", range(4))
def test_positions_are_a_set_in_order_and_copies_stay(seed: int) -> None:
    rng = random.Random(seed)
    positions = Positions()
    plain: set[int] = set()
    copies = []
    for place in range(800):
        _change(rng, positions, plain)
        if place % 100 == 0:
            copies.append((positions.copy(), sorted(plain)))
    for copy, then in [*copies, (positions, sorted(plain))]:
        assert (list(copy), len(copy)) == (then, len(then))
        assert list(copy.ranges()) == _ranges(then)
        assert copy.count_ranges() == len(_ranges(then))
        low, end = sorted((rng.randrange(SPAN), rng.randrange(SPAN)))
        assert list(copy.between(low, end)) == [one for one in then if low <= one < end]
        free = sorted({*range(low, end)} - {*then})
        assert list(copy.gaps(low, end)) == _ranges(free)
        assert all(before[1] < after[0] for before, after in pairwise(copy.gaps(low, end)))
        block_end = (low // BLOCK_MESSAGES + 1) * BLOCK_MESSAGES
        first = next((one for one in then if low <= one < block_end), block_end)
        assert copy.first_from(low, block_end) == first


@pytest.mark.parametrize("seed", range(4))
def test_a_position_map_is_a_dict_in_order_and_copies_stay(seed: int) -> None:
    rng = random.Random(seed)
    found: PositionMap[int] = PositionMap()
    plain: dict[int, int] = {}
    copies = []
    for place in range(20_000):
        at = rng.randrange(SPAN)
        if rng.random() < 0.4 + 0.2 * (place // 4_000 % 2):
            assert found.take(at) == plain.pop(at, None)
        else:
            found[at] = plain[at] = place
        if place % 3_000 == 0:
            copies.append((found.copy(), sorted(plain.items())))
    assert all(found[at] == value for at, value in plain.items())
    for copy, then in [*copies, (found, sorted(plain.items()))]:
        assert list(copy.items()) == then


def test_a_view_keeps_waiting_and_released_messages_as_they_were() -> None:
    bench = Bench()
    bench.declare("q", ordering="key")
    session = bench.attach()
    consumer = bench.subscribe(session, "q", prefetch=3).consumer
    bench.publish(session, "q", *"abcdef", keys=[b"x", b"y", b"z", b"x", b"y", b"x"])
    bench.subscribe(session, "q", prefetch=5)
    bench.release(consumer, 1)
    bench.release(consumer, 2)
    then = bench.machine.snapshot()
    frozen = bench.machine.freeze()
    bench.publish(session, "q", "g", keys=[b"z"])
    bench.ack(consumer, 3)
    bench.advance(1_000)
    bench.tick()
    assert bench.machine.snapshot() != then
    assert format.encode(frozen) == then


HELD = 20_000
PIECE = 2_500


def _published(bench: Bench, session: int, **columns: Callable[[int], object]) -> None:
    for first in range(0, HELD, PIECE):
        given = {
            name: [value(place) for place in range(first, first + PIECE)]
            for name, value in columns.items()
        }
        bench.publish(session, "q", *[b""] * PIECE, **given)


def _delayed(bench: Bench, session: int) -> None:
    _published(bench, session, delays=lambda place: 1_000 + place)


def _returned(bench: Bench, session: int) -> None:
    consumer = bench.subscribe(session, "q", prefetch=HELD).consumer
    _published(bench, session)
    for first in range(1, HELD, PIECE):
        bench.nack(consumer, (first, first + PIECE - 1), delay_ms=1_000_000)


def _timed_out(bench: Bench, session: int) -> None:
    bench.subscribe(session, "q", prefetch=HELD)
    _published(bench, session)
    bench.advance(30_000)
    bench.tick_all()


def _released(bench: Bench, session: int) -> None:
    consumer = bench.subscribe(session, "q", prefetch=HELD).consumer
    _published(bench, session)
    for first in range(1, HELD, PIECE):
        bench.release(consumer, (first, first + PIECE - 1))


def _behind_keys(bench: Bench, session: int) -> None:
    bench.subscribe(session, "q", prefetch=HELD)
    _published(bench, session, keys=lambda place: b"%d" % (place // 2))
    bench.tick_all()
    assert len(bench.machine.state.queues[1].in_line) == HELD // 2


def _with_ids(bench: Bench, session: int) -> None:
    bench.subscribe(session, "q", prefetch=HELD)
    _published(bench, session, dedup=lambda place: b"%d" % place)


def _with_holes(bench: Bench, session: int) -> None:
    _published(bench, session, delays=lambda place: 1_000 * (place % 2))


KINDS: dict[Callable[[Bench, int], None], dict[str, Any]] = {
    _delayed: {},
    _returned: {},
    _timed_out: {},
    _released: {},
    _with_holes: {},
    _behind_keys: {"ordering": "key"},
    _with_ids: {"dedup_window_ms": 1_000_000},
}


@pytest.mark.slow
@pytest.mark.parametrize("fill", KINDS, ids=lambda fill: fill.__name__)
def test_the_first_change_after_a_freeze_copies_no_more_than_pages(
    fill: Callable[[Bench, int], None],
) -> None:
    bench = Bench(check=False)
    bench.declare("q", **KINDS[fill])
    session = bench.attach()
    fill(bench, session)
    then = bench.machine.snapshot()
    frozen = bench.machine.freeze()
    tracemalloc.start()
    try:
        bench.publish(session, "q", b"")
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Its consumer has a list of holds, of which there are few here, and is copied with it.
    assert most_bytes < 10 * HELD, "what is held is copied"
    bench.advance(1_000_000)
    bench.tick_all()
    assert format.encode(frozen) == then
