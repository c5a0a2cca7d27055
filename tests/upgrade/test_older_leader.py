"""A node of today's release answers over HTTP while one of 0.1.0 leads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

import fifo
from fifo.words import versions
from tests.support.cluster import passed
from tests.upgrade.test_rolling import mixed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(180)]

LOCKED = 3
DELAYED = 2
LED_SECONDS = 30


async def while_the_older_leads(
    client: fifo.Client, asked: Callable[[], Awaitable[tuple[int, Any]]]
) -> tuple[int, Any]:
    """The answer to a question during all of which n1 led, in one term."""
    async with asyncio.timeout(LED_SECONDS):
        while True:
            before = await client.status()
            if before.node != "n1":
                await client.transfer_leadership("n1")
                await passed(0.05)
                continue
            answer = await asked()
            after = await client.status()
            if (before.node, before.term) == (after.node, after.term):
                return answer


async def test_lists_are_whole_or_refused_with_the_reason(tmp_path: Path) -> None:
    async with (
        mixed(tmp_path, True, False, False) as nodes,
        fifo.connect(nodes.config.url, name="holder") as client,
        aiohttp.ClientSession() as http,
    ):
        await nodes.view(used=versions.FIRST)
        await client.declare(fifo.QueueSpec("orders", lock=300))
        await client.publish_many("orders", [b"x"] * LOCKED)
        await client.publish_many("orders", [b"y"] * DELAYED, delays=[600.0] * DELAYED)
        held = await client.get("orders", LOCKED)
        assert len(held) == LOCKED
        base = f"http://{nodes.config.node('n2').http}"

        async def answered(path: str) -> tuple[int, Any]:
            async def asked() -> tuple[int, Any]:
                async with http.get(base + path) as answer:
                    return answer.status, await answer.json(content_type=None)

            return await while_the_older_leads(client, asked)

        for what, count in (("locks", LOCKED), ("delayed", DELAYED), ("consumers", 1)):
            path = f"/api/v1/queues/orders/{what}"
            status, page = await answered(path)
            assert (status, len(page["items"]), page["next"]) == (200, count, None), (what, page)
            status, problem = await answered(f"{path}?after=1.1")
            assert (status, problem["code"]) == (400, "unsupported"), (what, problem)
            assert "begin without a cursor" in problem["detail"]
        status, problem = await answered(f"/api/v1/queues/orders/locks?limit={LOCKED - 1}")
        assert (status, problem["code"]) == (400, "unsupported")
        assert problem["detail"] == (
            "the leader runs release 0.1.0, which has no pages of locks behind the first: ask for"
            f" up to 999 at once, not {LOCKED - 1}, or go on when the leader is upgraded"
        )
        status, page = await answered(f"/api/v1/queues/orders/locks?limit={LOCKED}")
        assert (status, len(page["items"]), page["next"]) == (200, LOCKED, None)
        assert (await answered("/api/v1/queues/orders/producers"))[1] == {"items": [], "next": None}
        status, page = await answered("/api/v1/sessions")
        assert (status, page["next"]) == (200, None)
        assert "holder" in {one["client"] for one in page["items"]}
        status, problem = await answered("/api/v1/queues/nothing/locks")
        assert (status, problem["code"]) == (404, "queue_not_found")
        status, found = await answered("/console/feed/queue?name=orders")
        assert (status, len(found["locks"]), len(found["delayed"])) == (200, LOCKED, DELAYED)
        await _reads_answer(answered)


async def _reads_answer(answered: Callable[[str], Awaitable[tuple[int, Any]]]) -> None:
    """Ask a newer node for all else about an older cluster."""
    for path in (
        "/status", "/nodes", "/queues", "/queues/orders", "/queues/orders/peek",
        "/queues/orders/dead-letters", "/queues/orders/messages", "/users", "/audit",
    ):  # fmt: skip
        status, found = await answered(f"/api/v1{path}")
        assert status == 200, (path, found)
