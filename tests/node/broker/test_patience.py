"""Which settlements may wait for company: acks that let nothing be handed out, and no others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fifo.machine.contract import code_of, commands
from fifo.wire.messages import Deliver, Durable, Ok, Receipt, Settle
from fifo.words.settlement import Verb
from node.broker.proposals import Proposals
from tests.support.cluster import running
from tests.support.rawclient import connected


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each settlement that is proposed from now on may wait."""
    found: list[bool] = []
    propose = Proposals.propose

    def noted(
        proposals: Proposals, build: Callable[[int], Sequence[Any]], *rest: Any, **more: Any
    ) -> None:
        if build(0)[0] == code_of(commands.Settle):
            found.append(more.get("patient", False))
        propose(proposals, build, *rest, **more)

    monkeypatch.setattr(Proposals, "propose", noted)
    return found


async def test_an_ack_waits_for_company_only_where_no_message_is_ready(
    tmp_path: Path, patience: list[bool]
) -> None:
    async with running(tmp_path, count=1) as cluster:
        client = await connected((await cluster.leader()).me.client)
        await client.declare("q")
        consumer = (await client.subscribe("q", prefetch=2)).consumer
        await client.confirmed(client.publish("q", 0, 1, [b"one", b"two", b"three"]))
        await client.next(Deliver)
        await client.settle(consumer, 1, 1)
        assert patience == [False], "the third message waits for its place"
        await client.next(Deliver)
        await client.settle(consumer, 2, 2)
        assert patience == [False, True]
        await client.settle(consumer, 3, 3, verb=Verb.RELEASE)
        assert patience == [False, True, False], "what is released is handed out again"


async def test_an_ack_of_a_durable_consumer_never_waits(
    tmp_path: Path, patience: list[bool]
) -> None:
    async with running(tmp_path, count=1) as cluster:
        client = await connected((await cluster.leader()).me.client)
        await client.declare("q")
        opened = await client.ask(Durable("q", "reader", "open"))
        assert isinstance(opened, Ok)
        settled = Settle(opened.result["consumer"], Verb.ACK, ((1, 1),), generation=1)
        assert isinstance(await client.ask(settled), Receipt)
        assert patience == [False], "a program waits for each of these answers"
