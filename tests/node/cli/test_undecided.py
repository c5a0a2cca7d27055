"""No two of three processes have one state: those that err are found, or nothing is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest

import fifo
from node.config import cluster_config
from tests.node.cli.disks import NAMES, WAIT_SECONDS, Nodes
from tests.node.cli.local import Done, free_base_port
from tests.support.cluster import passed
from tests.support.erring import ALWAYS, MARK_ENTRIES, ONCE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180), pytest.mark.slow]

Cli = Callable[..., Done]


class Erring(Nodes):
    """Three nodes of a program that computes wrongly."""

    module = "tests.support.erring"

    async def logged(self, *what: str) -> None:
        """Wait until each of these was said by a node."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not all(any(one in log for log in self._logs()) for one in what):
                await passed(0.05)

    def _logs(self) -> list[str]:
        return [self.log(name).read_text() for name in NAMES]


@contextmanager
def erring(folder: Path) -> Iterator[Erring]:
    nodes = Erring(cluster_config(3, free_base_port(), folder), folder)
    for name in NAMES:
        nodes.start(name)
    try:
        yield nodes
    finally:
        nodes.stop()


def connected(nodes: Nodes) -> AbstractAsyncContextManager[fifo.Client]:
    return fifo.connect(nodes.config.url, timeout=WAIT_SECONDS, connect_timeout=WAIT_SECONDS)


async def touched(client: fifo.Client, queue: str, entries: int) -> None:
    """Entries that look at the queue, one by one: the wrong count is in the next mark."""
    for number in range(entries):
        await client.publish(queue, b"%d" % number)


async def test_of_three_states_the_one_that_is_the_same_again_is_right(
    tmp_path: Path, cli: Cli
) -> None:
    with erring(tmp_path) as nodes:
        async with connected(nodes) as client:
            await client.declare(fifo.QueueSpec(ONCE))
            await touched(client, ONCE, 2 * MARK_ENTRIES)
            await nodes.logged("event=replicas_differ", "agreed=none")
            for name in ("n2", "n3"):
                await nodes.said(name, "outcome=other")
                while "event=installed" not in nodes.log(name).read_text():
                    await touched(client, ONCE, 1)
            await nodes.said("n1", "outcome=same")
            url = ("--url", nodes.config.url)
            async with asyncio.timeout(WAIT_SECONDS):
                while "state of" in (await asyncio.to_thread(cli, "status", *url)).err:
                    await touched(client, ONCE, MARK_ENTRIES)
            verified = await asyncio.to_thread(cli, "verify", *url)
            assert verified.code == 0, verified


async def test_where_each_is_the_same_again_nothing_is_accepted_and_the_commands_say_so(
    tmp_path: Path, cli: Cli
) -> None:
    with erring(tmp_path) as nodes:
        url = nodes.config.url
        async with connected(nodes) as client:
            await client.declare(fifo.QueueSpec(ALWAYS))
            marking = asyncio.create_task(touched(client, ALWAYS, 1_000))
            await nodes.logged("event=replicas_undecided", "stop every node and restore the newest")
            for name in NAMES:
                await nodes.said(name, "outcome=same")
            with pytest.raises(fifo.FifoError):
                await client.publish(ALWAYS, b"refused", timeout=1.0)
            assert not marking.done()
            marking.cancel()
            await asyncio.gather(marking, return_exceptions=True)

        shown = await asyncio.to_thread(cli, "status", "--url", url)
        said = " and none is known to be right, so the cluster accepts nothing: stop every node"
        assert said in shown.err
        assert "is replaced by it" not in shown.err
        verified = await asyncio.to_thread(cli, "verify", "--url", url)
        assert verified.code == 1
        assert said in verified.err
        doctor = await asyncio.to_thread(cli, "doctor", "--url", url)
        assert "and none is known to be right" in doctor.out
        assert "stop every node and restore the newest good backup" in doctor.out
