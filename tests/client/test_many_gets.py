"""`get` on many queues, against a scripted node: which implicit consumers are left, and how."""

from __future__ import annotations

import asyncio
from itertools import count
from unittest.mock import patch

import pytest

import fifo
from fifo.client import limits
from fifo.wire import Code, Frame
from fifo.wire.messages import (
    NOTICE_MESSAGE_TIMEOUT,
    Cancel,
    Error,
    Get,
    Got,
    Notice,
    Ok,
    Settle,
)
from tests.support.one_consumer import bodies
from tests.support.wire_peer import Answer, Line, Peer, receive_all, until

two_are_kept = patch.object(limits, "GETS_IDLE_MAX", 2)


def gets(*, messages: int = 0) -> Answer:
    """Answer gets of queue q1 for consumer 1, of q2 for consumer 2, each with new tokens."""
    next_tokens: dict[int, count[int]] = {}

    def answer(line: Line, frame: Frame) -> None:
        message = frame.message
        assert isinstance(message, Get)
        number = int(message.queue.removeprefix("q"))
        first = next(next_tokens.setdefault(number, count(1, max(messages, 1))))
        if messages:
            line.deliver(number, first, bodies(messages), queue=message.queue)
        line.send(Got(number, first, messages), frame.correlation)

    return answer


def script(peer: Peer, *, messages: int = 0) -> None:
    """Answer all that a client of `get` sends."""
    peer.answers[Get] = gets(messages=messages)
    peer.answers[Settle] = receive_all
    peer.answers[Cancel] = lambda line, frame: line.send(Ok(), frame.correlation)


def left(peer: Peer) -> list[int]:
    """The consumers that were cancelled so far."""
    return [one.message.consumer for _, one in peer.heard if isinstance(one.message, Cancel)]


@two_are_kept
async def test_the_idle_consumers_that_were_used_least_recently_are_left() -> None:
    async with Peer() as peer:
        script(peer, messages=2)
        async with fifo.connect(peer.url) as client:
            for queue in ("q1", "q2", "q1", "q3"):
                for message in await client.get(queue, 2):
                    await message.ack(receipt=True)
            peer.heard.clear()
            await client.get("q4")
            resolved, cancelled, asked = [frame.message for _, frame in peer.heard[:3]]
            assert resolved == Settle(2, 0, (), resolved_below=3, automatic=True)
            assert cancelled == Cancel(2)
            assert isinstance(asked, Get), "it comes after what makes room for it"
            assert sorted(client._session.ledgers) == [1, 3, 4]


@two_are_kept
async def test_a_consumer_with_a_message_in_hand_is_not_left() -> None:
    async with Peer() as peer:
        script(peer, messages=1)
        async with fifo.connect(peer.url, close_timeout=0.1) as client:
            held = [(await client.get(f"q{number}"))[0] for number in range(1, 6)]
            assert left(peer) == []
            for message in held:
                assert (await message.ack(receipt=True)).status == "ok"
            await client.get("q6")
            assert left(peer) == [1, 2, 3]


@two_are_kept
async def test_a_consumer_whose_messages_were_all_lost_is_left() -> None:
    async with Peer() as peer:
        script(peer, messages=1)
        async with fifo.connect(peer.url, close_timeout=0.1) as client:
            [lost] = await client.get("q1")
            peer.line().send(Notice(1, NOTICE_MESSAGE_TIMEOUT, 1, ((1, 1),)))
            await until(lost.lock_lost.is_set)
            for queue in ("q2", "q3"):
                [message] = await client.get(queue)
                await message.ack(receipt=True)
            await client.get("q4")
            assert left(peer) == [1]
            _, _, resolved = await peer.hear(Settle)
            while resolved.tokens:
                _, _, resolved = await peer.hear(Settle)
            assert (resolved.consumer, resolved.resolved_below) == (1, 2)


@two_are_kept
async def test_a_consumer_that_was_left_may_get_its_number_again() -> None:
    async with Peer() as peer:
        script(peer)
        late: list[tuple[Line, Frame]] = []
        peer.answers[Cancel] = lambda line, frame: late.append((line, frame))
        async with fifo.connect(peer.url, close_timeout=0.1) as client:
            for queue in ("q1", "q2", "q3", "q4"):
                await client.get(queue)
            assert left(peer) == [1]
            peer.answers[Get] = gets(messages=1)
            [message] = await client.get("q1")
            for line, frame in late:
                line.send(Error(Code.UNKNOWN_CONSUMER, "no such consumer"), frame.correlation)
            assert (await message.ack(receipt=True)).status == "ok"
            assert 1 in client._session.ledgers


@two_are_kept
async def test_where_one_more_consumer_is_refused_all_idle_ones_are_left() -> None:
    async with Peer() as peer:
        script(peer)
        async with fifo.connect(peer.url) as client:
            await client.get("q1")
            await client.get("q2")

            def full(line: Line, frame: Frame) -> None:
                peer.answers[Get] = gets()
                line.send(Error(Code.LIMIT, "1000 consumers"), frame.correlation)

            peer.answers[Get] = full
            assert await client.get("q3") == []
            assert left(peer) == [1, 2]
            peer.answers[Get] = full
            assert await client.get("q3") == []

            def always_full(line: Line, frame: Frame) -> None:
                line.send(Error(Code.LIMIT, "1000 consumers"), frame.correlation)

            peer.answers[Get] = always_full
            with pytest.raises(fifo.LimitReached):
                await client.get("q4")


@two_are_kept
async def test_the_consumer_of_an_abandoned_get_is_left_like_any_other() -> None:
    async with Peer() as peer:
        script(peer, messages=2)
        answer = peer.answers.pop(Get)
        async with fifo.connect(peer.url) as client:
            getting = asyncio.create_task(client.get("q1", 2, wait=30))
            line, frame, _ = await peer.hear(Get)
            getting.cancel()
            await asyncio.gather(getting, return_exceptions=True)
            answer(line, frame)
            _, _, back = await peer.hear(Settle)
            assert (back.consumer, back.tokens) == (1, ((1, 2),))
            peer.answers[Get] = gets()
            for queue in ("q2", "q3", "q4"):
                await client.get(queue)
            assert left(peer) == [1]


async def test_an_abandoned_get_that_was_not_answered_is_sent_again_without_its_wait() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        getting = asyncio.create_task(client.get("q1", 5, wait=30))
        line, _, _ = await peer.hear(Get)
        getting.cancel()
        await asyncio.gather(getting, return_exceptions=True)
        line.drop()
        _, _, again = await peer.hear(Get)
        assert (again.count, again.wait_ms) == (1, 0)
