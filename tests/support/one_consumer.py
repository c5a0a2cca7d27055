"""A client with one consumer at a scripted peer, for tests of what a consumer does.

Owns how it is set up and how messages are taken. Must not know any test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import fifo
from fifo.client import Client, Consumer
from fifo.wire.messages import (
    Alive,
    Cancel,
    Close,
    Renew,
    Settle,
    Subscribe,
)
from tests.support.wire_peer import (
    Peer,
    receive_all,
    renew_all,
    subscribe_as,
)

Orders = Consumer[fifo.Message]


@asynccontextmanager
async def consuming(
    peer: Peer, *, settles: bool = True, **options: Any
) -> AsyncIterator[tuple[Client, Orders]]:
    """A client with a consumer of number 11, whose settlements are answered if `settles`."""
    if settles:
        peer.answers[Settle] = receive_all
    peer.answers.setdefault(Subscribe, subscribe_as(11))
    peer.answers[Cancel] = peer.answers[Alive] = peer.answers[Close]
    peer.answers.setdefault(Renew, renew_all)
    async with (
        fifo.connect(peer.url, close_timeout=0.2) as client,
        client.consume("orders", **{"prefetch": 1000, **options}) as messages,
    ):
        yield client, messages


def bodies(count: int, first: int = 1) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


async def take(messages: Orders, count: int) -> list[fifo.Message]:
    async with asyncio.timeout(5):
        return [await anext(messages) for _ in range(count)]
