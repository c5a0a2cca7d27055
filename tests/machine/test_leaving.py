"""Consumers that leave in ticks: with their queue, which is deleted, or with their session.

Owns what everyone else sees meanwhile. Must not know what one of them costs: here each takes a
whole step, unless a test is about how many do not.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fifo.machine import Machine, commands, effects, invariants, limits, replies
from fifo.machine.types import EndCause
from fifo.words.settlement import Verb
from tests.machine.test_fuzz import Fuzz
from tests.support.machine import Bench, absent, expect, present, refused, statuses


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each consumer that leaves takes a whole step."""
    monkeypatch.setattr(limits, "GONE_COST", limits.STEP_MESSAGES)
    monkeypatch.setattr(limits, "CONSUMER_COST", limits.STEP_MESSAGES)


def restored(bench: Bench) -> None:
    """Go on from a snapshot, which says the same."""
    data = bench.machine.snapshot()
    bench.machine = Machine.restore(data)
    assert bench.machine.snapshot() == data
    invariants.check(bench.machine.state)


def test_a_deleted_queue_lets_its_consumers_go_in_ticks() -> None:
    bench = Bench(check=False)
    bench.declare("dead")
    bench.declare("q", dead_letter="dead")
    in_a_step = limits.STEP_MESSAGES // limits.GONE_COST
    count = in_a_step + 100
    sessions = [bench.attach(f"s{place}") for place in range(count // 500 + 1)]
    for place in range(count):
        bench.subscribe(sessions[place // 500], "q", f"t{place}", prefetch=1)
    bench.publish(sessions[0], "q", *[b""] * 300)
    assert bench.do(commands.DeleteQueue("q")) == replies.Deleted(300)
    machine = bench.machine
    assert len(present(bench.effects, effects.ConsumerRemoved)) == in_a_step
    assert (machine.consumer_count(), machine.queues()) == (100, ["dead"])
    assert machine.owned("queue", "u") == 0, "it counts against its user"
    assert machine.queue_figures(2) is None
    invariants.check(machine.state)
    restored(bench)
    assert bench.do(commands.DeleteQueue("dead")) == replies.Deleted(0), "a deleted queue uses it"
    again = bench.declare("q")
    assert again.created
    assert bench.subscribe(sessions[-1], "q", "t0").consumer > count
    bench.tick_all()
    assert len(present(bench.effects, effects.ConsumerRemoved)) == 100
    assert (bench.machine.consumer_count(), list(bench.machine.state.queues)) == (1, [again.queue])
    assert not bench.machine.state.chores
    invariants.check(bench.machine.state)


def test_an_unused_queue_of_very_many_gets_ends_in_ticks_and_is_not_walked_at_each_get() -> None:
    walks = 0

    class Walked(dict[int, None]):
        def __iter__(self) -> Iterator[int]:
            nonlocal walks
            walks += 1
            return super().__iter__()

    bench = Bench(check=False)
    bench.declare("q", expires_unused_ms=1_000)
    queue = bench.machine.state.queues[1]
    queue.consumers = Walked()
    in_a_step = limits.STEP_MESSAGES // limits.GONE_COST
    for place in range(in_a_step + 5):
        bench.do(commands.Get(bench.attach(f"s{place}"), "q", 1))
    assert walks == 0
    bench.advance(1_000)
    assert bench.tick()
    assert (bench.machine.queues(), bench.machine.consumer_count()) == ([], 5)
    assert walks == 1
    assert not bench.tick()
    assert not bench.machine.state.queues
    invariants.check(bench.machine.state)


def deleting(**spec: Any) -> tuple[Bench, int, int]:
    """A deleted queue whose first consumer is gone; consumers 2 and 3, of the first session and of
    the second, wait for their ticks, with a message each, which a failure would make a dead letter.
    """
    bench = Bench()
    bench.declare("q", dead_letter="dead", max_deliveries=1, **spec)
    first, second = bench.attach("a"), bench.attach("b")
    for session, tag in ((first, "x"), (first, "y"), (second, "z")):
        bench.subscribe(session, "q", tag, prefetch=1)
    bench.publish(first, "q", "1", "2", "3")
    bench.do(commands.DeleteQueue("q"))
    assert list(bench.machine.state.consumers) == [2, 3]
    return bench, first, second


@pytest.mark.parametrize(
    "ask",
    [
        lambda first: commands.Cancel(first, 2),
        lambda first: commands.Credit(first, 2, 5),
        lambda first: commands.Alive(first, 2),
    ],
)
def test_a_consumer_of_a_deleted_queue_is_unknown_at_once(
    one_by_one: None, ask: Callable[[int], commands.Command]
) -> None:
    bench, first, _ = deleting()
    refused(bench.do(ask(first)), "unknown_consumer")
    bench.tick_all()
    assert not bench.machine.state.consumers


@pytest.mark.parametrize("verb", list(Verb))
def test_a_message_of_a_deleted_queue_cannot_be_settled(one_by_one: None, verb: Verb) -> None:
    bench, _, _ = deleting()
    assert statuses(bench.settle(2, verb, 1)) == ["unknown_consumer"]
    assert bench.counts("dead") == (0, 0, 0)


def test_the_locks_of_a_deleted_queue_are_not_missed(one_by_one: None) -> None:
    bench, _, _ = deleting(lock_ms=1_000)
    bench.advance(1_000)
    machine = bench.machine
    assert list(machine.lock_consumers()) == []
    assert machine.held(2, ((1, 1),)) is None
    assert (machine.held_count(2), machine.expired(2, bench.now)) == (0, ([], None))
    assert machine.consumer_figures(2) is None
    bench.do(commands.Tick(((2, 1, 1), (3, 1, 1))))
    assert bench.notices() == []
    assert bench.counts("dead") == (0, 0, 0)


def test_a_durable_consumer_of_a_deleted_queue_is_unknown_at_once(one_by_one: None) -> None:
    bench = Bench()
    bench.declare("q")
    for name in "ab":
        bench.do(commands.OpenDurable("q", name))
    bench.do(commands.DeleteQueue("q"))
    refused(bench.do(commands.Reserve(2, 1, 1)), "unknown_consumer")
    bench.advance(limits.DURABLE_MS)
    bench.tick_all()
    assert not bench.machine.state.consumers


@pytest.mark.parametrize("ordering", ["none", "single_active"])
def test_a_resume_knows_nothing_of_a_queue_that_is_deleted(one_by_one: None, ordering: str) -> None:
    bench, first, second = deleting(ordering=ordering)
    bench.do(commands.Lead(1))
    reply = bench.attached("a")
    assert (reply.session, reply.resumed, reply.consumers) == (first, True, ())
    assert absent(bench.effects, effects.Deliver)
    assert absent(bench.effects, effects.Activity)
    bench.declare("q")
    assert bench.subscribe(first, "q", "y").consumer == 4
    bench.tick_all()
    assert list(bench.machine.state.consumers) == [4]
    assert bench.machine.state.sessions[second].consumers == {}


def test_sessions_come_to_their_end_while_their_queue_is_being_deleted(one_by_one: None) -> None:
    bench, first, second = deleting(disconnect_grace_ms=1)
    bench.disconnect(second)
    bench.do(commands.EndSession(first))
    assert list(bench.machine.state.consumers) == [3]
    bench.advance(limits.LEASE_MS)
    bench.tick_all()
    assert not bench.machine.state.consumers
    assert list(bench.machine.state.sessions) == [second]
    assert bench.counts("dead") == (0, 0, 0)


def test_a_delete_copies_no_consumer_for_a_frozen_view() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    bench.subscribe(session, "q", prefetch=1)
    consumer = bench.machine.state.consumers[1]
    bench.publish(session, "q", "1")
    before = bench.machine.snapshot()
    view = bench.machine.freeze()
    bench.do(commands.DeleteQueue("q"))
    assert view.item("consumer", 1) is consumer
    view.release()
    assert Machine.restore(before).snapshot() == before


@pytest.mark.slow
@pytest.mark.parametrize("cause", [EndCause.CLOSED, EndCause.OPERATOR])
def test_the_consumers_of_an_ended_session_go_in_ticks(cause: EndCause) -> None:
    bench = Bench(check=False)
    in_a_step = limits.STEP_MESSAGES // limits.CONSUMER_COST
    session = bench.attach()
    for place in range(in_a_step + 50):
        bench.declare(f"q{place}")
        bench.subscribe(session, f"q{place}")
    bench.do(commands.EndSession(session, int(cause)))
    assert bench.machine.consumer_count() == 50
    assert bench.machine.state.sessions[session].leaving == 50
    invariants.check(bench.machine.state)
    restored(bench)
    bench.tick_all()
    assert bench.machine.consumer_count() == 0
    assert (session in bench.machine.state.sessions) == (cause == EndCause.OPERATOR)


def test_a_session_that_an_operator_ended_subscribes_anew_beside_what_leaves(
    one_by_one: None,
) -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    bench.do(commands.Get(session, "q", 1))
    for tag in "xy":
        bench.subscribe(session, "q", tag)
    bench.do(commands.EndSession(session, int(EndCause.OPERATOR)))
    assert list(bench.machine.state.consumers) == [2, 3]
    assert bench.attached().consumers == ()
    assert [bench.subscribe(session, "q", tag).consumer for tag in "xy"] == [4, 5]
    assert expect(replies.Got, bench.do(commands.Get(session, "q", 1))).consumer == 6
    bench.tick_all()
    assert list(bench.machine.state.consumers) == [4, 5, 6]
    found = bench.machine.state.sessions[session]
    assert (list(found.tags.values()), list(found.gets.values())) == ([4, 5], [6])


def test_what_leaves_a_session_takes_no_place_in_it(
    one_by_one: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONSUMERS_PER_SESSION", 2)
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    for tag in "xy":
        bench.subscribe(session, "q", tag)
    bench.do(commands.EndSession(session, int(EndCause.OPERATOR)))
    bench.attach()
    for tag in "vw":
        bench.subscribe(session, "q", tag)
    refused(bench.do(commands.Subscribe(session, "z", "q")), "limit")
    refused(bench.do(commands.Get(session, "q", 1)), "limit")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_random_commands_meet_what_leaves(one_by_one: None, seed: int) -> None:
    fuzz = Fuzz(seed)
    deleted = 0
    for _ in range(60):
        fuzz.run(5)
        state = fuzz.bench.machine.state
        for queue in list(state.queues.values()):
            crowded = len(queue.consumers) > 1 and queue.name != "dead"
            if crowded and len(state.queue_names) > 4:
                fuzz.bench.do(commands.DeleteQueue(queue.name))
                break
        deleted += any(queue.deleted for queue in state.queues.values())
        restored(fuzz.bench)
    assert deleted > 3
