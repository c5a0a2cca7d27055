"""Texts in the log behind a handle of the state travel with a snapshot of that state."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import fifo
from fifo.words.bounds import LETTER_TEXT_BYTES_MAX as LONGEST
from node.broker.broker import Broker
from node.config import RaftSettings
from tests.support.cluster import eventually, passed, running

LETTERS = 4
SNAPSHOT_BYTES = 100_000
"""Less than the texts of two dead letters."""


def whole_of(message: fifo.StoredMessage) -> tuple[bytes, list[str | None]]:
    """A dead letter's body and its four texts."""
    letter = message.dead_letter
    assert letter is not None
    return message.body, [letter.detail, letter.description, letter.exception, letter.stack]


async def lead(client: fifo.Client, name: str) -> None:
    """Give this node the leadership, as soon as it has caught up."""
    async with asyncio.timeout(30):
        while True:
            try:
                await client.transfer_leadership(name)
            except fifo.InvalidArgument:  # it is still far behind
                await passed(0.05)
            else:
                return


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_a_follower_that_is_sent_a_snapshot_gets_the_long_texts_of_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_over: list[Broker] = []
    take_over = Broker._taken_over

    def noted(broker: Broker) -> None:
        taken_over.append(broker)
        take_over(broker)

    monkeypatch.setattr(Broker, "_taken_over", noted)
    async with running(tmp_path, raft=RaftSettings(snapshot_bytes=SNAPSHOT_BYTES)) as cluster:
        leader = await cluster.leader()
        behind = next(name for name, node in cluster.nodes.items() if node is not leader)
        await cluster.stop(behind)
        async with fifo.connect(cluster.url) as client:
            await client.declare(fifo.QueueSpec("q", dead_letter="dlq"))
            await client.publish_many("q", [b"%d" % place for place in range(LETTERS)])
            for message in await client.get("q", LETTERS):
                word = message.body.decode()
                await message.terminate(
                    word * LONGEST,
                    word * (LONGEST - 1),
                    ValueError(word * LONGEST),
                )
            # Two snapshots later the log before the first is gone, but for what they hold.
            while (await client.status()).snapshot.index == 0:
                await client.publish_many("q", [bytes(1_000)] * 20)
                await client.purge("q")
            for _ in range(3 * SNAPSHOT_BYTES // 20_000):
                await client.publish_many("q", [bytes(1_000)] * 20)
                await client.purge("q")
            before = [whole_of(one) for one in await client.peek("dlq", LETTERS)]
            detail, said, exception, stack = map(str, before[0][1])
            assert (len(detail), len(said), len(stack)) == (
                LONGEST,
                LONGEST - 1,
                LONGEST,
            )
            assert exception == "ValueError: " + "0" * LONGEST
            taken_over.clear()
            await cluster.start(behind)
            await eventually(lambda: cluster.nodes[behind].broker in taken_over)
            await lead(client, behind)
            assert (await client.status()).node == behind
            assert [whole_of(one) for one in await client.peek("dlq", LETTERS)] == before
            assert [whole_of(one) for one in await client.get("dlq", LETTERS)] == before
