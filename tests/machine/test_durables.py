"""Durable consumers in the machine: what bounds one reserve or fetch, and verdicts by token."""

from fifo.machine import commands, limits, replies
from fifo.words.settlement import Status, Verb
from tests.support.machine import Bench, expect


def reading(**spec: object) -> Bench:
    """A queue with one session, and the durable consumer 1 on it."""
    bench = Bench()
    bench.declare("q", lock_ms=2_000, **spec)
    bench.attach()
    expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "spark")))
    return bench


def test_a_reserve_ends_with_the_message_that_fills_its_bytes() -> None:
    bench = reading()
    bench.publish(1, "q", *["four"] * 6)
    first = commands.Reserve(1, 1, 100, session=1, max_bytes=9)
    assert bench.do(first) == replies.Reserved(1, 1, 3, left_bytes=0)
    assert bench.bodies() == ["four"] * 3
    assert bench.counts("q") == (3, 3, 0), "what is beyond the bytes stays ready"
    rest = commands.Reserve(1, 1, 100, session=1, max_bytes=50)
    assert bench.do(rest) == replies.Reserved(1, 4, 3, left_bytes=38)


def test_two_reserves_with_what_is_left_take_what_one_takes() -> None:
    bench = reading()
    bench.publish(1, "q", *["12345"] * 10)
    reply = expect(replies.Reserved, bench.do(commands.Reserve(1, 1, 2, 1, max_bytes=22)))
    assert (reply.count, reply.left_bytes) == (2, 12)
    reply = expect(replies.Reserved, bench.do(commands.Reserve(1, 1, 9, 1, reply.left_bytes)))
    assert (reply.count, reply.left_bytes) == (3, 0), "one more than fits, as in one step"


def test_a_message_that_came_back_counts_its_bytes_too() -> None:
    bench = reading()
    bench.publish(1, "q", *["1234567890"] * 4)
    bench.do(commands.Reserve(1, 1, 4, session=1))
    bench.do(commands.Forget(1, 1))
    bench.do(commands.OpenDurable("q", "spark"))
    reply = expect(replies.Reserved, bench.do(commands.Reserve(2, 1, 4, 1, max_bytes=11)))
    assert (reply.count, reply.left_bytes) == (2, 0)


def test_the_bytes_of_a_reserve_span_blocks() -> None:
    bench = reading()
    count = limits.BLOCK_MESSAGES + 100
    for _ in range(count // 50 + 1):
        bench.publish(1, "q", *["1234567890"] * 50)
    reply = expect(replies.Reserved, bench.do(commands.Reserve(1, 1, 5_000, 1, count * 10 - 5)))
    assert (reply.count, reply.left_bytes) == (count, 0)
    fetch = commands.Fetch(1, 1, 1, count, session=1, max_bytes=count * 10 - 15)
    assert bench.do(fetch) == replies.Reserved(1, 1, count - 1, rest=count)


def test_a_fetch_ends_with_the_message_that_fills_its_bytes_and_says_where_to_go_on() -> None:
    bench = reading()
    bench.publish(1, "q", *["four"] * 6)
    bench.do(commands.Reserve(1, 1, 2, session=1))
    bench.advance(1)
    bench.do(commands.Reserve(1, 1, 4, session=1))
    sent, first = [], 1
    while first:
        fetch = commands.Fetch(1, 1, first, 6, session=1, max_bytes=5)
        first = expect(replies.Reserved, bench.do(fetch)).rest
        sent.append([one.token for one in bench.delivered()])
    assert sent == [[1, 2], [3, 4], [5, 6]]


def held_three(bench: Bench) -> None:
    """Six messages, of which the consumer holds tokens 1 to 3."""
    bench.publish(1, "q", *"abcdef")
    bench.do(commands.Reserve(1, 1, 3, session=1))


def settled(bench: Bench, verb: Verb, *tokens: int, generation: int = 1, **more: object) -> object:
    """The lines of a verdict, or the code of its refusal."""
    ranges = tuple((token, token) for token in tokens)
    settle = commands.Settle(1, 1, int(verb), ranges, generation=generation, **more)  # type: ignore[arg-type]  # fields by name
    reply = bench.do(settle)
    return reply.ranges if isinstance(reply, replies.Receipt) else reply.code  # type: ignore[union-attr]  # else refused


OK, SETTLED, LOST, DEAD = (
    int(status)
    for status in (Status.OK, Status.ALREADY_SETTLED, Status.LOCK_LOST, Status.DEAD_LETTERED)
)


def test_each_token_of_a_durable_consumer_can_have_a_verdict_of_its_own() -> None:
    bench = reading()
    held_three(bench)
    assert settled(bench, Verb.NACK, 2, delay_ms=5_000) == ((2, 2, OK, False),)
    assert settled(bench, Verb.ACK, 1) == ((1, 1, OK, False),)
    assert settled(bench, Verb.RELEASE, 3, delay_ms=0) == ((3, 3, OK, False),)
    assert bench.counts("q") == (4, 0, 1)
    assert settled(bench, Verb.ACK, 1, 2, 4) == ((1, 2, SETTLED, False), (4, 4, LOST, False))
    receipt = bench.do(commands.AckUpto(1, 1, 3))
    assert receipt == replies.Receipt(1, ()), "what had a verdict is not lost"


def test_an_older_generation_gives_no_verdict() -> None:
    bench = reading()
    held_three(bench)
    bench.do(commands.OpenDurable("q", "spark"))
    assert settled(bench, Verb.ACK, 1) == "old_generation"
    assert settled(bench, Verb.ACK, 1, generation=2) == ((1, 1, OK, False),)


def test_without_its_generation_no_session_settles_for_a_durable_consumer() -> None:
    bench = reading()
    held_three(bench)
    unknown = int(Status.UNKNOWN_CONSUMER)
    assert settled(bench, Verb.ACK, 1, generation=0) == ((1, 1, unknown, False),)
    assert bench.counts("q") == (3, 3, 0)


def test_a_verdict_on_more_tokens_than_a_command_may_have_is_refused() -> None:
    bench = reading()
    settle = commands.Settle(1, 1, int(Verb.ACK), ((1, 1_001),), generation=1)
    assert isinstance(reply := bench.do(settle), replies.Refused)
    assert reply.code == "too_large"


def test_the_own_nack_at_the_limit_is_not_among_what_an_ack_could_not_settle() -> None:
    bench = reading(dead_letter="dead", max_deliveries=1)
    held_three(bench)
    assert settled(bench, Verb.NACK, 2) == ((2, 2, DEAD, False),)
    assert settled(bench, Verb.NACK, 2) == ((2, 2, SETTLED, False),), "a retry was settled before"
    assert settled(bench, Verb.TERMINATE, 1, reason="bad row") == ((1, 1, OK, False),)
    assert bench.counts("dead") == (2, 0, 0)
    assert bench.do(commands.AckUpto(1, 1, 3)) == replies.Receipt(1, ())


def test_a_lock_that_ran_out_at_the_limit_is_named_by_the_ack() -> None:
    bench = reading(dead_letter="dead", max_deliveries=1)
    held_three(bench)
    bench.advance(2_500)
    bench.tick_all()
    assert bench.do(commands.AckUpto(1, 1, 3)) == replies.Receipt(1, ((1, 3, DEAD, False),))


def test_open_and_fetch_name_what_was_lost_and_not_what_had_a_verdict() -> None:
    bench = reading()
    held_three(bench)
    settled(bench, Verb.ACK, 2)
    bench.advance(1_500)
    bench.do(commands.Reserve(1, 1, 3, session=1))
    bench.advance(1_500)
    bench.tick_all()
    opened = expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "spark")))
    assert (opened.held, opened.lost) == (((4, 6),), ((1, 1), (3, 3)))
    fetched = expect(replies.Reserved, bench.do(commands.Fetch(1, 2, 1, 9, session=1)))
    assert (fetched.count, fetched.lost) == (3, ((1, 1), (3, 3)))
    bench.do(commands.AckUpto(1, 2, 3))
    bench.do(commands.AckUpto(1, 2, 0, answered_below=4))
    opened = expect(replies.DurableOpened, bench.do(commands.OpenDurable("q", "spark")))
    assert (opened.held, opened.lost) == (((4, 6),), ()), "it was heard"
    fetched = expect(replies.Reserved, bench.do(commands.Fetch(1, 3, 2, 9, session=1)))
    assert (fetched.count, fetched.lost) == (3, ((2, 3),)), "nothing is known of it any more"


def test_what_is_beyond_the_bytes_of_a_fetch_is_not_named_lost_by_it() -> None:
    bench = reading()
    bench.publish(1, "q", *"abcdef")
    bench.do(commands.Reserve(1, 1, 2, session=1))
    bench.do(commands.OpenDurable("q", "spark", {"lock_ms": 1_000}))
    bench.do(commands.Reserve(1, 2, 2, session=1))
    bench.advance(1_500)
    bench.tick_all()
    fetched = expect(replies.Reserved, bench.do(commands.Fetch(1, 2, 1, 4, 1, max_bytes=1)))
    assert (fetched.count, fetched.rest, fetched.lost) == (1, 2, ())
    fetched = expect(replies.Reserved, bench.do(commands.Fetch(1, 2, 2, 4, 1, max_bytes=2)))
    assert (fetched.count, fetched.rest, fetched.lost) == (1, 0, ((3, 4),))
