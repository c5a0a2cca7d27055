"""The work beside a state, and its price: CPU time of the nodes beyond what they take while idle.

Owns the loads (in batches, one at a time, until a snapshot or a digest is there) and the arithmetic
of a price. Knows neither what grows nor why.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import fifo
from bench.growth.states import CALL_TIMEOUT_S, PATIENCE_S, QUEUE
from bench.loopback import ClusterFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.growth.states import State
    from bench.nodes import Nodes

BATCH: Final = 1_000
BYTES_MAX: Final = 64 << 20
"""Of one load: bodies of a megabyte are few, or they would take minutes."""

BATCH_BYTES_MAX: Final = 4 << 20
LONE_PART: Final = 50
"""Messages in batches for each that goes alone: such a one takes as much longer."""

MESSAGES_MIN: Final = 20

SIDE: Final = "growth-aside"
SIDE_BODY: Final = bytes(64 << 10)
SIDE_LOOK: Final = 32
"""Confirms between two looks whether a snapshot was taken: two megabytes of journal."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A load of so many messages beside a state. `idle`: what the nodes take of a core anyway."""

    state: State
    nodes: Nodes
    idle: float
    messages: int

    async def in_batches(self) -> float:
        """Microseconds of CPU per message that was published, taken and settled in batches."""
        size = len(self.state.body)
        count = max(MESSAGES_MIN, min(self.messages, BYTES_MAX // size))
        return await self._price(count, max(1, min(BATCH, BATCH_BYTES_MAX // size)))

    async def lone(self) -> float:
        """The same where each message is published once the one before it is settled."""
        count = min(self.messages // LONE_PART, BYTES_MAX // len(self.state.body))
        return await self._price(max(MESSAGES_MIN, count), 1)

    async def _price(self, count: int, batch: int) -> float:
        async with self.state.workers(count) as acks:
            before, began = sum(self.nodes.cpu_seconds()), time.monotonic()
            done = 0
            while done < count:
                some = min(batch, count - done)
                await self.state.publish(some)
                done += some
                if batch == 1:
                    await acks.reached(done)
            await acks.reached(count)
            lasted = time.monotonic() - began
            taken = sum(self.nodes.cpu_seconds()) - before
        return max(0.0, taken - self.idle * lasted) / count * 1e6


async def steady(state: State, until: Callable[[], bool]) -> float:
    """Publish, take and settle one message after the other at both ends of the state, until that is
    so; the longest confirm in ms, which is wall time."""
    longest_s, end = 0.0, time.monotonic() + PATIENCE_S
    while not until():
        if time.monotonic() > end:
            raise ClusterFailed(f"there was no end within {PATIENCE_S:.0f} s")
        sent = time.monotonic()
        await state.publish(1)
        longest_s = max(longest_s, time.monotonic() - sent)
        for message in await state.client.get(QUEUE, 1, timeout=CALL_TIMEOUT_S):
            await message.ack()
    return 1_000 * longest_s


async def until_snapshot(state: State, nodes: Nodes) -> float:
    """Publish one by one to another queue until the leader has taken a snapshot; the longest
    confirm in ms, which is wall time. Raises ClusterFailed where none is taken."""
    await state.client.declare(fifo.QueueSpec(SIDE))
    longest_s, began = 0.0, time.monotonic()
    while time.monotonic() < began + PATIENCE_S:
        for _ in range(SIDE_LOOK):
            sent = time.monotonic()
            await state.client.publish(SIDE, SIDE_BODY, timeout=CALL_TIMEOUT_S)
            longest_s = max(longest_s, time.monotonic() - sent)
        age_s = await nodes.metric("fifo_snapshot_age_seconds")
        if 0 < age_s < time.monotonic() - began:
            await state.client.delete(SIDE)
            return 1_000 * longest_s
    raise ClusterFailed(f"no snapshot was taken within {PATIENCE_S:.0f} s")
