"""A state that goes on in another cluster: what ends, what stays, and no number comes twice."""

import random

import pytest

from fifo.machine import Machine, commands, invariants, limits, replies
from fifo.machine.restored import NUMBERS_LEFT_OUT, QUEUES_LEFT_OUT, as_new_cluster
from tests.support.machine import WALL_EPOCH_MS, Bench, expect

NUMBERS = 1 << 53
"""Numbers of a node stay below this one: a double holds them exactly."""


def restored(bench: Bench) -> Bench:
    """The bench of a cluster that begins with the state of this one."""
    machine = Machine.restore(bench.machine.snapshot())
    as_new_cluster(machine, bench.index + 1, WALL_EPOCH_MS)
    invariants.check(machine.state)
    after = Bench(Machine.restore(machine.snapshot()))
    after.now, after.index = machine.cluster_time_ms, bench.index + 1
    after.areas = dict(bench.areas)
    return after


def used() -> Bench:
    """A cluster with two sessions, locked, delayed and dead messages, and a durable consumer."""
    bench = Bench()
    bench.do(commands.Lead(7))
    bench.declare("q", lock_ms=30_000, dead_letter="dead", max_deliveries=2)
    first, second = bench.attach("a"), bench.attach("b")
    bench.publish(first, "q", *[str(n) for n in range(40)])
    bench.publish(first, "q", "later", delays=[60_000])
    one = bench.subscribe(first, "q", prefetch=10).consumer
    other = bench.subscribe(second, "q", prefetch=10).consumer
    bench.nack(one, 1)
    bench.terminate(other, 1)
    expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "spark")))
    return bench


def test_sessions_end_and_what_they_held_is_ready_uncounted() -> None:
    bench = used()
    before = bench.overview("q")
    assert before["locked"] > 0
    after = restored(bench)
    shown = after.overview("q")
    assert (shown["locked"], shown["messages"]) == (0, before["messages"])
    assert shown["delayed"] == before["delayed"]
    assert after.overview("dead")["messages"] == bench.overview("dead")["messages"]
    assert after.machine.session_count() == 0
    session = after.attach("c")
    after.subscribe(session, "q", prefetch=50)
    failures = {message.body: message.failures for message in after.delivered()}
    assert len(failures) == shown["ready"]
    assert sum(failures.values()) == 0, "only the nack counted, and its message is delayed"


def test_no_number_of_the_lost_cluster_comes_again() -> None:
    bench = used()
    state = bench.machine.state
    after = restored(bench)
    session = after.attach("a")
    assert session >= state.next_session + NUMBERS_LEFT_OUT
    assert after.subscribe(session, "q").consumer >= state.next_consumer + NUMBERS_LEFT_OUT
    after.declare("new")
    assert after.overview("new")["number"] >= state.next_queue + QUEUES_LEFT_OUT
    assert after.machine.state.sessions[session].producer >= NUMBERS_LEFT_OUT
    after.publish(session, "new", "body")
    after.subscribe(session, "new", "u")
    (message,) = after.delivered()
    assert message.message_id[0] >= QUEUES_LEFT_OUT, "a column holds the number of the queue"
    assert max(message.message_id) < NUMBERS


def test_a_durable_consumer_keeps_what_it_reserved_and_fences_who_has_it_open() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=30_000)
    session = bench.attach()
    opened = expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "spark")))
    bench.publish(session, "q", *"abcdef")
    bench.do(commands.Reserve(opened.consumer, 1, 3, session=session))
    after = restored(bench)
    stale = commands.AckUpto(opened.consumer, opened.generation, 3, first=1)
    assert isinstance(after.do(stale), replies.Refused)
    again = expect(replies.DurableOpened, after.do(commands.OpenDurable("q", "spark")))
    assert again.generation > NUMBERS_LEFT_OUT
    assert (again.next_token, again.held) == (4, ((1, 3),))


def test_named_producers_and_dedup_windows_recognise_what_is_sent_again() -> None:
    bench = Bench()
    bench.declare("q", dedup_window_ms=60_000)
    session = bench.attach()
    expect(replies.ProducerOpened, bench.do(commands.OpenProducer("loader")))
    producer = bench.machine.state.producer_names["loader"]
    bench.publish(session, "q", *"abc", producer=producer, previous=0, number=1)
    bench.publish(session, "q", "once", previous=0, number=1, dedup=[b"id"])
    after = restored(bench)
    again = after.attach("x")
    expect(replies.ProducerOpened, after.do(commands.OpenProducer("loader")))
    assert after.machine.state.producer_names["loader"] == producer
    reply = after.publish(again, "q", *"abcd", producer=producer, previous=0, number=1)
    assert isinstance(reply, replies.Published)
    assert (reply.duplicates, reply.stored) == (3, 1)
    reply = after.publish(again, "q", "once", previous=0, number=1, dedup=[b"id"])
    assert isinstance(reply, replies.Published)
    assert reply.repeats, "what was published under this id before is named"
    assert after.overview("q")["messages"] == 5, "and is not stored again"


def test_time_goes_on_from_the_copy() -> None:
    bench = Bench()
    bench.declare("q")
    bench.advance(5_000)
    session = bench.attach()
    bench.publish(session, "q", "later", delays=[60_000])
    after = restored(bench)
    assert after.machine.cluster_time_ms == 5_000
    after.advance(59_999)
    after.tick_all()
    assert after.counts("q") == (0, 0, 1)
    after.advance(1)
    after.tick_all()
    assert after.counts("q") == (1, 0, 0)


@pytest.mark.slow
def test_very_much_that_is_held_is_returned_in_as_many_steps_as_it_takes() -> None:
    bench = Bench(check=False)
    bench.declare("q")
    session = bench.attach()
    for _ in range(2 * limits.STEP_MESSAGES // 1_000 + 1):
        bench.publish(session, "q", *["x"] * 1_000)
    for tag in range(2 * limits.STEP_MESSAGES // 5_000 + 1):
        bench.subscribe(session, "q", str(tag), prefetch=5_000)
    assert bench.overview("q")["locked"] > limits.STEP_MESSAGES
    assert restored(bench).overview("q")["locked"] == 0


@pytest.mark.slow
def test_random_states_keep_all_messages_and_every_copy_is_the_same() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        bench = Bench(check=False)
        names = ("a", "b")
        for name in names:
            bench.declare(name, dead_letter="dead", max_deliveries=3, lock_ms=1_000)
        sessions = [bench.attach(label) for label in "xyz"]
        held = []
        for _ in range(60):
            match rng.randrange(5):
                case 0 | 1:
                    bench.publish(rng.choice(sessions), rng.choice(names), *"pqr")
                case 2:
                    queue, session = rng.choice(names), rng.choice(sessions)
                    bench.subscribe(session, queue, str(rng.randrange(3)))
                case 3:
                    held += [(one.consumer, one.token) for one in bench.delivered()]
                    if held:
                        consumer, token = held.pop(rng.randrange(len(held)))
                        verb = rng.choice((bench.ack, bench.nack, bench.release))
                        verb(consumer, token)
                case 4:
                    bench.advance(rng.randrange(400))
                    bench.tick_all()
        first, second = restored(bench), restored(bench)
        assert first.machine.digest() == second.machine.digest()
        for name in (*names, "dead"):
            if bench.machine.queue_overview(name):
                assert first.overview(name)["messages"] == bench.overview(name)["messages"]
