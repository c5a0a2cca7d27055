"""Starting, stopping and failing of a node, and what it does when there is too much."""

from __future__ import annotations

import asyncio
import re
import struct
from pathlib import Path

import pytest

import fifo
from fifo.wire.messages import (
    Confirms,
    Error,
    Ok,
    Peek,
    Ping,
    Pong,
    QueueQuery,
    Redirect,
    Redrive,
    Renew,
    Renewed,
    Status,
    Welcome,
)
from node.broker import limits
from node.broker.connections.connection import Connection
from node.config import LimitSettings
from node.http.server import HttpServer
from node.raft import JournalLocked
from node.server import Node, NodeStopped
from tests.support import raft_probe
from tests.support.cluster import (
    eventually,
    leadership_of,
    loopback_config,
    passed,
    running,
    within,
)
from tests.support.rawclient import Closed, RawClient, connected


async def test_a_node_whose_apply_raises_stops_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)

        def broken(*_: object) -> None:
            raise AssertionError("a broken invariant")

        monkeypatch.setattr(node.broker.host.machine, "apply_batch", broken)
        ended = asyncio.ensure_future(node.run())
        with pytest.raises(Closed):
            await client.declare("q")
        with pytest.raises(NodeStopped, match="a broken invariant"):
            await within(ended)


async def test_a_second_node_on_the_folder_is_refused_and_the_first_goes_on(
    tmp_path: Path,
) -> None:
    config = loopback_config(tmp_path, 1)
    first = Node(config, "n1", http=HttpServer)
    await first.start()
    try:
        with pytest.raises(JournalLocked):
            await Node(loopback_config(tmp_path, 1), "n1").start()
        await eventually(lambda: first.leads)
        client = await connected(first.me.client)
        await client.declare("q")
    finally:
        await first.stop()


@pytest.mark.parametrize("kind", ["client", "peer", "http"])
async def test_a_port_in_use_is_refused_and_nothing_is_left_open(tmp_path: Path, kind: str) -> None:
    config = loopback_config(tmp_path, 1)
    address = getattr(config.nodes[0], kind)
    blocker = await asyncio.start_server(lambda _r, w: w.close(), address.host, address.port)
    async with blocker:
        with pytest.raises(OSError, match=r"in use|bind"):
            await Node(config, "n1", http=HttpServer).start()
    node = Node(config, "n1", http=HttpServer)
    await node.start()
    await eventually(lambda: node.leads)
    await node.stop()


async def test_a_leader_that_ends_before_its_first_entry_is_committed_asks_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = loopback_config(tmp_path, 1)
    node = Node(config, "n1")
    ended: list[asyncio.Task[None]] = []
    on_role = node.broker.on_role

    def told(role: str, term: int) -> None:
        on_role(role, term)
        if role == "leader":
            ended.append(asyncio.create_task(node.crash()))

    monkeypatch.setattr(node.broker, "on_role", told)
    await node.start()
    await eventually(lambda: ended)
    await within(ended[0])
    assert sum("event=entry_lost" in line for line in caplog.messages) == 1
    assert not [one for one in caplog.records if one.exc_info]


async def test_committed_messages_are_there_after_a_restart(tmp_path: Path) -> None:
    config = loopback_config(tmp_path, 1)
    node = Node(config, "n1")
    await node.start()
    await eventually(lambda: node.leads)
    client = await connected(node.me.client)
    await client.declare("q")
    await client.confirmed(client.publish("q", 0, 1, [b"one", b"two"]))
    await node.crash()
    node = Node(config, "n1")
    await node.start()
    await eventually(lambda: node.leads)
    client = await connected(node.me.client)
    await client.subscribe("q")
    assert (await client.delivery())[1] == [b"one", b"two"]
    await node.stop()


async def hold_turns(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make Raft's turns do nothing, so that none is due any more; each is noted."""
    turns: list[float] = []

    def turn() -> float:
        turns.append(3600.0)
        return turns[-1]

    monkeypatch.setattr(raft_probe.running_raft(node), "turn", turn)
    await eventually(lambda: turns)
    turns.clear()
    return turns


async def test_a_welcome_names_the_limits_that_stop_a_client(tmp_path: Path) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await RawClient().connect(node.me.client)
        assert dict((await client.welcome()).limits) == {
            "body_bytes": node.config.limits.body_bytes,
            "prefetch": node.config.limits.prefetch,
            "in_flight_publishes": node.config.limits.in_flight_publishes,
            "requests": limits.REQUESTS_IN_FLIGHT_MAX,
            "request_bytes": limits.REQUEST_BYTES_IN_FLIGHT_MAX,
            "heartbeat_ms_min": limits.HEARTBEAT_MS_MIN,
            "heartbeat_ms_max": limits.HEARTBEAT_MS_MAX,
        }


async def test_a_request_without_an_entry_is_answered_without_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)
        await client.declare("q")
        consumer = (await client.subscribe("q")).consumer
        await client.confirmed(client.publish("q", 0, 1, [b"held"]))
        await client.delivery()
        turns = await hold_turns(node, monkeypatch)
        assert isinstance(await client.ask(Ping()), Pong)
        renewed = await client.ask(Renew(((consumer, ((1, 1),)),)))
        assert isinstance(renewed, Renewed), renewed
        assert isinstance(await client.ask(QueueQuery("none", "show")), Error)
        assert not turns


async def test_a_failure_while_sending_without_a_turn_ends_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise OSError("the disk is gone")

    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)
        turns = await hold_turns(node, monkeypatch)
        ended = asyncio.ensure_future(node.run())
        monkeypatch.setattr(node.broker, "flush", broken)
        client.send(Ping(), 9)
        with pytest.raises(NodeStopped, match="the disk is gone"):
            await within(ended)
        assert not turns


async def test_a_leader_without_a_majority_confirms_nothing_and_sends_its_clients_away(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as cluster:
        leader = await cluster.leader()
        client = await connected(leader.me.client)
        await client.declare("q")
        for follower in cluster.followers():
            await cluster.crash(follower.me.name)
        for number in range(1, 20):
            client.publish("q", number - 1, number, [b"nobody else has it"])
            await passed(0.01)
        said = await client.closed()
        assert isinstance(said[-1], Redirect)
        assert said[-1].moved
        assert not [one for one in said if isinstance(one, Confirms)]
        assert not leader.leads
        assert leader.broker.leadership is None, "nothing of this term is left for a later one"


async def test_without_a_proof_that_it_leads_a_node_answers_nothing_from_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)
        await client.declare("q")
        monkeypatch.setattr(raft_probe.running_raft(node), "led_at", lambda: 0.0)
        outdated = [QueueQuery("q", "show"), QueueQuery("none", "show"), QueueQuery(None, "list")]
        for request in (*outdated, Peek("q", 1), Redrive("q", None, {"dry_run": True})):
            answer = await client.ask(request)
            assert isinstance(answer, Error)
            assert (answer.code, answer.retryable) == ("not_now", True)
        publish = client.publish("none", 0, 1, [b"x"])
        refused = await client.take(lambda frame: frame.correlation == publish)
        assert isinstance(refused.message, Error)
        assert refused.message.code == "not_now"
        assert isinstance(await client.ask(Status()), Ok)


async def test_unfinished_frames_cannot_fill_a_node(tmp_path: Path) -> None:
    small = LimitSettings(memory_high_bytes=10 << 20)
    async with running(tmp_path, count=1, limits=small) as cluster:
        node = await cluster.leader()
        clients = [await connected(node.me.client) for _ in range(4)]
        for client in clients:
            client.send_bytes(struct.pack("<II", 10, 7 << 20) + bytes(6 << 20))
        await eventually(lambda: len(node.broker.connections) <= 1)
        fine = await connected(node.me.client)
        await fine.declare("q")


async def test_a_full_disk_refuses_publishers_and_lets_consumers_settle(tmp_path: Path) -> None:
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)
        await client.declare("q")
        consumer = (await client.subscribe("q")).consumer
        await client.confirmed(client.publish("q", 0, 1, [b"one"]))
        await client.delivery()
        node.broker.alarms.disk_low_bytes = 1 << 49
        await eventually(lambda: node.broker.alarms.refusal)
        correlation = client.publish("q", 1, 2, [b"two"])
        answer = (await client.take(lambda frame: frame.correlation == correlation)).message
        assert isinstance(answer, Error)
        assert (answer.code, answer.retryable) == ("overloaded", True)
        assert (await client.settle(consumer, 1, 1))[0][2] == 0


async def test_a_flood_of_publishes_is_read_no_faster_than_it_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "GATHERED_BYTES_MAX", 2 << 20)
    # Less than one frame: whatever the disk's speed, each has to wait for the one before it.
    monkeypatch.setattr(limits, "REQUEST_BYTES_IN_FLIGHT_MAX", 150_000)
    async with running(tmp_path, count=1) as cluster:
        node = await cluster.leader()
        client = await connected(node.me.client)
        await client.declare("q")
        most = 0
        stopped: list[str] = []
        stop_reading = Connection.stop_reading

        def counted(connection: Connection, reason: str) -> None:
            stopped.append(reason)
            stop_reading(connection, reason)

        monkeypatch.setattr(Connection, "stop_reading", counted)

        count = 60
        last = 0
        for number in range(1, count + 1):
            last = client.publish("q", number - 1, number, [bytes(200_000)])

        def confirmed() -> bool:
            nonlocal most
            most = max(most, leadership_of(node).proposals.batcher.gathered_bytes)
            return node.broker.host.machine.ready("q") == count

        await eventually(confirmed)
        assert "in_flight" in stopped, "the publisher was not read for a while"
        assert most <= 4 << 20
        await client.confirmed(last)


async def test_a_hello_waits_for_a_leader_that_has_just_been_elected(tmp_path: Path) -> None:
    config = loopback_config(tmp_path, 1)
    node = Node(config, "n1")
    await node.start()
    try:
        welcome = None
        while welcome is None:
            client = await RawClient().connect(node.me.client)
            frame = await client.hello()
            welcome = frame.message if isinstance(frame.message, Welcome) else None
            await passed(0.01)
        assert node.leads
    finally:
        await node.stop()


async def test_a_client_at_a_wrong_port_reads_which_it_is_and_floods_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        for address, said in (
            (node.me.peer, "this is the peer port of node n1: connect to a node's client port"),
            (node.me.http, "an HTTP answer: this is an http port"),
        ):
            with pytest.raises(fifo.ConnectionLost, match=re.escape(said)):
                await fifo.connect(f"fifo://{address}", connect_timeout=1)
    refusals = [one for one in caplog.messages if "closing the connection of peer ?" in one]
    assert len(refusals) == 1
