"""Every loop of apply has a bound, and these tests try to break it: more than one step's worth of
everything that can be due, held, waiting or deleted at once.

Each case fills a machine, gives one command, and lets ticks go on as a leader would. No entry may
touch more than one step and one checkout, the ticks must come to an end, and everything must have
happened by then.
"""

from functools import partial
from typing import Any

import pytest

from fifo.machine import Machine, backoff, commands, effects, invariants, limits, replies
from fifo.machine.types import EndCause
from fifo.words import bounds
from fifo.words.backoff import parse
from fifo.words.settlement import Verb
from tests.support.machine import Area, Bench, counted, expect, present, publish_command, refused

MANY = 2 * limits.STEP_MESSAGES + 2_500
PIECE = 2_500
TOUCHING = (
    "published",
    "delivered",
    "acked",
    "redelivered_nack",
    "redelivered_timeout",
    "redelivered_disconnect",
    "redelivered_released",
    "exhausted_dropped",
    "expired",
    "overflow_dropped",
    "purged",
    "moved_out",
)


def filled(count: int = MANY, *, holders: int = 0, **spec: Any) -> Bench:
    """A queue with `count` messages; all of them locked where there are holders."""
    bench = Bench(check=False)
    bench.declare("q", **spec)
    session = bench.attach()
    for place in range(holders):
        prefetch = -(-count // holders)
        bench.subscribe(session, "q", f"t{place}", prefetch=prefetch)
    piece = limits.DROPPING_MESSAGES if spec.get("overflow") == "drop_oldest" else PIECE
    for _ in range(count // piece):
        bench.publish(session, "q", *[b""] * piece)
    return bench


def touched(bench: Bench) -> int:
    """The number of times that messages were handled so far."""
    found = 0
    for name in bench.machine.queues():
        counters = bench.overview(name)["counters"]
        found += sum(counters[counter] for counter in TOUCHING)
    return found


def carry_on(bench: Bench, *batch: commands.Command) -> int:
    """The command, and ticks until nothing is due; how many entries that took."""
    before = touched(bench)
    if batch:
        bench.apply(*batch)
    entries, more = 1, True
    while True:
        after = touched(bench)
        moved, before = after - before, after
        assert moved <= 2 * (limits.STEP_MESSAGES + limits.BATCH_CHECKOUT_MESSAGES), moved
        if not more:
            break
        more = bench.tick()
        entries += 1
        assert entries < 50, "ticks do not come to an end"
    invariants.check(bench.machine.state)
    return entries


@pytest.mark.slow
def test_a_resume_sends_again_in_slices_and_nothing_new_before_the_end() -> None:
    bench = filled(holders=3)
    bench.detach(1)
    bench.publish(1, "q", "new")
    bench.do(commands.Subscribe(1, "more", "q", {"prefetch": 1}))
    bench.attach()
    sent: list[tuple[int, int]] = []
    slices, restored = 0, False
    while True:
        again = [one for one in bench.delivered() if one.repeat]
        new = [one.body for one in bench.delivered() if not one.repeat]
        sent += [(one.consumer, one.token) for one in again]
        slices += 1
        marks = [one for one in bench.effects if isinstance(one, effects.Resumed)]
        assert marks == ([effects.Resumed(1, 2)] if len(sent) == MANY else [])
        assert len(again) <= limits.STEP_MESSAGES
        if len(sent) == MANY and new:
            break
        assert not new, "something new before what it had"
        assert bench.machine.next_due_ms() == bench.now, "the rest is due at once"
        if not restored:
            restored = True
            bench.machine = Machine.restore(bench.machine.snapshot())
        bench.tick()
        invariants.check(bench.machine.state)
    assert sent == sorted(set(sent)), "each once, in order"
    assert (new, slices > 2) == ([b"new"], True)


def test_a_resend_that_is_cut_short_begins_anew_with_the_next_resume() -> None:
    bench = filled(holders=3)
    bench.detach(1)
    bench.attach()
    bench.detach(1)
    bench.tick_all()
    assert not bench.delivered()
    bench.attach()
    sent = len(bench.delivered())
    bench.tick_all()
    assert sent + len(bench.delivered()) == MANY
    bench.attach()
    bench.attach()
    assert list(bench.machine.state.chores) == [("resend", 1, 0)]


def test_a_second_resume_with_little_left_to_send_leaves_no_chore_behind() -> None:
    bench = filled(holders=3)
    bench.detach(1)
    bench.attach()
    assert list(bench.machine.state.chores) == [("resend", 1, 0)]
    for consumer in (1, 2, 3):
        bench.ack(consumer, (1, MANY // 3 - 1))
    bench.attach()
    invariants.check(bench.machine.state)
    bench.tick_all()
    assert not bench.machine.state.chores
    assert [one.consumer for one in bench.delivered()] == [1, 2, 3], "all of it, and once"


@pytest.mark.slow
@pytest.mark.parametrize("holders", [0, 3])
def test_a_delete_is_one_command_and_later_ones_free_its_memory(holders: int) -> None:
    bench = filled(holders=holders)
    if holders:
        for consumer in (1, 2, 3):  # records, one by one
            bench.nack(consumer, (1, MANY // 3), delay_ms=1_000_000)
    assert bench.do(commands.DeleteQueue("q")) == replies.Deleted(MANY)
    invariants.check(bench.machine.state)
    state = bench.machine.state
    assert not state.queues
    assert bench.declare("q").created, "the name is free at once"
    twin = Machine.restore(bench.machine.snapshot())
    assert not twin.state.remains
    entries, left = 0, sum(map(len, state.remains))
    while state.remains:
        bench.tick()
        entries += 1
        now_left = sum(map(len, state.remains))
        assert left - now_left <= limits.REMAINS_ENTRIES
        left = now_left
        assert entries < 200, "a deleted queue is never let go"
    assert bench.machine.snapshot()[:20] == twin.snapshot()[:20]


def test_a_purge_goes_on_in_ticks() -> None:
    bench = filled()
    reply = expect(replies.Purged, bench.do(commands.Purge("q")))
    assert (reply.messages, reply.more) == (limits.STEP_MESSAGES, True)
    assert carry_on(bench) >= 2
    assert bench.counts("q") == (0, 0, 0)


def test_a_purge_takes_fewer_messages_where_they_are_not_contiguous() -> None:
    bench = filled(holders=1, count=2 * PIECE)
    bench.do(commands.PauseQueue("q"))
    bench.nack(1, (1, 2 * PIECE), delay_ms=0)
    reply = expect(replies.Purged, bench.do(commands.Purge("q")))
    assert (reply.messages, reply.more) == (limits.STEP_MESSAGES // limits.RECORD_COST, True)
    carry_on(bench)
    assert bench.counts("q") == (0, 0, 0)


@pytest.mark.slow
def test_a_lowered_limit_drops_in_ticks() -> None:
    bench = filled(overflow="drop_oldest", max_length=MANY)
    assert carry_on(bench, commands.UpdateQueue("q", {"max_length": 10})) >= 3
    assert bench.counts("q") == (10, 0, 0)


def test_a_publish_that_would_drop_more_than_a_step_is_refused_and_drops_nothing() -> None:
    few = limits.STEP_MESSAGES // limits.DROP_COST
    for most, spec in ((limits.STEP_MESSAGES, _PLAIN), (few, _TO_A_DEAD_LETTER_QUEUE)):
        bench = filled(0, overflow="drop_oldest", max_bytes=most + 1_000, **spec)
        for _ in range(most // 500 + 2):
            bench.publish(1, "q", *[b"x"] * 500)
        bench.check = True
        before = bench.overview("q")["messages"]
        assert before == most + 1_000
        reply = expect(replies.Published, bench.publish(1, "q", bytes(most + 1)))
        refused(reply.refused, "queue_full")
        assert bench.overview("q")["messages"] == before
        reply = expect(replies.Published, bench.publish(1, "q", bytes(most)))
        assert reply.refused is None
        assert bench.overview("q")["messages"] == before - most + 1


_PLAIN: dict[str, Any] = {}
_TO_A_DEAD_LETTER_QUEUE: dict[str, Any] = {"dead_letter": "d", "dead_letter_overflow": True}


def test_the_drops_of_a_publish_are_bounded_in_total() -> None:
    """Each newcomer is small enough; all of them together are not."""
    most = limits.STEP_MESSAGES // limits.DROP_COST
    bench = filled(0, overflow="drop_oldest", max_bytes=4 * most, **_TO_A_DEAD_LETTER_QUEUE)
    for _ in range(8):
        bench.publish(1, "q", *[b"x"] * 500)
    large = [bytes(10)] * limits.DROPPING_MESSAGES
    reply = expect(replies.Published, bench.publish(1, "q", *large))
    refused(reply.refused, "queue_full")
    assert reply.stored == most // 10
    assert bench.overview("d")["messages"] == most
    reply = expect(replies.Published, bench.publish(1, "q", *large[:100]))
    assert reply.stored == 100, "the next command has a step of its own"
    invariants.check(bench.machine.state)


def test_a_publish_that_may_drop_names_few_messages_and_a_larger_one_is_not_begun() -> None:
    most = limits.DROPPING_MESSAGES
    for spec in (_PLAIN, _TO_A_DEAD_LETTER_QUEUE):
        bench = filled(3 * most, overflow="drop_oldest", max_length=3 * most, **spec)
        refused(bench.publish(1, "q", *[b""] * (most + 1)), "too_large")
        assert bench.overview("q")["counters"]["overflow_dropped"] == 0
        reply = expect(replies.Published, bench.publish(1, "q", *[b"new"] * most))
        assert reply.stored == most
        assert bench.overview("q")["counters"]["overflow_dropped"] == most
        assert bench.counts("q") == (3 * most, 0, 0)
        invariants.check(bench.machine.state)


def test_single_deliveries_are_redelivered_a_thousand_at_a_time() -> None:
    bench = Bench(check=False)
    bench.declare("q")
    session = bench.attach()
    count = 2_500
    bench.subscribe(session, "q", prefetch=count, lock_ms=bounds.LOCK_MS_MAX)
    for _ in range(count):
        bench.publish(session, "q", b"")
        bench.advance(1)
    bench.attach()
    sent = [len(present(bench.effects, effects.Deliver))]
    while bench.machine.next_due_ms() == bench.now:
        bench.tick()
        sent.append(len(present(bench.effects, effects.Deliver)))
    assert sent == [1_000, 1_000, 500]


def test_the_drops_for_a_publish_go_in_ranges_past_earlier_holes() -> None:
    bench = filled(0, overflow="drop_oldest", max_bytes=4_000)
    for _ in range(8):
        bench.publish(1, "q", *[b"x"] * 500)
    consumer = bench.subscribe(1, "q", prefetch=10)
    calls = counted(lambda: bench.publish(1, "q", bytes(2_500)))
    assert bench.counts("q") == (4_000 - 10 - 2_500 + 1, 10, 0)
    invariants.check(bench.machine.state)
    assert calls < 15 * 2_500, "each of them is dropped alone"
    bench.ack(consumer.consumer, (1, 10))
    bench.tick_all()
    invariants.check(bench.machine.state)


@pytest.mark.slow
def test_held_keys_are_freed_in_ticks() -> None:
    bench = Bench(check=False)
    bench.declare("q", ordering="key")
    session = bench.attach()
    count = limits.STEP_MESSAGES + 2_000
    consumer = bench.subscribe(session, "q", prefetch=count).consumer
    for first in range(0, count, 2_000):
        keys = [b"%d" % key for key in range(first, first + 2_000)]
        bench.publish(session, "q", *[b""] * 2_000, keys=keys)
        bench.nack(consumer, (first + 1, first + 2_000), delay_ms=1_000_000)
    bench.publish(session, "q", "behind the first", keys=[b"0"])
    bench.publish(session, "q", "behind the last", keys=[b"%d" % (count - 1)])
    bench.do(commands.UpdateQueue("q", {"on_delay": "skip"}))
    assert bench.bodies() == ["behind the first"]
    steps = -(-count // (limits.STEP_MESSAGES // limits.RECORD_COST))
    for _ in range(steps - 1):
        assert bench.machine.next_due_ms() == bench.now
        bench.tick()
    assert bench.bodies() == ["behind the last"]
    assert bench.machine.next_due_ms() != bench.now
    invariants.check(bench.machine.state)


@pytest.mark.slow
@pytest.mark.parametrize("cause", list(EndCause))
def test_the_end_of_a_session_returns_what_it_held_in_ticks(cause: EndCause) -> None:
    bench = filled(holders=3)
    if cause == EndCause.EXPIRED:
        bench.disconnect(1)
        bench.advance(bounds.SESSION_TIMEOUT_MS)
    entries = carry_on(bench, commands.EndSession(1, int(cause)))
    assert entries >= 3
    assert bench.counts("q")[1] == 0
    if cause == EndCause.OPERATOR:  # The numbers of what it published stay for a minute.
        assert bench.machine.state.sessions
        bench.advance(bounds.WRITING_SESSION_MS)
        bench.tick_all()
    assert not bench.machine.state.sessions


def test_a_disconnect_grace_returns_in_ticks() -> None:
    bench = filled(holders=3, disconnect_grace_ms=0)
    bench.advance(limits.LEASE_MS)
    bench.disconnect(1)
    assert carry_on(bench) >= 3
    assert bench.counts("q") == (MANY, 0, 0)


def test_locks_that_end_together_are_returned_in_ticks() -> None:
    bench = filled(holders=3)
    bench.do(commands.PauseQueue("q"))
    bench.advance(bounds.LOCK_MS_DEFAULT)
    entries = 0
    while bench.overview("q")["locked"]:
        before = touched(bench)
        bench.tick()
        entries += 1
        assert touched(bench) - before <= limits.STEP_MESSAGES // limits.RECORD_COST
        assert entries < 20
    assert bench.counts("q") == (MANY, 0, 0)


@pytest.mark.parametrize("reader", [False, True])
def test_messages_that_expire_together_leave_in_ticks_under_any_first_reader(reader: bool) -> None:
    bench = filled(ttl_ms=5_000)
    bench.advance(5_000)
    if reader:
        bench.subscribe(1, "q")
    assert carry_on(bench) >= 2
    assert bench.counts("q") == (0, 0, 0)


@pytest.mark.slow
def test_delays_that_end_together_are_due_in_ticks() -> None:
    bench = Bench(check=False)
    bench.declare("q")
    session = bench.attach()
    for _ in range(MANY // PIECE):
        bench.publish(session, "q", *[b""] * PIECE, delays=[5_000] * PIECE)
    bench.advance(5_000)
    assert bench.tick()
    assert bench.counts("q")[0] == limits.STEP_MESSAGES // limits.LEAVE_COST
    carry_on(bench)
    assert bench.counts("q") == (MANY, 0, 0)


def test_dedup_ids_are_forgotten_in_ticks() -> None:
    bench = Bench(check=False)
    bench.declare("q", dedup_window_ms=1_000)
    session = bench.attach()
    for first in range(0, MANY, PIECE):
        ids = [b"%d" % place for place in range(first, first + PIECE)]
        bench.publish(session, "q", *[b""] * PIECE, dedup=ids)
    bench.advance(1_000)
    assert bench.tick()
    assert len(bench.machine.state.queues[1].dedup) == MANY - limits.STEP_MESSAGES
    carry_on(bench)
    assert not bench.machine.state.queues[1].dedup


def test_one_key_with_very_many_messages_is_walked_within_the_checkout_budget() -> None:
    bench = Bench(check=False)
    bench.declare("q", ordering="key")
    session = bench.attach()
    for _ in range(MANY // PIECE):
        bench.publish(session, "q", *[b""] * PIECE, keys=[b"hot"] * PIECE)
    bench.subscribe(session, "q", prefetch=10)
    assert len(bench.delivered()) == 1
    carry_on(bench)
    assert bench.counts("q") == (MANY - 1, 1, 0)


def test_sessions_that_do_not_come_back_are_disconnected_in_ticks() -> None:
    bench = Bench(check=False)
    count = 2 * limits.STEP_OBJECTS + 10
    bench.declare("q")
    for place in range(count):
        bench.publish(bench.attach(f"s{place}"), "q", "")
    bench.do(commands.Lead(1))
    bench.advance(limits.RESUME_MS)
    assert bench.tick()
    gone = [one for one in bench.machine.state.sessions.values() if one.disconnected]
    assert len(gone) == limits.STEP_OBJECTS
    bench.advance(bounds.SESSION_TIMEOUT_MS)
    bench.tick_all()
    assert len(present(bench.effects, effects.SessionEnded)) > 0
    carry_on(bench)


def test_sessions_with_many_consumers_are_disconnected_and_ended_in_as_many_more_ticks() -> None:
    bench = Bench(check=False)
    bench.declare("q")
    sessions = [bench.attach(f"s{place}") for place in range(4)]
    for session in sessions:
        for place in range(limits.STEP_OBJECTS // 2):
            bench.subscribe(session, "q", f"t{place}")
    bench.do(commands.Lead(1))
    bench.advance(limits.RESUME_MS)
    assert bench.tick()
    assert [one.disconnected for one in bench.machine.state.sessions.values()].count(True) == 2
    bench.tick_all()
    bench.advance(bounds.SESSION_TIMEOUT_MS)
    assert bench.tick()
    assert len(bench.machine.state.sessions) == 3
    assert limits.STEP_OBJECTS // 2 == limits.STEP_MESSAGES // limits.CONSUMER_COST
    bench.tick_all()
    assert not bench.machine.state.consumers


def test_queues_that_end_unused_together_are_not_scanned_once_for_each() -> None:
    walks = 0

    class Walked(dict[int, Any]):
        def values(self) -> Any:
            nonlocal walks
            walks += 1
            return super().values()

    bench = Bench(check=False)
    for place in range(10):
        bench.declare(f"q{place}", expires_unused_ms=1_000)
    bench.declare("user", dead_letter="q3")
    bench.advance(1_000)
    state = bench.machine.state
    state.queues = Walked(state.queues)
    bench.tick()
    assert walks == 0
    state.queues = dict(state.queues)
    assert bench.machine.queues() == ["q3", "user"], "it is in use as a dead-letter queue"
    bench.do(commands.UpdateQueue("user", {"dead_letter": None}))
    bench.advance(1_000)
    bench.tick()
    assert bench.machine.queues() == ["user"]


def test_a_chain_of_dead_letter_queues_that_all_drop_comes_to_an_end() -> None:
    bench = Bench(check=False)
    names = [f"q{place}" for place in range(20)]
    for place, name in reversed(list(enumerate(names))):
        spec: dict[str, Any] = {"max_length": 2, "overflow": "drop_oldest", "ttl_ms": 1_000}
        if place + 1 < len(names):
            spec |= {"dead_letter": names[place + 1], "dead_letter_overflow": True}
        bench.declare(name, **spec)
    session = bench.attach()
    for _ in range(5):
        bench.publish(session, "q0", *"abcdefgh")
        bench.advance(1_000)
        bench.subscribe(session, "q0")
        carry_on(bench)
    bench.advance(100_000)
    carry_on(bench)


def test_one_step_of_a_redrive_and_one_move_are_bounded_by_their_form() -> None:
    step = [24, "q", 0, 1, list(range(limits.MOVE_MESSAGES + 1))]
    with pytest.raises(ValueError, match="at most"):
        commands.from_list(step)
    with pytest.raises(ValueError, match="integer"):
        commands.from_list([26, "q", "r", limits.MOVE_MESSAGES + 1])
    step[-1] = list(range(limits.MOVE_MESSAGES))
    assert commands.from_list(step) == commands.RedriveStep("q", 0, 1, tuple(range(1_000)))
    most = commands.from_list([26, "q", "r", limits.MOVE_MESSAGES])
    assert most == commands.Move("q", "r", 1_000)


def test_a_session_with_a_thousand_consumers_of_one_single_active_queue_resumes_quickly() -> None:
    bench = Bench(check=False)
    bench.declare("q", ordering="single_active")
    session = bench.attach()
    for place in range(limits.CONSUMERS_PER_SESSION):
        bench.subscribe(session, "q", f"t{place}")
    bench.detach(session)
    calls = counted(lambda: bench.attach())
    assert calls < 60 * limits.CONSUMERS_PER_SESSION, "it looks at all of them for each of them"


def test_a_change_of_one_single_active_consumer_does_not_scan_the_waiting_ones() -> None:
    bench = Bench(check=False)
    bench.declare("q", ordering="single_active")
    sessions = [bench.attach(f"s{place}") for place in range(500)]
    for session in sessions:
        bench.subscribe(session, "q")
    few = 300  # calls; a walk past those that wait would take more for each
    assert counted(lambda: bench.subscribe(sessions[9], "q", "another")) < few
    bench.do(commands.Lead(1))
    bench.attach("s7")
    bench.attach("s5")
    assert counted(lambda: bench.attach("s6")) < few
    bench.advance(limits.RESUME_MS)
    assert counted(bench.tick) < few * len(sessions)
    bench.tick_all()
    assert [one.disconnected for one in bench.machine.state.sessions.values()].count(False) == 3
    assert bench.machine.state.queues[1].active == sessions[7]
    invariants.check(bench.machine.state)


@pytest.mark.parametrize("how", ["ends", "disconnects"])
def test_a_session_with_a_thousand_consumers_of_one_single_active_queue_leaves_quickly(
    how: str,
) -> None:
    bench = Bench(check=False)
    bench.declare("q", ordering="single_active")
    session, other = bench.attach(), bench.attach("other")
    for place in range(limits.CONSUMERS_PER_SESSION):
        bench.subscribe(session, "q", f"t{place}")
    heir = bench.subscribe(other, "q").consumer
    if how == "ends":
        calls = [counted(lambda: bench.do(commands.EndSession(session)))]
        calls.append(counted(bench.tick_all))
    else:
        bench.publish(session, "q", "held")  # by the first of them
        for consumer in list(bench.machine.state.sessions[session].consumers):
            bench.machine.state.consumers[consumer].next_token = 2
            bench.do(commands.Cancel(session, consumer))
        calls = [counted(lambda: bench.disconnect(session))]
        bench.advance(limits.CANCELLED_MS)
        calls.append(counted(bench.tick_all))
    assert max(calls) < 120 * limits.CONSUMERS_PER_SESSION, (
        "it looks at all of them for each of them"
    )
    assert list(bench.machine.state.consumers) == [heir]
    assert bench.machine.state.queues[1].active == heir


@pytest.mark.slow
def test_settling_single_deliveries_costs_in_proportion() -> None:
    """Ten times as many locks of one message each may cost ten times as much to return."""

    def cost(count: int) -> int:
        bench = Bench(check=False)
        bench.declare("q")
        session = bench.attach()
        consumer = bench.subscribe(session, "q", prefetch=count).consumer
        for _ in range(count):
            bench.publish(session, "q", b"")
            bench.advance(1)
        assert len(bench.machine.state.consumers[consumer].lanes[30_000].holds) == count
        return counted(lambda: bench.do(commands.EndSession(session)))

    few, many = cost(200), cost(2_000)
    assert many < 15 * few, (few, many)


def test_a_command_computes_the_common_facts_of_many_locks_once() -> None:
    bench = Bench(check=False)
    bench.declare("q")
    session = bench.attach()
    consumer = bench.subscribe(session, "q", prefetch=500).consumer
    for _ in range(500):
        bench.publish(session, "q", b"")
        bench.advance(1)
    bench.do(commands.PauseQueue("q"))
    calls = counted(lambda: bench.settle(consumer, Verb.NACK, (1, 500), delay_ms=0))
    assert bench.counts("q") == (500, 0, 0)
    assert calls < 45 * 500, "the way back is found out for each of them"
    records = bench.machine.state.queues[1].records
    assert len({id(record) for record in records.values()}) == 1, "a record for each of them"


def test_returned_messages_are_sent_in_one_run_per_batch() -> None:
    bench = Bench(check=False)
    bench.declare("q")
    session = bench.attach()
    consumer = bench.subscribe(session, "q", prefetch=1_100).consumer
    for count in (500, 200, 200, 200):
        bench.publish(session, "q", *[b"x"] * count)
    bench.ack(consumer, (1, 500))
    bench.do(commands.PauseQueue("q"))
    bench.nack(consumer, (501, 1_100), delay_ms=0)
    bench.do(commands.Cancel(session, consumer))
    bench.do(commands.ResumeQueue("q"))
    bench.do(commands.OpenDurable("q", "reader"))
    reader = commands.Reserve(2, 1, 600, session)
    for command in (reader, commands.Fetch(2, 1, 1, 600, session)):
        calls = counted(partial(bench.do, command))
        [sent] = present(bench.effects, effects.Deliver)
        counts = [run.count for run in sent.runs]
        assert counts == [200, 200, 124, 76], "one batch lies in two blocks"
        assert {one.attempt for one in bench.delivered()} == {2}
    assert calls < 8 * 600, "a fetch does much for each of them"


@pytest.mark.slow
def test_a_fetch_of_single_reservations_continues_in_slices() -> None:
    bench = Bench(check=False)
    bench.declare("q")
    session = bench.attach()
    bench.do(commands.OpenDurable("q", "reader", {"lock_ms": bounds.LOCK_MS_MAX}))
    count = 2 * limits.STEP_MESSAGES // limits.RECORD_COST
    bench.publish(session, "q", *[b""] * count)
    for _ in range(count):
        bench.do(commands.Reserve(1, 1, 1, session))
        bench.advance(1)
    sent: list[int] = []
    first, told, slices = 1, 0, 0
    while first:
        reply = expect(replies.Reserved, bench.do(commands.Fetch(1, 1, first, count, session)))
        came = [one.token for one in bench.delivered()]
        assert len(came) == reply.count <= limits.STEP_MESSAGES // limits.RECORD_COST
        told, sent, slices = told + reply.count, sent + came, slices + 1
        assert reply.rest == (came[-1] + 1 if told < count else 0)
        first = reply.rest
    assert (told, sent) == (count, list(range(1, count + 1)))
    assert slices > 1


def test_a_delete_does_little_for_each_consumer_and_nothing_for_a_producer() -> None:
    bench = Bench(check=False)
    bench.declare("q")
    bench.declare("r")
    session = bench.attach()
    for place in range(500):
        bench.subscribe(session, "q", f"t{place}")
    opened = expect(replies.ProducerOpened, bench.do(commands.OpenProducer("p")))
    area = Area()
    bodies = [b""] * 500  # one is held by each
    one = publish_command(area, "q", bodies, producer=opened.producer, previous=0, number=1)
    bench.apply(one, area=area)
    calls = counted(lambda: bench.do(commands.DeleteQueue("q")))
    assert calls < 55 * 500
    state = bench.machine.state
    assert list(state.producers[opened.producer].queues) == [1], "it is looked at"
    again = expect(replies.ProducerOpened, bench.do(commands.OpenProducer("p")))
    assert (again.producer, again.last) == (opened.producer, ())
    area = Area()
    one = publish_command(area, "r", [b""], producer=opened.producer, previous=0, number=1)
    bench.apply(one, area=area)
    assert list(state.producers[opened.producer].queues) == [state.queue_names["r"]]


def test_the_longest_backoff_stops_multiplying_at_its_maximum() -> None:
    slowest = parse("exponential:1ms..3650d*1.1")
    assert backoff.delay_ms(slowest, limits.NUMBER_MAX) == 3650 * 86_400_000


@pytest.mark.parametrize("verb", list(Verb))
def test_the_largest_settlement_is_one_command_and_a_larger_one_is_refused(
    verb: Verb,
) -> None:
    most = bounds.SETTLE_MESSAGES_MAX
    bench = filled(PIECE, holders=1, dead_letter="d")
    bench.do(commands.PauseQueue("q"))
    refused(bench.settle(1, verb, (1, most + 1)), "too_large")
    assert bench.counts("q") == (0, PIECE, 0)
    expect(replies.Receipt, bench.settle(1, verb, (1, most)))
    assert bench.overview("q")["locked"] == PIECE - most


@pytest.mark.parametrize("dead_letter", [None, "d"])
def test_an_expired_or_dropped_message_counts_for_more_than_one(dead_letter: str | None) -> None:
    few = limits.STEP_MESSAGES // limits.LEAVE_COST
    bench = filled(2 * PIECE, ttl_ms=5_000, dead_letter=dead_letter)
    bench.advance(5_000)
    bench.subscribe(1, "q")
    assert bench.overview("q")["counters"]["expired"] == few, "by a checkout"

    bench = filled(2 * PIECE, ttl_ms=5_000, dead_letter=dead_letter)
    bench.advance(5_000)
    bench.tick()
    blocks = -(-2 * PIECE // limits.BLOCK_MESSAGES)
    cost = limits.LEAVE_COST if dead_letter else limits.RECORD_COST
    in_blocks = limits.STEP_MESSAGES // (cost * limits.BLOCK_MESSAGES + limits.BLOCK_COST) + 1
    assert in_blocks < blocks
    ticked = (limits.STEP_MESSAGES - in_blocks * limits.BLOCK_COST) // cost
    assert bench.overview("q")["counters"]["expired"] == ticked, "by a tick"

    bench = filled(2 * PIECE, overflow="drop_oldest", max_length=MANY, dead_letter=dead_letter)
    bench.do(commands.UpdateQueue("q", {"max_length": 10}))
    assert bench.overview("q")["counters"]["overflow_dropped"] == few


def test_messages_with_keys_are_handed_out_one_by_one_and_count_for_more_than_one() -> None:
    bench = Bench(check=False)
    bench.declare("q", ordering="key")
    session = bench.attach()
    count = 2 * PIECE + 100
    bench.publish(session, "q", *[b""] * count, keys=[b"%d" % key for key in range(count)])
    bench.publish(session, "q", *[b""] * count, keys=[b"%d" % key for key in range(count)])
    few = limits.STEP_MESSAGES // limits.RECORD_COST
    consumer = bench.subscribe(session, "q", prefetch=count).consumer
    sent = len(bench.delivered())
    assert sent == few
    while bench.tick():
        assert len(bench.delivered()) - sent <= few
        sent = len(bench.delivered())
    assert bench.counts("q") == (count, count, 0)
    bench.ack(consumer, (1, count))
    bench.tick_all()
    assert bench.counts("q") == (0, count, 0)
    invariants.check(bench.machine.state)


def test_what_is_left_to_hand_out_is_no_work_while_no_consumer_can_have_it() -> None:
    """Else each tick says that another is due at once, for as long as the consumer is away."""
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    bench.publish(session, "q", *[b"x"] * 1_000)
    bench.subscribe(session, "q", "first", prefetch=1_000, lock_ms=1_000)
    bench.now = 1_000
    bench.tick_all()
    bench.subscribe(session, "q", "second", prefetch=1_000)
    assert bench.machine.state.pending, "what came back is handed out in steps"
    bench.detach(session)
    assert not bench.tick()
    bench.attach()
    bench.tick_all()
    assert bench.counts("q") == (0, 1_000, 0)


def test_a_single_message_costs_few_calls() -> None:
    """Publish, checkout and ack in two entries. A lane of locks that is made and dropped for each
    is fifty calls and returns more."""
    bench = Bench(check=False)
    bench.declare("q")
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer

    def calls(token: int) -> int:
        area = Area()
        publish = publish_command(
            area, "q", [b"a"], session=session, previous=token - 1, number=token
        )
        ack = commands.Settle(session, consumer, int(Verb.ACK), ((token, token),))
        found = counted(lambda: bench.apply(publish, area=area))
        return found + counted(lambda: bench.do(ack))

    first, *others = [calls(token) for token in range(1, 6)]
    assert bench.counts("q") == (0, 0, 0)
    assert max(others) < min(first, 590), (first, others)


def test_an_emptied_lane_of_locks_stays_only_where_nothing_is_held() -> None:
    """The reserve for the next message is one lane per consumer, for any number of its locks."""
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    state = bench.machine.state
    for lock_ms in range(1_000, 9_000, 1_000):
        number = bench.subscribe(session, "q", lock_ms=lock_ms).consumer
        consumer = state.consumers[number]
        bench.publish(session, "q", "a", "b")
        if lock_ms % 2_000:  # what is settled first leaves a lane that goes on
            bench.ack(number, consumer.next_token - 1)
            continue
        assert len(consumer.lanes) == 2
        bench.ack(number, (1, consumer.next_token - 1))
        assert len(consumer.lanes) == len(state.lock_index) == 1
        assert list(bench.machine.lock_consumers()) == [], "no consumer holds a lock"
        restored = Machine.restore(bench.machine.snapshot())
        assert not restored.state.lock_index
        assert restored.snapshot() == bench.machine.snapshot()
    bench.do(commands.Cancel(session, number))
    bench.ack(number, resolved_below=consumer.next_token)
    assert number not in state.consumers
    assert not state.lock_index
