"""A node as a process collects its garbage itself: `fifo serve` sees to it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest

import fifo
from tests.support.cluster import loopback_config, passed
from tests.support.served import Served, served

PIECE, PIECES = 500, 80
"""Forty thousand ids that are remembered one by one, in eighty thousand objects."""


async def collections(node: Served) -> dict[str, float]:
    """Number of collections so far, by kind."""
    url = f"http://{node.config.nodes[0].http}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        page = await answer.text()
    found = re.findall(r'fifo_gc_collections_total\{kind="(\w+)"\} (\S+)', page)
    return {kind: float(total) for kind, total in found}


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_a_node_collects_only_its_young_generations(
    tmp_path: Path,
) -> None:
    async with served(loopback_config(tmp_path, 1), tmp_path) as node:
        async with fifo.connect(f"fifo://{node.address}") as client:
            await client.declare(fifo.QueueSpec("q", dedup_window=3_600))
            for piece in range(PIECES):
                ids = [f"{piece} {place}" for place in range(PIECE)]
                await client.publish_many("q", [b""] * PIECE, dedup_ids=ids)
        async with asyncio.timeout(30):
            while (found := await collections(node))["recent"] < 2:
                await passed(0.05)
        assert found["full"] == 0
