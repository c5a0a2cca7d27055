"""`get` on many more queues than a client keeps consumers for, on three real nodes."""

from __future__ import annotations

import asyncio

import pytest

import fifo
from fifo.client import limits

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

_EMPTY = [f"empty-{number}" for number in range(limits.GETS_IDLE_MAX + 20)]
_FULL = [f"full-{number}" for number in range(limits.GETS_IDLE_MAX + 20)]


async def consumers(client: fifo.Client) -> int:
    """The number of consumers that the cluster keeps for this client's session."""
    # Programs that tests before have killed leave sessions for a minute, if they had published.
    [session] = [one for one in await client.sessions() if one.status == "connected"]
    return session.consumers


@pytest.mark.fifo_cluster(nodes=3)
async def test_gets_on_very_many_queues_leave_no_consumers_behind(client: fifo.Client) -> None:
    await asyncio.gather(*[client.declare(fifo.QueueSpec(name)) for name in [*_EMPTY, *_FULL]])
    await asyncio.gather(*[client.publish(name, b"x") for name in _FULL])
    [held] = await client.get(_FULL[0], lock=60)
    # Answered when their wait is over: these make consumers as well.
    found = await asyncio.gather(*[client.get(name, wait=0.02) for name in _EMPTY])
    assert not any(found)
    for name in _FULL[1:]:
        [message] = await client.get(name)
        await message.ack(receipt=True)
    assert await client.get(_FULL[0]) == [], "one more, which leaves those that are idle by now"
    # The most recently used ones, and that of the message in hand.
    most = limits.GETS_IDLE_MAX + 1
    assert await consumers(client) <= most
    assert len(client._session.ledgers) <= most
    assert await client.consumers(_FULL[1]) == [], "used least recently"
    assert (await held.ack(receipt=True)).status == "ok"
    assert [(await client.queue(name)).messages for name in _FULL[:2]] == [0, 0]
