"""The audit log on the command line."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

import fifo
from tests.support.cluster import running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.node.cli.local import Done


@pytest.mark.cluster
async def test_who_changed_what_is_a_command(cli: Callable[..., Done], tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        url = f"fifo://{(await cluster.leader()).me.client}"

        async def audit(*words: str) -> Done:
            done = await asyncio.to_thread(cli, "audit", *words, "--url", url)
            assert done.code == 0, done
            return done

        async with fifo.connect(url, name="desk") as client:
            for name in ("orders", "bills"):
                await client.declare(fifo.QueueSpec(name))
            await client.pause("orders")
            lines = [json.loads(line) for line in (await audit("--json")).out.splitlines()]
            assert [line["verb"] for line in lines] == ["declare", "declare", "pause"]
            shown = (await audit("--queue", "orders", "--since", "1h", "--limit", "1")).out
            assert "paused: false -> true" in shown
            assert "desk 127.0.0.1:" in shown
            assert (await audit("--since", "2099-01-01T00:00:00Z")).out == ""
