"""The peer port in a mixed group: 0.1.0 is spoken to as it speaks, and refused in the end."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from bench.loopback import free_ports
from node.peers.frames import PROTOCOL_NEWEST, PROTOCOL_OLDEST, FrameInvalid, encode
from node.peers.handshake import TELLS, DialerSide, Identity, ListenerSide, new_incarnation
from node.peers.versions import PeerVersions, Said
from tests.node.raft.test_frames import feed, raw_frame, trusted
from tests.node.raft.test_transport import CLUSTER, SECRET, Member, Stranger, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from node.peers.message import Message


OWN = Said("9.9", {"peer": (PROTOCOL_OLDEST, PROTOCOL_NEWEST), "machine": (1, 7)})
SILENT = Said("0.1.0", {"peer": (PROTOCOL_OLDEST, PROTOCOL_OLDEST)})


@asynccontextmanager
async def member(name: str, ports: dict[str, int]) -> AsyncIterator[Member]:
    """A member that says `OWN`, for as long as it listens and dials."""
    made = Member(name, ports)
    made.transport.versions.begin(OWN, SILENT, {}, lambda: None)
    await made.transport.start()
    try:
        yield made
    finally:
        await made.transport.close()


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Member, Member]]:
    """Members a and b, which have heard each other; b dials."""
    ports = dict(zip("ab", free_ports(2), strict=True))
    async with member("a", ports) as a, member("b", ports) as b:
        await until(lambda: both_heard(a, b))
        yield a, b


def both_heard(a: Member, b: Member) -> bool:
    return bool(a.transport.versions.heard and b.transport.versions.heard)


def known(one: Member) -> dict[str, Said]:
    return one.transport.versions.known


async def test_members_say_what_they_can_once_they_are_proven() -> None:
    async with pair() as (a, b):
        assert known(a) == {"b": OWN}
        assert known(b) == {"a": OWN}
        assert not a.received
        await b.transport.close()
        await until(lambda: not a.transport.versions.heard)
        assert known(a) == {"b": OWN}


def identity(name: str, cluster_id: bytes = CLUSTER) -> Identity:
    """An identity as 0.1.0 draws it."""
    return Identity(name=name, cluster_id=cluster_id, secret=SECRET, incarnation=b"i" * 16)


def nonce(size: int) -> bytes:
    return b"n" * size


async def test_one_of_0_1_0_that_dials_is_sent_nothing_that_it_does_not_know() -> None:
    """A frame of no protocol of its own makes it close the connection."""
    ports = dict(zip("ab", free_ports(2), strict=True))
    async with member("a", ports) as a:
        side, stranger = await hello_of_0_1_0(a)
        answer, _ = side.received(await stranger.message())
        assert answer is not None
        stranger.send(answer)
        _, proven = side.received(await stranger.message())
        assert proven
        assert known(a) == {"b": SILENT}
        assert a.transport.versions.heard == {"b"}
        stranger.decoder.trusted = True
        assert (await stranger.message())["type"] == "keepalive"
        stranger.writer.close()


async def test_one_of_0_1_0_that_is_dialed_is_sent_nothing_that_it_does_not_know() -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    said: list[Message] = []
    side = ListenerSide(identity("a"), nonce, frozenset("b"))

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stranger, proven = Stranger(reader, writer), False
        while not proven:
            answer, proven = side.received(await stranger.message())
            assert answer is not None
            stranger.send(answer)
        stranger.decoder.trusted = True
        said.append(await stranger.message())
        writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", ports["a"])
    async with server, member("b", ports) as b:
        await until(lambda: said)
        assert said == [{"type": "keepalive"}]
        assert known(b) == {"a": SILENT}


@pytest.mark.parametrize("first", [0, 1])
async def test_one_that_knows_of_the_end_speaks_to_one_that_does_not_yet(first: int) -> None:
    async with pair() as both:
        knowing = both[first]
        knowing.transport.use_protocol(PROTOCOL_NEWEST)
        assert knowing.present
        for one in both:
            one.events.clear()
        (link,) = knowing.transport._links.values()
        link.close()
        await until(lambda: all(any(e[0] == "+" for e in one.events) for one in both))
        await until(lambda: both_heard(*both))


async def test_one_of_0_1_0_is_disconnected_when_the_upgrade_is_finished() -> None:
    async with pair() as (a, b):
        known(a)["b"] = SILENT
        a.transport.use_protocol(PROTOCOL_NEWEST)
        assert a.events == ["+b", "-b"]
        await until(lambda: both_heard(a, b))
        known(b)["a"] = OWN
        b.transport.use_protocol(PROTOCOL_NEWEST)
        assert b.present


async def hello_of_0_1_0(one: Member) -> tuple[DialerSide, Stranger]:
    """Say hello as a member b of 0.1.0."""
    side = DialerSide(identity("b"), nonce, "a")
    stranger = await Stranger.dial(one)
    stranger.send(side.hello())
    return side, stranger


async def test_a_refused_member_of_0_1_0_is_left_a_line_about_versions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """0.1.0 logs nothing where a connection just ends, and names versions where it gets a frame
    that is not the one it waits for."""
    async with pair() as (a, _):
        a.transport.use_protocol(PROTOCOL_NEWEST)
        with caplog.at_level(logging.WARNING):
            side, stranger = await hello_of_0_1_0(a)
            answer = await stranger.message()
        assert answer["type"] == "hello"
        assert answer["version"] == PROTOCOL_NEWEST
        with pytest.raises(Exception, match="'a' sent hello, must send challenge; run the same"):
            side.received(answer)
        assert await stranger.closed() == b""
        assert a.counters.peers_refused_total == 1
        assert "'b' runs a release that speaks protocol version 4" in caplog.text
        assert a.present == {"b"}


async def test_a_stranger_that_says_an_old_hello_is_refused() -> None:
    async with pair() as (a, _):
        a.transport.use_protocol(PROTOCOL_NEWEST)
        _, stranger = await hello_of_0_1_0(a)
        assert (await stranger.message())["type"] == "hello"
        assert await stranger.closed() == b""


async def test_a_stranger_gets_no_version() -> None:
    async with pair() as (a, _):
        a.transport.use_protocol(PROTOCOL_NEWEST)
        stranger = await Stranger.dial(a)
        stranger.send(DialerSide(identity("b", b"x" * 16), nonce, "a").hello())
        assert await stranger.closed() == b""


async def test_a_member_that_says_too_little_is_disconnected() -> None:
    async with pair() as (a, b):
        b.transport.versions.own = SILENT
        a.transport.use_protocol(PROTOCOL_NEWEST)
        a.transport._links["b"].close()
        await until(lambda: a.counters.peers_refused_total >= 1)


def test_every_start_has_another_incarnation_that_says_so() -> None:
    drawn = iter((bytes(range(16)), bytes(range(1, 17))))
    first, second = (new_incarnation(lambda _: next(drawn)) for _ in range(2))
    assert first != second
    assert first[: len(TELLS)] == second[: len(TELLS)] == TELLS
    assert len(first) == 16


async def test_the_protocol_in_use_never_falls() -> None:
    one = Member("a", {"a": 1, "b": 2})
    one.transport.use_protocol(PROTOCOL_NEWEST)
    one.transport.use_protocol(PROTOCOL_OLDEST)
    assert one.transport.versions.used == PROTOCOL_NEWEST


def test_only_news_is_noted() -> None:
    noted: list[dict[str, Said]] = []
    versions = PeerVersions()
    versions.begin(OWN, SILENT, {"b": OWN}, lambda: noted.append(dict(versions.known)))
    versions.said("b", versions.frame)
    assert noted == []
    versions.said("b", None)
    versions.said("c", versions.frame)
    assert noted == [{"b": SILENT}, {"b": SILENT, "c": OWN}]


def test_a_member_that_was_never_heard_is_taken_for_one_of_0_1_0() -> None:
    versions = PeerVersions()
    versions.begin(OWN, SILENT, {}, lambda: None)
    assert versions.may_stay("b")
    versions.used = PROTOCOL_NEWEST
    assert not versions.may_stay("b")


def test_ranges_survive_the_wire() -> None:
    versions = PeerVersions()
    versions.begin(OWN, SILENT, {}, lambda: None)
    content = b"".join(map(bytes, encode(versions.frame)))
    (message,) = feed(trusted(), content)
    versions.said("b", message)
    assert versions.known == {"b": OWN}


BAD: list[Any] = [
    [9, 5, []],
    [9, "r" * 65, []],
    [9, "0.2.0", {"peer": [4, 5]}],
    [9, "0.2.0", [["peer", 5, 4]]],
    [9, "0.2.0", [["peer", 4]]],
    [9, "0.2.0", [["peer", 4, 2**62]]],
    [9, "0.2.0", [["", 4, 5]]],
    [9, "0.2.0", [["peer", 4, 5]] * 33],
    [9, "0.2.0"],
]


@pytest.mark.parametrize("values", BAD, ids=range(len(BAD)))
def test_ranges_that_no_member_says_are_refused(values: Any) -> None:
    with pytest.raises(FrameInvalid):
        feed(trusted(), raw_frame(values))
