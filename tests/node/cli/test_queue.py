"""Queues from the command line: what is said beside the outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.support.cluster import running

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.node.cli.local import Done


@pytest.mark.cluster
async def test_a_queue_that_expires_unused_comes_with_a_warning(
    cli: Callable[..., Done], tmp_path: Path
) -> None:
    warning = (
        "warning: publishing is no use of queue brief: without a consumer or a get it is deleted"
    )
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        url = f"fifo://{node.me.client}"

        async def queue(*words: str) -> Done:
            done = await asyncio.to_thread(cli, "queue", *words, "--url", url)
            assert done.code == 0, done
            return done

        for words in (
            ["declare", "brief", "--expires-unused", "1h"],
            ["update", "brief", "--expires-unused", "2h"],
            ["show", "brief"],
        ):
            assert (await queue(*words)).line.startswith(warning)
        assert not (await queue("show", "brief", "--json")).err
        assert not (await queue("update", "brief", "--expires-unused", "none")).err
        assert not (await queue("show", "brief")).err
