"""Publishing: numbering, columns, limits, drops, dedup windows."""

from array import array
from dataclasses import replace
from typing import Any

import pytest

from fifo.machine import commands, replies
from tests.support.machine import Area, Bench, expect, publish_command, refused


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.declare("q")
    bench.attach()
    return bench


def published(reply: object) -> tuple[int, int]:
    done = expect(replies.Published, reply)
    return done.stored, done.duplicates


def test_a_batch_that_is_sent_again_is_all_duplicates(bench: Bench) -> None:
    assert published(bench.publish(1, "q", "a", "b", previous=0, number=1)) == (2, 0)
    assert published(bench.publish(1, "q", "a", "b", previous=0, number=1)) == (0, 2)
    assert bench.counts("q") == (2, 0, 0)


def test_a_batch_that_overlaps_stores_its_new_messages(bench: Bench) -> None:
    bench.publish(1, "q", "a", "b", previous=0, number=1)
    assert published(bench.publish(1, "q", "b", "c", "d", previous=1, number=2)) == (2, 1)
    bench.subscribe(1, "q")
    assert bench.bodies() == ["a", "b", "c", "d"]


def test_a_gap_is_refused_with_the_expected_number(bench: Bench) -> None:
    bench.publish(1, "q", "a", previous=0, number=1)
    reply = expect(replies.Published, bench.publish(1, "q", "c", previous=2, number=3))
    assert refused(reply.refused, "gap").detail == {"expected": 1}
    assert (reply.stored, reply.duplicates) == (0, 0)


def test_numbers_may_have_holes_and_are_kept(bench: Bench) -> None:
    reply = bench.publish(1, "q", "a", "b", "c", previous=0, number=5, numbers=[5, 9, 10])
    assert published(reply) == (3, 0)
    assert published(bench.publish(1, "q", "b", previous=5, number=9)) == (0, 1)
    bench.subscribe(1, "q")
    assert [message.message_id[2] for message in bench.delivered()] == [5, 9, 10]


def test_numbering_is_per_queue(bench: Bench) -> None:
    bench.declare("r")
    bench.publish(1, "q", "a", previous=0, number=1)
    assert published(bench.publish(1, "r", "b", previous=0, number=1)) == (1, 0)


def test_an_unknown_producer_is_refused_never_taken_as_new(bench: Bench) -> None:
    area = Area()
    command = publish_command(area, "q", [b"a"], producer=77, session=1, previous=0, number=1)
    refused(bench.apply(command, area=area)[0], "unknown_producer")


def test_another_sessions_own_producer_is_refused(bench: Bench) -> None:
    other = bench.attach("other")
    area = Area()
    command = publish_command(area, "q", [b"a"], producer=1, session=other, previous=0, number=1)
    refused(bench.apply(command, area=area)[0], "unknown_producer")


def test_a_named_producer_outlives_sessions_and_ends_after_seven_idle_days(bench: Bench) -> None:
    opened = expect(replies.ProducerOpened, bench.do(commands.OpenProducer("p")))

    def send(number: int) -> object:
        area = Area()
        command = publish_command(
            area, "q", [b"x"], producer=opened.producer, previous=number - 1, number=number
        )
        return bench.apply(command, area=area)[0]

    assert published(send(1)) == (1, 0)
    bench.do(commands.EndSession(1))
    bench.advance(6 * 86_400_000)
    bench.tick_all()
    assert published(send(2)) == (1, 0)
    again = expect(replies.ProducerOpened, bench.do(commands.OpenProducer("p")))
    assert again == replies.ProducerOpened(opened.producer, (("q", 1, 2),))
    bench.advance(7 * 86_400_000)
    bench.tick_all()
    refused(send(3), "unknown_producer")
    assert bench.machine.next_due_ms() is None


def test_columns_round_trip(bench: Bench) -> None:
    bench.publish(
        1,
        "q",
        *(b"body%d" % place for place in range(5)),
        keys=[b"", b"k1", b"", b"k3", b"k4"],
        headers=[b"h0", b"", b"", b"h3", b""],
        priorities=[4, 4, 9, 4, 4],
    )
    bench.subscribe(1, "q")
    seen = [(m.body, m.key, m.headers, m.priority) for m in bench.delivered()]
    assert seen == [
        (b"body2", b"", b"", 9),
        (b"body0", b"", b"h0", 4),
        (b"body1", b"k1", b"", 4),
        (b"body3", b"k3", b"h3", 4),
        (b"body4", b"k4", b"", 4),
    ]


def test_a_batch_over_a_blocks_end_is_whole(bench: Bench) -> None:
    for round_ in range(3):
        bodies = [b"%d" % (round_ * 700 + place) for place in range(700)]
        bench.publish(1, "q", *bodies, keys=[b"k" + body for body in bodies])
    bench.subscribe(1, "q", prefetch=2_100)
    delivered = bench.delivered()
    assert [int(message.body) for message in delivered] == list(range(2_100))
    assert all(message.key == b"k" + message.body for message in delivered)
    assert bench.ack(1, (1, 2_100)) == ["ok"] * 2_100
    assert bench.overview("q")["bytes"] == 0


def test_a_fresh_batch_that_is_delivered_whole_is_one_run(bench: Bench) -> None:
    bench.subscribe(1, "q", prefetch=500)
    bench.publish(1, "q", *(b"x" * 10 for _ in range(500)))
    (deliver,) = bench.effects
    assert [run.count for run in deliver.runs] == [500]  # type: ignore[union-attr]


@pytest.mark.parametrize("priority", [10, 255])
def test_a_priority_above_9_is_refused(bench: Bench, priority: int) -> None:
    refused(bench.publish(1, "q", "a", priorities=[priority]), "invalid")


def test_columns_that_leave_the_area_are_refused(bench: Bench) -> None:
    area = Area()
    good = publish_command(area, "q", [b"abc"], session=1, previous=0, number=1)
    bad: list[dict[str, Any]] = [
        {"bodies_at": 6},
        {"sizes_at": len(area.data) - 2},
        {"keys": (0, 7)},
        {"keys": (1 << 20, 0)},
        {"delays_at": len(area.data)},
        {"ttls_at": 1},
        {"priorities_at": len(area.data)},
        {"numbers_at": 0},
        {"previous": 1},
        {"dedup": (4, 0)},
    ]
    for change in bad:
        refused(bench.apply(replace(good, **change), area=area)[0], "invalid")
    assert bench.counts("q") == (0, 0, 0)


def test_a_body_above_the_limit_is_refused(bench: Bench) -> None:
    refused(bench.publish(1, "q", bytes((1 << 20) + 1)), "invalid")
    assert published(bench.publish(1, "q", bytes(1 << 20))) == (1, 0)


def test_a_reject_queue_stores_the_prefix_that_fits() -> None:
    bench = Bench()
    bench.declare("q", max_length=3, max_bytes=10)
    bench.attach()
    reply = expect(replies.Published, bench.publish(1, "q", "aaaa", "bbbb", "cc", "d"))
    assert reply.stored == 3
    assert reply.refused is not None
    assert reply.refused.code == "queue_full"


def test_locked_messages_count_and_are_never_dropped() -> None:
    bench = Bench()
    bench.declare("q", max_length=2, overflow="drop_oldest")
    bench.attach()
    bench.subscribe(1, "q", prefetch=2)
    bench.publish(1, "q", "a", "b")
    reply = expect(replies.Published, bench.publish(1, "q", "c"))
    assert reply.stored == 0
    assert reply.refused is not None
    assert bench.counts("q") == (0, 2, 0)


def test_dropped_messages_are_dead_lettered_where_configured() -> None:
    bench = Bench()
    bench.declare(
        "q", max_length=2, overflow="drop_oldest", dead_letter="d", dead_letter_overflow=True
    )
    bench.attach()
    bench.publish(1, "q", "a", "b", "c", "d", "e")
    assert bench.counts("q") == (2, 0, 0)
    assert bench.counts("d") == (3, 0, 0)
    bench.subscribe(1, "d")
    assert bench.bodies() == ["a", "b", "c"]


def test_a_body_larger_than_a_drop_oldest_queue_drops_nothing() -> None:
    bench = Bench()
    bench.declare("q", max_bytes=10, overflow="drop_oldest")
    bench.attach()
    bench.publish(1, "q", "aaaa", "bbbb")
    reply = expect(replies.Published, bench.publish(1, "q", "c" * 11))
    assert reply.stored == 0
    assert bench.counts("q") == (2, 0, 0)


def test_a_return_never_triggers_a_drop() -> None:
    bench = Bench()
    bench.declare("q", max_length=2, overflow="drop_oldest", nack_backoff="fixed:0s")
    bench.attach()
    bench.publish(1, "q", "a", "b")
    bench.subscribe(1, "q", prefetch=1)
    bench.do(commands.UpdateQueue("q", {"max_length": 1}))
    assert bench.counts("q") == (0, 1, 0)
    bench.nack(1, 1)
    assert bench.bodies() == ["a"]
    assert bench.overview("q")["counters"]["overflow_dropped"] == 1


def test_the_same_dedup_id_twice_in_one_batch_is_stored_once() -> None:
    bench = Bench()
    bench.declare("q", dedup_window_ms=1_000)
    bench.attach()
    reply = bench.publish(1, "q", "a", "b", "c", dedup=[b"1", b"1", b"2"])
    assert published(reply) == (3, 0)
    bench.subscribe(1, "q")
    assert bench.bodies() == ["a", "c"]


def test_a_message_expires_on_time_wherever_it_stands() -> None:
    bench = Bench()
    bench.declare("q", dead_letter="d")
    bench.attach()
    bench.publish(1, "q", "long", "short", "never", ttls=[9_000, 1_000, 0])
    bench.publish(1, "q", "delayed", ttls=[2_000], delays=[60_000])
    assert bench.machine.next_due_ms() == 1_000
    bench.advance(1_000)
    bench.tick_all()
    assert bench.counts("q") == (2, 0, 1)
    assert bench.machine.next_due_ms() == 2_000
    bench.advance(1_000)
    bench.tick_all()
    assert bench.counts("q") == (2, 0, 0)
    assert bench.counts("d") == (2, 0, 0)


def test_a_checkout_never_hands_out_an_expired_message() -> None:
    bench = Bench()
    bench.declare("q")
    bench.attach()
    bench.publish(1, "q", "a", "b", "c", ttls=[1_000, 0, 1_000])
    bench.advance(1_000)
    bench.subscribe(1, "q")
    assert bench.bodies() == ["b"]
    assert bench.overview("q")["counters"]["expired"] == 2


def test_an_idle_queue_makes_no_tick_due_for_messages_that_have_gone() -> None:
    bench = Bench()
    bench.declare("q", ttl_ms=1_000)
    bench.attach()
    bench.subscribe(1, "q")
    bench.publish(1, "q", "a", "b")
    bench.ack(1, (1, 2))
    assert bench.machine.next_due_ms() is None
    bench.publish(1, "q", "c")
    assert bench.bodies() == ["c"]


def test_a_thousand_ready_messages_of_batches_take_few_bytes_each() -> None:
    bench = Bench()
    bench.declare("q")
    bench.attach()
    for _ in range(4):
        bench.publish(1, "q", *(b"x" for _ in range(512)))
    queue = next(iter(bench.machine.state.queues.values()))
    held = sum(
        len(column) * column.itemsize
        for block in queue.blocks.values()
        for name in block.__slots__
        if isinstance(column := getattr(block, name), array)
    )
    assert held / 2_048 < 5


def test_the_lowest_priority_is_dropped_before_an_older_message_of_a_higher_one() -> None:
    bench = Bench()
    bench.declare("q", max_length=3, overflow="drop_oldest")
    bench.attach()
    bench.publish(1, "q", "middle", "low", "lower", priorities=[3, 2, 1])
    bench.publish(1, "q", "new1", "new2", priorities=[5, 5])
    bench.subscribe(1, "q")
    assert bench.bodies() == ["new1", "new2", "middle"]


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
