"""Sessions: epochs, fencing, every order of detach, disconnect, resume, suspicion and leader."""

import itertools

import pytest

from fifo.machine import commands, limits, replies
from fifo.machine.effects import Deliver, Fenced, Notify, Resumed, SessionEnded
from fifo.machine.types import Role
from tests.support.machine import (
    Bench,
    absent,
    expect,
    key_of,
    present,
    refused,
    sixteen,
    statuses,
)


def opened() -> Bench:
    """A queue, and a session with its data connection."""
    bench = Bench()
    bench.declare("q", lock_ms=5_000)
    bench.attach()
    return bench


@pytest.fixture
def bench() -> Bench:
    return opened()


def flags(bench: Bench, queue: str = "q") -> list[str]:
    return bench.machine.consumers_of(queue)[0]["flags"]  # type: ignore[no-any-return]


def test_another_user_cannot_take_a_session(bench: Bench) -> None:
    command = commands.Attach(sixteen("s"), 0, sixteen("i"), key_of("s"), "mallory", "host:2")
    refused(bench.do(command), "forbidden")


def test_a_newer_connection_of_the_same_client_fences_only_its_role(bench: Bench) -> None:
    bench.attach(role=1)
    bench.attach()
    assert present(bench.effects, Fenced) == [Fenced(1, 0, 1, taken=False)]


def test_commands_of_an_older_connection_are_refused(bench: Bench) -> None:
    bench.attach()
    refused(bench.do(commands.Subscribe(1, "t", "q", {}, fence=(0, 1))), "fenced")
    assert isinstance(
        bench.do(commands.Subscribe(1, "t", "q", {}, fence=(0, 2))), replies.Subscribed
    )


def test_a_disconnect_of_an_older_epoch_changes_nothing(bench: Bench) -> None:
    bench.attach()
    refused(bench.do(commands.Disconnect(1, 1, 0)), "fenced")
    assert bench.machine.session_view(1)["disconnected"] is False  # type: ignore[index]


def test_a_detached_consumer_gets_nothing_new_until_it_is_back(bench: Bench) -> None:
    bench.subscribe(1, "q")
    bench.detach(1)
    bench.publish(1, "q", "a")
    assert bench.bodies() == []
    assert flags(bench) == ["detached"]
    bench.attach()
    assert bench.bodies() == ["a"]


def test_a_control_connection_alone_keeps_a_session_connected_but_detached(bench: Bench) -> None:
    bench.subscribe(1, "q")
    bench.disconnect(1)
    bench.attach(role=1)
    assert flags(bench) == ["detached"]
    bench.publish(1, "q", "a")
    assert absent(bench.effects, Deliver)


def test_a_mark_ends_the_repeats_of_a_resume_also_where_there_are_none(bench: Bench) -> None:
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q", prefetch=1)
    bench.attach(role=Role.CONTROL)
    assert absent(bench.effects, Resumed), "nothing is repeated on a control connection"
    bench.attach()
    kinds = [type(effect) for effect in bench.effects if isinstance(effect, Deliver | Resumed)]
    assert kinds == [Deliver, Resumed]
    bench.ack(1, 1)
    bench.ack(1, 2)
    bench.attach()
    assert present(bench.effects, Resumed) == [Resumed(1, 3)]


def test_a_resume_sends_the_same_tokens_and_the_notices_again(bench: Bench) -> None:
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q", prefetch=1)
    bench.advance(5_000)
    bench.tick_all()
    bench.do(commands.Alive(1, 1))
    bench.disconnect(1)
    reply = bench.attached()
    assert reply.consumers == ((1, "t", "q", 5_000),)
    (message,) = bench.delivered()
    assert (message.token, message.repeat, message.attempt) == (2, True, 2)
    (notice,) = present(bench.effects, Notify)
    assert notice.ranges == ((1, 1),)
    assert bench.do(commands.NoticeAck(1, notice.notice)) == replies.Done()
    bench.attach()
    assert absent(bench.effects, Notify)


def noticed(bench: Bench, times: int) -> list[int]:
    """Expire locks of a consumer with a prefetch of 1; return the numbers of their notices."""
    found = []
    for _ in range(times):
        bench.publish(1, "q", "a")
        bench.advance(5_000)
        bench.tick_all()
        found += [notice.notice for notice in present(bench.effects, Notify)]
        bench.do(commands.Alive(1, 1))
    return found


def waiting_notices(bench: Bench) -> list[int]:
    view = bench.machine.session_view(1)
    assert view is not None
    return list(view["notices"])


def test_an_acknowledgement_covers_all_notices_up_to_its_number() -> None:
    bench = opened()
    bench.subscribe(1, "q", prefetch=1)
    numbers = noticed(bench, 3)
    assert bench.do(commands.NoticeAck(1, numbers[1])) == replies.Done()
    assert waiting_notices(bench) == numbers[2:]
    assert bench.do(commands.NoticeAck(1, numbers[2] + 100)) == replies.Done()
    assert waiting_notices(bench) == []


def test_no_acknowledgement_covers_what_the_control_connection_lost() -> None:
    """Lost notices come again, with numbers above all that another connection has brought."""
    bench = opened()
    bench.subscribe(1, "q", prefetch=1)
    bench.attach(role=Role.CONTROL)
    _, seen = noticed(bench, 2)  # the node has seen it close: the second came on the data one
    bench.detach(1, Role.CONTROL)
    again = [notice.notice for notice in present(bench.effects, Notify)]
    bench.do(commands.NoticeAck(1, seen))
    assert waiting_notices(bench) == again == [seen + 1, seen + 2]
    bench.attach(role=Role.CONTROL)
    bench.do(commands.NoticeAck(1, seen + 2))
    assert waiting_notices(bench) == [seen + 3, seen + 4]


EVENTS = ("detach", "disconnect", "disconnect", "expire", "lead", "cancel", "resubscribe")


@pytest.mark.parametrize("order", sorted(set(itertools.permutations(EVENTS, 3))))
def test_any_three_events_and_a_resume_leave_a_consumer_that_works_again(
    order: tuple[str, ...], bench: Bench
) -> None:
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q", prefetch=1)
    consumer = 1
    for event in order:
        if event == "detach":
            bench.detach(1)
        elif event == "disconnect":
            bench.disconnect(1)
        elif event == "expire":
            bench.advance(5_000)
            bench.tick_all()
        elif event == "lead":
            bench.do(commands.Lead(bench.machine.state.term + 1))
        elif event == "cancel" and consumer in bench.machine.state.consumers:
            bench.do(commands.Cancel(1, consumer))
        elif event == "resubscribe":
            consumer = bench.subscribe(1, "q", prefetch=1).consumer
    bench.attach()
    consumer = bench.subscribe(1, "q", prefetch=1).consumer
    (held,) = bench.machine.locks_of("q", 5)
    assert statuses(bench.settle(consumer, 0, held["token"])) == ["ok"]  # type: ignore[arg-type]
    assert bench.counts("q") == (0, 0, 0)
    bench.publish(1, "q", "b")
    assert bench.bodies() == ["b"]


def test_a_session_not_resumed_ten_seconds_after_a_change_of_leader_is_disconnected(
    bench: Bench,
) -> None:
    bench.subscribe(1, "q")
    other = bench.attach("other")
    bench.do(commands.Lead(1))
    assert bench.machine.next_due_ms() == 10_000
    bench.attach("other")
    bench.advance(10_000)
    bench.tick_all()
    assert bench.machine.session_view(1)["disconnected"] is True  # type: ignore[index]
    assert bench.machine.session_view(other)["disconnected"] is False  # type: ignore[index]


def test_a_late_close_after_a_change_of_leader_is_no_resume(bench: Bench) -> None:
    bench.subscribe(1, "q")
    bench.do(commands.Lead(1))
    bench.detach(1)
    bench.advance(10_000)
    bench.tick_all()
    assert bench.machine.session_view(1)["disconnected"] is True  # type: ignore[index]


def test_a_session_ends_five_minutes_after_its_disconnect_and_its_tokens_are_void(
    bench: Bench,
) -> None:
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q", lock_ms=300_000)
    bench.disconnect(1)
    refused(bench.do(commands.EndSession(1, 1)), "session_connected")
    bench.advance(299_999)
    bench.tick_all()
    assert bench.counts("q") == (0, 1, 0)
    bench.advance(1)
    bench.tick_all()
    assert present(bench.effects, SessionEnded) == [SessionEnded(1, 1)]
    assert bench.counts("q") == (1, 0, 0)
    assert bench.machine.session_of(sixteen("s")) is None
    assert bench.machine.next_due_ms() is None
    refused(bench.do(commands.Settle(1, 1, 0, ((1, 1),))), "unknown_session")


def test_the_id_of_an_ended_session_opens_a_new_one_with_a_new_producer(bench: Bench) -> None:
    bench.publish(1, "q", "a")
    bench.do(commands.EndSession(1))
    reply = bench.attached()
    assert (reply.session, reply.resumed) == (2, False)
    assert expect(replies.Published, bench.publish(2, "q", "a", previous=0, number=1)).stored == 1


@pytest.mark.slow
def test_ending_a_session_with_many_locks_goes_on_by_ticks() -> None:
    bench = Bench()
    bench.declare("q")
    ann, bob = bench.attach("ann"), bench.attach("bob")
    for _ in range(5):
        bench.publish(bob, "q", *(b"x" for _ in range(5_000)))
    bench.check = False
    bench.subscribe(ann, "q", prefetch=25_000)
    while bench.counts("q")[0]:
        bench.tick()
    bench.check = True
    assert bench.counts("q") == (0, 25_000, 0)
    bench.do(commands.EndSession(ann))
    assert bench.counts("q") == (2_500, 22_500, 0)
    assert bench.tick() is True
    assert bench.counts("q") == (5_000, 20_000, 0)
    bench.tick_all()
    assert bench.counts("q") == (25_000, 0, 0)
    assert ann not in bench.machine.state.sessions


def test_a_drain_that_is_ended_in_steps_stops_with_a_resume() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    in_a_step = limits.STEP_MESSAGES // limits.RECORD_COST
    bench.publish(session, "q", *["m"] * (in_a_step + 10))
    consumer = bench.subscribe(session, "q", prefetch=2 * in_a_step).consumer
    bench.do(commands.Cancel(session, consumer))
    bench.disconnect(session)
    bench.advance(limits.CANCELLED_MS)
    assert bench.tick()  # there is more to return
    bench.attach()
    bench.tick_all()
    assert bench.counts("q") == (in_a_step, 10, 0)
    assert bench.subscribe(session, "q", prefetch=1).consumer == consumer
    assert bench.ack(consumer, (in_a_step + 1, in_a_step + 10)) == ["ok"] * 10
    assert bench.overview("q")["counters"]["redelivered_disconnect"] == in_a_step


def test_deleting_a_queue_notifies_its_consumers() -> None:
    bench = Bench()
    bench.declare("q")
    bench.attach()
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q", prefetch=1)
    assert bench.do(commands.DeleteQueue("q")) == replies.Deleted(2)
    (removed,) = bench.effects
    assert (removed.session, removed.consumer) == (1, 1)  # type: ignore[union-attr]
    assert bench.ack(1, 1) == ["unknown_consumer"]
    bench.declare("q")
    assert bench.subscribe(1, "q").consumer == 2


def test_a_get_of_a_disconnected_session_gets_nothing() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    bench.publish(session, "q", "a")
    bench.disconnect(session)
    got = expect(replies.Got, bench.do(commands.Get(session, "q", 5)))
    assert got.count == 0
    assert bench.counts("q") == (1, 0, 0)


def test_a_get_of_a_detached_session_gets_nothing() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    bench.publish(session, "q", "a")
    bench.detach(session)
    assert expect(replies.Got, bench.do(commands.Get(session, "q", 5))).count == 0


def test_a_cancelled_consumer_that_never_got_anything_is_removed_at_once() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer
    bench.do(commands.Cancel(session, consumer))
    assert bench.machine.consumers_of("q") == []
    refused(bench.do(commands.Alive(session, consumer)), "unknown_consumer")


def test_a_late_disconnect_does_not_count_as_a_resume() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    bench.publish(session, "q", "a")
    bench.do(commands.Lead(1))
    refused(bench.do(commands.Disconnect(session, 0, 0)), "fenced")
    bench.advance(10_000)
    bench.tick()
    view = bench.machine.session_view(session)
    assert view is not None
    assert view["disconnected"]
    bench.advance(300_000)
    bench.tick()
    assert bench.machine.session_view(session) is None
