"""A program that takes a session over: the consumers of the one before it are left."""

from __future__ import annotations

import asyncio

from fifo.wire import Frame
from fifo.wire.messages import Cancel, Hello, Subscribe, Welcome
from tests.support.one_consumer import consuming
from tests.support.wire_peer import Line, Peer, subscribe_as, until, welcome

FOUND = tuple([(number, "worker", "orders", 30_000) for number in (11, 12, 13)])
"""The consumers of the session: number 11 is ours, the others are of the program before."""


def welcome_with_consumers(line: Line, hello: Hello) -> Welcome:
    """Welcome to a session with three consumers."""
    return welcome(line, hello, consumers=FOUND if hello.resume else ())


async def test_consumers_that_another_program_left_in_the_session_are_cancelled() -> None:
    async with Peer() as peer, consuming(peer):
        peer.opening = welcome_with_consumers
        peer.line().drop()
        assert [(await peer.hear(Cancel))[2].consumer for _ in range(2)] == [12, 13]
        assert peer.count(Cancel) == 0


async def test_no_consumer_is_cancelled_that_an_answer_may_still_name() -> None:
    async with Peer() as peer, consuming(peer) as (client, _):
        asked: list[tuple[Line, Frame]] = []
        peer.answers[Subscribe] = lambda line, frame: asked.append((line, frame))
        peer.opening = welcome_with_consumers
        consumer = client.consume("orders")
        call = asyncio.ensure_future(consumer.__aenter__())
        await until(lambda: len(asked) == 1)
        peer.line().drop()
        await until(lambda: len(asked) == 2)
        assert peer.count(Cancel) == 0
        subscribe_as(12)(*asked[1])
        await call
        assert (await peer.hear(Cancel))[2].consumer == 13
        assert peer.count(Cancel) == 0
        await consumer.__aexit__(None, None, None)
