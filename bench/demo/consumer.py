"""Receiving rows and settling each by its fate, until the run is over.

Owns what one consumer does, in a Spark partition or in a process of its own (`python -m
bench.demo.consumer`), and its record of every delivery. Must not know who else consumes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import fifo
from bench import loop
from bench.demo.fate import Fate, fate_of
from bench.demo.flights import row_of
from bench.demo.records import DELIVERED, Delivery, Recorder, now_ms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PREFETCH = 1000
LOCK_S = 30.0
"""Longer than a change of leader and a slow disk together, so that no lock runs out in the demo."""

LOOK_S = 0.1
"""Interval of looks whether the run is over, and of letting others read the last records."""


async def consume_rows(url: str, queue: str, records: Path, name: str, stop: Path) -> int:
    """Settle rows by their fate until the file `stop` exists; returns the number of deliveries."""
    deliveries = 0
    with Recorder(records, DELIVERED, name) as recorder:
        async with (
            fifo.connect(url) as client,
            client.consume(queue, prefetch=PREFETCH, lock=LOCK_S) as messages,
            _until(stop, messages, recorder),
        ):
            async for message in messages:
                received_ms = now_ms()
                row = row_of(message.body)
                outcome = await settle_by_fate(message, row)
                deliveries += 1
                recorder.write(
                    Delivery(
                        row=row,
                        attempt=message.attempt,
                        failures=message.failures,
                        outcome=outcome,
                        message_id=str(message.id).replace(",", ";"),
                        published_ms=int(message.published_at.timestamp() * 1000),
                        received_ms=received_ms,
                        settled_ms=now_ms(),
                    )
                )
    return deliveries


async def settle_by_fate(message: fifo.Message, row: int) -> str:
    """Do with a message what its row's fate says; returns what came of it."""
    fate = fate_of(row)
    if fate is Fate.TERMINATE:
        result = await message.terminate("ten-thousandth", description=f"row {row}, by plan")
        return _outcome("terminated", result.status)
    if fate is Fate.NACK_ONCE and message.failures == 0:
        result = await message.nack(reason="hundredth")
        return _outcome("nacked", result.status)
    await message.ack()  # Without waiting: its receipt is the client's business.
    return "acked"


def _outcome(wanted: str, status: str) -> str:
    """The result of a settlement: where the first answer died with the leader, the client asked
    again, and hears that it was carried out already."""
    return wanted if status in ("ok", "already_settled") else str(status)


@contextlib.asynccontextmanager
async def _until(
    stop: Path, messages: fifo.Consumer[fifo.Message], recorder: Recorder
) -> AsyncIterator[None]:
    """While inside, watch for the file; then cancel the consumer, which ends its iterator."""

    async def watch() -> None:
        while not stop.exists():  # noqa: ASYNC240 - one look at a local folder takes microseconds
            recorder.flush()
            await asyncio.sleep(LOOK_S)
        await messages.cancel()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher


def main() -> int:
    """Consume in this process."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo.consumer", description=main.__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--records", type=Path, required=True, help="folder for the record")
    parser.add_argument("--name", required=True, help="names the record")
    parser.add_argument("--stop", type=Path, required=True, help="ends when this file exists")
    options = parser.parse_args()
    loop.run(consume_rows(options.url, options.queue, options.records, options.name, options.stop))
    return 0


if __name__ == "__main__":
    sys.exit(main())
