"""Locks that end together come back as a stretch, and no trace of that is left in the state."""

import pytest

from fifo.machine import returns
from fifo.machine.state.tables import PAGE_ROWS, SPREAD_ROWS, Table
from tests.support.machine import Bench, counted

HELD = 3_000


def _ended(**spec: object) -> Bench:
    """A queue whose locks have all ended, and two consumers more."""
    bench = Bench(check=False)
    bench.declare("q", **spec)
    session = bench.attach()
    bench.publish(session, "q", *[b"x"] * HELD)
    bench.subscribe(session, "q", "first", prefetch=HELD, lock_ms=1_000)
    bench.now = 1_000
    return bench


def _gone_on(bench: Bench) -> list[bytes]:
    """The state after each step: returned, frozen and handed out again, returned once more."""
    found = []
    bench.tick_all()
    found.append(bench.machine.digest())
    frozen = bench.machine.freeze()
    bench.subscribe(1, "q", "second", prefetch=HELD, lock_ms=1_000)
    bench.ack(1, (1, 500))
    found.append(bench.machine.digest())
    frozen.release()
    bench.now += 1_000
    bench.tick_all()
    found.append(bench.machine.digest())
    bench.ack(2, (600, 700))
    return [*found, bench.machine.digest()]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"timeout_backoff": "table:0ms,5s"},
        {"ttl_ms": 1_500},
        {"dead_letter": "dead", "max_deliveries": 2},
        {"dead_letter": "dead", "max_deliveries": 1},
    ],
    ids=str,
)
@pytest.mark.slow
def test_a_stretch_comes_to_what_each_message_alone_comes_to(
    spec: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = _gone_on(_ended(**spec))
    monkeypatch.setattr(returns, "_returns_whole", lambda *_: False)
    assert together == _gone_on(_ended(**spec))


def test_a_stretch_takes_a_small_part_of_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    together = _ended()
    calls = counted(together.tick)
    monkeypatch.setattr(returns, "_returns_whole", lambda *_: False)
    one_by_one = _ended()
    assert calls * 5 < counted(one_by_one.tick)


def test_rows_that_are_put_together_lie_where_each_alone_would() -> None:
    """Over the ends of pages, and over the change of the index."""
    together: Table[int, int] = Table()
    one_by_one: Table[int, int] = Table()
    for count in (3, PAGE_ROWS, 1, SPREAD_ROWS, 5):
        keys = range(len(together), len(together) + count)
        together.put_new(keys, keys[::-1])
        for key, value in zip(keys, reversed(keys), strict=True):
            one_by_one[key] = value
        assert list(together.items()) == list(one_by_one.items())
        assert type(together.index) is type(one_by_one.index)
        assert together._pages == one_by_one._pages
        view, rows = together.view(), list(together.items())
        together.put_new([-count], [0])
        one_by_one[-count] = 0
        assert list(view.items()) == rows
