"""Publishing a range of rows, in chunks, several of them under way at once.

Owns what one Spark partition does to publish: one connection, one record per confirmed chunk. Must
not know Spark: it runs wherever an event loop does.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import fifo
from bench.demo.flights import flights
from bench.demo.records import CONFIRMED, Chunk, Recorder, now_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from bench.demo.flights import Flight

CHUNK_ROWS = 500
"""Rows per call: one frame of some 150 KB."""

CHUNKS_UNDER_WAY = 4
"""Calls waiting for their confirm at once: some travel while one is on its way to disk."""

PUBLISH_TIMEOUT_S = 60.0
"""For one call, a change of leader included; the client tries again by itself until then."""


async def publish_rows(url: str, queue: str, first: int, last: int, records: Path) -> int:
    """Publish the rows first..last; returns how many were sent. Raises what the client raises."""
    places = asyncio.Semaphore(CHUNKS_UNDER_WAY)
    sent = 0
    with Recorder(records, CONFIRMED, f"{first:06d}") as recorder:
        async with fifo.connect(url) as client, asyncio.TaskGroup() as calls:
            for rows in in_chunks(flights(first, last)):
                await places.acquire()
                sent += len(rows)
                calls.create_task(_publish(client, queue, rows, recorder, places))
    return sent


async def _publish(
    client: fifo.Client,
    queue: str,
    rows: list[Flight],
    recorder: Recorder,
    places: asyncio.Semaphore,
) -> None:
    sent_ms = now_ms()
    await client.publish_many(
        queue,
        [row.body for row in rows],
        keys=[row.key for row in rows],
        timeout=PUBLISH_TIMEOUT_S,
    )
    recorder.write(Chunk(rows[0].row, rows[-1].row, sent_ms, now_ms()))
    places.release()


def in_chunks(rows: Iterable[Flight]) -> Iterator[list[Flight]]:
    """Lists of CHUNK_ROWS, the last one shorter."""
    rest = iter(rows)
    while chunk := list(itertools.islice(rest, CHUNK_ROWS)):
        yield chunk
