"""A publish to several queues: one command where that may be, and each queue its own answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fifo.machine.contract import code_of, commands
from fifo.wire import columns
from fifo.wire.columns import Publication
from fifo.wire.messages import Error, PublishAcross
from node.broker import cost, limits
from node.broker.connections.connection import Connection
from node.broker.proposals import Proposals
from node.config import LimitSettings
from node.server import Node
from tests.support.cluster import running
from tests.support.loop_turns import Spy
from tests.support.rawclient import RawClient, connected
from tests.support.users import EVERYTHING, user

ANN = user("ann", **EVERYTHING)
BOB = user("bob", consume=("orders",), publish=("orders", "bills"))


def _proposed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The publishes that are proposed from now on: 0 for one queue, 1 for several."""
    found: list[int] = []
    propose = Proposals.propose
    publishes = [code_of(commands.Publish), code_of(commands.PublishAcross)]

    def noted(
        proposals: Proposals, build: Callable[[int], Sequence[Any]], *rest: Any, **more: Any
    ) -> None:
        code = build(0)[0]
        if code in publishes:
            found.append(publishes.index(code))
        propose(proposals, build, *rest, **more)

    monkeypatch.setattr(Proposals, "propose", noted)
    return found


def _one(body: bytes = b"x", **columns: Any) -> Publication:
    return Publication([body], **columns)


async def _outcomes(client: RawClient, correlations: Sequence[int]) -> list[tuple[Any, Any]]:
    """(stored, code of the error) of each place."""
    items: list[Any] = [await client.confirmed(one) for one in correlations]
    return [(item[4], item[5] and item[5][0]) for item in items]


async def test_what_one_queue_refuses_refuses_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = _proposed(monkeypatch)
    async with running(tmp_path, count=1) as cluster:
        client = await connected((await cluster.leader()).me.client)
        await client.declare("full", max_length=1)
        await client.declare("roomy")
        two = Publication([b"a", b"b"])
        places = [
            ("full", 0, two),
            ("roomy", 0, _one()),
            ("missing", 0, two),
            ("full", 2, _one()),
            ("roomy", 1, _one(b"key", keys=[b"k"])),
        ]
        found = await _outcomes(client, client.publish_across(places))
        assert found == [
            (1, "queue_full"),
            (1, None),
            (0, "queue_not_found"),
            (0, "gap"),
            (1, None),
        ]
        assert kinds == [1], "all in one command"
        await client.subscribe("roomy")
        got: list[bytes] = []
        while len(got) < 2:
            got += (await client.delivery())[1]
        assert got == [b"x", b"key"]


async def test_what_only_a_check_before_the_log_refuses_leaves_the_others_to_go_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = _proposed(monkeypatch)
    async with running(tmp_path, 1, LimitSettings(body_bytes=1024)) as cluster:
        client = await connected((await cluster.leader()).me.client)
        for queue in ("a", "b", "c"):
            await client.declare(queue)
        bad = _one(b"bad", headers=[b"\xff"])
        places = [("a", 0, _one(b"x" * 1025)), ("b", 0, bad), ("c", 0, _one(b"good"))]
        found = await _outcomes(client, client.publish_across(places))
        assert found == [(0, "too_large"), (0, "invalid_argument"), (1, None)]
        assert kinds == [0]


async def test_each_queue_needs_its_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = _proposed(monkeypatch)
    async with running(tmp_path, 1, users=(ANN, BOB)) as cluster:
        node = await cluster.leader()
        ann, bob = await _welcomed(node, "ann"), await _welcomed(node, "bob")
        for queue in ("orders", "bills", "private"):
            await ann.declare(queue)
        asked = bob.publish_across([("orders", 0, _one()), ("private", 0, _one())])
        assert await _outcomes(bob, asked) == [(1, None), (0, "permission_denied")]
        asked = bob.publish_across([("orders", 1, _one()), ("bills", 0, _one())])
        assert await _outcomes(bob, asked) == [(1, None), (1, None)]
        assert kinds == [0, 1], "one goes alone, the others together"


async def _welcomed(node: Node, name: str) -> RawClient:
    client = await RawClient().connect(node.me.client)
    await client.hello(user=name, secret=("password", f"{name}-password".encode()))
    return client


async def test_what_takes_long_to_apply_goes_queue_by_queue_and_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = _proposed(monkeypatch)
    async with running(tmp_path, count=1) as cluster:
        client = await connected((await cluster.leader()).me.client)
        count = limits.PUBLISH_MICROSECONDS_MAX // (cost.COMMAND + cost.STORED_ALONE) + 1
        await client.declare("q")
        publication = _one(priorities=[9])
        spy = Spy(monkeypatch, Connection, "_answer_piece")
        asked = client.publish_across([("q", place, publication) for place in range(count)])
        assert await _outcomes(client, asked) == [(1, None)] * count
        spy.stop()
        assert kinds == [0] * count
        assert len(spy.arguments) > count, "each is a piece of its own"


async def test_columns_that_cannot_be_refuse_the_whole_frame(tmp_path: Path) -> None:
    async with running(tmp_path, count=1) as cluster:
        client = await connected((await cluster.leader()).me.client)
        part = (5, 0, 1, 0, _one())
        count, listed, raw = columns.pack_parts([part, part])
        whole = [bytes(piece) for piece in raw]
        for queues, cut, text in (
            (("a",), listed, "column 11 must have 8 bytes per queue"),
            (("a", "b"), listed[1:], "column 11 is missing"),
            (("a", "b"), (*listed, (columns.NUMBERS, 16)), "column 10 is not known"),
        ):
            body = whole[1:] if cut == listed[1:] else [*whole, b"\0" * 16 * (cut != listed)]
            answer = await client.ask(PublishAcross(0, queues, count, cut), body)
            assert isinstance(answer, Error)
            assert answer.text.startswith(text)
