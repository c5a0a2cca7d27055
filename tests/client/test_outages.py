"""Settlements while no leader is reached: retries are due, counted, and come to an end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, Unpack

import pytest

import fifo
from fifo.client import Client
from fifo.wire.messages import Settle, Subscribe
from tests.support.one_consumer import Orders, bodies, take
from tests.support.wire_peer import Peer, receive_all, subscribe_as, until


class Outage(NamedTuple):
    """A client that its node has left; the ack of `sent` was on its way, those of `held` not."""

    peer: Peer
    client: Client
    messages: Orders
    sent: fifo.Message
    held: list[fifo.Message]
    unsettled: dict[int, fifo.FifoError]
    """By token: what `on_unsettled` was called with."""


@asynccontextmanager
async def outage(held: int, **options: Unpack[fifo.ConnectKeywords]) -> AsyncIterator[Outage]:
    """A node that receives an ack, answers nothing, and stops."""
    options.setdefault("close_timeout", 0.1)
    async with Peer() as peer:
        peer.answers[Subscribe] = subscribe_as(11)
        async with fifo.connect(peer.url, **options) as client:
            unsettled: dict[int, fifo.FifoError] = {}
            client.on_unsettled = lambda message, error: unsettled.update({message.token: error})
            messages = client.consume("orders")
            await messages.subscribe()
            peer.line().deliver(11, 1, bodies(1 + held))
            sent, *others = await take(messages, 1 + held)
            await sent.ack()
            await peer.hear(Settle)
            await peer.stop()
            await until(lambda: not client.connected)
            yield Outage(peer, client, messages, sent, others, unsettled)


async def test_retries_are_counted_and_reported_without_a_connection_too() -> None:
    backoff = fifo.Fixed(0.01)
    async with outage(2, max_ack_retries=2, ack_retry_backoff=backoff) as away:
        peer, client, one, (two, three) = away.peer, away.client, away.sent, away.held
        await two.ack()
        with pytest.raises(fifo.AckRetriesExhausted, match="no connection to a leader"):
            await three.nack()
        await until(lambda: len(away.unsettled) == 2)
        assert [one.ack_failed.is_set(), two.ack_failed.is_set()] == [True, True]
        assert [away.unsettled[1].unknown, away.unsettled[2].unknown] == [True, False]
        assert client.metrics.settlements_exhausted == 3
        # They are in hand again, and can be settled when a leader is back.
        await peer.start()
        await until(lambda: client.connected)
        peer.answers[Settle] = receive_all
        results = await client.settle_many([one, two, three])
        assert [result.status for result in results] == ["ok"] * 3


async def test_without_retries_a_settlement_in_an_outage_is_reported_as_failed() -> None:
    async with outage(1, auto_retry_acks=False) as away:
        [two] = away.held
        await two.ack()
        await until(lambda: away.sent.ack_failed.is_set() and two.ack_failed.is_set())


async def test_a_retry_that_an_outage_kept_back_is_sent_at_once_and_counted_once() -> None:
    async with outage(1, ack_retry_backoff=fifo.Fixed(30)) as away:
        await away.held[0].ack()
        away.peer.answers[Settle] = receive_all
        await away.peer.start()
        await until(lambda: away.client.metrics.acked == 2)
        assert away.client.metrics.settlements_retried == 1, "the second one was sent first now"
        away.messages.cancelled = True
