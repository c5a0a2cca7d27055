"""What the comparison with the model has found in the machine, or in the model, as the smallest
story of each."""

from fifo.machine import Machine, commands, invariants, replies
from fifo.words.settlement import Verb
from tests.machine.model.comparing import Pair
from tests.machine.model.verbs import Letter, Post
from tests.support.machine import Bench, expect, refused, sixteen


def bodies(bench: Bench) -> list[str]:
    """The bodies that the last entry delivered anew."""
    return [one.body.decode() for one in bench.delivered() if not one.repeat]


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


def test_a_cancelled_consumer_that_never_got_anything_is_gone_at_once() -> None:
    bench = Bench()
    bench.declare("q")
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer
    bench.do(commands.Cancel(session, consumer))
    assert bench.machine.consumers_of("q") == []
    refused(bench.do(commands.Alive(session, consumer)), "unknown_consumer")


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
    assert bodies(bench) == ["new"]


def test_a_dedup_duplicate_needs_no_room_in_a_full_queue() -> None:
    bench = Bench()
    bench.declare("q", max_length=2, dedup_window_ms=60_000)
    session = bench.attach()
    bench.publish(session, "q", "a", dedup=[b"a"])
    reply = bench.publish(session, "q", "b", "a", dedup=[b"b", b"a"])
    assert expect(replies.Published, reply).refused is None
    reply = bench.publish(session, "q", "a", "c", dedup=[b"a", b"c"])
    published = expect(replies.Published, reply)
    assert (published.stored, bench.overview("q")["messages"]) == (1, 2)
    refused(published.refused, "queue_full")


def test_dedup_ids_whose_window_has_passed_make_room_before_a_tick_comes() -> None:
    bench = Bench()
    bench.declare("q", dedup_window_ms=1_000, dedup_max=1)
    session = bench.attach()
    bench.publish(session, "q", "a", dedup=[b"a"])
    refused(
        expect(replies.Published, bench.publish(session, "q", "b", dedup=[b"b"])).refused,
        "dedup_full",
    )
    bench.advance(1_000)
    assert expect(replies.Published, bench.publish(session, "q", "b", dedup=[b"b"])).stored == 1


def test_a_late_disconnect_does_not_count_as_a_resume() -> None:
    bench = Bench()
    session = bench.attach()
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


def test_a_higher_priority_passes_one_that_waits_with_its_key_reserved() -> None:
    bench = Bench()
    bench.declare("q", ordering="key", priorities=True)
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer
    bench.publish(session, "q", "low", keys=[b"k"])
    bench.release(consumer, 1)
    bench.publish(session, "q", "high", keys=[b"k"], priorities=[9])
    assert bodies(bench) == ["high"]
    bench.advance(1_000)
    bench.tick()
    assert bodies(bench) == [], "one at a time per key"
    bench.ack(consumer, 2)
    assert bodies(bench) == ["low"]
    assert bench.settle(consumer, Verb.ACK, 3)
    invariants.check(Machine.restore(bench.machine.snapshot()).state)


def test_one_that_gave_its_key_up_is_not_passed_by_those_behind_it() -> None:
    bench = Bench()
    bench.declare("q", ordering="key", on_delay="skip")
    session = bench.attach()
    consumer = bench.subscribe(session, "q").consumer
    bench.publish(session, "q", "a", "b", "c", keys=[b"k", b"k", b"k"])
    bench.nack(consumer, 1, delay_ms=500)
    assert bodies(bench) == ["b"]
    bench.release(consumer, 2)
    bench.advance(500)
    bench.tick()
    assert bodies(bench) == ["a"], "b has the key only reserved, and stands behind a"
    bench.nack(consumer, 3, delay_ms=500)
    assert bodies(bench) == ["b"], "not c"


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


def test_nobody_is_activated_in_the_place_of_a_cancelled_one_while_a_get_holds() -> None:
    bench, _, other = single_active_with_a_get_after_a_cancel()
    assert not bench.subscribe(other, "q", "new").active
    assert bodies(bench) == []
    invariants.check(bench.machine.state)


def test_a_cancelled_active_one_that_is_back_waits_while_a_get_holds() -> None:
    bench, session, _ = single_active_with_a_get_after_a_cancel()
    assert not bench.subscribe(session, "q").active
    assert bodies(bench) == []
    invariants.check(bench.machine.state)


def test_a_message_with_a_key_is_ordered_where_it_came_beside_others_that_were() -> None:
    bench = Bench()
    bench.declare("keys", ordering="key")
    bench.declare("plain")
    session = bench.attach()
    bench.publish(session, "keys", "ordered", keys=[b"k"])
    bench.do(commands.Move("keys", "plain"))
    bench.publish(session, "plain", "a", "b", keys=[b"l", b"l"])
    bench.do(commands.Move("plain", "keys", 3))
    bench.subscribe(session, "keys")
    assert bodies(bench) == ["ordered", "a"], "b has a key, so it comes after a"


def test_who_releases_a_message_again_does_not_get_it_when_the_first_second_is_over() -> None:
    bench = Bench()
    bench.declare("q")
    session, other = bench.attach("s"), bench.attach("t")
    consumer = bench.subscribe(session, "q").consumer
    bench.publish(session, "q", "a")
    bench.release(consumer, 1)
    another = bench.subscribe(other, "q").consumer
    assert bodies(bench) == ["a"]
    bench.do(commands.Cancel(other, another))
    bench.nack(another, 1, delay_ms=0)
    assert bodies(bench) == ["a"], "it came back from somebody else"
    bench.advance(600)
    bench.release(consumer, 2)
    bench.advance(400)
    bench.tick_all()
    assert bodies(bench) == []
    bench.advance(600)
    bench.tick_all()
    assert bodies(bench) == ["a"]


def test_a_redrive_that_begins_in_the_entry_in_which_messages_died_is_about_them() -> None:
    pair = Pair()
    pair.apply(0, commands.Declare("q", {"dead_letter": "dead"}))
    pair.apply(0, commands.Attach(sixteen("s"), 0, sixteen("i"), "u", "host:1"))
    letters = [Letter(1, b"a", ttl_ms=500), Letter(2, b"b", priority=9, ttl_ms=500)]
    pair.apply(0, Post(1, 0, "q", 0, letters))
    # In which order they die is open, and the model learns it when the redrive has begun.
    pair.apply(5_000, commands.Tick(), commands.Redrive("dead"))
    found, until = pair.machine.redrive_candidates("dead", 10)
    positions = tuple(position for position, _ in found)
    pair.apply(5_000, commands.RedriveStep("dead", 0, until, positions))
    assert [len(pair.world.in_queue(name)) for name in ("dead", "q")] == [0, 2]


def test_a_message_that_its_releaser_avoids_expires_with_the_next_tick() -> None:
    pair = Pair()
    pair.apply(0, commands.Declare("q", {"ttl_ms": 1_000}))
    pair.apply(0, commands.Attach(sixteen("s"), 0, sixteen("i"), "u", "host:1"))
    pair.apply(0, Post(1, 0, "q", 0, [Letter(1, b"a"), Letter(2, b"b")]))
    pair.apply(0, commands.Get(1, "q"))
    pair.apply(250, commands.Settle(1, 1, int(Verb.RELEASE), ((1, 1),)))
    pair.apply(5_000, commands.Get(1, "q"))
    assert [len(pair.world.in_queue("q")), len(pair.delivered)] == [1, 1]
    pair.apply(5_000, commands.Tick())
    assert not pair.world.in_queue("q")
