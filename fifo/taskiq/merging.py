"""Several consumers as one: their messages in the order in which they come.

Owns who may go first. Must not know what a message is for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import TypeAlias

import fifo

_Found: TypeAlias = "fifo.Message | fifo.FifoError | None"
"""A message, or how a consumer has ended: by an error, or orderly."""


async def merged(
    consumers: Sequence[fifo.Consumer[fifo.Message]],
) -> AsyncGenerator[fifo.Message, None]:
    """Messages of all consumers, in turns where several have some, until all have ended.

    What is taken and not handed over goes back, uncounted. Raises what a consumer raises.
    """
    if len(consumers) == 1:
        async for message in consumers[0]:
            yield message
        return
    found: asyncio.Queue[_Found] = asyncio.Queue(maxsize=1)
    feeders = [asyncio.create_task(_feed(consumer, found)) for consumer in consumers]
    left = len(feeders)
    try:
        while left:
            one = await found.get()
            if one is None:
                left -= 1
            elif isinstance(one, fifo.FifoError):
                raise one
            else:
                yield one
    finally:
        for feeder in feeders:
            feeder.cancel()
        await asyncio.gather(*feeders, return_exceptions=True)
        while not found.empty():
            if isinstance(one := found.get_nowait(), fifo.Message):
                await one.release(receipt=False)


async def _feed(consumer: fifo.Consumer[fifo.Message], found: asyncio.Queue[_Found]) -> None:
    try:
        async for message in consumer:
            try:
                await found.put(message)
            except asyncio.CancelledError:
                await message.release(receipt=False)
                raise
        await found.put(None)
    except fifo.FifoError as error:
        await found.put(error)
