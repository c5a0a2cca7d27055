"""Settlements: a receipt per message, fencing, late acks, the bounds of the remembered tokens."""

from unittest.mock import patch

import pytest

from fifo.machine import Machine, commands, consumers, limits, replies
from fifo.machine.effects import Deliver
from fifo.machine.snapshot import bodies
from fifo.machine.snapshot.snapshot_stream import Still
from fifo.words import bounds
from fifo.words.handles import handle_of
from fifo.words.settlement import Status, Verb
from tests.support.machine import (
    Area,
    Bench,
    absent,
    expect,
    key_of,
    refused,
    sixteen,
    statuses,
)


def with_session() -> Bench:
    """Return a machine with a queue and a session."""
    bench = Bench()
    bench.declare("q", lock_ms=2_000, nack_backoff="fixed:0s")
    bench.attach()
    return bench


@pytest.fixture
def bench() -> Bench:
    return with_session()


def test_every_token_of_a_range_gets_its_own_answer(bench: Bench) -> None:
    bench.publish(1, "q", *"abcdef")
    bench.subscribe(1, "q", prefetch=5)
    bench.ack(1, 2)
    assert bench.ack(1, (1, 4)) == ["ok", "already_settled", "ok", "ok"]
    # Token 6 went out when there was room; 9 never did, which promises nothing.
    assert bench.ack(1, (5, 6), 9) == ["ok", "ok", "lock_lost"]


def test_an_unknown_consumer_is_answered_for_each_token(bench: Bench) -> None:
    assert statuses(bench.settle(9, Verb.ACK, (1, 2), session=1)) == ["unknown_consumer"] * 2


def test_another_session_of_the_same_user_may_settle_and_proves_nothing(bench: Bench) -> None:
    other = bench.attach("other")
    bench.publish(1, "q", "a", "b", "c")
    bench.subscribe(1, "q", prefetch=2)
    bench.advance(1_000)
    bench.ack(1, 2)
    bench.advance(1_000)
    bench.tick_all()
    assert bench.machine.consumers_of("q")[0]["flags"] == ["suspected"]
    handles = (handle_of(key_of("s"), 1, 3),)
    assert bench.ack(1, 3, session=other, handles=handles) == ["ok"]
    assert bench.machine.consumers_of("q")[0]["flags"] == ["suspected"]


def test_a_bare_token_settles_nothing_of_another_session(bench: Bench) -> None:
    other = bench.attach("other")
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q")
    reply = refused(bench.settle(1, Verb.ACK, 1, session=other), "forbidden")
    assert "pass the handle that came with the message" in reply.text
    assert bench.counts("q") == (0, 1, 0)
    assert bench.ack(1, 1) == ["ok"]


def test_a_wrong_handle_settles_nothing_in_any_session() -> None:
    bench = with_session()
    other = bench.attach("other")
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q")
    one, two = (handle_of(key_of("s"), 1, token) for token in (1, 2))
    for session in (1, other):
        for wrong in ((two, one), (one, one), (one, bytes(16))):
            reply = bench.settle(1, Verb.ACK, (1, 2), session=session, handles=wrong)
            assert "is not the handle of token" in refused(reply, "forbidden").text
        reply = bench.settle(1, Verb.ACK, (1, 2), session=session, handles=(one,))
        assert "1 handles for 2 tokens" in refused(reply, "invalid").text
    assert bench.counts("q") == (0, 2, 0)
    assert bench.ack(1, (1, 2), session=other, handles=(one, two)) == ["ok", "ok"]


def test_a_handle_outlives_snapshots_changes_of_leader_and_resumes() -> None:
    bench = with_session()
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q")
    bench.machine = Machine.restore(bench.machine.snapshot())
    bench.do(commands.Lead(1))
    resume = commands.Attach(sixteen("s"), 0, sixteen("i"), b"another key 1234", "u", "host:1")
    assert expect(replies.Attached, bench.do(resume)).handle_key == key_of("s")
    other = bench.attach("other")
    handles = (handle_of(key_of("s"), 1, 1),)
    assert bench.ack(1, 1, session=other, handles=handles) == ["ok"]


def test_without_users_a_bare_token_settles_as_before(bench: Bench) -> None:
    owner, other = bench.attach("one", user=""), bench.attach("two", user="")
    bench.publish(1, "q", "a", "b")
    consumer = bench.subscribe(owner, "q").consumer
    assert bench.ack(consumer, 1, session=other) == ["ok"]
    wrong = (handle_of(key_of("two"), consumer, 2),)
    refused(bench.settle(consumer, Verb.ACK, 2, session=other, handles=wrong), "forbidden")
    right = (handle_of(key_of("one"), consumer, 2),)
    assert bench.ack(consumer, 2, session=other, handles=right) == ["ok"]


def test_a_session_of_another_user_may_not_settle(bench: Bench) -> None:
    mallory = bench.attach("mallory", user="mallory")
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q")
    right = (handle_of(key_of("s"), 1, 1),)
    assert bench.ack(1, 1, session=mallory) == ["unknown_consumer"]
    assert bench.ack(1, 1, session=mallory, handles=right) == ["unknown_consumer"]
    assert bench.counts("q") == (0, 1, 0)


def test_below_the_resolved_mark_the_answer_is_always_lock_lost(bench: Bench) -> None:
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q")
    assert bench.ack(1, 1) == ["ok"]
    assert bench.ack(1, 2, resolved_below=2) == ["ok"]
    assert bench.ack(1, 1) == ["lock_lost"]
    assert bench.ack(1, 2) == ["already_settled"]


def test_a_settlement_resolves_nothing_that_it_asks_about_itself(bench: Bench) -> None:
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q")
    assert bench.ack(1, 1, resolved_below=3) == ["ok"]
    assert bench.ack(1, 1, resolved_below=3) == ["already_settled"], "the answer may get lost"
    assert bench.ack(1, 2, resolved_below=3) == ["ok"]
    assert bench.ack(1, 1) == ["lock_lost"]


def test_late_nack_and_release_change_nothing(bench: Bench) -> None:
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q", prefetch=1)
    bench.do(commands.PauseQueue("q"))
    bench.advance(2_000)
    bench.tick_all()
    assert bench.nack(1, 1) == ["lock_lost"]
    assert bench.release(1, 1) == ["lock_lost"]
    assert bench.counts("q") == (1, 0, 0)
    assert bench.ack(1, 1) == ["ok+late"]
    assert bench.ack(1, 1) == ["already_settled"]


def test_a_late_ack_reaches_a_message_that_waits_for_its_key() -> None:
    bench = Bench()
    bench.declare("q", ordering="key", lock_ms=2_000)
    bench.attach()
    bench.publish(1, "q", "a", "b", keys=[b"k", b"k"], delays=[1_000, 0])
    bench.subscribe(1, "q", prefetch=1)
    assert bench.bodies() == ["b"]
    bench.advance(2_000)
    bench.tick_all()
    assert bench.ack(1, 1) == ["ok+late"]
    assert bench.bodies() == ["a"]


def test_late_settlements_do_not_reach_purged_or_moved_messages(bench: Bench) -> None:
    bench.declare("r")
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q", prefetch=2)
    bench.do(commands.PauseQueue("q"))
    bench.advance(2_000)
    bench.tick_all()
    assert bench.do(commands.Move("q", "r", 1)) == replies.Moved(1, 0)
    bench.do(commands.Purge("q"))
    assert bench.ack(1, (1, 2)) == ["lock_lost", "lock_lost"]
    assert bench.counts("r") == (1, 0, 0)


def test_too_many_tokens_in_one_command_are_refused(bench: Bench) -> None:
    bench.subscribe(1, "q")
    command = commands.Settle(1, 1, 0, ((1, bounds.SETTLE_MESSAGES_MAX + 1),))
    refused(bench.do(command), "too_large")


def test_taken_ranges_are_bounded_and_merge_into_lock_lost(bench: Bench) -> None:
    consumer = bench.machine.state.consumers[bench.subscribe(1, "q").consumer]
    consumer.next_token = 100_000
    for token in range(2, 2 * limits.TAKEN_RANGES + 4, 2):
        consumers.add_taken(consumer, token, token, dead=True)
    assert len(consumer.taken) == limits.TAKEN_RANGES
    assert consumer.taken[0] == (2, 4, False)
    # 3 was settled; in doubt it is lost. 7 stands between two ranges that were not merged.
    assert bench.ack(1, 3, 6, 7) == ["lock_lost", "dead_lettered", "already_settled"]


def test_taken_ranges_are_bounded_though_late_acks_part_them(bench: Bench) -> None:
    consumer = bench.machine.state.consumers[bench.subscribe(1, "q", prefetch=20).consumer]
    bench.publish(1, "q", *"abcdefghijkl")
    bench.do(commands.PauseQueue("q"))
    bench.advance(2_000)
    bench.tick_all()
    assert consumer.taken == [(1, 12, False)]
    with patch.object(limits, "TAKEN_RANGES", 3):
        assert bench.ack(1, 2, 4, 6, 8) == ["ok+late"] * 4
        assert consumer.taken == [(1, 5, False), (7, 7, False), (9, 12, False)]
        # 2 and 4 were settled; in doubt they are lost. What is in a merged range can still be late.
        assert bench.ack(1, 2, 6, 8) == ["lock_lost", "already_settled", "already_settled"]
        assert bench.ack(1, 3, 12) == ["ok+late", "ok+late"]


def test_notices_are_bounded_and_keep_the_newest_ranges(bench: Bench) -> None:
    bench.subscribe(1, "q", prefetch=1)
    for _ in range(limits.NOTICES + 20):
        bench.check = False
        bench.publish(1, "q", "a")
        bench.advance(2_000)
        bench.tick_all()
        bench.do(commands.Alive(1, 1))
    session = bench.machine.state.sessions[1]
    assert len(session.notices) == limits.NOTICES
    named = [
        token
        for n in session.notices.values()
        for low, high in n.ranges
        for token in range(low, high + 1)
    ]
    assert len(named) == limits.NOTICES + 20


def test_a_dead_letter_keeps_the_texts_of_the_program() -> None:
    bench = Bench()
    bench.declare("q", dead_letter="d")
    bench.attach()
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q")
    bench.terminate(1, 1, reason="bad", exception_type="ValueError", exception_text="no")
    bench.subscribe(1, "d", tag="dead")
    (message,) = bench.delivered()
    letter = message.dead_letter
    assert (letter.exception_type, letter.texts) == ("ValueError", ("bad", None, "no", None))
    assert (letter.source, letter.attempts, message.attempt, message.failures) == ("q", 1, 1, 0)


def test_long_texts_of_a_dead_letter_are_handles_in_the_state() -> None:
    bench = Bench()
    bench.declare("q", dead_letter="d")
    session = bench.attach()
    bench.publish(session, "q", "a", "b")
    consumer = bench.subscribe(session, "q").consumer
    area = Area()
    long = [b"why " * 500, b"description " * 1_000, b"text " * 300, b"stack " * 2_000]
    places = tuple((area.put(text), len(text)) for text in long)
    settle = commands.Settle(session, consumer, int(Verb.TERMINATE), ((1, 1),), texts_at=places)
    bench.apply(settle, area=area)
    buried = bench.index
    # What lies in no area is taken for nothing: bad input never raises.
    outside = commands.Settle(
        session, consumer, int(Verb.TERMINATE), ((2, 2),), texts_at=(None, (0, 9), None, None)
    )
    bench.do(outside)

    machine = Machine.restore(bench.machine.snapshot())
    assert len(machine.snapshot()) < 4_000
    bench.machine = machine
    bench.subscribe(session, "d", tag="dead")
    first, second = [message.dead_letter for message in bench.delivered()]
    for text, said in zip(first.texts, long, strict=True):
        assert text.index == buried
        assert bench.areas[buried][text.at : text.at + text.size] == said
    assert second.texts == (None, None, None, None)


def test_each_long_text_of_a_dead_letter_keeps_its_entry_of_the_log() -> None:
    bench = Bench()
    bench.declare("q", dead_letter="d")
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer
    wanted = []
    for place in range(4):
        bench.publish(session, "q", "a")
        wanted.append(bench.index)
        area = Area()
        long = (area.put(b"why " * 500), 2_000)
        texts_at = tuple([long if at == place else None for at in range(4)])
        token = ((place + 1, place + 1),)
        settle = commands.Settle(session, consumer, int(Verb.TERMINATE), token, texts_at=texts_at)
        bench.apply(settle, area=area)
        wanted.append(bench.index)
    live = bodies.live(Still(bench.machine.state))
    assert [index for step in live for index in step] == wanted


def test_single_active_no_consumer_is_activated_while_a_get_holds_messages() -> None:
    bench = Bench()
    bench.declare("q", ordering="single_active")
    bench.attach()
    bob = bench.attach("bob")
    bench.publish(1, "q", "a", "b")
    got = expect(replies.Got, bench.do(commands.Get(1, "q", 1)))
    assert got.count == 1
    reply = bench.subscribe(bob, "q")
    assert reply.active is False
    assert absent(bench.effects, Deliver)
    refused(bench.do(commands.Get(1, "q", 1)), "subscribed")
    bench.ack(got.consumer, 1)
    assert bench.bodies() == ["b"]


def test_a_durable_consumer_reads_the_same_tokens_again_in_another_session(bench: Bench) -> None:
    bench.publish(1, "q", *"abcd")
    opened = expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "spark")))
    reserve = commands.Reserve(opened.consumer, 1, 3, session=1)
    assert bench.do(reserve) == replies.Reserved(opened.consumer, 1, 3)
    assert bench.bodies() == ["a", "b", "c"]
    bench.do(commands.EndSession(1))
    other = bench.attach("other")
    again = expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "spark")))
    assert again == replies.DurableOpened(opened.consumer, 2, 4, ((1, 3),))
    refused(bench.do(reserve), "old_generation")
    bench.do(commands.Fetch(opened.consumer, 2, 1, 3, session=other))
    assert [(m.body, m.repeat, m.session) for m in bench.delivered()] == [
        (b"a", True, other),
        (b"b", True, other),
        (b"c", True, other),
    ]
    for _ in range(2):
        receipt = expect(replies.Receipt, bench.do(commands.AckUpto(opened.consumer, 2, 2)))
        assert receipt.ranges == ()
    assert bench.counts("q") == (1, 1, 0)


def test_a_durable_consumers_renewal_is_in_the_log_and_its_lost_tokens_are_named(
    bench: Bench,
) -> None:
    bench.publish(1, "q", "a", "b")
    consumer = expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "n"))).consumer
    bench.do(commands.Reserve(consumer, 1, 2, session=1))
    bench.advance(1_500)
    bench.do(commands.RenewDurable(consumer, 1))
    bench.advance(1_500)
    bench.tick_all()
    assert bench.counts("q") == (0, 2, 0)
    assert bench.machine.first_deadline_ms(consumer) == 3_500
    bench.advance(500)
    bench.tick_all()
    assert bench.counts("q") == (2, 0, 0)
    other = bench.attach("other")
    bench.do(commands.Get(other, "q", 1))
    receipt = expect(replies.Receipt, bench.do(commands.AckUpto(consumer, 1, 2)))
    assert receipt.ranges == ((1, 2, 2, False),)


def test_a_durable_consumers_ack_settles_nothing_that_was_lost_before_it_was_seen(
    bench: Bench,
) -> None:
    bench.publish(1, "q", "a", "b")
    consumer = expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "n"))).consumer
    bench.do(commands.Reserve(consumer, 1, 1, session=1))
    bench.advance(1_200)
    bench.do(commands.Reserve(consumer, 1, 1, session=1))
    bench.do(commands.OpenDurable("q", "n"))
    bench.advance(1_200)
    bench.tick_all()
    bench.do(commands.Fetch(consumer, 2, 1, 2, session=1))
    assert bench.bodies() == ["b"]  # Who opened it again never gets to see "a".
    receipt = expect(replies.Receipt, bench.do(commands.AckUpto(consumer, 2, 2)))
    assert receipt.ranges == ((1, 1, 2, False),)
    assert bench.counts("q") == (1, 0, 0)


def test_a_durable_consumers_ack_names_lost_tokens_again_until_they_were_received(
    bench: Bench,
) -> None:
    bench.publish(1, "q", *"abcd")
    consumer = expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "n"))).consumer
    bench.do(commands.Reserve(consumer, 1, 2, session=1))
    bench.advance(2_500)
    bench.tick_all()
    bench.do(commands.Reserve(consumer, 1, 2, session=1))
    lost = ((1, 2, 2, False),)
    for _ in range(2):  # The answer of the first is lost with the leader.
        assert bench.do(commands.AckUpto(consumer, 1, 3)) == replies.Receipt(consumer, lost)
    heard = commands.AckUpto(consumer, 1, 0, answered_below=4)
    assert bench.do(heard) == replies.Receipt(consumer, ())
    assert bench.do(commands.AckUpto(consumer, 1, 4)) == replies.Receipt(consumer, ())


def test_a_durable_consumer_ends_by_forget_or_after_seven_idle_days(bench: Bench) -> None:
    bench.publish(1, "q", "a")
    consumer = expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "n"))).consumer
    bench.do(commands.Reserve(consumer, 1, 1, session=1))
    assert bench.do(commands.Forget(consumer, 1)) == replies.Done()
    assert bench.counts("q") == (1, 0, 0)
    bench.do(commands.OpenDurable("q", "n"))
    bench.advance(limits.DURABLE_MS - 1)
    bench.tick_all()
    assert len(bench.machine.consumers_of("q")) == 1
    bench.advance(1)
    bench.tick_all()
    assert bench.machine.consumers_of("q") == []


def test_a_redrive_pauses_at_a_missing_target_and_keeps_counts_if_asked() -> None:
    bench = Bench()
    bench.declare("q", dead_letter="d", nack_backoff="fixed:0s")
    bench.attach()
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q", prefetch=1)
    bench.nack(1, 1)
    bench.terminate(1, 2)
    bench.do(commands.DeleteQueue("q"))
    bench.do(commands.Redrive("d", reset_counts=False))
    found, until = bench.machine.redrive_candidates("d", 10)
    step = commands.RedriveStep("d", 0, until, tuple(position for position, _ in found))
    assert bench.do(step) == replies.Moved(0, 0)
    view = bench.machine.redrive_of("d")
    assert view is not None
    assert (view["status"], view["reason"]) == ("paused", "the target 'q' does not exist")
    bench.declare("q")
    assert expect(replies.Moved, bench.do(step)).messages == 1
    bench.subscribe(1, "q")
    assert [(m.body, m.attempt, m.failures) for m in bench.delivered()] == [(b"a", 3, 1)]


def test_a_redrive_keeps_to_its_rate() -> None:
    bench = Bench()
    bench.declare("q", dead_letter="d")
    bench.attach()
    bench.publish(1, "q", *"abcd")
    bench.subscribe(1, "q")
    bench.terminate(1, (1, 4))
    bench.do(commands.Redrive("d", rate_per_s=2))

    def go_on() -> replies.Reply:
        view = bench.machine.redrive_of("d")
        assert view is not None
        found, until = bench.machine.redrive_candidates("d", 2)
        positions = tuple(position for position, _ in found)
        return bench.do(commands.RedriveStep("d", view["cursor"], until, positions))

    assert expect(replies.Moved, go_on()).messages == 2
    refused(go_on(), "stale")
    bench.advance(1_000)
    assert expect(replies.Moved, go_on()).messages == 2
    view = bench.machine.redrive_of("d")
    assert view is not None
    assert view["status"] == "done"


@pytest.mark.parametrize("count", [25_000])
def test_a_purge_of_many_goes_on_by_ticks_and_spares_later_messages(count: int) -> None:
    bench = Bench(check=False)
    bench.declare("q")
    bench.attach()
    for _ in range(count // 5_000):
        bench.publish(1, "q", *(b"" for _ in range(5_000)))
    assert bench.do(commands.Purge("q")) == replies.Purged(10_000, more=True)
    bench.publish(1, "q", "later", "urgent", priorities=[4, 9])
    assert bench.machine.next_due_ms() == bench.now
    while bench.tick():
        pass
    assert bench.counts("q") == (2, 0, 0)
    assert bench.overview("q")["counters"]["purged"] == count


def test_messages_of_one_key_keep_their_order_under_any_settlement() -> None:
    bench = Bench()
    bench.declare("q", ordering="key", nack_backoff="fixed:1s")
    bench.attach()
    bench.publish(1, "q", *"abcde", keys=[b"k"] * 5)
    bench.subscribe(1, "q")
    assert bench.bodies() == ["a"]
    bench.ack(1, 1)
    assert bench.bodies() == ["b"]
    # A delayed return holds its key: nothing of it comes before.
    bench.nack(1, 2)
    assert bench.bodies() == []
    bench.advance(1_000)
    bench.tick_all()
    assert bench.bodies() == ["b"]
    # So does a release, until its own consumer may have it again.
    bench.release(1, 3)
    assert bench.bodies() == []
    bench.advance(1_000)
    bench.tick_all()
    assert bench.bodies() == ["b"]
    bench.ack(1, 4)
    assert bench.bodies() == ["c"]


def test_a_key_is_passed_on_when_the_message_that_was_to_be_next_expires() -> None:
    bench = Bench()
    bench.declare("q", ordering="key", lock_ms=60_000)
    bench.attach()
    bench.publish(1, "q", *"abc", keys=[b"k"] * 3, ttls=[0, 5_000, 0])
    bench.subscribe(1, "q")
    bench.do(commands.PauseQueue("q"))
    bench.ack(1, 1)
    bench.advance(5_000)
    bench.tick_all()
    bench.do(commands.ResumeQueue("q"))
    assert bench.bodies() == ["c"]


def test_single_active_a_released_message_is_not_overtaken() -> None:
    bench = Bench()
    bench.declare("q", ordering="single_active")
    bench.attach()
    bench.publish(1, "q", *"abc")
    bench.subscribe(1, "q", prefetch=1)
    bench.release(1, 1)
    assert bench.bodies() == []
    bench.advance(1_000)
    bench.tick_all()
    assert bench.bodies() == ["a"]


def test_a_merged_range_answers_later_for_a_token_that_is_still_held() -> None:
    bench = Bench()
    bench.declare("q", lock_ms=2_000)
    session = bench.attach()
    consumer = bench.subscribe(session, "q", prefetch=5).consumer
    with patch.object(limits, "TAKEN_RANGES", 2):
        for body in "abcde":
            bench.publish(session, "q", body)
            bench.advance(100)
        bench.do(commands.PauseQueue("q"))
        bench.advance(1_500)
        for token in (1, 3, 5):  # three ranges: the lowest two become 1-3, and 2 is still held
            bench.advance(2_000)
            bench.do(commands.Tick(((consumer, token, token),)))
        assert bench.machine.state.consumers[consumer].taken == [(1, 3, False), (5, 5, False)]
        bench.do(commands.Tick(((consumer, 2, 2), (consumer, 4, 4))))
        assert bench.machine.state.consumers[consumer].taken == [(1, 5, False)]
    assert bench.nack(consumer, (1, 5)) == ["lock_lost"] * 5


def test_tokens_below_the_resolved_mark_get_one_line_though_their_lock_goes_on_above_it() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    bench.publish(session, "q", *"abcd")
    consumer = bench.subscribe(session, "q").consumer
    bench.ack(consumer, 4, resolved_below=3)
    receipt = expect(replies.Receipt, bench.settle(consumer, Verb.ACK, (1, 2)))
    assert receipt.ranges == ((1, 2, Status.LOCK_LOST, False),)
    assert bench.counts("q") == (0, 3, 0), "they are locked until their time is over"


def test_dead_letters_expire_by_the_ttl_of_the_dead_letter_queue() -> None:
    bench = Bench()
    bench.declare("dead", ttl_ms=30_000)
    bench.declare("q", dead_letter="dead")
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer
    bench.publish(session, "q", "a")
    bench.terminate(consumer, 1)
    assert bench.machine.next_due_ms() == 30_000
    bench.advance(30_000)
    bench.tick()
    assert bench.counts("dead") == (0, 0, 0)


def test_a_dead_letter_is_never_dropped_by_its_own_move() -> None:
    bench = Bench()
    bench.declare("dead", max_length=1, overflow="drop_oldest")
    bench.declare("q", dead_letter="dead")
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer
    bench.publish(session, "dead", "old")
    bench.do(commands.Get(session, "dead"))
    bench.publish(session, "q", "new")
    bench.terminate(consumer, 1)
    assert bench.counts("dead") == (1, 1, 0), "over its limit, for what is locked cannot go"


def test_a_dead_letter_of_low_priority_drops_another_not_itself() -> None:
    bench = Bench()
    bench.declare("dead", max_length=1, overflow="drop_oldest")
    bench.declare("q", dead_letter="dead")
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer
    bench.publish(session, "dead", "old", priorities=[9])
    bench.publish(session, "q", "new", priorities=[0])
    bench.terminate(consumer, 1)
    bench.do(commands.Get(session, "dead"))
    assert bench.fresh_bodies() == ["new"]


def test_a_consumer_that_releases_a_message_again_avoids_it_for_another_second() -> None:
    bench = Bench()
    bench.declare("q")
    session, other = bench.attach("s"), bench.attach("t")
    consumer = bench.subscribe(session, "q").consumer
    bench.publish(session, "q", "a")
    bench.release(consumer, 1)
    another = bench.subscribe(other, "q").consumer
    assert bench.fresh_bodies() == ["a"]
    bench.do(commands.Cancel(other, another))
    bench.nack(another, 1, delay_ms=0)
    assert bench.fresh_bodies() == ["a"], "it came back from another consumer"
    bench.advance(600)
    bench.release(consumer, 2)
    bench.advance(400)
    bench.tick_all()
    assert bench.fresh_bodies() == []
    bench.advance(600)
    bench.tick_all()
    assert bench.fresh_bodies() == ["a"]


def test_with_a_dead_letter_queue_twenty_failures_are_the_default_limit() -> None:
    bench = Bench()
    bench.declare("q", dead_letter="d", nack_backoff="fixed:0s")
    bench.attach()
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q")
    for token in range(1, 20):
        assert bench.nack(1, token) == ["ok"]
    assert bench.nack(1, 20) == ["dead_lettered"]
    assert bench.counts("q") == (0, 0, 0)
    assert bench.counts("d") == (1, 0, 0)


def test_without_a_dead_letter_queue_failures_are_unlimited(bench: Bench) -> None:
    bench.publish(1, "q", "a")
    bench.subscribe(1, "q")
    for token in range(1, 101):
        assert bench.nack(1, token) == ["ok"]
    [again] = bench.delivered()
    assert (again.attempt, again.failures) == (101, 100)
