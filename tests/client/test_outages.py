"""Settlements while no leader is reached: retries are due, counted, and come to an end."""

from __future__ import annotations

from typing import Any

import pytest

import fifo
from fifo.wire.messages import Settle, Subscribe
from tests.support.one_consumer import bodies, take
from tests.support.wire_peer import Peer, receive_all, subscribe_as, until


async def test_retries_are_counted_and_reported_without_a_connection_too() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11)
        options: dict[str, Any] = {"max_ack_retries": 2, "ack_retry_backoff": fifo.Fixed(0.01)}
        async with fifo.connect(peer.url, close_timeout=0.1, **options) as client:
            unsettled: dict[int, fifo.FifoError] = {}
            client.on_unsettled = lambda message, error: unsettled.update({message.token: error})
            messages = client.consume("orders")
            await messages.subscribe()
            peer.line().deliver(11, 1, bodies(3))
            one, two, three = await take(messages, 3)
            await one.ack()
            await peer.hear(Settle)
            await peer.stop()
            await until(lambda: not client.connected)
            await two.ack()
            with pytest.raises(fifo.AckRetriesExhausted, match="no connection to a leader"):
                await three.nack()
            await until(lambda: len(unsettled) == 2)
            assert [one.ack_failed.is_set(), two.ack_failed.is_set()] == [True, True]
            assert [unsettled[1].unknown, unsettled[2].unknown] == [True, False], "one was sent"
            assert client.metrics.settlements_exhausted == 3
            # They are in hand again, and can be settled when a leader is back.
            await peer.start()
            await until(lambda: client.connected)
            peer.answers[Settle] = receive_all
            assert [result.status for result in await client.settle_many([one, two, three])] == [
                "ok"
            ] * 3


async def test_without_retries_a_settlement_in_an_outage_is_reported_as_failed() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11)
        async with fifo.connect(peer.url, close_timeout=0.1, auto_retry_acks=False) as client:
            messages = client.consume("orders")
            await messages.subscribe()
            peer.line().deliver(11, 1, bodies(2))
            one, two = await take(messages, 2)
            await one.ack()
            await peer.hear(Settle)
            await peer.stop()
            await until(lambda: not client.connected)
            await two.ack()
            await until(lambda: one.ack_failed.is_set() and two.ack_failed.is_set())


async def test_a_retry_that_an_outage_kept_back_is_sent_at_once_and_counted_once() -> None:
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11)
        async with fifo.connect(peer.url, ack_retry_backoff=fifo.Fixed(30)) as client:
            messages = client.consume("orders")
            await messages.subscribe()
            peer.line().deliver(11, 1, bodies(2))
            one, two = await take(messages, 2)
            await one.ack()
            await peer.hear(Settle)
            await peer.stop()
            await until(lambda: not client.connected)
            await two.ack()
            peer.answers[Settle] = receive_all
            await peer.start()
            await until(lambda: client.metrics.acked == 2)
            assert client.metrics.settlements_retried == 1, "the second one was sent first now"
            messages.cancelled = True
