"""Shares of users: no one user takes a pool from all others, and operators always get in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fifo.wire import Code, Frame
from fifo.wire.messages import (
    Confirms,
    Declare,
    Durable,
    EndSession,
    Error,
    Get,
    Got,
    Message,
    Ok,
    OpenProducer,
    QueueAction,
    QueueQuery,
    Receipt,
    Settle,
    Subscribe,
    Subscribed,
    Welcome,
)
from fifo.words.settlement import Verb
from node.broker import limits, quotas
from node.broker.permissions import Rights
from node.config import LimitSettings
from node.server import Node
from node.users import Quota, User
from tests.support.cluster import LocalCluster, eventually, leadership_of, loopback_config, passed
from tests.support.rawclient import RawClient
from tests.support.users import EVERYTHING, user

ANN = user("ann", **EVERYTHING)
BOB = user("bob", **EVERYTHING)
EVE = user("eve")
OPS = user("ops", operate=True)


async def login(node: Node, name: str) -> tuple[RawClient, Message]:
    """A client of this user, and what the node says to it."""
    client = await RawClient().connect(node.me.client)
    answer = await client.hello(user=name, secret=("token", f"{name}-token".encode()))
    return client, answer.message


async def welcomed(node: Node, name: str) -> RawClient:
    client, answer = await login(node, name)
    assert isinstance(answer, Welcome), answer
    return client


class Small:
    """A single node with small pools, and these users."""

    def __init__(self, folder: Path, *users: User, **pools: int) -> None:
        config = loopback_config(folder, 1, LimitSettings(**pools))
        self.cluster = LocalCluster(replace(config, users=users))

    async def __aenter__(self) -> Node:
        await self.cluster.start()
        return await self.cluster.leader()

    async def __aexit__(self, *error: object) -> None:
        await self.cluster.stop()


async def published(client: RawClient, queue: str, number: int, body: bytes) -> Message:
    """Publish one message; the answer."""
    correlation = client.publish(queue, number - 1, number, [body])

    def answers(one: Frame) -> bool:
        confirms = isinstance(one.message, Confirms) and one.message.items[0][0] == correlation
        return confirms or one.correlation == correlation

    return (await client.take(answers)).message


def refused(answer: Message, quota: Quota) -> Error:
    assert isinstance(answer, Error), answer
    assert answer.detail == {"quota": quota.value}
    assert quota.value in answer.text
    return answer


async def test_a_user_without_a_permission_opens_nothing(tmp_path: Path) -> None:
    async with Small(tmp_path, ANN, EVE) as node:
        for _ in range(3):
            _, answer = await login(node, "eve")
            assert isinstance(answer, Error)
            assert answer.code == Code.PERMISSION_DENIED
        assert leadership_of(node)._machine.session_count() == 0
        await welcomed(node, "ann")


async def test_one_user_takes_half_of_the_sessions_and_no_more(tmp_path: Path) -> None:
    async with Small(tmp_path, ANN, BOB, sessions=64) as node:
        greedy = [await login(node, "ann") for _ in range(40)]
        welcomes = [one for one, answer in greedy if isinstance(answer, Welcome)]
        assert len(welcomes) == 32
        last = greedy[-1][1]
        assert isinstance(last, Error)
        assert (last.code, "at most 32" in last.text) == (Code.LIMIT, True)
        await welcomed(node, "bob")
        assert node.broker.counters.over_quotas == {"sessions": 8}


async def test_an_operator_gets_in_where_all_sessions_are_taken(tmp_path: Path) -> None:
    everything = (Quota.SESSIONS, 1_000)
    ann, bob = (replace(one, shares=(everything,)) for one in (ANN, BOB))
    async with Small(tmp_path, ann, bob, OPS, sessions=40) as node:
        answers = [(await login(node, name))[1] for name in ("ann", "bob") for _ in range(20)]
        assert [type(one) for one in answers].count(Welcome) == 40 - 16
        last = answers[-1]
        assert isinstance(last, Error)
        assert (last.code, "maximum of 24 sessions" in last.text) == (Code.LIMIT, True)
        await welcomed(node, "ops")


async def test_resumes_in_flight_together_count_as_no_session(tmp_path: Path) -> None:
    async with Small(tmp_path, ANN) as node:
        quotas_of_term = leadership_of(node).quotas
        for decided in [quotas_of_term.proposed(None, Quota.SESSIONS, 0) for _ in range(2)]:
            decided()
        assert quotas_of_term.refusal(None, Quota.SESSIONS) is None


async def test_requests_in_flight_count_before_they_are_applied(tmp_path: Path) -> None:
    few = replace(ANN, shares=((Quota.QUEUES, 3), (Quota.PRODUCERS, 2)))
    async with Small(tmp_path, few) as node:
        ann = await welcomed(node, "ann")
        declares = {ann.next_correlation(): f"q{place}" for place in range(6)}
        for correlation, name in declares.items():
            ann.send(Declare(name, {}), correlation)
        frames = [await ann.take(lambda frame: frame.correlation in declares) for _ in declares]
        assert [type(frame.message) for frame in frames].count(Ok) == 3
        refused(next(f.message for f in frames if isinstance(f.message, Error)), Quota.QUEUES)
        assert isinstance(await ann.ask(Declare("q0", {})), Ok), "what exists adds nothing"
        assert isinstance(await ann.ask(QueueAction("q2", "delete")), Ok)
        refused(await ann.ask(Declare("q3", {"dead_letter": "dead"})), Quota.QUEUES)
        assert isinstance(await ann.ask(Declare("q3", {})), Ok)
        for name in ("p1", "p2", "p1"):
            assert isinstance(await ann.ask(OpenProducer(name)), Ok)
        refused(await ann.ask(OpenProducer("p3")), Quota.PRODUCERS)


async def test_consumers_of_every_kind_share_one_quota(tmp_path: Path) -> None:
    few = replace(ANN, shares=((Quota.CONSUMERS, 3),))
    async with Small(tmp_path, few, BOB) as node:
        ann = await welcomed(node, "ann")
        await ann.declare("q")
        await ann.declare("r")
        assert isinstance(await ann.ask(Subscribe("q", "t", 1)), Subscribed)
        assert isinstance(await ann.ask(Get("r", 1)), Got)
        assert isinstance(await ann.ask(Durable("q", "d", "open")), Ok)
        for more in (Subscribe("q", "u", 1), Get("q", 1), Durable("q", "e", "open")):
            assert refused(await ann.ask(more), Quota.CONSUMERS).code == Code.LIMIT
        for known in (Subscribe("q", "t", 5), Get("r", 1), Durable("q", "d", "open")):
            assert not isinstance(await ann.ask(known), Error)
        bob = await welcomed(node, "bob")
        assert isinstance(await bob.ask(Subscribe("q", "t", 1)), Subscribed)


async def test_a_user_who_may_not_consume_settles_nothing_of_a_durable_consumer(
    tmp_path: Path,
) -> None:
    publisher = user("eve", publish=("*",))
    async with Small(tmp_path, ANN, publisher) as node:
        ann, eve = await welcomed(node, "ann"), await welcomed(node, "eve")
        await ann.declare("q")
        opened = await ann.ask(Durable("q", "d", "open"))
        assert isinstance(opened, Ok)
        settle = Settle(opened.result["consumer"], Verb.ACK, ((1, 1),), generation=1)
        answer = await eve.ask(settle)
        assert isinstance(answer, Error)
        assert answer.code == Code.PERMISSION_DENIED
        assert isinstance(await ann.ask(settle), Receipt)


async def test_bytes_stored_are_bounded_and_settlements_make_room(tmp_path: Path) -> None:
    few = replace(ANN, shares=((Quota.STORED_BYTES, 1_000),))
    async with Small(tmp_path, few, BOB) as node:
        ann, bob = await welcomed(node, "ann"), await welcomed(node, "bob")
        await ann.declare("ann's")
        await bob.declare("bob's")
        consumer = (await ann.subscribe("ann's", prefetch=10)).consumer
        await ann.confirmed(ann.publish("ann's", 0, 1, [b"x" * 900]))
        full = refused(await published(bob, "ann's", 1, b"y" * 900), Quota.STORED_BYTES)
        assert (full.code, full.retryable) == (Code.OVERLOADED, True)
        await bob.confirmed(bob.publish("bob's", 0, 1, [b"x" * 9_000]))
        assert await ann.settle(consumer, 1, 1, verb=Verb.ACK) == ((1, 1, 0, False),)
        await passed(limits.STORED_LOOK_SECONDS)
        assert isinstance(await published(bob, "ann's", 1, b"y" * 900), Confirms)


async def test_a_rate_refuses_what_is_new_and_no_settlement(tmp_path: Path) -> None:
    slow = replace(ANN, shares=((Quota.REQUESTS_PER_S, 20),))
    async with Small(tmp_path, slow, BOB) as node:
        ann, bob = await welcomed(node, "ann"), await welcomed(node, "bob")
        await ann.declare("q")
        consumer = (await ann.subscribe("q", prefetch=100)).consumer
        await bob.confirmed(bob.publish("q", 0, 1, [b"x"] * 50))
        answers = [await ann.ask(QueueQuery("q", "show")) for _ in range(30)]
        assert refused(answers[-1], Quota.REQUESTS_PER_S).code == Code.OVERLOADED
        for token in range(1, 51):
            assert await ann.settle(consumer, token, token) == ((token, token, 0, False),)
        assert isinstance(await bob.ask(QueueQuery("q", "show")), Ok)
        await passed(1.0)
        assert isinstance(await ann.ask(QueueQuery("q", "show")), Ok)


@pytest.mark.parametrize(
    ("quota", "pool", "reserve"),
    [
        (Quota.SESSIONS, 10_000, 100),
        (Quota.PRODUCERS, 100_000, 1_000),
        (Quota.CONNECTIONS, 1_000, 16),
        (Quota.SESSIONS, 4, 2),
        (Quota.QUEUES, 10_000, 0),
    ],
)
def test_a_hundredth_and_at_least_sixteen_is_left_to_operators(
    quota: Quota, pool: int, reserve: int
) -> None:
    assert quotas.open_to(Rights(ANN), quota, pool) == pool - reserve
    assert quotas.open_to(Rights(OPS), quota, pool) == pool
    assert quotas.open_to(None, quota, pool) == pool


async def test_one_user_takes_half_of_the_connections_and_no_more(tmp_path: Path) -> None:
    async with Small(tmp_path, ANN, BOB, OPS) as node:
        node.broker.connections.connections_max = 40
        answers = [(await login(node, name))[1] for name in ("ann", "bob") for _ in range(21)]
        assert [type(one) for one in answers].count(Welcome) == 40 - 16
        assert isinstance(answers[20], Error)
        assert (answers[20].code, "ann has 20 connections" in answers[20].text) == (
            Code.OVERLOADED,
            True,
        )
        ops = await welcomed(node, "ops")
        await eventually(lambda: len(node.broker.connections) == 25)
        assert node.broker.connections.of_user("ann") == 20
        await ops.close()
        await eventually(lambda: node.broker.connections.of_user("ops") == 0)


async def test_an_operator_sees_all_sessions_and_ends_one(tmp_path: Path) -> None:
    async with Small(tmp_path, ANN, BOB, OPS) as node:
        ann, ops, bob = [await welcomed(node, name) for name in ("ann", "ops", "bob")]
        await ann.declare("q")
        await ann.confirmed(ann.publish("q", 0, 1, [b"x"]))
        await ann.subscribe("q")
        await ann.delivery()
        listed = await answered(ops, QueueQuery(None, "sessions"))
        [shown] = [one for one in listed if one["user"] == "ann"]
        assert {one["user"] for one in listed} == {"ann", "bob", "ops"}
        assert (shown["session"], shown["held"], shown["use"]) == (
            ann.session[:4].hex(),
            1,
            "consuming",
        )
        assert [one["user"] for one in await answered(bob, QueueQuery(None, "sessions"))] == ["bob"]
        denied = await bob.ask(EndSession(shown["session"]))
        assert isinstance(denied, Error)
        assert denied.code == Code.INVALID_ARGUMENT, "it says nothing of other users' sessions"
        assert isinstance(await ops.ask(EndSession(shown["session"])), Ok)
        assert leadership_of(node)._machine.ready("q") == 1
        again = await RawClient(ann.session, ann.incarnation).connect(node.me.client)
        frame = await again.hello(user="ann", secret=("token", b"ann-token"), resume=True)
        assert isinstance(frame.message, Welcome)
        assert frame.message.consumers == ()


async def test_users_are_shown_with_what_they_have_and_may_have(tmp_path: Path) -> None:
    few = replace(ANN, shares=((Quota.QUEUES, 3),))
    async with Small(tmp_path, few, BOB, OPS) as node:
        ann, ops = await welcomed(node, "ann"), await welcomed(node, "ops")
        await ann.declare("q")
        await ann.confirmed(ann.publish("q", 0, 1, [b"x" * 100]))
        await passed(limits.STORED_LOOK_SECONDS)
        shown = {one["name"]: one for one in await answered(ops, QueueQuery(None, "users"))}
        assert set(shown) == {"ann", "bob", "ops"}
        used = {quota: shown["ann"][quota] for quota in ("connections", "sessions", "queues")}
        assert used == {"connections": 1, "sessions": 1, "queues": 1}
        assert shown["ann"]["stored_bytes"] == 100
        assert (shown["ann"]["shares"]["queues"], shown["bob"]["shares"]["queues"]) == (3, 5_000)
        assert [one["name"] for one in await answered(ann, QueueQuery(None, "users"))] == ["ann"]


async def answered(client: RawClient, query: QueueQuery) -> list[dict[str, Any]]:
    answer = await client.ask(query)
    assert isinstance(answer, Ok), answer
    found: list[dict[str, Any]] = answer.result
    return found
