"""A real node with users: SIGHUP brings other users and certificates, and a status needs one.

What a reload does to connections stands here; what users may do is `node/broker/test_users.py`'s.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from dataclasses import replace
from pathlib import Path

import pytest
import typer.testing

import fifo
from node.cli.main import app
from node.cli.processes import identify
from node.cli.state import ClusterFolder, state_of
from node.config import TlsSettings
from node.peers.tls import PeerTls
from tests.support.certificates import Authority
from tests.support.cluster import loopback_config
from tests.support.served import START_SECONDS, Served, served
from tests.support.users import EVERYTHING, certificate, user

ANN, BOB = user("ann", **EVERYTHING, monitor=True), user("bob", **EVERYTHING)


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_users_are_reloaded_and_a_broken_file_keeps_the_old_ones(tmp_path: Path) -> None:
    config = replace(loopback_config(tmp_path, 1), users=(ANN,))
    async with served(config, tmp_path) as node:
        as_ann = f"fifo://ann:ann-password@{node.address}"
        as_bob = f"fifo://bob:bob-password@{node.address}"
        async with fifo.connect(as_ann) as ann:
            await ann.declare(fifo.QueueSpec("q"))
            with pytest.raises(fifo.AuthenticationFailed):
                async with fifo.connect(as_bob, connect_timeout=10):
                    pass

            node.file.write_text(node.file.read_text() + "\n[[user]]\nname = 7\n")
            node.hang_up()
            line = await node.told("event=reload_failed")
            assert "cluster.toml" in line
            assert "name" in line
            node.write(replace(config, users=()))
            node.hang_up()
            assert "needs a restart" in await node.told("event=reload_failed", 2)
            await ann.publish("q", b"still here")

            # Ann may only read from now on, on the connection that she has.
            less = user("ann", consume=("*",))
            node.write(replace(config, users=(less, BOB)))
            node.hang_up()
            await node.told("event=reloaded users=2")
            with pytest.raises(fifo.PermissionDenied):
                await ann.publish("q", b"not any more")
            assert (await ann.peek("q"))[0].body == b"still here"
            async with fifo.connect(as_bob) as bob:
                await bob.publish("q", b"bob's")

            # A new password for bob, and ann is gone: at once, with her connection.
            other = replace(BOB, password=user("other").password)
            node.write(replace(config, users=(other,)))
            node.hang_up()
            await node.told("event=reloaded users=1")
            with pytest.raises(fifo.FifoError):
                await ann.peek("q", timeout=5)
        with pytest.raises(fifo.AuthenticationFailed):
            async with fifo.connect(as_bob, connect_timeout=10):
                pass
        async with fifo.connect(f"fifo://bob:other-password@{node.address}") as bob:
            assert (await bob.queue("q")).ready == 2


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_a_new_certificate_is_presented_and_a_broken_one_is_not(tmp_path: Path) -> None:
    old, new = certificate(tmp_path / "certs"), certificate(tmp_path / "new")
    tls = TlsSettings(tmp_path, client_cert="certs/cert.pem", client_key="certs/key.pem")
    config = replace(loopback_config(tmp_path, 1), users=(ANN,), tls=tls)
    async with served(config, tmp_path) as node:
        first = old.ca.read_text()
        assert node.shown() == first
        url = f"fifos://ann:ann-password@{node.address}?ca="
        trusted = tmp_path / "trusted.pem"
        trusted.write_text(first)
        async with fifo.connect(f"{url}{trusted}") as ann:
            await ann.declare(fifo.QueueSpec("q"))
            # The new certificate with the old key: together they are of no use.
            old.ca.write_text(new.ca.read_text())
            node.hang_up()
            assert "[tls] client_key" in await node.told("event=reload_failed")
            assert node.shown() == first

            (old.folder / "key.pem").write_text((new.folder / "key.pem").read_text())
            node.hang_up()
            await node.told("event=reloaded")
            assert node.shown() == new.ca.read_text() != first
            await ann.publish("q", b"on the connection from before")
        async with fifo.connect(f"{url}{new.ca}") as ann:
            assert (await ann.queue("q")).ready == 1


def shown_to_members(node: Served, member: PeerTls) -> bytes | None:
    """Certificate that a node's peer port presents to a member."""
    context = member.dialing()
    with (
        socket.create_connection((node.me.peer.host, node.me.peer.port), 10) as plain,
        context.wrap_socket(plain) as connection,
    ):
        return connection.getpeercert(binary_form=True)


async def leader_of(nodes: list[Served]) -> None:
    """Wait until one of these leads, and another follows it."""

    async def look() -> bool:
        views = [await fifo.client.observe(node.address, 5) for node in nodes]
        leading = [view["role"] for view in views].count("leader")
        return leading == 1 and sorted(view["role"] for view in views)[0] == "follower"

    deadline = time.monotonic() + START_SECONDS
    while not await look():
        assert time.monotonic() < deadline, "no leader"
        await asyncio.sleep(0.05)


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_nodes_load_new_certificates_and_a_new_authority_without_a_restart(
    tmp_path: Path,
) -> None:
    """By and by: both authorities are trusted, everybody shows the new one's, the old one goes."""
    names = ("n1", "n2", "n3")
    old, new = (Authority(tmp_path / age) for age in ("old", "new"))
    certs = tmp_path / "certs"
    certs.mkdir()

    def put(*authorities: Authority, shows: Authority) -> None:
        (certs / "ca.pem").write_text("".join(one.ca.read_text() for one in authorities))
        for name in names:
            made = shows.member(name)
            (certs / f"{name}.pem").write_text(made.cert.read_text())
            (certs / f"{name}.key").write_text(made.key.read_text())

    def certificate_of(authority: Authority, name: str) -> bytes:
        return ssl.PEM_cert_to_DER_cert(authority.member(name).cert.read_text())

    tls = TlsSettings(
        tmp_path,
        peer_cert="certs/{node}.pem",
        peer_key="certs/{node}.key",
        peer_ca="certs/ca.pem",
    )
    config = replace(loopback_config(tmp_path, 3), tls=tls)
    put(old, shows=old)
    nodes = [Served(config, tmp_path, name) for name in names]
    n1, n2, n3 = nodes
    try:
        for node in nodes:
            await node.told("ready client=")
        await leader_of(nodes)
        visitor = replace(old.member("n3"), ca=certs / "ca.pem")

        # The new certificate with the old key: together they are of no use.
        (certs / "n2.pem").write_text(new.member("n2").cert.read_text())
        n2.hang_up()
        line = await n2.told("event=reload_failed kept=old")
        assert f"[tls] peer_key: {certs}/n2.key: is not the unencrypted PEM key of" in line
        assert shown_to_members(n2, visitor) == certificate_of(old, "n2")

        for step, (authorities, shows) in enumerate(
            (((old, new), old), ((old, new), new), ((new,), new)), start=1
        ):
            put(*authorities, shows=shows)
            for node in nodes:
                node.hang_up()
                await node.told("event=reloaded", step)
            await leader_of(nodes)
        visitor = replace(new.member("n3"), ca=certs / "ca.pem")
        for node in nodes:
            assert shown_to_members(node, visitor) == certificate_of(new, node.name)

        # One that starts now knows the new authority alone: it dials n1, and n3 dials it.
        n2.kill()
        n2.start()
        await n2.told("ready client=")
        n1.kill()
        await leader_of([n2, n3])
        n1.start()
        await n1.told("ready client=")
        n3.kill()
        await leader_of([n1, n2])
    finally:
        for node in nodes:
            node.kill()


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_the_status_of_a_cluster_with_users_needs_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(loopback_config(tmp_path, 1), users=(ANN, BOB))
    async with served(config, tmp_path) as node:
        state = state_of(config).with_process("n1", identify(node.process.pid))
        folder = tmp_path / ".fifo"
        folder.mkdir()
        ClusterFolder(folder).save(state)

        async def status(*more: str) -> typer.testing.Result:
            line = ["cluster", "status", "--dir", str(folder), *more]
            return await asyncio.to_thread(typer.testing.CliRunner().invoke, app, line)

        unknown = await status()
        assert "down" in unknown.stdout
        assert "n1 runs but reports no status: this cluster needs a user" in unknown.stderr
        ann = f"fifo://ann:ann-password@{node.address}"
        view = json.loads((await status("--url", ann, "--json")).stdout)
        assert (view["leader"], view["nodes"][0]["role"]) == ("n1", "leader")
        monkeypatch.setenv("FIFO_URL", ann)
        assert "leader" in (await status()).stdout
        monkeypatch.setenv("FIFO_URL", f"fifo://bob:bob-password@{node.address}")
        assert "monitor = true" in (await status()).stderr
        # A URL of another cluster is about that one: its secret is not sent here.
        monkeypatch.setenv("FIFO_URL", "fifo://ann:ann-password@127.0.0.1:1")
        assert "n1 runs but reports no status: this cluster needs a user" in (await status()).stderr
