"""Publishing: frames, numbers, answers lost and refused, windows, bad input."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import fifo
from fifo.client import limits
from fifo.client.errors import FifoError, PublishError
from fifo.wire import Code, Frame
from fifo.wire import limits as wire
from fifo.wire.columns import (
    DEDUP_LENGTHS,
    DELAYS_MS,
    HEADER_LENGTHS,
    KEY_LENGTHS,
    NUMBERS,
    PRIORITIES,
    TTLS_MS,
    decode_headers,
    unpack_u64,
)
from fifo.wire.messages import Confirms, Declare, Error, Hello, Message, Ok, OpenProducer, Publish
from tests.support.wire_peer import Line, Peer, confirm_all, layout_of, until, welcome


class Store:
    """A peer's memory of one producer and queue: stores, knows duplicates, answers gaps."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.last = 0
        self.room = 10**9

    def __call__(self, line: Line, frame: Frame) -> None:
        message = frame.message
        assert isinstance(message, Publish)
        layout = layout_of(frame)
        column = layout.column(NUMBERS)
        numbers = (
            list(unpack_u64(column))
            if column is not None
            else list(range(message.number, message.number + message.count))
        )
        error: tuple[Any, ...] | None = None
        duplicates = len([number for number in numbers if number <= self.last])
        stored = 0
        if message.previous > self.last:
            error = (Code.GAP, "gap", True, {"expected": self.last})
            duplicates = 0
        else:
            for number, body in list(zip(numbers, layout.bodies(), strict=True))[duplicates:]:
                if len(self.bodies) >= self.room:
                    error = (Code.QUEUE_FULL, "the queue is full", False, None)
                    break
                self.bodies.append(body)
                self.last = number
                stored += 1
        item = (frame.correlation, 3, 7, duplicates, stored)
        line.send(Confirms(((*item, error) if error else item,)))


async def test_a_confirm_names_queue_producer_and_number_and_columns_travel() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Publish] = confirm_all
        confirm = await client.publish(
            "orders",
            b"body",
            key="k",
            headers={"a": "b"},
            delay=1.5,
            priority=7,
            ttl=60,
            dedup_id="d",
        )
        assert confirm == fifo.Confirm("3.7.1", duplicate=False)
        _, frame, message = await peer.hear(Publish)
        layout = layout_of(frame)
        assert (message.queue, message.producer, message.previous, message.number) == (
            "orders",
            0,
            0,
            1,
        )
        assert layout.bodies() == [b"body"]
        assert layout.blobs(KEY_LENGTHS) == [b"k"]
        assert [decode_headers(one) for one in layout.blobs(HEADER_LENGTHS) or ()] == [{"a": "b"}]
        assert layout.blobs(DEDUP_LENGTHS) == [b"d"]
        assert bytes(layout.column(PRIORITIES) or b"") == b"\x07"
        assert list(unpack_u64(layout.column(DELAYS_MS) or b"")) == [1500]
        assert list(unpack_u64(layout.column(TTLS_MS) or b"")) == [60_000]


async def test_plain_messages_travel_without_columns() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Publish] = confirm_all
        await client.publish_many("orders", [b"a", b"b"])
        _, _, message = await peer.hear(Publish)
        assert [tag for tag, _ in message.columns] == [0]


async def test_messages_published_in_one_turn_share_a_frame() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Publish] = confirm_all
        confirms = await asyncio.gather(
            *[client.publish("orders", b"%d" % n, key=f"k{n}" if n else None) for n in range(20)]
        )
        assert [confirm.id for confirm in confirms] == [f"3.7.{n}" for n in range(1, 21)]
        assert peer.count(Publish) == 1


async def test_publish_many_splits_into_frames_within_every_bound() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        store = peer.answers[Publish] = Store()
        bodies = [b"x" * 1000] * 1200 + [b"y" * wire.BODY_BYTES_MAX] + [b"z" * 400_000] * 3
        confirms = await client.publish_many("orders", bodies)
        assert store.bodies == bodies
        assert len(confirms) == len(bodies)
        assert [confirm.id for confirm in confirms] == [
            f"3.7.{n}" for n in range(1, len(bodies) + 1)
        ]
        previous = 0
        while peer.count(Publish):
            _, frame, message = await peer.hear(Publish)
            layout = layout_of(frame)
            assert message.count <= limits.FRAME_MESSAGES
            assert message.count == 1 or layout.bodies_bytes <= wire.PUBLISH_BYTES_MAX
            assert message.previous == previous
            previous = message.number + message.count - 1


async def test_large_headers_split_a_frame_before_the_node_would_refuse_it() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        store = peer.answers[Publish] = Store()
        headers = [{"h": "x" * 60_000}] * 40
        await client.publish_many("orders", [b""] * 40, headers=headers, keys=["k" * 1000] * 40)
        assert len(store.bodies) == 40
        while peer.count(Publish):
            _, frame, _ = await peer.hear(Publish)
            layout = layout_of(frame)
            assert len(layout.raw) - layout.bodies_bytes <= wire.PUBLISH_BYTES_MAX // 2


async def test_unanswered_frames_are_sent_again_with_their_numbers_after_a_resume() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        publishing = asyncio.create_task(client.publish_many("orders", [b"x"] * 1200))
        for _ in range(3):
            line, _, _ = await peer.hear(Publish)
        # The first frame was stored, and its answer lost.
        store = peer.answers[Publish] = Store()
        store.bodies, store.last = [b"x"] * 500, 500
        line.drop()
        confirms = await publishing
        assert [confirm.duplicate for confirm in confirms] == [True] * 500 + [False] * 700
        assert len(store.bodies) == 1200
        assert store.last == 1200


async def test_a_full_queue_is_reported_with_the_stored_prefix_and_nothing_behind_it() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        store = peer.answers[Publish] = Store()
        store.room = 700
        with pytest.raises(fifo.QueueFull, match="full") as caught:
            await client.publish_many("orders", [b"%d" % n for n in range(3000)])
        error = caught.value
        assert isinstance(error, PublishError)
        assert error.index == 700
        assert [confirm.id for confirm in error.confirms] == [f"3.7.{n}" for n in range(1, 701)]
        store.room = 10**9
        await client.publish("orders", b"after")
        assert store.bodies == [b"%d" % n for n in range(700)] + [b"after"]


async def test_a_message_behind_a_refused_one_of_another_caller_is_stored_all_the_same() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        store = peer.answers[Publish] = Store()
        store.room = 0
        refused = asyncio.create_task(client.publish("orders", b"refused"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        def room_again(line: Line, frame: Frame) -> None:
            store(line, frame)
            store.room = 10**9

        peer.answers[Publish] = room_again
        others = [asyncio.create_task(client.publish("orders", b"other"))]
        for n in range(3):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            others.append(asyncio.create_task(client.publish("orders", b"%d" % n)))
        with pytest.raises(fifo.QueueFull):
            await refused
        confirms = await asyncio.gather(*others)
        assert store.bodies == [b"other", b"0", b"1", b"2"]
        assert not any(confirm.duplicate for confirm in confirms)


async def test_a_frame_lost_on_the_way_is_found_by_the_gaps_behind_it() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        store = Store()
        dropped: list[Frame] = []

        def lose_the_first(line: Line, frame: Frame) -> None:
            if dropped:
                store(line, frame)
            dropped.append(frame)

        peer.answers[Publish] = lose_the_first
        await client.publish_many("orders", [b"%d" % n for n in range(1500)], timeout=5)
        assert store.bodies == [b"%d" % n for n in range(1500)]


async def test_a_node_that_is_overloaded_is_asked_again_in_order() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        store = Store()
        refusals = 0
        asked: list[float] = []

        def busy_at_first(line: Line, frame: Frame) -> None:
            nonlocal refusals
            asked.append(asyncio.get_running_loop().time())
            if refusals < 3:
                refusals += 1
                line.send(Error(Code.OVERLOADED, "busy", retryable=True), frame.correlation)
            else:
                store(line, frame)

        peer.answers[Publish] = busy_at_first
        await client.publish_many("orders", [b"%d" % n for n in range(1500)])
        assert store.bodies == [b"%d" % n for n in range(1500)]
        # All three frames were refused, and came again after a pause.
        assert asked[3] - asked[2] > limits.RETRY_S / 2


_LOW = Error(Code.OVERLOADED, "the leader's disk is low: 5 bytes free", retryable=True)


async def test_a_publish_that_is_refused_each_time_ends_with_the_refusal_and_did_not_happen() -> (
    None
):
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Publish] = lambda line, frame: line.send(_LOW, frame.correlation)
        with pytest.raises(fifo.Overloaded) as caught:
            await client.publish("orders", b"x", timeout=0.3)
        error = caught.value
        assert str(error) == f"publish to 'orders': refused for 0.3 s: {_LOW.text}"
        assert (error.unknown, error.retryable, error.code) == (False, True, Code.OVERLOADED)
        assert peer.count(Publish) > 1, "it was tried again"


async def test_a_refused_message_is_not_stored_later_with_others_of_its_frame() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        store = Store()
        peer.answers[Publish] = lambda line, frame: line.send(_LOW, frame.correlation)
        short = asyncio.create_task(client.publish("orders", b"short", timeout=0.3))
        long = asyncio.create_task(client.publish("orders", b"long", timeout=5.0))
        with pytest.raises(fifo.Overloaded) as caught:
            await short
        assert not caught.value.unknown
        peer.answers[Publish] = store
        await long
        assert store.bodies == [b"long"]
        peer.answers[Publish] = lambda line, frame: line.send(_LOW, frame.correlation)
        with pytest.raises(fifo.Overloaded):
            await client.publish("orders", b"alone", timeout=0.3)
        peer.answers[Publish] = store
        await client.publish("orders", b"next")
        assert store.bodies == [b"long", b"next"]


async def test_frames_behind_a_refused_one_end_with_its_refusal() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:

        def refuses(line: Line, frame: Frame) -> None:
            assert isinstance(frame.message, Publish)
            gap = Error(Code.GAP, "gap", retryable=True, detail={"expected": 1})
            line.send(gap if frame.message.previous else _LOW, frame.correlation)

        peer.answers[Publish] = refuses
        first = asyncio.create_task(client.publish("orders", b"x", timeout=0.6))
        await peer.hear(Publish)
        with pytest.raises(fifo.Overloaded, match="disk is low") as caught:
            await client.publish_many("orders", [b"x"] * 1500, timeout=0.3)
        assert not caught.value.unknown
        assert isinstance(caught.value, PublishError)
        assert caught.value.index == 0
        with pytest.raises(fifo.Overloaded):
            await first


async def test_a_publish_with_one_transmission_unanswered_is_unknown_and_names_the_refusal() -> (
    None
):
    async with Peer() as peer, fifo.connect(peer.url) as client:
        task = asyncio.create_task(client.publish("orders", b"x", timeout=0.5))
        line, _, _ = await peer.hear(Publish)
        peer.answers[Publish] = lambda line, frame: line.send(_LOW, frame.correlation)
        line.drop()
        with pytest.raises(fifo.Timeout) as caught:
            await task
        assert caught.value.unknown, "the first may be stored"
        last = f"the last refusal: {_LOW.text}"
        assert str(caught.value) == f"publish to 'orders': no answer within 0.5 s; {last}"


async def test_a_timeout_is_unknown_and_the_message_is_not_sent_again() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        with pytest.raises(fifo.Timeout) as caught:
            await client.publish("orders", b"late", timeout=0.05)
        assert caught.value.unknown
        await peer.hear(Publish)
        store = peer.answers[Publish] = Store()
        peer.line().drop()
        await until(lambda: client.metrics.disconnects)
        assert (await client.publish("orders", b"next")).id == "3.7.2"
        assert store.bodies == [b"next"]


async def test_an_unsent_publish_is_not_unknown_and_never_sent() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        await peer.stop()
        await until(lambda: not client.connected)
        with pytest.raises(fifo.ConnectionLost, match=peer.address) as caught:
            await client.publish("orders", b"never", timeout=0.05)
        assert not caught.value.unknown
        with pytest.raises(fifo.ConnectionLost) as many:
            await client.publish_many("orders", [b"never"] * 3, timeout=0.05)
        assert not many.value.unknown
        assert isinstance(many.value, PublishError)
        assert many.value.index == 0
        store = peer.answers[Publish] = Store()
        await peer.start()
        await client.publish("orders", b"first")
        assert store.bodies == [b"first"]


async def test_a_publish_is_sent_again_where_its_session_is_gone_too_soon_to_hold_it() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        sent = [asyncio.create_task(client.publish("orders", body)) for body in (b"1", b"2")]
        line, _, _ = await peer.hear(Publish)
        peer.opening = lambda line, hello: (
            Error(Code.SESSION_ENDED, "it had done nothing")
            if hello.resume
            else welcome(line, hello)
        )
        store = peer.answers[Publish] = Store()
        line.drop()
        assert [(await one).id for one in sent] == ["3.7.1", "3.7.2"]
        assert store.bodies == [b"1", b"2"]
        assert (await client.publish("orders", b"3")).id == "3.7.3"


async def test_when_a_session_ended_late_sent_publishes_are_unknown() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "UNSTORED_S", 0.0)  # as if they had been sent a minute ago
        await when_the_session_ended_sent_publishes_are_unknown_and_the_rest_goes_on()


async def when_the_session_ended_sent_publishes_are_unknown_and_the_rest_goes_on() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        sent = asyncio.create_task(client.publish("orders", b"sent"))
        line, _, _ = await peer.hear(Publish)
        sessions = [line.hello.session if line.hello else b""]

        def opening(line: Line, hello: Hello) -> Message:
            if hello.resume:
                return Error(Code.SESSION_ENDED, "away for too long")
            sessions.append(hello.session)
            return welcome(line, hello)

        peer.opening = opening
        store = peer.answers[Publish] = Store()
        line.drop()
        await until(lambda: client.metrics.disconnects)
        waiting = asyncio.create_task(client.publish("orders", b"waiting"))
        with pytest.raises(fifo.SessionEnded) as caught:
            await sent
        assert caught.value.unknown
        assert (await waiting).id == "3.7.1"
        assert store.bodies == [b"waiting"]
        assert len(set(sessions)) == 2


async def test_the_window_bounds_unanswered_publishes() -> None:
    async with Peer() as peer, fifo.connect(peer.url, window_bytes=wire.MIB) as client:
        bodies = [b"x" * 100_000] * 60
        publishing = asyncio.create_task(client.publish_many("orders", bodies))
        heard = 0
        while heard < wire.MIB:
            _, frame, _ = await peer.hear(Publish)
            heard += layout_of(frame).bodies_bytes
        assert heard < 2 * wire.MIB
        # The node's answer to a query comes after all that was sent before it.
        asking = asyncio.create_task(client.status(timeout=0.1))
        with pytest.raises(fifo.Timeout):
            await asking
        assert peer.count(Publish) == 0
        with pytest.raises(fifo.Timeout):
            await client.publish("orders", b"no room", timeout=0.1)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing


@pytest.mark.slow
async def test_a_node_that_reads_nothing_makes_publishers_wait_and_fills_no_memory() -> None:
    async with Peer() as peer, fifo.connect(peer.url, window_bytes=64 * wire.MIB) as client:
        transport = peer.line()._transport
        assert transport is not None
        transport.pause_reading()
        publishing = asyncio.create_task(
            client.publish_many("orders", [b"x" * 500_000] * 100, timeout=30)
        )
        link = client._session.link
        assert link is not None
        await until(lambda: not link.writable)
        for _ in range(50):
            await asyncio.sleep(0)
        assert link._transport is not None
        assert link._transport.get_write_buffer_size() <= limits.UNSENT_BYTES_MAX + wire.MIB
        peer.answers[Publish] = confirm_all
        transport.resume_reading()
        assert len(await publishing) == 100


async def test_a_named_producer_goes_on_where_it_stopped_and_knows_duplicates() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        store = peer.answers[Publish] = Store()
        store.last = 20
        peer.answers[OpenProducer] = lambda line, frame: line.send(
            Ok({"producer": 9, "last": {"orders": 20}}), frame.correlation
        )
        producer = await client.open_producer("loader")
        assert producer.last("orders") == 20
        confirms = await producer.publish_many("orders", [b"a", b"b", b"c"], numbers=[19, 20, 25])
        assert [confirm.duplicate for confirm in confirms] == [True, True, False]
        assert (await producer.publish("orders", b"d")).id.endswith(".26")
        assert (await producer.publish("orders", b"e", number=40)).id.endswith(".40")
        assert (await producer.publish("orders", b"a", number=19)).duplicate
        assert producer.last("orders") == 40
        assert store.bodies == [b"c", b"d", b"e"]
        _, _, message = await peer.hear(Publish)
        assert message.producer == 9


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"queue": ""}, fifo.InvalidArgument, "queue"),
        ({"queue": "q" * 256}, fifo.InvalidArgument, "255"),
        ({"queue": "\udcff"}, fifo.InvalidArgument, "UTF-8"),
        ({"queue": 7}, fifo.InvalidArgument, "text"),
        ({"body": "text"}, fifo.InvalidArgument, "bytes"),
        ({"body": b"x" * (wire.BODY_BYTES_MAX + 1)}, fifo.MessageTooLarge, "1048577"),
        ({"key": "k" * 1025}, fifo.MessageTooLarge, "key"),
        ({"key": 7}, fifo.InvalidArgument, "key"),
        ({"headers": {"a": 1}}, fifo.InvalidArgument, "text"),
        ({"headers": {"a": "x" * 70_000}}, fifo.MessageTooLarge, "headers"),
        ({"headers": [1]}, fifo.InvalidArgument, "mapping"),
        ({"priority": 10}, fifo.InvalidArgument, "priority"),
        ({"priority": True}, fifo.InvalidArgument, "priority"),
        ({"delay": -1}, fifo.InvalidArgument, "delay"),
        ({"delay": float("nan")}, fifo.InvalidArgument, "delay"),
        ({"delay": 10**12}, fifo.InvalidArgument, "delay"),
        ({"ttl": 0}, fifo.InvalidArgument, "ttl"),
        ({"dedup_id": "d" * 256}, fifo.MessageTooLarge, "dedup_id"),
    ],
)
async def test_bad_arguments_are_refused_before_anything_is_sent(
    arguments: dict[str, Any], error: type[FifoError], words: str
) -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        with pytest.raises(error, match=words) as caught:
            await client.publish(**{"queue": "orders", "body": b"", **arguments})
        assert isinstance(caught.value, ValueError)
        assert not peer.heard


@pytest.mark.parametrize(
    ("bodies", "columns"),
    [
        (b"one body", {}),
        ([b"a", "b"], {}),
        ([b"a"], {"keys": ["k", "l"]}),
        ([b"a"], {"keys": "k"}),
        ([b"a"], {"priorities": [11]}),
        ([b"a", b"b"], {"delays": [1, -1]}),
    ],
)
async def test_bad_lists_are_refused_before_anything_is_sent(
    bodies: Any, columns: dict[str, Any]
) -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        with pytest.raises(fifo.InvalidArgument):
            await client.publish_many("orders", bodies, **columns)
        assert not peer.heard


async def test_a_cancelled_publish_leaves_the_client_usable() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        publishing = asyncio.create_task(client.publish("orders", b"a"))
        await peer.hear(Publish)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        peer.answers[Publish] = Store()
        peer.line().drop()
        await until(lambda: client.metrics.disconnects)
        await client.publish("orders", b"b")


async def test_messages_of_one_turn_keep_what_each_has_where_a_caller_leaves() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Publish] = confirm_all
        async with asyncio.TaskGroup() as group:
            plain = group.create_task(client.publish("orders", b"plain"))
            leaves = group.create_task(client.publish("orders", b"leaves", key="gone"))
            keyed = group.create_task(client.publish("orders", b"keyed", key="k", priority=9))
            await asyncio.sleep(0)  # All are gathered; the frame goes at the end of the turn.
            leaves.cancel()
        assert [plain.result().id, keyed.result().id] == ["3.7.1", "3.7.2"]
        _, frame, _ = await peer.hear(Publish)
        layout = layout_of(frame)
        assert layout.bodies() == [b"plain", b"keyed"]
        assert layout.blobs(KEY_LENGTHS) == [b"", b"k"]
        assert bytes(layout.column(PRIORITIES) or b"") == bytes([4, 9])


async def test_each_message_of_a_turn_has_the_confirm_of_its_place() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Publish] = lambda line, frame: line.send(
            Confirms(((frame.correlation, 3, 7, 1, 2, None, ((2, 1, 8, 40),)),))
        )
        found = await asyncio.gather(*[client.publish("orders", b"x") for _ in range(3)])
        assert found == [
            fifo.Confirm("3.7.1", duplicate=True),
            fifo.Confirm("3.7.2", duplicate=False),
            fifo.Confirm("3.8.40", duplicate=True),
        ]


async def test_no_messages_are_no_frames() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        assert list(await client.publish_many("orders", [])) == []
        assert not peer.heard


def test_confirms_read_as_a_list() -> None:
    from fifo.client.publishing.confirms import Confirmed, Confirms

    confirms = Confirms([Confirmed(3, 7, range(1, 4), 1, 2), Confirmed(3, 7, [9, 12], 0, 1)])
    assert len(confirms) == 4
    assert confirms[0] == fifo.Confirm("3.7.1", duplicate=True)
    assert confirms[-1].id == "3.7.9"
    assert [one.id for one in confirms[1:3]] == ["3.7.2", "3.7.3"]
    assert confirms == list(confirms)
    assert confirms.duplicates == 1
    with pytest.raises(IndexError):
        confirms[4]


async def test_a_repeat_is_confirmed_by_the_id_of_the_stored_message() -> None:
    def answer(line: Line, frame: Frame) -> None:
        repeats = ((0, 1, 5, 40), (2, 2, 8, 11))
        line.send(Confirms(((frame.correlation, 3, 7, 1, 4, None, repeats),)))

    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Publish] = answer
        confirms = await client.publish_many("orders", [b"1", b"2", b"3", b"4", b"5"])
        told = [(one.id, one.duplicate) for one in confirms]
        assert told == [
            ("3.5.40", True),
            ("3.7.2", False),
            ("3.8.11", True),
            ("3.8.12", True),
            ("3.7.5", False),
        ]
        # The first is one by its number too.
        assert confirms.duplicates == client.metrics.duplicates == 3


_REPLACED = (Code.QUEUE_REPLACED, "declared anew", False, {"expected": 0})


async def test_what_is_sent_again_names_the_queue_that_it_was_for() -> None:
    async with Peer() as peer:
        peer.opening = lambda line, hello: welcome(line, hello, queue_below=40)
        async with fifo.connect(peer.url) as client:
            # Nothing is known of the queue but that it was there when the connection was opened.
            below, said = 40, "whether there was a queue of that name before"
            for queue in (41, 42):
                lost = asyncio.create_task(client.publish("orders", b"lost"))
                line, _, first = await peer.hear(Publish)
                assert first.queue_below == 0
                line.drop()
                line, frame, second = await peer.hear(Publish)
                assert (second.number, second.queue_below) == (first.number, below)
                line.send(Confirms(((frame.correlation, queue, 7, 0, 0, _REPLACED),)))
                with pytest.raises(fifo.QueueReplaced, match=said) as caught:
                    await lost
                assert caught.value.unknown
                going_on = asyncio.create_task(client.publish("orders", b"next"))
                line, frame, third = await peer.hear(Publish)
                # Behind nothing that is stored in this one, and for whatever queue has the name.
                assert (third.previous, third.queue_below) == (0, 0)
                line.send(Confirms(((frame.correlation, queue, 7, 0, 1),)))
                assert (await going_on).id == f"{queue}.7.{third.number}"
                below, said = queue + 1, "was deleted"


@pytest.mark.parametrize("queue", [41, 42])
async def test_what_is_sent_again_is_for_the_queue_that_its_client_declared(queue: int) -> None:
    async with Peer() as peer:
        peer.opening = lambda line, hello: welcome(line, hello, queue_below=40)
        peer.answers[Declare] = lambda line, frame: line.send(
            Ok({"created": True, "queue": 41}), frame.correlation
        )
        async with fifo.connect(peer.url) as client:
            await client.declare(fifo.QueueSpec("orders"))
            lost = asyncio.create_task(client.publish("orders", b"lost"))
            line, _, first = await peer.hear(Publish)
            line.drop()
            line, frame, second = await peer.hear(Publish)
            assert (first.queue_below, second.queue_below) == (0, 42)
            if queue == 41:
                line.send(Confirms(((frame.correlation, queue, 7, 0, 1),)))
                assert not (await lost).duplicate
                return
            line.send(Confirms(((frame.correlation, queue, 7, 0, 0, _REPLACED),)))
            with pytest.raises(fifo.QueueReplaced, match="was deleted and declared anew"):
                await lost


async def test_a_queue_that_has_lost_what_it_confirmed_is_reported_each_time() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        store = peer.answers[Publish] = Store()
        await client.publish_many("orders", [b"1", b"2", b"3"])
        store.last = 1
        for number in range(2):
            peer.heard.clear()
            with pytest.raises(fifo.ProducerGap, match="has lost confirmed messages") as caught:
                await client.publish("orders", b"behind the loss")
            assert caught.value.detail == {"expected": 1, "confirmed": 3}
            assert not caught.value.unknown
            assert peer.count(Publish) == 1, number
