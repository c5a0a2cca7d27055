"""The frames by which a client with `prefetch="auto"` sets its prefetch, at a scripted node."""

from __future__ import annotations

import asyncio

from fifo.wire.messages import Close, Credit, Subscribe
from tests.support.one_consumer import bodies, consuming, take
from tests.support.wire_peer import Peer


async def test_the_credit_of_a_chosen_prefetch_is_marked_as_the_library_s() -> None:
    async with Peer() as peer, consuming(peer, prefetch="auto") as (_, messages):
        peer.answers[Credit] = peer.answers[Close]
        assert (await peer.hear(Subscribe))[2].prefetch == 1
        peer.line().deliver(11, 1, bodies(1))
        held = await take(messages, 1)
        asking = asyncio.create_task(messages.next(timeout=10))
        assert (await peer.hear(Credit))[2] == Credit(11, 2, automatic=True)
        peer.line().deliver(11, 2, bodies(1, 2))
        found = await asking
        assert found is not None
        assert [message.body for message in [*held, found]] == bodies(2)


async def test_places_are_given_back_where_the_node_says_that_all_keys_are_out() -> None:
    async with Peer() as peer, consuming(peer, prefetch="auto") as (_, messages):
        peer.answers[Credit] = peer.answers[Close]
        await peer.hear(Subscribe)
        asking = [asyncio.create_task(messages.next(timeout=10)) for _ in range(90)]
        peer.line().deliver(11, 1, bodies(1))
        assert (await peer.hear(Credit))[2] == Credit(11, 90, automatic=True)
        for task in asking[40:]:
            task.cancel()
        peer.line().deliver(11, 2, bodies(1, 2), keys_out=True)
        assert (await peer.hear(Credit))[2] == Credit(11, 64, automatic=True)
        for task in asking:
            task.cancel()
