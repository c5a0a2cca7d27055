"""The sweep: what is due happens in the same one as if every connection were looked at."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fifo.wire import Frame
from fifo.wire.messages import ROLE_CONTROL, ROLE_DATA, Error, Message
from node.broker import limits
from node.broker.connections import sessions
from node.broker.connections.connection import Connection
from node.broker.connections.sessions import Farewell, Sessions, silent
from node.server import Node
from tests.support.cluster import eventually, leadership_of, running
from tests.support.rawclient import RawClient, connected


class World:
    """Virtual time, and the owner of connections that need no socket."""

    def __init__(self) -> None:
        self.now = 100.0
        self.beaten: set[Connection] = set()
        self.cut: set[Connection] = set()
        self.sessions = Sessions()

    def connected(self, connection: Connection) -> None: ...

    def arrived(self, connection: Connection) -> None: ...

    def to_handle(self, connection: Connection) -> None: ...

    def received(self, connection: Connection, frame: Frame) -> None: ...

    def disconnected(self, connection: Connection) -> None: ...

    def request_lost(self, connection: Connection) -> None: ...

    def to_flush(self, connection: Connection) -> None: ...

    def to_read(self, connection: Connection) -> None: ...

    def to_watch(self, connection: Connection) -> None: ...

    def answered(self, kind: type[Message], seconds: float) -> None: ...

    def bind(self, number: int, role: int, heartbeat_s: float) -> Peer:
        peer = Peer(self)
        peer.heartbeat_s = heartbeat_s
        self.sessions.bind(peer, number, b"session", role, 1)
        return peer

    def sweep(self) -> tuple[set[Connection], set[Connection]]:
        """Sweep; return the connections that were sent a heartbeat, and those that were cut."""
        self.beaten, self.cut = set(), set()
        self.sessions.sweep(self.now)
        for peer in self.beaten:
            peer.spoke_at = self.now
        return self.beaten, self.cut

    def expected(self) -> tuple[set[Connection], set[Connection]]:
        """The rules, asked of everybody."""
        beaten, cut = set[Connection](), set[Connection]()
        for session in self.sessions:
            newest = max(peer.heard_at for peer in session.connections)
            for peer in session.connections:
                if peer.open and self.now - peer.spoke_at >= peer.heartbeat_s:
                    beaten.add(peer)
                heard_at = peer.heard_at if peer.role == ROLE_CONTROL else newest
                if peer.reading and silent(peer, heard_at, self.now):
                    cut.add(peer)
        return beaten, cut


class Peer(Connection):
    """A connection whose writes and cuts are only noted."""

    def __init__(self, world: World) -> None:
        super().__init__(world, lambda: world.now, 1000)
        self._world = world

    def send_ahead(self, *_: object) -> None:
        self._world.beaten.add(self)

    def abort(self) -> None:
        self._world.cut.add(self)

    def pause(self) -> None:
        self._reading_stopped.add("test")

    def resume(self) -> None:
        self._reading_stopped.clear()
        self.heard_at = self._now()


@pytest.mark.parametrize("seed", range(20))
def test_a_due_check_happens_in_the_same_sweep_as_in_a_full_scan(seed: int) -> None:
    rng = random.Random(seed)
    world = World()
    peers: list[Peer] = []
    seen = {"beaten": 0, "cut": 0}
    for _ in range(600):
        world.now += limits.SWEEP_SECONDS
        for _ in range(rng.randrange(4)):
            event = rng.randrange(7)
            if event == 0 and len(peers) < 12:
                role = rng.choice((ROLE_DATA, ROLE_CONTROL))
                peers.append(world.bind(rng.randrange(6), role, rng.choice((0.5, 1.0, 5.0, 20.0))))
            elif event == 1 and peers and rng.random() < 0.3:
                world.sessions.unbind(peers.pop(rng.randrange(len(peers))))
            elif event == 2 and peers:
                rng.choice(peers).pause()
            elif event == 3 and peers:
                rng.choice(peers).resume()
            elif event == 4 and peers:
                rng.choice(peers).spoke_at = world.now
            elif peers:
                rng.choice(peers).heard_at = world.now
        expected = world.expected()
        assert world.sweep() == expected
        seen["beaten"] += len(expected[0])
        seen["cut"] += len(expected[1])
        for peer in expected[1]:
            assert isinstance(peer, Peer)
            world.sessions.unbind(peer)
            peers.remove(peer)
    assert min(seen.values()) > 5, "the schedule has to meet both"


def test_a_data_connection_is_looked_at_when_the_one_that_spoke_for_it_goes() -> None:
    world = World()
    data, control = (world.bind(1, role, 5.0) for role in (ROLE_DATA, ROLE_CONTROL))
    for _ in range(60):
        world.now += limits.SWEEP_SECONDS
        control.heard_at = world.now
        assert world.sweep()[1] == set()
    world.sessions.unbind(control)
    assert world.sweep()[1] == {data}


@pytest.mark.slow
def test_idle_connections_cost_a_few_looks_per_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was looked at four times a second."""
    world = World()
    for number in range(1000):
        world.bind(number, ROLE_DATA, 5.0)
    looks = 0
    beat = sessions.beat

    def counted(connection: Connection, now: float) -> None:
        nonlocal looks
        looks += 1
        beat(connection, now)

    monkeypatch.setattr(sessions, "beat", counted)
    beats = 0
    for _ in range(int(60 / limits.SWEEP_SECONDS)):
        world.now += limits.SWEEP_SECONDS
        for session in world.sessions:
            session.connections[0].heard_at = world.now
        beats += len(world.sweep()[0])
    assert beats == 12 * 1000
    assert looks < 3 * beats


def test_a_connection_of_an_earlier_term_is_no_part_of_a_later_one() -> None:
    world = World()
    former = world.bind(1, ROLE_DATA, 5.0)
    world.sessions = Sessions()
    assert world.sessions.unbind(former) is Farewell.NOTHING
    resumed = world.bind(1, ROLE_DATA, 5.0)
    assert world.sessions.unbind(former) is Farewell.NOTHING
    found = world.sessions.get(1)
    assert found is not None
    assert found.connections == [resumed]
    assert world.sessions.unbind(resumed) is Farewell.DISCONNECT


# --- the broker's own part, on a running node ---


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path, count=1) as cluster:
        yield await cluster.leader()


async def blocked_consumer(node: Node) -> Connection:
    """The node's end of a consumer that reads nothing while megabytes wait for it."""
    producer = await connected(node.me.client)
    await producer.declare("q")
    body = bytes(1 << 18)
    for number in range(1, 65):
        last = producer.publish("q", number - 1, number, [body])
    await producer.confirmed(last)
    consumer = await connected(node.me.client)
    await consumer.subscribe("q", prefetch=64)
    consumer._reader._transport.pause_reading()  # type: ignore[attr-defined]  # it reads no more
    (found,) = [
        one.data for one in leadership_of(node).sessions if one.session_id == consumer.session
    ]
    assert found is not None
    await eventually(lambda: found.output.blocked and found.output.items)
    return found


async def test_a_peer_that_takes_nothing_is_cut(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = await blocked_consumer(node)
    assert connection.open
    monkeypatch.setattr(limits, "STALLED_SECONDS", 0.3)
    await eventually(lambda: connection.lost)


async def test_a_peer_that_does_not_take_the_last_frames_is_cut(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLOSING_SECONDS", 0.3)
    connection = await blocked_consumer(node)
    connection.close()
    assert not connection.lost
    await eventually(lambda: connection.lost)


async def test_a_stranger_that_says_nothing_is_sent_away(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OPENING_SECONDS", 0.3)
    said = await (await RawClient().connect(node.me.client)).closed()
    assert isinstance(said[-1], Error)
    assert said[-1].text == f"no hello within {limits.OPENING_SECONDS:g} s"


async def test_who_is_settled_and_idle_is_not_looked_at(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    await client.confirmed(client.publish("q", 0, 1, [bytes(1 << 18)]))
    await client.subscribe("q")
    await client.delivery()
    connections = node.broker.connections
    await eventually(lambda: not connections._watched and not connections._sessionless)
    assert len(connections) == 1
