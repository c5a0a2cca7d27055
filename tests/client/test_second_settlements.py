"""Proves that a second settlement of a message answers what became of the first, and never guesses.

The first test runs real nodes that have lost their majority; the others script a node's answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import fifo
from fifo.wire import Code
from fifo.wire.messages import (
    STATUS_LOCK_LOST,
    STATUS_OK,
    VERB_ACK,
    VERB_NACK,
    VERB_TERMINATE,
    Error,
    Receipt,
    Settle,
    Subscribe,
)
from tests.client.test_cluster import take
from tests.client.test_control import PeerThread
from tests.support.cluster import running
from tests.support.one_consumer import bodies, consuming
from tests.support.wire_peer import Line, Peer, receive_all, subscribe_as, until, welcome

Settles = Callable[[fifo.Client, fifo.Message], Coroutine[Any, Any, Any]]

WITH_RECEIPT: dict[str, Settles] = {
    "ack": lambda client, message: message.ack(receipt=True),
    "nack": lambda client, message: message.nack(),
    "release": lambda client, message: message.release(),
    "terminate": lambda client, message: message.terminate("never"),
    "settle_many": lambda client, message: client.settle_many([message]),
}


@pytest.mark.cluster
async def test_a_second_settlement_promises_nothing_that_no_majority_has(tmp_path: Path) -> None:
    async def settle_again(client: fifo.Client, message: fifo.Message, first: str) -> None:
        if first == "gathered ack":
            await message.ack()
        else:
            with pytest.raises(fifo.Timeout):
                await WITH_RECEIPT[first](client, message)
        for again in WITH_RECEIPT.values():
            with pytest.raises(fifo.Timeout) as caught:
                await again(client, message)
            assert caught.value.unknown
        assert (await message.ack()).status == "sent"

    firsts = ("ack", "gathered ack", "settle_many", "release", "terminate")
    async with running(tmp_path) as cluster:
        await cluster.leader()
        async with fifo.connect(cluster.url, timeout=0.5, close_timeout=0.2) as client:
            await client.declare(fifo.QueueSpec("orders", dead_letter="dead"))
            await client.publish_many("orders", [b"one"] * len(firsts))
            async with client.consume("orders") as messages:
                held = await take(messages, len(firsts))
                for name in [name for name, node in cluster.nodes.items() if not node.leads]:
                    await cluster.crash(name)
                async with asyncio.TaskGroup() as group:
                    for message, first in zip(held, firsts, strict=True):
                        group.create_task(settle_again(client, message, first), name=first)


@pytest.mark.parametrize("first", ["ack", "nack", "release", "terminate", "settle_many"])
async def test_a_second_settlement_by_the_same_verb_joins_the_first(first: str) -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        settle = WITH_RECEIPT[first]
        both = [asyncio.create_task(settle(client, message)) for _ in range(2)]
        line, frame, _ = await peer.hear(Settle)
        receive_all(line, frame)
        answers = [one[0] if isinstance(one, list) else one for one in await asyncio.gather(*both)]
        assert [answer.status for answer in answers] == ["ok", "ok"]
        assert peer.count(Settle) == 0
        # The receipt is there: from here on it is known what became of the message.
        assert (await message.ack()).status == "already_settled"
        assert (await message.nack()).status == "already_settled"
        assert [one.status for one in await client.settle_many([message, message])] == [
            "already_settled",
            "already_settled",
        ]


async def test_one_message_twice_in_a_list_is_settled_once_and_answered_twice() -> None:
    async with Peer() as peer, consuming(peer) as (client, messages):
        peer.line().deliver(11, 1, bodies(2))
        one, two = await take(messages, 2)
        results = await client.settle_many([one, two, one])
        assert [result.status for result in results] == ["ok", "ok", "ok"]
        _, _, settle = await peer.hear(Settle)
        assert settle.tokens == ((1, 2),)


@pytest.mark.parametrize(
    ("status", "answer"), [(STATUS_OK, "already_settled"), (STATUS_LOCK_LOST, "lock_lost")]
)
async def test_another_verb_waits_for_the_first_and_says_what_became_of_it(
    status: int, answer: str
) -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (_, messages):
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        await message.ack()
        nacking = asyncio.create_task(message.nack())
        line, frame, settle = await peer.hear(Settle)
        assert settle.verb == VERB_ACK
        assert not nacking.done()
        line.send(Receipt(11, ((1, 1, status, False),)), frame.correlation)
        assert (await nacking).status == answer
        assert (await message.release()).status == answer
        assert peer.count(Settle) == 0


@pytest.mark.parametrize("receipt", [True, False])
async def test_another_verb_is_carried_out_where_the_first_was_refused(receipt: bool) -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (_, messages):
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        terminating = asyncio.create_task(message.terminate("never"))
        line, frame, settle = await peer.hear(Settle)
        assert settle.verb == VERB_TERMINATE
        acking = asyncio.create_task(message.ack(receipt=receipt))
        await asyncio.sleep(0)
        line.send(Error(Code.NO_DEAD_LETTER_QUEUE, "orders has none"), frame.correlation)
        with pytest.raises(fifo.NoDeadLetterQueue):
            await terminating
        line, frame, settle = await peer.hear(Settle)
        assert settle.verb == VERB_ACK
        receive_all(line, frame)
        assert (await acking).status == ("ok" if receipt else "sent")


async def test_after_exhausted_retries_the_node_is_asked_anew() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11)
        async with fifo.connect(peer.url, max_ack_retries=0, close_timeout=0.1) as client:
            messages = client.consume("orders")
            await messages.subscribe()
            peer.line().deliver(11, 1, bodies(1))
            [message] = await take(messages, 1)
            both = [asyncio.create_task(message.ack(receipt=True)) for _ in range(2)]
            line, frame, _ = await peer.hear(Settle)
            line.send(Error(Code.OVERLOADED, "busy", retryable=True), frame.correlation)
            for acking in both:
                with pytest.raises(fifo.AckRetriesExhausted) as caught:
                    await acking
                assert not caught.value.unknown, "it was refused"
            # Whether the ack was carried out is the node's to say.
            nacking = asyncio.create_task(message.nack())
            line, frame, settle = await peer.hear(Settle)
            assert (settle.verb, settle.resolved_below) == (VERB_NACK, 1)
            line.send(Receipt(11, ((1, 1, 1, False),)), frame.correlation)
            assert (await nacking).status == "already_settled"


async def test_across_an_ended_session_a_second_settlement_is_unknown_as_the_first_is() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        unsettled: list[tuple[Any, bool]] = []
        client.on_unsettled = lambda message, error: unsettled.append((message, error.unknown))
        peer.line().deliver(11, 1, bodies(3))
        sent, acked, unsent = await take(messages, 3)
        await acked.ack()
        first = asyncio.create_task(sent.ack(receipt=True))
        for _ in range(2):
            await peer.hear(Settle)
        joined = asyncio.create_task(sent.ack(receipt=True))
        old = peer.line().hello
        assert old is not None

        def opening(line: Line, hello: Any) -> Any:
            if hello.session == old.session:
                return Error(Code.SESSION_ENDED, "too long away")
            return welcome(line, hello)

        peer.opening = opening
        peer.line().drop()
        for acking in (first, joined):
            with pytest.raises(fifo.SessionEnded) as caught:
                await acking
            assert caught.value.unknown
        for again in WITH_RECEIPT.values():
            with pytest.raises(fifo.SessionEnded) as caught:
                await again(client, sent)
            assert caught.value.unknown
        assert unsettled == [(acked, True)]
        assert (await acked.ack()).status == "lock_lost"
        assert unsettled == [(acked, True), (acked, True)]
        # What was never settled is lost with its session: that is known.
        assert (await unsent.ack(receipt=True)).status == "lock_lost"
        assert (await unsent.ack()).status == "lock_lost"
        await until(lambda: client.metrics.connects == 2)


async def test_acks_gathered_when_the_session_ends_are_reported() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        unsettled: list[tuple[Any, bool]] = []
        client.on_unsettled = lambda message, error: unsettled.append((message, error.unknown))
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        peer.opening = lambda line, hello: (
            Error(Code.SESSION_ENDED, "too long away") if hello.resume else welcome(line, hello)
        )
        await message.ack()
        client._session.end(fifo.SessionEnded("in the same turn"))
        await message.ack_failed.wait()
        # Never sent: so it is certain that it did not happen.
        assert unsettled == [(message, False)]


async def test_a_failure_behind_a_caller_that_waits_no_longer_is_an_event() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        unsettled: list[Any] = []
        client.on_unsettled = lambda message, error: unsettled.append(message)
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        acking = asyncio.create_task(message.ack(receipt=True))
        line, frame, _ = await peer.hear(Settle)
        acking.cancel()
        await asyncio.gather(acking, return_exceptions=True)
        line.send(Receipt(11, ((1, 1, STATUS_LOCK_LOST, False),)), frame.correlation)
        await message.ack_failed.wait()
        assert unsettled == [message]


async def test_of_two_callers_the_one_that_does_not_wait_has_its_event() -> None:
    async with Peer() as peer, consuming(peer, settles=False) as (client, messages):
        unsettled: list[Any] = []
        client.on_unsettled = lambda message, error: unsettled.append(message)
        peer.line().deliver(11, 1, bodies(1))
        [message] = await take(messages, 1)
        acking = asyncio.create_task(message.ack(receipt=True))
        line, frame, _ = await peer.hear(Settle)
        assert (await message.ack()).status == "sent"
        line.send(Receipt(11, ((1, 1, STATUS_LOCK_LOST, False),)), frame.correlation)
        assert (await acking).status == "lock_lost"
        await message.ack_failed.wait()
        assert unsettled == [message]


@pytest.mark.slow
def test_the_blocking_twin_waits_for_the_first_as_well() -> None:
    with PeerThread() as thread:
        peer = thread.peer
        assert peer is not None
        assert thread.loop is not None
        peer.answers[Subscribe] = subscribe_as(11)
        with fifo.blocking.connect(peer.url, timeout=0.3, close_timeout=0.1) as client:
            messages = client.consume("orders")
            messages.subscribe()
            thread.loop.call_soon_threadsafe(peer.line().deliver, 11, 1, bodies(1))
            message = messages.next(timeout=5)
            assert message is not None
            assert message.ack().status == "sent"
            with pytest.raises(fifo.Timeout) as caught:
                message.ack(receipt=True)
            assert caught.value.unknown
            with pytest.raises(fifo.Timeout) as caught:
                message.nack()
            assert caught.value.unknown
            assert message.ack().status == "sent"
            peer.answers[Settle] = receive_all
            thread.loop.call_soon_threadsafe(peer.line().drop)
            assert message.ack(receipt=True).status == "ok"
            assert message.ack().status == "already_settled"
