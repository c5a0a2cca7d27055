"""Consuming: what is handed out, what is dropped as known, and how each settlement travels."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import fifo
from fifo.client import limits
from fifo.wire import Code, Frame
from fifo.wire.columns import Publication, encode_headers
from fifo.wire.messages import (
    STATUS_ALREADY_SETTLED,
    STATUS_DEAD_LETTERED,
    STATUS_LOCK_LOST,
    VERB_ACK,
    VERB_NACK,
    VERB_RELEASE,
    VERB_TERMINATE,
    Cancel,
    Close,
    Error,
    Get,
    Got,
    Hello,
    Message,
    Ok,
    QueueQuery,
    Receipt,
    Settle,
    Subscribe,
)
from tests.support.one_consumer import bodies, consuming, take
from tests.support.wire_peer import (
    Line,
    Peer,
    receive_all,
    subscribe_as,
    until,
    welcome,
)


async def test_a_message_shows_everything_that_came_with_it() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        record = {"reason": "terminated", "source": "orders", "exception_type": "ValueError"}
        publication = Publication(
            [b"one", b"two"],
            keys=[b"k", b"\xff\xfe"],
            headers=[encode_headers({"a": "b"}), b""],
            priorities=[9, 4],
        )
        peer.line().deliver(
            11, 1, [b"one", b"two"], publication=publication, dead_letters=((1, record),)
        )
        one, two = await take(messages, 2)
        assert (one.body, one.key, one.headers, one.priority) == (b"one", "k", {"a": "b"}, 9)
        assert (two.body, two.key, two.headers, two.priority) == (b"two", b"\xff\xfe", {}, 4)
        assert (one.id, two.id) == ("3.7.1", "3.7.2")
        assert (one.attempt, one.failures, one.queue, one.token) == (1, 0, "orders", 1)
        assert one.published_at.isoformat() == "2023-11-14T22:13:20+00:00"
        assert 29 < one.remaining <= 30
        assert one.deadline.tzinfo is not None
        assert one.dead_letter is None
        assert two.dead_letter is not None
        assert (two.dead_letter.reason, two.dead_letter.source) == ("terminated", "orders")
        assert two.dead_letter.exception == "ValueError"
        assert one.consumer == 11


async def test_acks_of_one_turn_travel_as_one_range() -> None:
    async with Peer() as peer, consuming(peer) as (client, messages):
        peer.line().deliver(11, 1, bodies(100))
        for message in await take(messages, 100):
            await message.ack()
        _, _, settle = await peer.hear(Settle)
        assert (settle.verb, settle.tokens, settle.resolved_below) == (VERB_ACK, ((1, 100),), 1)
        await until(lambda: client.metrics.acked == 100)
        peer.line().deliver(11, 101, bodies(3))
        one, two, three = await take(messages, 3)
        await one.ack()
        await three.ack()
        _, _, settle = await peer.hear(Settle)
        assert (settle.tokens, settle.resolved_below) == (((101, 101), (103, 103)), 101)
        assert not two.settled


async def test_process_settles_by_how_the_block_ends(caplog: pytest.LogCaptureFixture) -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        peer.line().deliver(11, 1, bodies(6))
        ok, failed, terminal, cancelled, own, raising = await take(messages, 6)
        async with ok.process():
            pass
        with caplog.at_level(logging.WARNING, "fifo.client"):
            async with failed.process(on_error=lambda message, error: 3):
                raise RuntimeError("boom")
        assert "boom" in caplog.text
        async with terminal.process():
            raise fifo.Terminal("hopeless", "no such customer") from ValueError("42")
        with pytest.raises(asyncio.CancelledError):
            async with cancelled.process():
                raise asyncio.CancelledError
        async with own.process():
            await own.release(delay=2)
        with pytest.raises(KeyError):
            async with raising.process(reraise=True):
                raise KeyError("x")
        said = {}
        for _ in range(6):
            _, _, settle = await peer.hear(Settle)
            said[settle.tokens[0][0]] = settle
        assert [said[n].verb for n in range(1, 7)] == [
            VERB_ACK,
            VERB_NACK,
            VERB_TERMINATE,
            VERB_RELEASE,
            VERB_RELEASE,
            VERB_NACK,
        ]
        assert (said[2].delay_ms, said[2].reason) == (3000, "RuntimeError: boom")
        assert (said[3].reason, said[3].description) == ("hopeless", "no such customer")
        assert (said[3].exception_type, said[3].exception_text) == ("ValueError", "42")
        assert said[5].delay_ms == 2000


async def test_a_nack_delay_may_come_from_a_callable_of_the_failures() -> None:
    by_failures: dict[str, Any] = {"nack_backoff": lambda failures: 2 + failures}
    async with Peer() as peer, consuming(peer, **by_failures) as (_, messages):
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        assert await message.nack(reason="no") == fifo.SettleResult(fifo.Status.OK)
        _, _, settle = await peer.hear(Settle)
        assert (settle.delay_ms, settle.reason) == (2000, "no")


async def test_a_known_message_that_is_sent_again_after_a_resume_is_dropped() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        peer.line().deliver(11, 1, bodies(10))
        in_hand, settled = await take(messages, 2)
        await settled.ack()
        await peer.hear(Settle)
        peer.line().drop()
        line, _, settle = await peer.hear(Settle)
        assert settle.tokens == ((2, 2),)
        # All ten are still locked there: the ack had not arrived.
        line.deliver(11, 1, bodies(10), repeat=True)
        line.deliver(11, 11, bodies(1, 11))
        rest = await take(messages, 9)
        assert [message.token for message in rest] == list(range(3, 12))
        assert client.metrics.repeats_dropped == 10
        assert in_hand.settled is False
        line.send(Receipt(11, ((2, 2, STATUS_ALREADY_SETTLED, False),)), 0)


async def test_messages_lost_in_transit_are_taken_when_redelivered() -> None:
    async with Peer() as peer, consuming(peer) as (client, messages):
        peer.line().deliver(11, 1, bodies(3))
        await take(messages, 3)
        peer.line().drop()
        await until(lambda: client.metrics.connects == 2)
        line = peer.line()
        # 4 to 6 never arrived; 2 is still in the program's hands.
        line.deliver(11, 2, bodies(5, 2), repeat=True)
        assert [message.body for message in await take(messages, 3)] == [b"4", b"5", b"6"]
        # A hole in the tokens may be filled later, once.
        line.deliver(11, 10, bodies(1, 10))
        line.deliver(11, 7, bodies(3, 7), repeat=True)
        line.deliver(11, 7, bodies(3, 7), repeat=True)
        line.deliver(11, 11, bodies(1, 11))
        assert [message.token for message in await take(messages, 5)] == [10, 7, 8, 9, 11]


async def test_a_settlement_is_sent_again_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "SETTLE_ANSWER_S", 0.05)
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        peer.line().deliver(11, 1, bodies(2))
        one, two = await take(messages, 2)
        acking = asyncio.create_task(one.ack(receipt=True))
        await two.ack()
        seen = [(await peer.hear(Settle))[2].tokens for _ in range(4)]
        assert sorted(set(seen)) == [((1, 1),), ((2, 2),)]
        peer.answers[Settle] = receive_all
        peer.line().drop()
        assert (await acking).status == "ok"
        await until(lambda: client.metrics.acked == 2)
        assert client.metrics.settlements_retried >= 2
        assert client.metrics.settlements_succeeded_after_retry == 2


async def test_a_retryable_refusal_of_a_settlement_is_retried() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (_, messages):
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        acking = asyncio.create_task(message.ack(receipt=True))
        line, frame, _ = await peer.hear(Settle)
        line.send(Error(Code.OVERLOADED, "busy", retryable=True), frame.correlation)
        line, frame, _ = await peer.hear(Settle)
        receive_all(line, frame)
        assert (await acking).status is fifo.Status.OK


async def test_exhausted_retries_are_reported_to_the_message_and_on_unsettled() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11)
        async with fifo.connect(peer.url, max_ack_retries=1, close_timeout=0.1) as client:
            unsettled: list[tuple[Any, fifo.FifoError]] = []
            client.on_unsettled = lambda message, error: unsettled.append((message, error))
            messages = client.consume("orders")
            await messages.subscribe()
            peer.line().deliver(11, 1, bodies(2))
            one, two = await take(messages, 2)
            await one.ack()
            nacking = asyncio.create_task(two.nack())
            for _ in range(4):
                line, frame, _ = await peer.hear(Settle)
                line.send(Error(Code.OVERLOADED, "busy", retryable=True), frame.correlation)
            with pytest.raises(fifo.AckRetriesExhausted):
                await nacking
            await one.ack_failed.wait()
            assert [(message, type(error)) for message, error in unsettled] == [
                (one, fifo.AckRetriesExhausted)
            ]
            assert client.metrics.settlements_exhausted == 2


async def test_every_error_of_a_settlement_names_its_message_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    busy = Error(Code.OVERLOADED, "busy", retryable=True)
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11)
        peer.answers[Settle] = lambda line, frame: line.send(busy, frame.correlation)
        options: dict[str, Any] = {"max_ack_retries": 1, "close_timeout": 0.1, "timeout": 0.2}
        async with fifo.connect(peer.url, **options) as client:
            messages = client.consume("orders")
            await messages.subscribe()
            peer.line().deliver(11, 1, bodies(4))
            alone, waits, late, lost = await take(messages, 4)
            await alone.ack()
            await alone.ack_failed.wait()
            with pytest.raises(fifo.AckRetriesExhausted) as caught:
                await waits.nack()
            errors = [str(caught.value)]
            assert "; the last refusal: busy" in errors[0]
            del peer.answers[Settle]
            with pytest.raises(fifo.Timeout, match="no answer within") as timed_out:
                await late.nack()
            errors.append(str(timed_out.value))
            lost_lock = Receipt(11, ((4, 4, STATUS_LOCK_LOST, False),))
            peer.answers[Settle] = lambda line, frame: line.send(lost_lock, frame.correlation)
            await lost.ack()
            await lost.ack_failed.wait()
    logged = [one.getMessage() for one in caplog.records if "settled" in one.getMessage()]
    named = [*zip((waits, late), errors, strict=True), *zip((alone, lost), logged, strict=False)]
    assert len(named) == 4
    assert [text.count(repr(message)) for message, text in named] == [1] * 4, named


async def test_terminate_without_a_dead_letter_queue_leaves_the_message_in_hand() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (_, messages):
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        terminating = asyncio.create_task(message.terminate("never"))
        line, frame, _ = await peer.hear(Settle)
        line.send(Error(Code.NO_DEAD_LETTER_QUEUE, "orders has none"), frame.correlation)
        with pytest.raises(fifo.NoDeadLetterQueue):
            await terminating
        assert not message.settled
        peer.answers[Settle] = receive_all
        assert (await message.nack()).status == "ok"


async def test_the_nack_that_reaches_the_limit_says_dead_lettered() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        unsettled: list[Any] = []
        client.on_unsettled = lambda message, error: unsettled.append(message)
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        peer.answers[Settle] = lambda line, frame: line.send(
            Receipt(11, ((1, 1, STATUS_DEAD_LETTERED, False),)), frame.correlation
        )
        assert (await message.nack()).status == "dead_lettered"
        assert (await message.ack()).status == "dead_lettered"
        assert not unsettled


async def test_leaving_returns_unopened_messages() -> None:
    async with Peer() as peer, consuming(peer) as (client, messages):
        peer.line().deliver(11, 1, bodies(10))
        await take(messages, 4)
        await messages.cancel()
        _, _, cancel = await peer.hear(Cancel)
        assert (cancel.consumer, cancel.unopened) == (11, ((5, 10),))
        # What crossed the cancellation goes back as well.
        peer.line().deliver(11, 11, bodies(2))
        _, _, settle = await peer.hear(Settle)
        assert (settle.verb, settle.tokens) == (VERB_RELEASE, ((11, 12),))
        assert [message async for message in messages] == []
        assert client.metrics.delivered == 12


async def test_cancelling_ends_a_waiting_iteration_and_messages_in_hand_can_be_settled() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        waiting = asyncio.create_task(messages.next())
        batch = asyncio.create_task(messages.next_batch(10))
        await asyncio.sleep(0)
        await messages.cancel()
        assert await waiting is None
        assert await batch == []
        assert (await message.ack(receipt=True)).status == "ok"


async def test_batches_and_waiting_with_a_time() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        assert await messages.next(timeout=0.01) is None
        assert await messages.next_batch(10, timeout=0.01) == []
        peer.line().deliver(11, 1, bodies(7))
        peer.line().deliver(11, 8, bodies(7, 8))
        await until(lambda: messages.buffered == 14)
        batch = await messages.next_batch(10)
        assert [message.token for message in batch] == list(range(1, 11))
        messages.ack_many(batch)
        _, _, settle = await peer.hear(Settle)
        assert settle.tokens == ((1, 10),)
        async for rest in messages.batches(100):
            assert [message.body for message in rest] == bodies(4, 11)
            break
        assert await messages.settle_many(rest) == [fifo.SettleResult(fifo.Status.OK)] * 4


async def test_several_tasks_share_one_consumer() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        seen: list[int] = []

        async def work() -> None:
            async for message in messages:
                seen.append(message.token)
                await message.ack()

        workers = [asyncio.create_task(work()) for _ in range(3)]
        await asyncio.sleep(0)
        peer.line().deliver(11, 1, bodies(50))
        await until(lambda: len(seen) == 50)
        assert sorted(seen) == list(range(1, 51))
        await messages.cancel()
        await asyncio.gather(*workers)


async def test_a_full_buffer_does_not_starve_the_rest_of_the_program() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        peer.line().deliver(11, 1, bodies(1000))
        await until(lambda: messages.buffered == 1000)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        running = asyncio.create_task(other())
        await take(messages, 1000)
        running.cancel()
        assert turns >= 1000 // limits.TURN_MESSAGES - 1


async def test_a_message_whose_ack_was_never_sent_is_lost_where_its_session_ended() -> None:
    async with Peer() as peer, consuming(peer) as (client, messages):
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        old = peer.line().hello
        assert old is not None

        waiting: list[Line] = []
        peer.opening = lambda line, hello: waiting.append(line)
        peer.line().drop()
        await until(lambda: waiting and not client.connected)
        acking = asyncio.create_task(message.ack(receipt=True))
        await asyncio.sleep(0)
        # Only now, for an ack that is asked for after the end of the session is `lock_lost`. Two
        # connections may ask, one of them on the control thread.
        ended = Error(Code.SESSION_ENDED, "too long away")
        peer.opening = lambda line, hello: (
            ended if hello.session == old.session else welcome(line, hello)
        )
        for line in waiting:
            line.send(ended)
            line.close()
        with pytest.raises(fifo.SessionEnded) as caught:
            await acking
        assert not caught.value.unknown
        assert (await message.ack(receipt=True)).status == "lock_lost"
        assert message.is_lost
        assert message.lock_lost.is_set()


async def test_when_the_session_ended_locks_are_lost_and_the_consumer_subscribes_again() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        peer.line().deliver(11, 1, bodies(3))
        one, two = await take(messages, 2)
        lost: list[str] = []
        one.lock_lost.add_callback(lambda: lost.append(one.id))
        acking = asyncio.create_task(two.ack(receipt=True))
        await peer.hear(Settle)
        old = peer.line().hello

        def opening(line: Line, hello: Hello) -> Message:
            if old is not None and hello.session == old.session:
                return Error(Code.SESSION_ENDED, "too long away")
            return welcome(line, hello)

        peer.opening = opening
        peer.answers[Subscribe] = subscribe_as(12)
        peer.answers[Settle] = receive_all
        await peer.hear(Subscribe)
        peer.line().drop()
        with pytest.raises(fifo.SessionEnded):
            await acking
        _, _, subscribe = await peer.hear(Subscribe)
        assert subscribe.queue == "orders"
        assert lost == [one.id]
        assert (await one.ack()).status == "lock_lost"
        await until(lambda: client.metrics.connects == 2)
        # Tokens of the new consumer begin at 1 again, and 3 of the old one is not handed out.
        peer.line().deliver(12, 1, [b"new"])
        [message] = await take(messages, 1)
        assert (message.body, message.consumer) == (b"new", 12)
        assert (await message.ack(receipt=True)).status == "ok"
        assert client.metrics.sessions_ended == 1


async def test_a_consumer_that_the_node_does_not_know_after_a_resume_subscribes_again() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        await peer.hear(Subscribe)
        peer.line().deliver(11, 1, bodies(1))
        [old] = await take(messages, 1)
        peer.answers[Subscribe] = subscribe_as(15)
        peer.line().drop()
        await peer.hear(Subscribe)
        await until(lambda: messages.number == 15)
        assert old.lock_lost.is_set()
        peer.line().deliver(15, 1, [b"new"])
        [message] = await take(messages, 1)
        assert message.consumer == 15


async def test_a_consumer_that_the_node_knows_after_a_resume_is_left_alone() -> None:
    async with Peer() as peer:
        peer.opening = lambda line, hello: welcome(
            line, hello, consumers=((11, "consumer-1", "orders", 30_000),)
        )
        async with consuming(peer) as (client, messages):
            await peer.hear(Subscribe)
            peer.line().drop()
            await until(lambda: client.metrics.connects == 2)
            peer.line().deliver(11, 1, bodies(1))
            await take(messages, 1)
            assert peer.count(Subscribe) == 0


async def test_deliveries_that_overtake_the_number_of_their_consumer_are_kept() -> None:
    async with Peer() as peer:

        def deliver_first(line: Line, frame: Frame) -> None:
            line.deliver(11, 1, bodies(2))
            subscribe_as(11)(line, frame)

        peer.answers[Subscribe] = deliver_first
        async with consuming(peer) as (_, messages):
            assert [message.body for message in await take(messages, 2)] == bodies(2)


async def test_closing_waits_for_receipts_and_reports_unsettled_messages() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11)
        peer.answers[Cancel] = peer.answers[Close]
        client = await fifo.connect(peer.url, close_timeout=0.2)
        unsettled: list[Any] = []
        client.on_unsettled = lambda message, error: unsettled.append((message, error))
        messages = client.consume("orders")
        await messages.subscribe()
        peer.line().deliver(11, 1, bodies(3))
        one, two = await take(messages, 2)
        await one.ack()
        line, frame, _ = await peer.hear(Settle)
        await two.ack()
        closing = asyncio.create_task(client.close())
        await peer.hear(Settle)
        receive_all(line, frame)
        await closing
        assert [(message, type(error)) for message, error in unsettled] == [
            (two, fifo.ClientClosed)
        ]
        _, _, cancel = await peer.hear(Cancel)
        assert cancel.unopened == ((3, 3),)
        await peer.hear(Close)


async def test_get_returns_the_messages_that_the_answer_names() -> None:
    async with Peer() as peer:
        peer.answers[Settle] = receive_all

        def get(line: Line, frame: Frame) -> None:
            line.deliver(21, 1, bodies(3))
            line.send(Got(21, 1, 3), frame.correlation)

        peer.answers[Get] = get
        async with fifo.connect(peer.url) as client:
            messages = await client.get("orders", 3, wait=1, lock=10)
            assert [message.body for message in messages] == bodies(3)
            _, _, request = await peer.hear(Get)
            assert (request.count, request.wait_ms, request.lock_ms) == (3, 1000, 10_000)
            assert (await messages[0].ack(receipt=True)).status == "ok"
            peer.answers[Get] = lambda line, frame: line.send(Got(21, 4, 0), frame.correlation)
            assert await client.get("orders") == []


async def test_messages_of_a_lost_answer_to_get_are_handed_out_or_given_back() -> None:
    async with Peer() as peer:
        peer.answers[Settle] = receive_all
        async with fifo.connect(peer.url) as client:
            getting = asyncio.create_task(client.get("orders", 2))
            line, _, _ = await peer.hear(Get)
            line.drop()
            line, frame, _ = await peer.hear(Get)
            line.deliver(21, 1, bodies(3), repeat=True)
            line.send(Got(21, 4, 0), frame.correlation)
            assert [message.token for message in await getting] == [1, 2]
            _, _, settle = await peer.hear(Settle)
            assert (settle.verb, settle.tokens) == (VERB_RELEASE, ((3, 3),))


async def test_a_message_held_elsewhere_is_settled_by_its_numbers() -> None:
    async with Peer() as peer, consuming(peer) as (client, messages):
        found = [{"consumer": 99}]
        peer.answers[QueueQuery] = lambda line, frame: line.send(Ok(found), frame.correlation)
        result = await client.settle("orders", 99, 5, "terminate", reason="never")
        assert result.status == "ok"
        _, _, settle = await peer.hear(Settle)
        assert (settle.consumer, settle.verb, settle.tokens, settle.reason) == (
            99,
            VERB_TERMINATE,
            ((5, 5),),
            "never",
        )
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        assert (await client.settle("orders", 11, 1)).status == "ok"
        assert message.settled
        with pytest.raises(fifo.InvalidArgument):
            await client.settle("orders", 11, 1, "forget")
        with pytest.raises(fifo.InvalidArgument, match="'orders', not of 'bills'"):
            await client.settle("bills", 11, 1)
        assert (await client.settle("orders", 99, 6)).status == "ok"
        assert peer.count(QueueQuery) == 1, "a number stays one of its queue"
        found.clear()
        assert (await client.settle("bills", 99, 7)).status == "unknown_consumer"
        assert peer.count(Settle) == 2, "nothing was sent for another queue"


@pytest.mark.parametrize(
    "options",
    [
        {"prefetch": 0},
        {"prefetch": 65_536},
        {"lock": 0.5},
        {"lock": 301},
        {"max_lock": 0},
        {"priority": 1001},
        {"auto_renew": "yes"},
        {"tag": ""},
        {"renewals": -1},
        {"nack_backoff": "sometimes"},
        {"nack_backoff": "callable:no.such:thing"},
        {"timeout_backoff": lambda failures: 1},
    ],
)
async def test_bad_options_of_a_consumer_are_refused_before_anything_is_sent(
    options: dict[str, Any],
) -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        with pytest.raises(fifo.InvalidArgument):
            client.consume("orders", **options)
        assert not peer.heard


async def test_a_refused_subscription_is_raised_where_it_is_entered_or_first_asked() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Subscribe] = lambda line, frame: line.send(
            Error(Code.QUEUE_NOT_FOUND, "no queue orders"), frame.correlation
        )
        with pytest.raises(fifo.QueueNotFound, match="orders"):
            async with client.consume("orders"):
                pass
        with pytest.raises(fifo.QueueNotFound):
            await anext(client.consume("orders"))


async def test_a_message_goes_to_another_task_when_the_waiting_one_was_cancelled() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        first = asyncio.create_task(messages.next())
        await asyncio.sleep(0)
        second = asyncio.create_task(messages.next())
        await asyncio.sleep(0)
        ledger = messages._ledger
        assert ledger is not None
        # Woken and cancelled in the same turn of the loop.
        messages._wake(1)
        first.cancel()
        peer.line().deliver(11, 1, bodies(1))
        message = await asyncio.wait_for(second, 5)
        assert message is not None
        assert message.token == 1
        with pytest.raises(asyncio.CancelledError):
            await first
