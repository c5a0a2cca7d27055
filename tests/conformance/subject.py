"""The program that the rules for clients are asked of, written with the Python client.

`python -m tests.conformance.subject URL`. Owns what such a program does, in any language: it
consumes `conformance.in` and does what each body says.

- `echo TEXT`: publish TEXT to `conformance.out`; once that is confirmed, ack the message.
- `hold`: keep the message, and go on.
- `free`: ack all that is kept, then this one; a lock that was lost meanwhile is no error.
- `end`: ack it, end the session, exit with 0.

It does not give up where a connection breaks or a node does not answer for some seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

import fifo
from tests.conformance.scripted import INPUT, OUTPUT


async def main(url: str) -> None:
    """Do what the bodies say until `end`."""
    kept: list[fifo.Message] = []
    async with fifo.connect(url) as client, client.consume(INPUT, prefetch=10) as messages:
        async for message in messages:
            word, _, text = message.body.decode().partition(" ")
            if word == "hold":
                kept.append(message)
                continue
            if word == "echo":
                await client.publish(OUTPUT, text.encode())
            if word == "free":
                for one in kept:
                    with contextlib.suppress(fifo.LockLost):
                        await one.ack(receipt=True)
                kept.clear()
            await message.ack(receipt=True)
            if word == "end":
                return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
