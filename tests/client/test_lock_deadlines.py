"""The end of a lock by the client's own clock: seen without a word from any node."""

from __future__ import annotations

import asyncio
import random

import pytest

import fifo
from fifo.client.consuming.renewed import RenewedUntil
from fifo.wire import Frame
from fifo.wire.messages import VERB_RELEASE, Get, Got, Notice, Renew, Settle, Subscribe
from tests.support.one_consumer import bodies, consuming, take
from tests.support.wire_peer import Line, Peer, renew_all, subscribe_as, until


@pytest.mark.parametrize("renews", [True, False])
async def test_a_lock_whose_deadline_passes_without_an_answer_is_lost(renews: bool) -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=600)
        peer.answers[Renew] = lambda line, frame: None
        async with consuming(peer, auto_renew=renews) as (client, messages):
            peer.line().deliver(11, 1, bodies(2), remaining_ms=600)
            one, two = await take(messages, 2)
            await until(lambda: one.lock_lost.is_set() and two.lock_lost.is_set())
            assert one.remaining == 0
            assert client.metrics.locks_lost == 2
            # The node may have it locked still: its receipt says what became of the message.
            assert (await one.ack(receipt=True)).status is fifo.Status.OK


async def test_a_lock_that_ran_out_here_is_renewed_until_a_node_says_that_it_is_lost() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=600)
        peer.answers[Renew] = lambda line, frame: None
        async with consuming(peer) as (client, messages):
            peer.line().deliver(11, 1, bodies(2), remaining_ms=600)
            one, two = await take(messages, 2)
            await until(lambda: one.lock_lost.is_set() and two.lock_lost.is_set())
            # A slow election is over, and the cluster has kept the locks.
            peer.answers[Renew] = renew_all
            await until(lambda: one.remaining > 0 and two.remaining > 0)
            await one.renew()
            assert one.lock_lost.is_set()
            peer.line().send(Notice(1, 0, 11, ((1, 1),)))
            await until(lambda: one.remaining == 0)
            with pytest.raises(fifo.LockLost):
                await one.renew()
            assert two.remaining > 0
            assert client.metrics.locks_lost == 2


async def test_a_block_that_is_cancelled_at_the_deadline_gives_its_message_back() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=300)
        peer.answers[Renew] = lambda line, frame: None
        async with consuming(peer) as (_, messages):
            peer.line().deliver(11, 1, bodies(1), remaining_ms=300)
            [message] = await take(messages, 1)
            with pytest.raises(fifo.LockLost):
                async with message.process(cancel_on_lock_lost=True):
                    await asyncio.Event().wait()
            _, _, settle = await peer.hear(Settle)
            assert (settle.verb, settle.tokens) == (VERB_RELEASE, ((1, 1),))


async def test_a_settlement_under_way_is_no_lost_lock() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=300)
        async with consuming(peer, settles=False, auto_renew=False) as (_, messages):
            peer.line().deliver(11, 1, bodies(2), remaining_ms=300)
            one, two = await take(messages, 2)
            await one.ack()
            await peer.hear(Settle)
            await until(lambda: two.lock_lost.is_set())
            assert not one.lock_lost.is_set()


async def test_a_message_of_a_get_is_lost_at_its_deadline() -> None:
    async with Peer() as peer:

        def get(line: Line, frame: Frame) -> None:
            line.deliver(21, 1, bodies(1), remaining_ms=200)
            line.send(Got(21, 1, 1), frame.correlation)

        peer.answers[Get] = get
        async with fifo.connect(peer.url, close_timeout=0.1) as client:
            [message] = await client.get("orders")
            assert not message.lock_lost.is_set()
            await until(message.lock_lost.is_set)


async def test_locks_that_end_together_end_with_the_first() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=600, together=True)
        async with consuming(peer, auto_renew=False) as (_, messages):
            line = peer.line()
            line.deliver(11, 1, bodies(2), remaining_ms=20_000)
            one, two = await take(messages, 2)
            assert one.remaining > 10
            line.deliver(11, 3, bodies(1), remaining_ms=500)
            await until(lambda: one.remaining < 1)
            await until(lambda: one.lock_lost.is_set() and two.lock_lost.is_set())
            assert one.remaining == two.remaining == 0


async def test_what_is_settled_ends_no_other_lock() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=600, together=True)
        async with consuming(peer, auto_renew=False) as (_, messages):
            line = peer.line()
            line.deliver(11, 1, bodies(1), remaining_ms=5_000)
            line.deliver(11, 2, bodies(1), remaining_ms=20_000)
            one, two = await take(messages, 2)
            assert two.remaining < 10
            await one.ack(receipt=True)
            assert two.remaining > 10


async def test_what_the_leader_renews_ends_one_lock_after_the_connection_is_gone() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11, lock_ms=300)
        async with consuming(peer, auto_renew=False, renewals=30) as (client, messages):
            peer.line().deliver(11, 1, bodies(1), remaining_ms=300)
            [message] = await take(messages, 1)
            await until(lambda: message.remaining == 0)
            assert not message.lock_lost.is_set()
            peer.opening = lambda line, hello: None
            began = client._session.environment.monotonic()
            peer.line().drop()
            await until(message.lock_lost.is_set)
            assert client._session.environment.monotonic() - began >= 0.3


def test_the_newest_answer_counts_for_each_token() -> None:
    rng = random.Random(14)
    known, slow = RenewedUntil(), dict[int, float]()
    for step in range(400):
        places = sorted(rng.sample(range(200), 2 * rng.randint(1, 6)))
        answer = [
            (first, last, float(step + rng.randint(20, 40)))
            for first, last in zip(places[::2], places[1::2], strict=True)
        ]
        known.put(answer, step)
        for first, last, until_s in answer:
            slow.update(dict.fromkeys(range(first, last + 1), until_s))
        for token, until_s in slow.items():
            assert until_s <= step or known.get(token) == until_s


def test_answers_about_single_tokens_do_not_pile_up() -> None:
    known = RenewedUntil()
    for step in range(10_000):
        known.put([(step, step, step + 10)], step)
    assert len(known) < 200
