"""TLS between members: only the holder of a certificate for a name is the member of that name."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.loopback import free_ports
from node.peers import limits
from node.peers.message import PeerNode
from node.peers.tls import CertificateUnusable, PeerTls, names_in
from node.raft.config import ConfigInvalid, RaftConfig
from tests.node.raft.test_transport import CLUSTER, Member, until
from tests.support.certificates import Authority
from tests.support.cluster import LocalCluster, eventually, loopback_config
from tests.support.rawclient import close_all, connected

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A single authority for all tests here: it only signs."""
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


@contextlib.asynccontextmanager
async def two(first: PeerTls | None, second: PeerTls | None, **changes: Any) -> Any:
    """Members a and b with these files, started; b dials."""
    ports = dict(zip("ab", free_ports(2), strict=True))
    settings = {"secret": None} | changes
    members = Member("a", ports, tls=first, **settings), Member("b", ports, tls=second, **settings)
    try:
        for member in members:
            await member.transport.start()
        yield members
    finally:
        for member in members:
            await member.transport.close()


async def test_members_with_certificates_of_one_authority_talk(authority: Authority) -> None:
    async with two(authority.member("a"), authority.member("b")) as (a, b):
        await until(lambda: a.present and b.present)
        big = [(b"\x10" + bytes(1_000_000), 2, 1)]
        message = {
            "type": "append_entries",
            "term": 1,
            "commit_index": 1,
            "prevLogIdx": 1,
            "prevLogTerm": 0,
            "round": 1,
            "entries": big,
        }
        assert a.transport.send(PeerNode("b"), message)
        assert b.transport.send(PeerNode("a"), {"type": "response_vote", "term": 3})
        await until(lambda: a.received and b.received)
        assert b.received[0][1]["entries"] == big


async def test_the_shared_secret_is_asked_for_beside_the_certificate(authority: Authority) -> None:
    ports = dict(zip("ab", free_ports(2), strict=True))
    a = Member("a", ports, tls=authority.member("a"), secret=b"a secret of a's own")
    b = Member("b", ports, tls=authority.member("b"))
    for member in (a, b):
        await member.transport.start()
    await until(lambda: a.counters.peers_refused_total > 0)
    assert not a.present
    assert not b.present
    for member in (a, b):
        await member.transport.close()


@pytest.mark.parametrize("wrong", ["a", "b"])
async def test_a_member_with_the_certificate_of_another_is_refused_by_either_side(
    authority: Authority, wrong: str
) -> None:
    files = {name: authority.member("c" if name == wrong else name) for name in "ab"}
    async with two(files["a"], files["b"]) as (a, b):
        other = b if wrong == "a" else a
        await until(lambda: other.counters.peers_refused_total > 0)
        assert not a.present
        assert not b.present
        assert a.received == b.received == []


async def test_a_certificate_of_another_authority_gets_nothing(
    authority: Authority, tmp_path: Path
) -> None:
    forged = Authority(tmp_path / "forged").member("b")
    async with two(authority.member("a"), replace(forged, ca=authority.ca)) as (a, b):
        await until(lambda: a.counters.tls_failures_total > 0)
        assert not a.present
        assert not b.present


async def read_all(address: tuple[str, int], first: bytes, context: ssl.SSLContext | None) -> bytes:
    """Read the bytes that a stranger gets before the other side closes."""
    found = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        reader, writer = await asyncio.open_connection(*address, ssl=context)
        writer.write(first)
        found = await asyncio.wait_for(reader.read(), 8)
        writer.close()
    return found


async def test_a_stranger_gets_nothing(authority: Authority) -> None:
    """Neither without TLS nor with TLS and no certificate; and members are not disturbed."""
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    async with two(authority.member("a"), authority.member("b")) as (a, b):
        await until(lambda: a.present and b.present)
        hello = b"\x20\x00\x00\x00\x00\x00\x00\x00" + bytes(32)
        plain = await read_all(a.transport.address, hello, None)
        assert len(plain) <= 7  # At most a TLS alert.
        assert await read_all(a.transport.address, hello, nobody) == b""
        await until(lambda: a.counters.tls_failures_total == 2)
        assert a.events == ["+b"]


async def test_strangers_that_never_shake_hands_are_bounded(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNAUTHENTICATED_MAX", 4)
    async with two(authority.member("a"), authority.member("b")) as (a, b):
        await until(lambda: a.present and b.present)
        silent = [await asyncio.open_connection(*a.transport.address) for _ in range(10)]
        await until(lambda: a.counters.handshakes_crowded_out_total == 6)
        # A member that comes back while they hold every place gets in.
        await b.transport.close()
        await until(lambda: not a.present)
        again = Member("b", {"a": a.transport.address[1], "b": free_ports(1)[0]}, secret=None,
                       tls=authority.member("b"))  # fmt: skip
        await again.transport.start()
        await until(lambda: a.present and again.connected)
        await again.transport.close()
        for _, writer in silent:
            writer.close()


def test_a_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    good, other = authority.member("a"), authority.member("b")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for files, words in (
        (replace(good, cert=tmp_path / "gone"), r"\[tls\] peer_cert: .*gone: cannot be read"),
        (replace(good, key=tmp_path / "gone"), r"\[tls\] peer_key: .*gone: cannot be read"),
        (replace(good, key=other.key), r"\[tls\] peer_key: .* is not the unencrypted PEM key"),
        (replace(good, ca=tmp_path / "gone"), r"\[tls\] peer_ca: .*gone: cannot be read"),
        (replace(good, ca=garbage), r"\[tls\] peer_ca: .*garbage.pem: is no PEM certificate"),
    ):
        with pytest.raises(CertificateUnusable, match=words):
            files.listening()


def test_a_certificate_stands_for_its_dns_names_or_else_its_common_name() -> None:
    subject = ((("commonName", "n9"),),)
    assert names_in({"subject": subject}) == {"n9"}
    both = {"subject": subject, "subjectAltName": (("DNS", "n1"), ("IP Address", "::1"))}
    assert names_in(both) == {"n1"}
    assert names_in({}) == frozenset()


def test_other_machines_need_a_secret_or_certificates(authority: Authority) -> None:
    def config(**changes: Any) -> RaftConfig:
        return RaftConfig("a", {"b": ("10.0.0.2", 1)}, ("10.0.0.1", 1), CLUSTER, **changes)

    with pytest.raises(ConfigInvalid, match="secret or tls"):
        config()
    config(tls=authority.member("a"))
    config(secret=b"0123456789abcdef")


async def test_a_cluster_lives_on_tls(authority: Authority, tmp_path: Path) -> None:
    plain = loopback_config(tmp_path, 3)
    config = replace(plain, tls=authority.settings("n1", "n2", "n3"))
    cluster = LocalCluster(config)
    try:
        await cluster.start()
        leader = await cluster.leader()
        client = await connected(leader.me.client)
        await client.declare("orders")
        await client.confirmed(client.publish("orders", 0, 1, [b"x" * 100_000] * 3))
        await eventually(
            lambda: all(
                node.broker.host.machine.queue_count() == 1 for node in cluster.nodes.values()
            )
        )
    finally:
        await close_all()
        await cluster.stop()
