"""A shop in trouble, for those who look at its queues: workers, locks, dead letters, a poisoned
queue.

Owns what is in the queues. Must not know who looks, or with what.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import fifo

DEAD = 900
"""Dead letters of one exception."""

OTHERS_DEAD = 14


class PaymentTimeout(Exception):
    """Why most dead letters died."""


def charge(order: int) -> None:
    """Where they died."""
    raise PaymentTimeout(f"order {order}: no answer from the bank within 5 s")


def read(body: bytes) -> object:
    """Read a body, which is none."""
    raise json.JSONDecodeError("Expecting value", body.decode(), 0)


async def fill_dead_letters(client: fifo.Client, count: int = DEAD) -> None:
    """Queue `payments` sends its dead letters to `payments.dlq`: `count` of one exception, some of
    another."""
    await client.declare(fifo.QueueSpec("payments", dead_letter="payments.dlq", lock=30))
    await client.publish_many(
        "payments", [json.dumps({"order": n, "cents": 100 + n}).encode() for n in range(count)]
    )
    async with client.consume("payments", prefetch=1000) as messages:
        for number in range(count):
            message = await messages.next(timeout=5)
            assert message is not None
            try:
                charge(number)
            except PaymentTimeout as error:
                receipt = number == count - 1
                await message.terminate("timeout", str(error), error, receipt=receipt)
        await client.publish_many("payments", [b"not json"] * OTHERS_DEAD)
        for number in range(OTHERS_DEAD):
            message = await messages.next(timeout=5)
            assert message is not None
            try:
                read(bytes(message.body))
            except ValueError as error:
                receipt = number == OTHERS_DEAD - 1
                await message.terminate("unreadable", str(error), error, receipt=receipt)


for _raising in (charge, read, fill_dead_letters):  # Stacks are shown, in pictures too.
    _raising.__code__ = _raising.__code__.replace(co_filename="/srv/shop/payments.py")


@asynccontextmanager
async def holding(url: str) -> AsyncIterator[None]:
    """Worker `shop-worker-3` holds three orders of queue `orders`."""
    keys = ("4709", "4710", "4711")
    async with fifo.connect(url, name="shop-worker-3") as client:
        await client.declare(fifo.QueueSpec("orders", lock=60, dead_letter="orders.dlq"))
        for key in keys:
            body = json.dumps({"order": int(key), "items": ["lamp", "chair"]}).encode()
            await client.publish("orders", body, key=key, headers={"shop": "north"})
        async with client.consume("orders", prefetch=len(keys)) as messages:
            for _ in keys:
                assert await messages.next(timeout=5) is not None
            yield


@asynccontextmanager
async def open_shop(url: str) -> AsyncIterator[None]:
    """All of it at once, as in the pictures."""
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(fifo.connect(url, name="till-1"))
        await fill_dead_letters(client)
        await stack.enter_async_context(holding(url))
        for number in range(40):
            await client.publish("orders", b"{}", delay=20 + number * number)
        await client.declare(fifo.QueueSpec("emails"))
        await client.publish_many("emails", [b"poison"] * 250)
        await client.declare(
            fifo.QueueSpec("ledger", ordering="single_active", lock=30, dead_letter="ledger.dlq")
        )
        for place in ("ledger-a", "ledger-b"):
            other = await stack.enter_async_context(fifo.connect(url, name=place))
            await stack.enter_async_context(other.consume("ledger", prefetch=5))
        for name in ("invoices", "returns", "stock", "webhooks"):
            await client.declare(fifo.QueueSpec(name))
        await client.pause("returns")
        await client.publish_many("returns", [b"parcel"] * 12)
        yield
