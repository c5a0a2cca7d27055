"""The peer port on a real loopback socket: members get through, strangers do not.

Each bad input ends with its connection closed and counted, and the members still connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from bench.loopback import free_ports
from node.peers import limits
from node.peers.frames import LENGTHS, PROTOCOL_NEWEST, Decoder, encode
from node.peers.handshake import DialerSide, Identity
from node.peers.message import MessageRefused, PeerNode
from node.peers.transport import TcpTransport
from node.raft.config import ConfigInvalid, RaftConfig
from tests.support.descriptors import no_descriptor_left

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from node.peers.message import Message

CLUSTER = b"transport-tests!"
SECRET = b"only members know"


async def until(condition: Callable[[], object], seconds: float = 8.0) -> None:
    """Wait for something to be so."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # the condition is no event of anyone
            await asyncio.sleep(0.005)


class Member:
    """A transport with what it delivered."""

    def __init__(self, name: str, ports: dict[str, int], **changes: Any) -> None:
        settings: dict[str, Any] = {
            "name": name,
            "peers": {n: ("127.0.0.1", p) for n, p in ports.items() if n != name},
            "bind": ("127.0.0.1", ports[name]),
            "cluster_id": CLUSTER,
            "secret": SECRET,
        }
        self.config = RaftConfig(**(settings | changes))
        self.transport = TcpTransport(self.config, rng=random.Random(1))
        self.present: set[str] = set()
        self.events: list[str] = []
        self.received: list[tuple[str, Message]] = []
        self.refuse = False
        self.transport.attach(self)

    def connected(self, node: PeerNode) -> None:
        assert node.id not in self.present
        self.present.add(node.id)
        self.events.append(f"+{node.id}")

    def disconnected(self, node: PeerNode, *, replaced: bool = False) -> None:
        self.present.remove(node.id)
        self.events.append(f"-{node.id}" if not replaced else f"={node.id}")

    def receive(self, node: PeerNode, message: Message) -> None:
        if self.refuse:
            raise MessageRefused("not now")
        assert node.id in self.present
        self.received.append((node.id, message))

    @property
    def counters(self) -> Any:
        return self.transport.counters


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Member, Member]]:
    """Members a and b, connected; b dials."""
    ports = dict(zip("ab", free_ports(2), strict=True))
    members = Member("a", ports), Member("b", ports)
    for member in members:
        await member.transport.start()
    await until(lambda: members[0].present and members[1].present)
    yield members
    for member in members:
        await member.transport.close()


class Stranger:
    """A raw socket on the peer port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.decoder = Decoder()

    @classmethod
    async def dial(cls, member: Member) -> Stranger:
        return cls(*await asyncio.open_connection(*member.transport.address))

    def send(self, message: Message) -> None:
        self.writer.write(b"".join(encode(message)))

    async def message(self) -> Message:
        """The next frame."""
        while True:
            content = await asyncio.wait_for(self.reader.read(65536), 5)
            assert content, "closed"
            room = self.decoder.buffer()
            room[: len(content)] = content
            for message in self.decoder.received(len(content)):
                return message

    async def closed(self) -> bytes:
        """Return the bytes that still came before the other side closed."""
        content = b""
        with contextlib.suppress(ConnectionError):
            content = await asyncio.wait_for(self.reader.read(), 8)
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()
        return content


def side(**changes: Any) -> DialerSide:
    """The handshake of b towards a, as b would do it but for `changes`."""
    settings = {
        "name": "b",
        "cluster_id": CLUSTER,
        "secret": SECRET,
        "incarnation": b"i" * 16,
    } | changes
    return DialerSide(Identity(**settings), os.urandom, "a")


async def enter(member: Member) -> Stranger:
    """A stranger that knows the secret: proven as b."""
    stranger = await Stranger.dial(member)
    handshake = side()
    stranger.send(handshake.hello())
    answer, _ = handshake.received(await stranger.message())
    assert answer is not None
    stranger.send(answer)
    _, proven = handshake.received(await stranger.message())
    assert proven
    stranger.decoder.trusted = True
    return stranger


APPEND = {
    "type": "append_entries",
    "term": 2,
    "commit_index": 1,
    "prevLogIdx": 1,
    "prevLogTerm": 0,
    "round": 1,
    "entries": [(b"\x10" + bytes(100_000), 2, 1), (b"\x10x", 3, 2)],
}


async def test_members_find_each_other_and_messages_arrive_in_order(
    pair: tuple[Member, Member],
) -> None:
    a, b = pair
    for number in range(50):
        assert a.transport.send(PeerNode("b"), APPEND | {"round": number})
    assert b.transport.send(PeerNode("a"), {"type": "response_vote", "term": 3})
    await until(lambda: len(b.received) == 50 and a.received)
    assert b.received == [("a", APPEND | {"round": number}) for number in range(50)]
    assert a.received == [("b", {"type": "response_vote", "term": 3})]
    assert a.counters.accepted_total == 1
    assert b.counters.accepted_total == 0


async def test_bytes_reach_the_socket_inside_send(pair: tuple[Member, Member]) -> None:
    a, _ = pair
    sent_bytes = a.counters.sent_bytes_total
    assert a.transport.send(PeerNode("b"), APPEND)
    assert a.counters.sent_bytes_total > sent_bytes
    assert a.transport.unsent_bytes(PeerNode("b")) == 0


async def test_sending_to_a_peer_without_a_connection_says_so() -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    a = Member("a", ports)
    await a.transport.start()
    assert not a.transport.send(PeerNode("b"), APPEND)
    await a.transport.close()


async def test_b19_the_listener_binds_the_configured_address_only(
    pair: tuple[Member, Member],
) -> None:
    a, _ = pair
    assert a.transport.address == a.config.bind
    assert a.transport.address[0] == "127.0.0.1"


def test_b19_all_interfaces_are_never_bound_by_accident_nor_a_secret_forgotten() -> None:
    ports = {"a": 1, "b": 2}
    with pytest.raises(ConfigInvalid, match="bind"):
        Member("a", ports, bind=("", 1))
    for changes in (
        {"bind": ("0.0.0.0", 1)},
        {"peers": {"b": ("10.0.0.2", 1)}},
        {"peers": {"b": ("example.org", 1)}},
    ):
        with pytest.raises(ConfigInvalid, match="secret"):
            Member("a", ports, secret=None, **changes)
    Member("a", ports, secret=None)


async def test_b19_a_stranger_gets_nothing_and_executes_nothing(
    pair: tuple[Member, Member],
) -> None:
    a, b = pair
    pickled = b"\x80\x02cposix\nsystem\nU\x04true\x85R."
    stranger = await Stranger.dial(a)
    stranger.writer.write(LENGTHS.pack(len(pickled), 0) + pickled)
    assert await stranger.closed() == b""
    assert a.counters.frames_invalid_total == 1
    assert a.present == {"b"}
    assert b.present == {"a"}
    assert a.events == ["+b"]


FIRST_BYTES = {
    "random bytes": random.Random(3).randbytes(4_000),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an oversized frame": LENGTHS.pack(limits.HANDSHAKE_BYTES_MAX + 1, 0),
    "a huge frame": LENGTHS.pack(2**32 - 1, 2**32 - 1),
    "an unknown type": LENGTHS.pack(2, 0) + msgpack.packb([99]),
    "a utility message": LENGTHS.pack(8, 0) + msgpack.packb(["status"])[:8].ljust(8, b"\0"),
    "an ill-typed hello": b"".join(
        (LENGTHS.pack(8, 0), msgpack.packb([1, "1", 2, 3, 4, 5, 6]).ljust(8, b"\0"))
    ),
    "entries before a hello": b"".join(encode(APPEND | {"entries": []})),
    "a vote before a hello": b"".join(encode({"type": "response_vote", "term": 1})),
    "a proof before a hello": b"".join(encode({"type": "proof", "proof": bytes(32)})),
}


@pytest.mark.parametrize("content", FIRST_BYTES.values(), ids=FIRST_BYTES.keys())
async def test_bad_first_bytes_close_the_connection_and_harm_no_member(
    pair: tuple[Member, Member], content: bytes
) -> None:
    a, b = pair
    stranger = await Stranger.dial(a)
    stranger.writer.write(content)
    assert await stranger.closed() == b""
    assert a.counters.frames_invalid_total + a.counters.peers_refused_total == 1
    a.transport.send(PeerNode("b"), APPEND)
    await until(lambda: b.received)
    assert a.events == ["+b"]


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster_id": b"another cluster!"},
        {"name": "stranger"},
        {"name": "a"},
        {"name": "0 sorts below a, so it does not dial"},
    ],
    ids=str,
)
async def test_a_hello_of_no_member_gets_no_answer(
    pair: tuple[Member, Member], changes: dict[str, Any]
) -> None:
    a, _ = pair
    stranger = await Stranger.dial(a)
    stranger.send(side(**changes).hello())
    assert await stranger.closed() == b""
    assert a.counters.peers_refused_total == 1
    assert a.present == {"b"}


@pytest.mark.parametrize("changes", [{"version": PROTOCOL_NEWEST + 1}, {"to": "c"}], ids=str)
async def test_a_hello_of_another_version_or_for_another_node_gets_no_answer(
    pair: tuple[Member, Member], changes: dict[str, Any]
) -> None:
    a, _ = pair
    stranger = await Stranger.dial(a)
    stranger.send(side().hello() | changes)
    assert await stranger.closed() == b""
    assert a.counters.peers_refused_total == 1
    assert a.present == {"b"}


async def test_a_wrong_secret_gets_a_nonce_and_nothing_else(pair: tuple[Member, Member]) -> None:
    a, _ = pair
    stranger = await Stranger.dial(a)
    handshake = side(secret=b"guessed")
    stranger.send(handshake.hello())
    challenge = await stranger.message()
    assert challenge["type"] == "challenge"
    answer, _ = handshake.received(challenge)
    assert answer is not None
    stranger.send(answer)
    assert await stranger.closed() == b""
    assert a.counters.peers_refused_total == 1
    assert a.present == {"b"}
    assert a.events == ["+b"]


async def test_a_proof_cannot_be_replayed(pair: tuple[Member, Member]) -> None:
    a, _ = pair
    first = await Stranger.dial(a)
    handshake = side()
    first.send(handshake.hello())
    answer, _ = handshake.received(await first.message())
    assert answer is not None
    second = await Stranger.dial(a)
    second.send(handshake.hello())
    await second.message()
    second.send(answer)
    assert await second.closed() == b""
    assert a.counters.peers_refused_total == 1
    first.writer.close()
    await first.closed()


async def test_a_listener_that_does_not_know_the_secret_is_not_believed() -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    a, b = Member("a", ports, secret=b"another"), Member("b", ports)
    await a.transport.start()
    await b.transport.start()
    await until(lambda: a.counters.peers_refused_total >= 2)
    assert not a.present
    assert not b.present
    await a.transport.close()
    await b.transport.close()


AFTER_PROOF = {
    "random bytes": random.Random(4).randbytes(4_000),
    "an oversized frame": LENGTHS.pack(10, limits.FRAME_BYTES_MAX),
    "an unknown type": LENGTHS.pack(2, 0) + msgpack.packb([99]).ljust(2, b"\0"),
    "a second hello": b"".join(encode(side().hello())),
    "an ill-typed field": LENGTHS.pack(3, 0) + msgpack.packb([19, -1]),
    "an extra field": LENGTHS.pack(4, 0) + msgpack.packb([19, 1, 1]),
    "a pickled call": LENGTHS.pack(10, 2) + msgpack.packb([16, 2, 1, 1, 0, 1, [1], [2]]) + b"\0x",
}


@pytest.mark.parametrize("content", AFTER_PROOF.values(), ids=AFTER_PROOF.keys())
async def test_bad_bytes_of_a_proven_peer_close_its_connection(content: bytes) -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    a = Member("a", ports)
    await a.transport.start()
    peer = await enter(a)
    assert a.present == {"b"}
    peer.writer.write(content)
    await peer.closed()
    await until(lambda: not a.present)
    assert a.counters.frames_invalid_total == 1
    assert not a.received
    again = await enter(a)
    again.send({"type": "response_vote", "term": 1})
    await until(lambda: a.received)
    again.writer.close()
    await a.transport.close()


async def test_a_message_that_the_node_refuses_closes_the_connection(
    pair: tuple[Member, Member],
) -> None:
    a, b = pair
    a.refuse = True
    b.transport.send(PeerNode("a"), {"type": "timeout_now", "term": 1})
    await until(lambda: a.events == ["+b", "-b", "+b"])
    assert a.counters.messages_refused_total == 1


async def test_half_a_frame_waits_and_ends_with_its_connection() -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    a = Member("a", ports)
    await a.transport.start()
    peer = await enter(a)
    whole = b"".join(encode(APPEND))
    peer.writer.write(whole[:1000])
    await peer.writer.drain()
    peer.writer.close()
    await until(lambda: not a.present)
    again = await enter(a)
    again.writer.write(whole[1000:])
    await again.closed()
    assert not a.received
    await a.transport.close()


async def test_a_new_connection_of_a_peer_ends_the_old_one_first() -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    a = Member("a", ports)
    await a.transport.start()
    old = await enter(a)
    new = await enter(a)
    assert a.events == ["+b", "=b", "+b"]
    assert a.counters.connections_replaced_total == 1
    old.send({"type": "response_vote", "term": 1})
    new.send({"type": "response_vote", "term": 2})
    await until(lambda: a.received)
    assert a.received == [("b", {"type": "response_vote", "term": 2})]
    await old.closed()
    new.writer.close()
    await a.transport.close()


async def test_another_process_of_a_member_that_lives_is_refused_until_that_one_is_gone() -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    a, first = Member("a", ports), Member("b", ports)
    await a.transport.start()
    await first.transport.start()
    await until(lambda: a.events == ["+b"])
    second = Member("b", {"a": ports["a"], "b": free_ports(1)[0]})
    await second.transport.start()
    await until(lambda: second.received)
    assert second.received[0][1]["kind"] == limits.VERDICT_TWICE
    assert a.events == ["+b"]
    await first.transport.close()
    await until(lambda: a.events == ["+b", "-b", "+b"])
    await second.transport.close()
    await a.transport.close()


async def test_silent_strangers_are_bounded_in_number_and_time(
    pair: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = pair
    monkeypatch.setattr(limits, "HANDSHAKE_SECONDS", 0.5)
    strangers = [await Stranger.dial(a) for _ in range(limits.UNAUTHENTICATED_MAX + 5)]
    await until(lambda: a.counters.handshakes_crowded_out_total == 5)
    assert a.transport.handshakes <= limits.UNAUTHENTICATED_MAX
    await until(lambda: not a.transport.handshakes)
    assert a.counters.handshakes_expired_total == limits.UNAUTHENTICATED_MAX
    for stranger in strangers:
        assert await stranger.closed() == b""
    assert a.present == {"b"}


async def test_a_member_gets_in_while_strangers_hold_every_place() -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    a = Member("a", ports)
    await a.transport.start()
    strangers = [await Stranger.dial(a) for _ in range(limits.UNAUTHENTICATED_MAX)]
    peer = await enter(a)
    assert a.present == {"b"}
    for each in (*strangers, peer):
        each.writer.close()
    await a.transport.close()


async def test_a_silent_connection_is_closed_and_dialed_again() -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    a = Member("a", ports, connection_seconds=1.0, max_timeout_seconds=0.9)
    await a.transport.start()
    peer = await enter(a)
    await until(lambda: not a.present)
    assert a.counters.connections_silent_total == 1
    await peer.closed()
    await a.transport.close()


async def test_connections_without_traffic_stay() -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    changes = {"connection_seconds": 1.0, "max_timeout_seconds": 0.9}
    members = Member("a", ports, **changes), Member("b", ports, **changes)
    for member in members:
        await member.transport.start()
    await until(lambda: all(member.present for member in members))
    keepalive_bytes = sum(map(len, encode({"type": "keepalive"})))
    enough = members[0].counters.received_bytes_total + 6 * keepalive_bytes
    await until(lambda: members[0].counters.received_bytes_total >= enough)
    assert [member.events for member in members] == [["+b"], ["+a"]]
    for member in members:
        await member.transport.close()


async def test_a_peer_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNSENT_BYTES_MAX", 2_000_000)
    ports = dict(zip("ab", free_ports(2), strict=True))
    a = Member("a", ports)
    await a.transport.start()
    peer = await enter(a)
    large = APPEND | {"entries": [(b"\x10" + bytes(1_000_000), 2, 1)]}
    sent = 0
    while a.transport.send(PeerNode("b"), large):
        sent += 1
        assert sent < 100
    assert a.counters.connections_clogged_total == 1
    assert not a.present
    peer.writer.close()
    await a.transport.close()


async def test_peers_reconnect_after_one_of_them_was_away(pair: tuple[Member, Member]) -> None:
    a, b = pair
    await a.transport.close()
    await until(lambda: not b.present)
    ports = {"a": a.config.bind[1], "b": b.config.bind[1]}
    back = Member("a", ports)
    await back.transport.start()
    await until(lambda: b.present and back.present)
    await back.transport.close()


async def test_a_port_in_use_is_an_error_at_start(pair: tuple[Member, Member]) -> None:
    a, _ = pair
    other = TcpTransport(a.config, rng=random.Random(1))
    with pytest.raises(OSError, match="in use") as raised:
        await other.start()
    assert raised.value.errno == errno.EADDRINUSE
    await other.close()


async def test_b13_the_listener_survives_running_out_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "ACCEPT_RETRY_SECONDS", 0.05)
    ports = dict(zip("ab", free_ports(2), strict=True))
    a = Member("a", ports)
    async with contextlib.AsyncExitStack() as opened:
        # One for the descriptor that the listener gives up, and one that finds none.
        dialing = [opened.enter_context(socket.socket()) for _ in range(2)]
        opened.push_async_callback(a.transport.close)
        await a.transport.start()
        await _run_out_of_descriptors(a, dialing)
        await until(lambda: a.counters.accepted_total == 2)
        for one in dialing:
            one.close()
        peer = await enter(a)
        assert a.present == {"b"}
        peer.writer.close()


async def _run_out_of_descriptors(a: Member, dialing: list[socket.socket]) -> None:
    """Dial while this process has none left, until accepting has failed twice."""
    with no_descriptor_left():
        for one in dialing:
            one.setblocking(False)
            await asyncio.get_running_loop().sock_connect(one, a.transport.address)
        await until(lambda: a.counters.accept_failures_total >= 2)
