"""A checkout divides what is ready among equal consumers: each gets its part in one delivery."""

from fifo.machine import commands
from fifo.machine.contract import Deliver
from fifo.words import versions
from tests.support.machine import Bench


def parts(*prefetch: int, ready: int, version: int = versions.EVEN_SHARES) -> list[list[int]]:
    """The sizes of the deliveries, those of each consumer, in the order of their prefetches."""
    bench = Bench()
    bench.do(commands.SetVersion(version))
    bench.declare("q")
    session = bench.attach()
    consumers = [
        bench.subscribe(session, "q", f"c{number}", prefetch=places).consumer
        for number, places in enumerate(prefetch)
    ]
    bench.publish(session, "q", *[b"x"] * ready)
    found = [one for one in bench.effects if isinstance(one, Deliver)]
    return [
        [sum(run.count for run in one.runs) for one in found if one.consumer == consumer]
        for consumer in consumers
    ]


def test_what_becomes_ready_at_once_is_one_even_delivery_for_each_consumer() -> None:
    assert parts(*[1_000] * 8, ready=420) == [[53]] * 4 + [[52]] * 4
    assert parts(*[1_000] * 8, ready=3) == [[1]] * 3 + [[]] * 5


def test_what_does_not_fit_is_divided_among_those_that_come_after() -> None:
    assert parts(5, 1_000, 1_000, ready=30) == [[5], [13], [12]]


def test_what_is_left_is_divided_again_among_those_that_have_room() -> None:
    assert parts(1_000, 1_000, 5, 5, ready=40) == [[10, 5], [10, 5], [5], [5]]


def test_the_next_round_begins_with_those_that_came_last() -> None:
    bench = Bench()
    bench.do(commands.SetVersion(versions.EVEN_SHARES))
    bench.declare("q")
    session = bench.attach()
    for tag in ("a", "b", "c"):
        bench.subscribe(session, "q", tag, prefetch=1_000)
    served = []
    for _ in range(3):
        bench.publish(session, "q", b"x", b"x")
        served.append([one.consumer for one in bench.effects if isinstance(one, Deliver)])
    assert served == [[1, 2], [3, 1], [2, 3]]


def test_a_cluster_of_version_1_divides_what_is_left_until_nothing_is() -> None:
    found = parts(*[1_000] * 8, ready=420, version=versions.FIRST)
    left, turns = 420, []
    while left:
        turns.append(-(-left // 8))
        left -= turns[-1]
    assert found == [turns[number::8] for number in range(8)]
    assert len(turns) == 35
