"""Lost locks: who hears of them, what proves that a consumer lives, and what its block does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import fifo
from fifo.wire import Frame
from fifo.wire.messages import (
    STATUS_LOCK_LOST,
    STATUS_UNKNOWN_CONSUMER,
    VERB_RELEASE,
    Alive,
    Close,
    Get,
    Got,
    Notice,
    NoticeAck,
    Receipt,
    Renew,
    Settle,
)
from tests.support.one_consumer import bodies, consuming, take
from tests.support.wire_peer import (
    Line,
    Peer,
    receive_all,
    until,
    welcome,
)


async def test_a_lost_lock_is_raised_to_a_waiting_caller_and_is_an_event_otherwise() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        peer.answers[Settle] = lambda line, frame: line.send(
            Receipt(11, ((1, 1, STATUS_LOCK_LOST, False), (2, 2, 0, True), (3, 3, 0, False))),
            frame.correlation,
        )
        unsettled: list[Any] = []
        client.on_unsettled = lambda message, error: unsettled.append((message, error))
        peer.line().deliver(11, 1, bodies(3))
        one, two, three = await take(messages, 3)
        for message in (one, two, three):
            await message.ack()
        await one.ack_failed.wait()
        assert one.lock_lost.is_set()
        assert one.remaining == 0
        assert not two.ack_failed.is_set()
        assert [(message, type(error)) for message, error in unsettled] == [(one, fifo.LockLost)]
        peer.line().deliver(11, 4, bodies(2))
        four, five = await take(messages, 2)
        peer.answers[Settle] = lambda line, frame: line.send(
            Receipt(11, ((4, 4, STATUS_LOCK_LOST, False), (5, 5, 0, True))), frame.correlation
        )
        results = await client.settle_many([four, five, one])
        assert [(result.status.value, result.late) for result in results] == [
            ("lock_lost", False),
            ("ok", True),
            ("lock_lost", False),
        ]


@pytest.mark.parametrize("status", [STATUS_LOCK_LOST, STATUS_UNKNOWN_CONSUMER])
async def test_a_block_whose_termination_came_too_late_is_reported(status: int) -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        unsettled: list[Any] = []
        client.on_unsettled = lambda message, error: unsettled.append((message, type(error)))
        peer.answers[Settle] = lambda line, frame: line.send(
            Receipt(11, ((1, 1, status, False),)), frame.correlation
        )
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        async with message.process():
            raise fifo.Terminal("hopeless")
        assert unsettled == [(message, fifo.LockLost)]
        assert message.ack_failed.is_set()


async def test_a_timeout_notice_loses_the_lock_and_asking_for_more_proves_that_we_live() -> None:
    async with Peer() as peer, consuming(peer) as (client, messages):
        peer.line().deliver(11, 1, bodies(4))
        one, two = await take(messages, 2)
        await until(lambda: any(line.hello and line.role == 1 for line in peer.lines))
        control = peer.line(1)
        control.send(Notice(5, 0, 11, ((1, 1), (3, 3))))
        _, _, acked = await peer.hear(NoticeAck)
        assert acked.notice == 5
        await one.lock_lost.wait()
        assert not two.lock_lost.is_set()
        with pytest.raises(fifo.LockLost):
            await one.renew()
        # The renewal has spoken already. 3 was lost in the buffer and is not handed out.
        [four] = await take(messages, 1)
        assert four.token == 4
        assert peer.count(Alive) == 0
        await two.ack()
        await four.ack()
        await peer.hear(Settle)
        assert client.metrics.locks_lost == 1
        # Settling has cleared it already; a new suspicion is cleared by asking.
        peer.line().deliver(11, 5, bodies(1))
        [five] = await take(messages, 1)
        control.send(Notice(6, 0, 11, ((5, 5),)))
        await five.lock_lost.wait()
        assert await messages.next(timeout=0.01) is None
        assert (await peer.hear(Alive))[2] == Alive(11, 0)


async def test_an_explicit_renewal_of_a_lost_lock_is_sent_as_a_sign_of_life() -> None:
    async with Peer() as peer, consuming(peer, auto_renew=False) as (_, messages):
        peer.line().deliver(11, 1, bodies(2))
        one, _ = await take(messages, 2)
        peer.line().send(Notice(1, 0, 11, ((1, 1),)))
        await one.lock_lost.wait()
        with pytest.raises(fifo.LockLost):
            await one.renew()
        _, _, renew = await peer.hear(Renew)
        assert (renew.items, renew.explicit) == (((11, ((1, 1),)),), True)
        assert not one.ledger.suspected


async def handle(message: fifo.Message, *, cancel_on_lock_lost: bool = False) -> None:
    """A handler that hangs until its task is cancelled."""
    async with message.process(cancel_on_lock_lost=cancel_on_lock_lost):
        await asyncio.Event().wait()


async def test_asking_says_how_many_lost_messages_are_still_handled() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        peer.line().deliver(11, 1, bodies(3))
        one, two, three = await take(messages, 3)
        async with asyncio.TaskGroup() as handlers:
            hanging = handlers.create_task(handle(one))
            ending = asyncio.create_task(handle(two, cancel_on_lock_lost=True))
            asking = handlers.create_task(messages.next())
            await asyncio.sleep(0)
            peer.line().send(Notice(1, 0, 11, ((1, 1),)))
            assert (await peer.hear(Alive))[2] == Alive(11, 1)
            # The handler of 2 ends with its lock: it is counted no more, and the task asks anew.
            peer.line().send(Notice(2, 0, 11, ((2, 2),)))
            while (await peer.hear(Alive))[2] != Alive(11, 1):
                pass
            with pytest.raises(fifo.LockLost):
                await ending
            assert one.ledger.suspected
            await messages.alive()
            assert (await peer.hear(Alive))[2] == Alive(11, None)
            assert not one.ledger.suspected
            peer.line().deliver(11, 4, bodies(1))
            await asking
            hanging.cancel()
        await three.ack()


async def test_asking_is_sent_again_until_it_is_answered() -> None:
    async with Peer() as peer, consuming(peer) as (client, messages):
        peer.opening = lambda line, hello: welcome(
            line, hello, consumers=((11, "consumer-1", "orders", 30_000),)
        )
        peer.answers[Alive] = lambda line, frame: None
        peer.line().deliver(11, 1, bodies(1))
        [one] = await take(messages, 1)
        peer.line().send(Notice(1, 0, 11, ((1, 1),)))
        await one.lock_lost.wait()
        asking = asyncio.create_task(messages.next(timeout=5))
        await peer.hear(Alive)
        peer.answers[Alive] = peer.answers[Close]
        peer.line().drop()
        assert (await peer.hear(Alive))[2] == Alive(11, 0)
        peer.line().deliver(11, 2, bodies(1))
        assert (await asking) is not None
        assert client.metrics.connects == 2


async def test_a_message_that_ran_out_in_the_buffer_is_given_back_and_not_handed_out() -> None:
    async with Peer() as peer, consuming(peer, auto_renew=False) as (_, messages):
        peer.line().deliver(11, 1, bodies(2), remaining_ms=20)
        peer.line().deliver(11, 3, bodies(1, 3))
        await until(lambda: messages.buffered == 3)
        await asyncio.sleep(0.03)
        [message] = await take(messages, 1)
        assert message.body == b"3"
        said = [(await peer.hear(Settle))[2] for _ in range(2)]
        assert [(one.verb, one.tokens) for one in said] == [
            (VERB_RELEASE, ((1, 1),)),
            (VERB_RELEASE, ((2, 2),)),
        ]
        assert all(one.automatic for one in said), "the program has said nothing"
        await message.release()
        assert not (await peer.hear(Settle))[2].automatic


async def test_a_block_can_be_cancelled_when_its_lock_is_lost() -> None:
    async with Peer() as peer, consuming(peer) as (_, messages):
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        peer.line().send(Notice(1, 0, 11, ((1, 1),)))
        with pytest.raises(fifo.LockLost):
            async with message.process(cancel_on_lock_lost=True):
                await asyncio.Event().wait()
        assert peer.count(Settle) == 0
        await asyncio.sleep(0)


async def test_get_hands_out_no_message_whose_lock_is_over() -> None:
    async with Peer() as peer:
        peer.answers[Settle] = receive_all

        def first(line: Line, frame: Frame) -> None:
            line.deliver(21, 1, bodies(1))
            line.send(Got(21, 1, 1), frame.correlation)

        def second(line: Line, frame: Frame) -> None:
            line.deliver(21, 2, bodies(1, 2), remaining_ms=0)
            line.deliver(21, 3, bodies(2, 3))
            line.send(Notice(1, 0, 21, ((3, 3),)))
            line.send(Got(21, 2, 3), frame.correlation)

        async with fifo.connect(peer.url) as client:
            peer.answers[Get] = first
            [held] = await client.get("orders")
            peer.answers[Get] = second
            assert [one.token for one in await client.get("orders", 3)] == [4]
            _, _, settle = await peer.hear(Settle)
            assert (settle.verb, settle.tokens) == (VERB_RELEASE, ((2, 2),))
            assert settle.automatic, "the program has said nothing"
            assert not held.ledger.is_unresolved(3), "what was lost is done with"
