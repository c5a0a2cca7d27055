"""The mark behind what a node sends again after a resume: what did not come before it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import fifo
from fifo.client import Client
from fifo.wire import Code
from fifo.wire.messages import Error, Resumed, Settle, Subscribe
from tests.support.one_consumer import Orders, bodies, consuming, take
from tests.support.wire_peer import Line, Peer, receive_all, until, welcome


@asynccontextmanager
async def known() -> AsyncIterator[tuple[Peer, Client, Orders]]:
    """A consumer with number 11 that the node still knows after a resume."""
    async with Peer() as peer:
        mine = ((11, "consumer-1", "orders", 30_000),)
        peer.opening = lambda line, hello: welcome(line, hello, consumers=mine)
        async with consuming(peer, settles=False) as (client, messages):
            await peer.hear(Subscribe)
            yield peer, client, messages


async def resumed(peer: Peer, client: Client) -> Line:
    """Cut the data connection, and return the next one."""
    peer.line().drop()
    before = client.metrics.connects
    await until(lambda: client.metrics.connects > before)
    return peer.line()


async def test_what_is_not_sent_again_before_the_mark_is_lost() -> None:
    async with known() as (peer, client, messages):
        peer.line().deliver(11, 1, bodies(5))
        kept, lost, settling = await take(messages, 3)
        acking = asyncio.create_task(settling.ack(receipt=True))
        await peer.hear(Settle)
        line = await resumed(peer, client)
        line.deliver(11, 1, bodies(1), repeat=True)
        line.deliver(11, 5, bodies(1, 5), repeat=True)
        line.send(Resumed())
        await until(lost.lock_lost.is_set)
        # Of those that were not handed out 4 is gone, and 5 is still held.
        assert [message.token for message in await take(messages, 1)] == [5]
        assert not kept.lock_lost.is_set()
        assert not settling.lock_lost.is_set(), "its receipt tells"
        assert client.metrics.locks_lost == 1
        peer.answers[Settle] = receive_all
        line, frame, _ = await peer.hear(Settle)
        receive_all(line, frame)
        assert (await acking).status == "ok"


async def test_a_connection_that_breaks_before_the_mark_loses_nothing() -> None:
    async with known() as (peer, client, messages):
        peer.line().deliver(11, 1, bodies(2))
        one, two = await take(messages, 2)
        line = await resumed(peer, client)
        line.deliver(11, 1, bodies(1), repeat=True)
        line = await resumed(peer, client)
        line.deliver(11, 2, bodies(1, 2), repeat=True)
        line.send(Resumed())
        await until(one.lock_lost.is_set)
        assert not two.lock_lost.is_set(), "only what came on this connection counts"
        peer.answers[Settle] = receive_all


async def test_what_was_settled_before_a_resume_is_not_lost() -> None:
    async with known() as (peer, client, messages):
        peer.line().deliver(11, 1, bodies(1))
        [one] = await take(messages, 1)
        await one.release(receipt=False)
        line, frame, _ = await peer.hear(Settle)
        receive_all(line, frame)
        await until(lambda: client.metrics.released == 1)
        line = await resumed(peer, client)
        line.send(Resumed())
        line.deliver(11, 2, bodies(1, 2))
        assert [message.token for message in await take(messages, 1)] == [2]
        assert not one.lock_lost.is_set(), "settled is settled"
        peer.answers[Settle] = receive_all


async def test_a_settlement_that_is_given_up_after_the_mark_leaves_a_lost_message() -> None:
    async with known() as (peer, client, messages):
        peer.line().deliver(11, 1, bodies(1))
        [one] = await take(messages, 1)
        terminating = asyncio.create_task(one.terminate("never"))
        await peer.hear(Settle)
        line = await resumed(peer, client)
        line.send(Resumed())
        line, frame, _ = await peer.hear(Settle)
        line.send(Error(Code.NO_DEAD_LETTER_QUEUE, "none"), frame.correlation)
        with pytest.raises(fifo.NoDeadLetterQueue):
            await terminating
        assert one.lock_lost.is_set()
        peer.answers[Settle] = receive_all
