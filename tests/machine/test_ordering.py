"""The order of messages: keys, priorities beside keys, and single-active queues."""

from unittest.mock import patch

from fifo.machine import Machine, commands, invariants, replies
from fifo.machine.state import ordering
from fifo.words.settlement import Verb
from fifo.words.versions import KEY_RUNS
from tests.support.machine import Bench, expect


def test_a_higher_priority_passes_a_message_that_waits_with_its_key_reserved() -> None:
    bench = Bench()
    bench.declare("q", ordering="key", priorities=True)
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer
    bench.publish(session, "q", "low", keys=[b"k"])
    bench.release(consumer, 1)
    bench.publish(session, "q", "high", keys=[b"k"], priorities=[9])
    assert bench.fresh_bodies() == ["high"]
    bench.advance(1_000)
    bench.tick()
    assert bench.fresh_bodies() == [], "one at a time per key"
    bench.ack(consumer, 2)
    assert bench.fresh_bodies() == ["low"]
    assert bench.settle(consumer, Verb.ACK, 3)
    invariants.check(Machine.restore(bench.machine.snapshot()).state)


def test_a_message_that_gave_up_its_key_is_not_passed_by_those_behind_it() -> None:
    bench = Bench()
    bench.declare("q", ordering="key", on_delay="skip")
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer
    bench.publish(session, "q", "a", "b", "c", keys=[b"k", b"k", b"k"])
    bench.nack(consumer, 1, delay_ms=500)
    assert bench.fresh_bodies() == ["b"]
    bench.release(consumer, 2)
    bench.advance(500)
    bench.tick()
    assert bench.fresh_bodies() == ["a"], "b has the key only reserved, and stands behind a"
    bench.nack(consumer, 3, delay_ms=500)
    assert bench.fresh_bodies() == ["b"], "not c"


def single_active_with_a_get_after_a_cancel() -> tuple[Bench, int, int]:
    """A bench whose queue's only consumer was cancelled; another session has got one of two."""
    bench = Bench()
    bench.declare("q", ordering="single_active")
    session, other = bench.attach("s"), bench.attach("t")
    consumer = bench.subscribe(session, "q").consumer
    bench.publish(session, "q", "a")
    bench.ack(consumer, 1)
    bench.do(commands.Cancel(session, consumer))
    bench.publish(session, "q", "b", "c")
    assert expect(replies.Got, bench.do(commands.Get(other, "q"))).count == 1
    return bench, session, other


def test_no_consumer_replaces_a_cancelled_active_one_while_a_get_holds() -> None:
    bench, _, other = single_active_with_a_get_after_a_cancel()
    assert not bench.subscribe(other, "q", "new").active
    assert bench.fresh_bodies() == []
    invariants.check(bench.machine.state)


def test_a_cancelled_active_consumer_that_is_back_waits_while_a_get_holds() -> None:
    bench, session, _ = single_active_with_a_get_after_a_cancel()
    assert not bench.subscribe(session, "q").active
    assert bench.fresh_bodies() == []
    invariants.check(bench.machine.state)


def test_a_message_that_was_moved_is_ordered_with_those_of_its_key_that_were_not() -> None:
    bench = Bench()
    bench.declare("keys", ordering="key")
    bench.declare("plain")
    session = bench.attach()
    bench.publish(session, "plain", "other", "later", keys=[b"l", b"k"])
    bench.publish(session, "keys", "first", keys=[b"k"])
    bench.do(commands.Move("plain", "keys", 2))
    bench.subscribe(session, "keys")
    assert bench.fresh_bodies() == ["first", "other"], "later has the key of first"
    bench.ack(1, 1)
    assert bench.fresh_bodies() == ["later"]


def test_keys_are_out_where_all_that_waits_has_a_busy_key_and_places_are_free() -> None:
    bench = Bench()
    bench.declare("q", ordering="key")
    session = bench.attach()
    consumer = bench.subscribe(session, "q", prefetch=2).consumer
    out = bench.machine.keys_are_out
    assert not out(consumer), "nothing waits"
    assert not out(consumer + 1), "there is no such consumer"
    bench.publish(session, "q", "a1", "a2", keys=[b"a", b"a"])
    assert out(consumer)
    bench.publish(session, "q", "b1", "c1", keys=[b"b", b"c"])
    assert not out(consumer), "its places are taken"
    bench.do(commands.Credit(session, consumer, 9))
    assert out(consumer), "c1 is out too"
    bench.do(commands.PauseQueue("q"))
    bench.publish(session, "q", "d1", keys=[b"d"])
    assert not out(consumer), "d1 is ready"


def test_a_run_does_not_pass_what_a_step_had_no_time_to_call() -> None:
    bench = Bench()
    bench.do(commands.SetVersion(KEY_RUNS))
    bench.declare("q", ordering="key")
    session = bench.attach()
    reader = expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "r"))).consumer
    bench.publish(session, "q", "a1", "b1", keys=[b"a", b"b"])
    bench.do(commands.Reserve(reader, 1, 9, session, runs=True))
    bench.publish(session, "q", "a2", "b2", keys=[b"a", b"b"])
    consumer = bench.subscribe(session, "q").consumer
    bench.do(commands.Cancel(session, consumer))
    bench.publish(session, "q", "b3", keys=[b"b"])
    whole = ordering.call_for
    with patch.object(ordering, "call_for", lambda queue, runner, _: whole(queue, runner, 1)):
        bench.do(commands.Reserve(reader, 1, 9, session, runs=True))
    assert bench.fresh_bodies() == ["a2"]
    bench.do(commands.Reserve(reader, 1, 9, session, runs=True))
    assert bench.fresh_bodies() == ["b2", "b3"]
