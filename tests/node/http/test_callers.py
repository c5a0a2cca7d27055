"""Callers over HTTP: certificates, tokens of an identity provider, callers behind a balancer, and
a password that its own user changes."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import fifo
from node.broker.connections.proxy_header import SIGNATURE
from node.broker.connections.tickets import Tickets
from node.config import ClusterConfig, TlsSettings
from node.users import User
from tests.node.http.test_api import basic, calling
from tests.node.http.test_tls import Reachable
from tests.support.certificates import Authority
from tests.support.cluster import LocalCluster, loopback_config, running
from tests.support.users import EVERYTHING, certificate, cheap_hash, user

BALANCER = "127.0.0.2"
BALANCERS = (ipaddress.ip_network(BALANCER),)
ROOT = user("root", **EVERYTHING, operate=True)


@asynccontextmanager
async def started(config: ClusterConfig) -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster(config)
    try:
        await cluster.start()
        await cluster.leader()
        yield cluster
    finally:
        await cluster.stop()


# --- certificates ---------------------------------------------------------------------------------


def with_certificates(folder: Path, count: int, *users: User, **changes: Any) -> ClusterConfig:
    """A cluster that believes certificates of `folder`/clients, on every port."""
    certificate(folder / "server")
    Authority(folder / "clients").member("member")
    tls = TlsSettings(
        folder,
        client_cert="server/cert.pem",
        client_key="server/key.pem",
        client_ca="clients/ca.pem",
        http_ca="server/cert.pem",
    )
    config = loopback_config(folder, count)
    nodes = tuple(
        replace(one, http=Reachable(one.http.host, one.http.port)) for one in config.nodes
    )
    return replace(config, nodes=nodes, users=users, tls=tls, **changes)


def showing(folder: Path, *, member: bool = True) -> ssl.SSLContext:
    """The authority that a caller trusts, and the certificate of `CN=member` that it shows."""
    context = ssl.create_default_context(cafile=str(folder / "server" / "cert.pem"))
    if member:
        made = folder / "clients"
        context.load_cert_chain(made / "member.pem", made / "member.key")
    return context


MEMBER = User("billing", subjects=("CN=member",), declare=("*",), publish=("b*",), consume=("b*",))


@pytest.mark.cluster
async def test_a_certificate_is_its_user_on_every_node_and_ends_with_its_subject(
    tmp_path: Path,
) -> None:
    config = with_certificates(tmp_path, 3, ROOT, MEMBER, secret=b"s" * 16)
    context = showing(tmp_path)
    async with started(config) as cluster:
        follower = cluster.followers()[0]
        url = f"https://{follower.me.http}/api/v1"
        async with aiohttp.ClientSession() as browser:

            async def ask(method: str, path: str, **more: Any) -> tuple[int, Any]:
                async with browser.request(method, url + path, ssl=context, **more) as answer:
                    return answer.status, await answer.json(content_type=None)

            assert await ask("PUT", "/queues/b", json={}) == (
                200, {"queue": "b", "created": True},
            )  # fmt: skip
            status, listed = await ask("GET", "/sessions")
            assert (status, {one["user"] for one in listed["items"]}) == (200, {"billing"})
            assert (await ask("POST", "/queues/other/messages", json={}))[0] == 403
            # Who gives a password is that user, whatever certificate is shown.
            who = basic("root", "root-password")
            assert (await ask("GET", "/status", headers=who))[0] == 200
            assert (await ask("GET", "/status"))[0] == 403
            assert (await ask("POST", "/users/import", headers=who, json={}))[0] == 200
            given = {"values": {"subjects": ["CN=other"]}}
            gone = await ask("POST", "/users/billing/set", headers=who, json=given)
            assert gone[0] == 200, gone

            async def refused() -> bool:
                status, found = await ask("GET", "/queues")
                return status == 401 and "no user has the certificate CN=member" in found["detail"]

            async with asyncio.timeout(10):
                while not await refused():
                    pass
        trusting = showing(tmp_path, member=False)
        async with (
            aiohttp.ClientSession() as browser,
            browser.get(f"{url}/queues", ssl=trusting) as answer,
        ):
            assert answer.status == 401


@pytest.mark.cluster
async def test_nodes_without_a_secret_cannot_vouch_for_a_certificate_and_say_so(
    tmp_path: Path,
) -> None:
    config = with_certificates(tmp_path, 3, ROOT, MEMBER)
    context = showing(tmp_path)
    async with started(config) as cluster:
        url = f"https://{cluster.followers()[0].me.http}/api/v1/queues"
        async with aiohttp.ClientSession() as browser, browser.get(url, ssl=context) as answer:
            found = await answer.json(content_type=None)
            assert (answer.status, "need a secret_file" in found["detail"]) == (401, True)


def test_a_ticket_is_for_its_subject_and_its_minute_and_of_nodes_that_share_a_secret() -> None:
    now_ms = [1_000_000]
    issuing = Tickets(b"s" * 16, b"cluster", lambda: now_ms[0])
    ahead = Tickets(b"s" * 16, b"cluster", lambda: now_ms[0] + 59_000)
    ticket = issuing.issue("CN=member,O=Straße").encode()
    assert issuing.subject_of(ticket) == ahead.subject_of(ticket) == "CN=member,O=Straße"
    assert issuing.subject_of(ahead.issue("CN=a").encode()) == "CN=a"
    for other in (
        Tickets(b"t" * 16, b"cluster", lambda: now_ms[0]),
        Tickets(b"s" * 16, b"another", lambda: now_ms[0]),
        Tickets(None, b"cluster", lambda: now_ms[0]),
    ):
        assert other.subject_of(ticket) is None
    for forged in (
        ticket[:-2],
        ticket + b"00",
        ticket.replace(b".1", b".2", 1),
        b"fifo-ticket.",
        b"fifo-ticket..",
        b"fifo-ticket.\xff.\xff",
        b"root-token",
    ):
        assert issuing.subject_of(forged) is None
    now_ms[0] += 121_000
    assert issuing.subject_of(ticket) is None


# --- balancers ------------------------------------------------------------------------------------


def behind(host: str) -> bytes:
    """The header of a balancer, for a client at this address."""
    ends = ipaddress.ip_address(host).packed + ipaddress.ip_address("10.0.0.9").packed
    body = ends + struct.pack("!HH", 50_000, 7_103)
    return SIGNATURE + struct.pack("!BBH", 0x21, 0x11, len(body)) + body


async def spoken(
    cluster: LocalCluster, header: bytes, path: str, *lines: str, method: str = "GET"
) -> bytes:
    """The answer to a request behind this header; empty where the connection ends."""
    [node] = cluster.config.nodes
    reader, writer = await asyncio.open_connection(
        node.http.host, node.http.port, local_addr=(BALANCER, 0)
    )
    head = [f"{method} {path} HTTP/1.1", f"Host: {node.http}", "Connection: close", *lines, "", ""]
    writer.write(header + "\r\n".join(head).encode())
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.cluster
async def test_a_caller_behind_a_balancer_has_the_address_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(
        loopback_config(tmp_path, 1),
        users=(ROOT, User("local", loopback=True, monitor=True)),
        balancers=BALANCERS,
    )
    async with started(config) as cluster:
        seen: list[str] = []
        [node] = cluster.nodes.values()
        check = node.authentication.check

        def listened(host: str, *rest: Any) -> None:
            seen.append(host)
            check(host, *rest)

        monkeypatch.setattr(node.authentication, "check", listened)
        token = "Authorization: Bearer root-token"
        for header in (behind("192.0.2.7"), b"PROXY TCP4 192.0.2.8 10.0.0.9 5 7103\r\n"):
            assert b" 200 OK" in await spoken(cluster, header, "/metrics", token)
        assert seen == ["192.0.2.7", "192.0.2.8"]
        # No client behind a balancer is the user of this machine, whatever address it names.
        for header in (behind("127.0.0.1"), b"PROXY UNKNOWN\r\n"):
            assert b" 401 Unauthorized" in await spoken(cluster, header, "/metrics")
            assert b" 200 OK" in await spoken(cluster, header, "/health/live")
        # From these addresses the header is required.
        assert await spoken(cluster, b"", "/health/live") == b""


@pytest.mark.cluster
async def test_the_audit_log_shows_the_address_behind_a_balancer(tmp_path: Path) -> None:
    config = replace(loopback_config(tmp_path, 1), users=(ROOT,), balancers=BALANCERS)
    async with started(config) as cluster:
        header = behind("192.0.2.7")
        token = "Authorization: Bearer root-token"
        made = await spoken(cluster, header, "/api/v1/queues/q", token, method="PUT")
        assert b" 200 OK" in made
        said = await spoken(cluster, header, "/api/v1/audit", token)
        assert b"for 192.0.2.7" in said


# --- passwords ------------------------------------------------------------------------------------


@pytest.mark.cluster
async def test_a_user_changes_its_own_password_and_only_who_knows_it_may(tmp_path: Path) -> None:
    async with running(tmp_path, 3, users=(ROOT, user("ann", consume=("q",)))) as cluster:
        await cluster.leader()
        node = cluster.followers()[0]
        ann = basic("ann", "ann-password")
        new = {"password_hash": str(cheap_hash("another"))}
        async with calling(node) as caller:
            status, said, _ = await caller.ask("POST", "/password", new, **ann)
            assert (status, "fifo user import" in said["detail"]) == (400, True)
            root = basic("root", "root-password")
            await caller.ok("POST", "/users/import", {}, **root)
            status, said, _ = await caller.ask(
                "POST", "/password", new, Authorization="Bearer ann-token"
            )
            assert (status, "did not log in by its password" in said["detail"]) == (403, True)
            wrong = {"password_hash": "another"}
            status, said, _ = await caller.ask("POST", "/password", wrong, **ann)
            assert (status, "fifo user hash" in said["detail"]) == (400, True)
            assert await caller.ok("POST", "/password", new, **ann) == {"done": "password"}
            lines = (await caller.ok("GET", "/audit?user=ann", **root))["items"]
            changes = [one for one in lines if one["verb"] == "user_password"]
            assert [one["outcome"] for one in changes][:1] == ["done"]
            assert "scrypt" not in str(lines)
        hosts = ",".join(str(one.client) for one in cluster.config.nodes)
        async with fifo.connect(f"fifo://ann:another@{hosts}") as client:
            # No other property goes with it, and no other user's.
            for action, name, values in (
                ("password", "root", {"password": str(cheap_hash("x"))}),
                ("password", None, {"password": str(cheap_hash("x")), "operate": True}),
                ("password", None, {"password": None}),
                ("password", None, None),
            ):
                with pytest.raises(fifo.InvalidArgument, match="password:"):
                    await client.manage_user(action, name, values)  # type: ignore[arg-type]  # its names, as texts
            with pytest.raises(fifo.PermissionDenied):
                await client.manage_user("set", "ann", {"operate": True})
        with pytest.raises(fifo.AuthenticationFailed):
            async with fifo.connect(f"fifo://ann:ann-password@{hosts}", connect_timeout=10):
                pass
