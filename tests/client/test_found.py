"""Bugs that were found while the client was built, each as the test that would have shown it."""

from __future__ import annotations

import asyncio

import pytest

import fifo
from fifo.client import Environment, from_url, limits
from fifo.client.connection.dialing import Dialer
from fifo.client.consuming import ranges
from fifo.wire import Code, Frame
from fifo.wire.messages import (
    VERB_RELEASE,
    Cancel,
    Close,
    Error,
    Get,
    Got,
    Hello,
    Message,
    Notice,
    NoticeAck,
    Renew,
    Renewed,
    Settle,
    Subscribe,
)
from tests.client.test_consuming import bodies, consuming, take
from tests.support.cluster import free_ports
from tests.support.wire_peer import Line, Peer, receive_all, subscribe_as, until, welcome


def has(peer: Peer, role: int) -> bool:
    return any(line.hello is not None and line.role == role for line in peer.lines)


async def test_a_cancelled_consumer_says_when_all_of_it_is_resolved() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        peer.line().deliver(11, 1, bodies(4))
        one, two = await take(messages, 2)
        assert (await one.ack(receipt=True)).status == "ok"
        await messages.cancel()
        peer.heard.clear()
        assert (await two.ack(receipt=True)).status == "ok"
        await peer.hear(Settle)
        # Without it the node keeps the consumer until the session ends.
        _, _, last = await peer.hear(Settle)
        assert (last.consumer, last.tokens, last.resolved_below) == (11, (), 5)


async def test_settling_more_than_one_command_may_touch_waits_for_every_receipt() -> None:
    async with Peer() as peer, consuming(peer) as (client, messages):
        peer.line().deliver(11, 1, [b""] * 2_500)
        batch: list[fifo.Message] = []
        while len(batch) < 2_500:
            batch += await messages.next_batch(2_500)
        results = await client.settle_many(batch)
        assert [result.status.value for result in results] == ["ok"] * 2_500
        named = [
            frame.message.tokens for _, frame in peer.heard if isinstance(frame.message, Settle)
        ]
        assert sorted(ranges.tokens([one for tokens in named for one in tokens])) == list(
            range(1, 2_501)
        )
        assert max(map(ranges.count, named)) <= limits.SETTLE_TOKENS


async def test_giving_back_more_than_one_command_may_touch_is_cut_into_several() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        for first in range(1, 25_001, 5_000):
            peer.line().deliver(11, first, [b""] * 5_000)
        await until(lambda: messages.buffered == 25_000)
        await messages.cancel()
        _, _, cancel = await peer.hear(Cancel)
        back = list(cancel.unopened)
        assert ranges.count(back) <= limits.SETTLE_TOKENS
        while ranges.count(back) < 25_000:
            _, _, settle = await peer.hear(Settle)
            assert ranges.count(settle.tokens) <= limits.SETTLE_TOKENS
            back += settle.tokens
        assert sorted(ranges.tokens(back)) == list(range(1, 25_001))


async def test_a_refused_acknowledgement_of_a_notice_does_not_end_the_connection() -> None:
    async with Peer() as peer, consuming(peer) as (client, _):
        peer.answers[NoticeAck] = lambda line, frame: line.send(
            Error(Code.INVALID_ARGUMENT, "no such notice"), frame.correlation
        )
        await until(lambda: has(peer, 1))
        for role in (0, 1):
            peer.line(role).send(Notice(5, 0, 11, ((99, 99),)))
            _, frame, _ = await peer.hear(NoticeAck)
            assert frame.correlation != 0
        # A notice without a number is only news, and not acknowledged.
        peer.line().send(Notice(0, 1, 11, active=True))
        assert await client.settle("orders", 11, 1) is not None
        assert peer.count(NoticeAck) == 0
        assert client.metrics.disconnects == 0
        assert has(peer, 1)


async def test_a_removed_consumer_ends_its_iteration_with_the_reason() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        waiting = asyncio.create_task(messages.next())
        await asyncio.sleep(0)
        peer.line().send(Notice(0, 3, 11, active=False))
        with pytest.raises(fifo.QueueNotFound, match="orders"):
            await asyncio.wait_for(waiting, 5)


async def test_what_was_settled_just_before_a_renewal_is_no_suspicion() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        peer.answers[Renew] = lambda line, frame: line.send(
            Renewed(((11, (), ((1, 1),)),)), frame.correlation
        )
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        acking = asyncio.create_task(message.ack(receipt=True))
        line, frame, _ = await peer.hear(Settle)
        client._control.nudge()
        await peer.hear(Renew)
        await until(lambda: message.ledger.lost)
        receive_all(line, frame)
        assert (await acking).status == "ok"
        assert not message.ledger.suspected
        assert client.metrics.locks_lost == 0


async def test_a_subscription_that_was_given_up_is_cancelled_when_its_answer_comes() -> None:
    async with Peer() as peer:
        peer.answers[Cancel] = peer.answers[Close]
        peer.answers[Settle] = receive_all
        async with fifo.connect(peer.url, timeout=0.1) as client:
            messages = client.consume("orders")
            with pytest.raises(fifo.Timeout) as caught:
                await messages.subscribe()
            assert caught.value.unknown
            line, frame, _ = await peer.hear(Subscribe)
            subscribe_as(11)(line, frame)
            line.deliver(11, 1, bodies(2))
            _, _, cancel = await peer.hear(Cancel)
            assert cancel.consumer == 11
            _, _, settle = await peer.hear(Settle)
            assert (settle.verb, settle.tokens) == (VERB_RELEASE, ((1, 2),))


async def test_what_comes_for_a_get_that_was_given_up_goes_back() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        with pytest.raises(fifo.Timeout):
            await client.get("orders", timeout=0.05)
        line, frame, _ = await peer.hear(Get)
        line.deliver(21, 1, bodies(2))
        line.send(Got(21, 1, 2), frame.correlation)
        _, _, settle = await peer.hear(Settle)
        assert (settle.consumer, settle.verb, settle.tokens) == (21, VERB_RELEASE, ((1, 2),))


async def test_what_comes_for_nobody_goes_back_in_pieces_that_a_command_may_touch() -> None:
    async with Peer() as peer, fifo.connect(peer.url):
        peer.line().deliver(21, 1, [b""] * 2_500)
        back: list[ranges.Range] = []
        while ranges.count(back) < 2_500:
            _, _, settle = await peer.hear(Settle)
            assert (settle.consumer, settle.verb) == (21, VERB_RELEASE)
            assert ranges.count(settle.tokens) <= limits.SETTLE_TOKENS
            back += settle.tokens
        assert list(ranges.tokens(back)) == list(range(1, 2_501))


async def test_a_message_goes_to_somebody_else_when_who_waited_was_cancelled() -> None:
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


async def test_the_control_connection_follows_the_data_connection_to_the_next_leader() -> None:
    async with Peer() as old, Peer() as new:

        def to_new(line: Line, hello: Hello) -> Message | None:
            # The old leader hangs: it takes connections and answers nothing.
            return None

        async with consuming(old) as (client, _):
            await until(lambda: has(old, 1))
            client._session.dialer.learn([("n2", new.address)])
            old.opening = to_new
            new.opening = welcome
            for kind, answer in old.answers.items():
                new.answers[kind] = answer
            old.line(0).drop()
            await until(lambda: client.address == new.address)
            await until(lambda: has(new, 1))


async def test_a_session_that_ended_is_ended_once_whoever_hears_it_first() -> None:
    async with Peer() as peer, consuming(peer) as (client, _):
        await until(lambda: has(peer, 1))
        old = client._session.identity.session

        def opening(line: Line, hello: Hello) -> Message:
            if hello.session == old:
                return Error(Code.SESSION_ENDED, "gone")
            return welcome(line, hello)

        peer.opening = opening
        for role in (1, 0):
            peer.line(role).drop()
        await until(lambda: client.metrics.connects == 2)
        await until(lambda: has(peer, 1))
        assert client.metrics.sessions_ended == 1


async def test_a_renewal_counts_from_when_it_was_sent() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=3_000)
        peer.answers[Renew] = lambda line, frame: None
        async with consuming(peer) as (client, messages):
            peer.line().deliver(11, 1, bodies(1), remaining_ms=200)
            [message] = await take(messages, 1)
            client._control.nudge()
            line, frame, _ = await peer.hear(Renew)
            # The answer is on its way for half a second: that much less is left of the lock.
            await asyncio.sleep(0.5)
            line.send(Renewed(((11, ((1, 1, 3_000),), ()),)), frame.correlation)
            await until(lambda: message.remaining > 1)
            assert message.remaining <= 2.5


async def test_what_was_tried_is_told_whenever_the_time_is_over() -> None:
    [port] = free_ports(1)
    dialer = Dialer(from_url(f"fifo://127.0.0.1:{port}", {}), Environment())
    dialing = asyncio.create_task(dialer.dial(lambda: Hello(1, 1, 0, b"s" * 16, b"i" * 16)))
    await until(lambda: "refused" in dialer.explain())
    # Also while the next round has only begun.
    for _ in range(300):
        await asyncio.sleep(0.001)
        assert "refused" in dialer.explain()
    dialing.cancel()
    await asyncio.gather(dialing, return_exceptions=True)


async def test_a_closed_session_is_no_lost_connection() -> None:
    async with Peer() as peer:
        lost: list[fifo.FifoError] = []

        def close(line: Line, frame: Frame) -> None:
            peer_ok(line, frame)
            line.close()

        peer_ok = peer.answers[Close]
        peer.answers[Close] = close
        async with fifo.connect(peer.url) as client:
            client.on_disconnected = lost.append
        assert lost == []
        assert client.metrics.disconnects == 0


@pytest.mark.parametrize("tokens_max", [1, 3, 7, 100])
@pytest.mark.parametrize("ranges_max", [1, 2, 50])
def test_ranges_are_cut_within_both_bounds(tokens_max: int, ranges_max: int) -> None:
    whole = [(1, 10), (12, 12), (20, 33)]
    pieces = list(ranges.chunks(whole, ranges_max, tokens_max))
    assert all(len(piece) <= ranges_max for piece in pieces)
    assert all(ranges.count(piece) <= tokens_max for piece in pieces)
    found = [token for piece in pieces for token in ranges.tokens(piece)]
    assert found == list(ranges.tokens(whole))


async def test_an_ack_of_what_was_given_up_says_that_it_may_be_asked_again() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        peer.line().send(Notice(1, 0, 11, ((1, 1),)))
        await message.lock_lost.wait()
        # Lost, and the program asks for more: given up. Another of its tasks acks it all the same.
        assert await messages.next(timeout=0.01) is None
        assert (await message.ack(receipt=True)).status == "ok"
        _, _, settle = await peer.hear(Settle)
        # With 2 the ack could be carried out late, and its retry be answered `lock_lost`.
        assert (settle.tokens, settle.resolved_below) == (((1, 1),), 1)
