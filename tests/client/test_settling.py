"""Proves that settlements and returns arrive whole: in pieces, after a cancel, for late answers."""

from __future__ import annotations

import pytest

import fifo
from fifo.client import limits
from fifo.client.consuming import ranges
from fifo.wire.messages import (
    VERB_RELEASE,
    Cancel,
    Close,
    Get,
    Got,
    Notice,
    Settle,
    Subscribe,
)
from tests.support.one_consumer import bodies, consuming, take
from tests.support.wire_peer import Peer, receive_all, subscribe_as, until


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


async def test_an_abandoned_subscription_is_cancelled_when_its_answer_comes() -> None:
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


async def test_deliveries_of_an_abandoned_get_go_back() -> None:
    async with Peer() as peer, fifo.connect(peer.url, close_timeout=0.1) as client:
        with pytest.raises(fifo.Timeout):
            await client.get("orders", timeout=0.05)
        line, frame, _ = await peer.hear(Get)
        line.deliver(21, 1, bodies(2))
        line.send(Got(21, 1, 2), frame.correlation)
        _, _, settle = await peer.hear(Settle)
        assert (settle.consumer, settle.verb, settle.tokens) == (21, VERB_RELEASE, ((1, 2),))


async def test_unexpected_deliveries_go_back_in_pieces_that_a_command_may_touch() -> None:
    async with Peer() as peer, fifo.connect(peer.url):
        peer.line().deliver(21, 1, [b""] * 2_500)
        back: list[ranges.Range] = []
        while ranges.count(back) < 2_500:
            _, _, settle = await peer.hear(Settle)
            assert (settle.consumer, settle.verb) == (21, VERB_RELEASE)
            assert ranges.count(settle.tokens) <= limits.SETTLE_TOKENS
            back += settle.tokens
        assert list(ranges.tokens(back)) == list(range(1, 2_501))


async def test_an_ack_of_an_abandoned_message_keeps_the_resolved_mark_below_it() -> None:
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


async def test_consumers_of_one_tag_subscribe_under_tags_of_their_own() -> None:
    async with Peer() as peer, consuming(peer, tag="worker") as (client, first):
        long = "ä" * 127
        kept = [first]
        wanted = ("worker", "worker", "other", long, long)
        kept += [client.consume("orders", tag=tag) for tag in wanted]
        tags = [one.tag for one in kept]
        assert tags == ["worker", "worker-2", "worker-3", "other", long, "ä" * 126 + "-2"]
        assert client.consume("elsewhere", tag="worker").tag == "worker"


async def test_deliveries_for_an_abandoned_consumer_are_returned() -> None:
    async with Peer() as peer:
        peer.answers[Cancel] = peer.answers[Close]
        peer.answers[Settle] = receive_all
        peer.answers[Subscribe] = subscribe_as(11)
        async with fifo.connect(peer.url) as client:
            messages = client.consume("orders")
            await messages.subscribe()
            peer.line().deliver(11, 1, bodies(3))
            [message] = await take(messages, 1)
            await message.ack(receipt=True)
            await peer.hear(Settle)
            with pytest.warns(ResourceWarning, match="was not left"):
                del messages
            _, _, cancel = await peer.hear(Cancel)
            assert (cancel.consumer, cancel.unopened) == (11, ((2, 3),))
            # It crossed the cancellation.
            peer.line().deliver(11, 4, bodies(2))
            _, _, settle = await peer.hear(Settle)
            while not settle.tokens:
                _, _, settle = await peer.hear(Settle)
            assert (settle.verb, settle.tokens) == (VERB_RELEASE, ((4, 5),))
