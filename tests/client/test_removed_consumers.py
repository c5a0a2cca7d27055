"""Consumers that the node has removed, for their queue was deleted: what the client does then."""

from __future__ import annotations

import asyncio

import pytest

import fifo
from fifo.client import limits
from fifo.wire import Code, Frame
from fifo.wire.messages import Error, Get, Got, Notice, Subscribe
from tests.support.one_consumer import bodies, consuming, take
from tests.support.wire_peer import Line, Peer, subscribe_as, until


async def test_a_removed_consumer_ends_its_iteration_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "REPLACED_S", 0.05)
    monkeypatch.setattr(limits, "REPLACED_LOOK_S", 0.01)
    async with Peer() as peer, consuming(peer) as (_, messages):
        waiting = asyncio.create_task(messages.next())
        await peer.hear(Subscribe)
        peer.answers[Subscribe] = lambda line, frame: line.send(
            Error(Code.QUEUE_NOT_FOUND, "no such queue"), frame.correlation
        )
        peer.line().send(Notice(0, 3, 11, active=False))
        with pytest.raises(fifo.QueueNotFound, match="'orders' was deleted"):
            await asyncio.wait_for(waiting, 5)
        assert peer.count(Subscribe) > 1, "looked for the next queue of the name"


async def test_a_removal_that_overtakes_the_number_of_its_consumer_is_heard() -> None:
    async with Peer() as peer:

        def removed_first(line: Line, frame: Frame) -> None:
            peer.answers[Subscribe] = subscribe_as(12)
            line.send(Notice(0, 3, 11, active=False))
            subscribe_as(11)(line, frame)

        peer.answers[Subscribe] = removed_first
        async with consuming(peer) as (_, messages):
            await until(lambda: messages.number == 12)
            peer.line().deliver(12, 1, bodies(1))
            assert [message.consumer for message in await take(messages, 1)] == [12]


async def test_messages_of_a_get_are_lost_with_their_queue() -> None:
    async with Peer() as peer:

        def get(line: Line, frame: Frame) -> None:
            line.deliver(21, 1, bodies(1))
            line.send(Got(21, 1, 1), frame.correlation)

        peer.answers[Get] = get
        async with fifo.connect(peer.url, close_timeout=0.1) as client:
            [message] = await client.get("orders")
            peer.line().send(Notice(0, 3, 21, active=False))
            await until(message.lock_lost.is_set)
