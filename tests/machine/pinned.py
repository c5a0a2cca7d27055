"""The state that the fixture in `snapshots/` holds, as commands; owns that one state."""

from fifo.machine import Machine, commands, replies
from fifo.words import versions
from fifo.words.settlement import Verb
from tests.support.machine import Area, Bench


def build(version: int = versions.FIRST) -> Bench:
    """Build something of every table: dedup ids, dead letters, both ways to keep a stack, a
    delayed message, a lock, a session that a change of leader has detached, a notice."""
    bench = Bench(Machine())
    bench.do(commands.Lead(1))
    if version >= versions.KEY_RUNS:
        bench.do(commands.SetVersion(version))
        _add_runs(bench)
    bench.declare("q", dead_letter="d", dedup_window_ms=60_000, nack_backoff="fixed:5s")
    session = bench.attach()
    bench.publish(session, "q", "a", "b", "c", "d", dedup=[b"1", b"2", b"", b"1"])
    consumer = bench.subscribe(session, "q", prefetch=3).consumer
    area = Area()
    stack = (area.put(b"long " * 400), 2_000)
    long = commands.Settle(
        session,
        consumer,
        int(Verb.TERMINATE),
        ((1, 1),),
        0,
        "bad",
        texts_at=(None, None, None, stack),
    )
    bench.apply(long, area=area)
    bench.terminate(consumer, 2, reason="worse", exception_type="E", stack="short")
    bench.nack(consumer, 3)
    bench.advance(1_000)
    bench.publish(session, "q", "e", "f", dedup=[b"3", b"4"])
    bench.advance(30_000)
    bench.tick_all()
    bench.do(commands.Alive(session, consumer))
    bench.nack(consumer, 6)
    bench.do(commands.Lead(2))
    return bench


def _add_runs(bench: Bench) -> None:
    """A run of a key that may go on, and one that ended with a return."""
    bench.declare("keys", ordering="key")
    session = bench.attach("runs")
    bench.publish(session, "keys", *"abcdef", keys=[b"1", b"1", b"1", b"2", b"2", b"2"])
    reader = bench.do(commands.OpenDurable("keys", "reader"))
    assert isinstance(reader, replies.DurableOpened)
    bench.do(commands.Reserve(reader.consumer, 1, 9, runs=True))
    bench.settle(reader.consumer, Verb.RELEASE, 5, session=session, generation=1)
