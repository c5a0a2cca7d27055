"""Users of a real node: who gets in, what they may ask for, and whose a session is."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import fifo
from fifo.wire import Code
from fifo.wire.messages import (
    SESSION_RESUMED,
    Authenticate,
    Challenge,
    Declare,
    Error,
    ForgetProducer,
    Hello,
    Message,
    Ok,
    OpenProducer,
    Publish,
    QueueAction,
    QueueQuery,
    Redirect,
    Status,
    Subscribe,
    Welcome,
)
from node.broker import limits
from node.config import TlsSettings
from node.credentials import PasswordHash
from node.server import Node
from node.table import ConfigError
from node.users import User
from tests.support.cluster import LocalCluster, eventually, leadership_of, loopback_config, running
from tests.support.rawclient import RawClient
from tests.support.users import EVERYTHING, certificate, user

ANN = user("ann", **EVERYTHING, monitor=True)
BOB = user("bob", consume=("orders",), publish=("orders",))
LOCAL = User("local", loopback=True, consume=("orders",))


async def login(
    node: Node, name: str | None, secret: bytes, mechanism: str = "password", **more: object
) -> tuple[RawClient, Message]:
    """A client that says who it is, and what the node answers."""
    client = await RawClient().connect(node.me.client)
    answer = await client.hello(user=name, secret=(mechanism, secret), **more)  # type: ignore[arg-type]  # hello's own
    return client, answer.message


async def welcomed(node: Node, name: str, **more: object) -> RawClient:
    """A client of this user."""
    client, answer = await login(node, name, f"{name}-password".encode(), "password", **more)
    assert isinstance(answer, Welcome), answer
    return client


def code_of(answer: Message) -> str:
    assert isinstance(answer, Error), answer
    return answer.code


@pytest.mark.slow
async def test_only_an_authenticated_user_gets_in(tmp_path: Path) -> None:
    async with running(tmp_path, 1, users=(ANN, BOB)) as cluster:
        node = await cluster.leader()
        await welcomed(node, "ann")
        _, answer = await login(node, None, b"bob-token", "token")
        assert isinstance(answer, Welcome)
        for name, secret, mechanism in (
            ("ann", b"bob-password", "password"),
            ("eve", b"ann-password", "password"),
            (None, b"ann-password", "password"),
            (None, b"ann-password", "token"),
            ("ann", b"ann-password", "plain"),
        ):
            client, answer = await login(node, name, secret, mechanism)
            assert code_of(answer) == Code.AUTHENTICATION_FAILED
            await client.closed()
        client = await RawClient().connect(node.me.client)
        assert code_of((await client.hello()).message) == Code.AUTHENTICATION_FAILED


async def test_a_follower_redirects_without_asking_for_a_secret(tmp_path: Path) -> None:
    async with running(tmp_path, users=(ANN,)) as cluster:
        leader = await cluster.leader()
        follower = cluster.followers()[0]
        client, answer = await login(follower, "ann", b"ann-password")
        assert isinstance(answer, Redirect)
        assert answer.address == str(leader.me.client)
        assert Challenge not in client.arrived


async def test_an_answer_to_no_challenge_or_another_one_is_a_protocol_error(tmp_path: Path) -> None:
    async with running(tmp_path, 1, users=(ANN,)) as cluster:
        node = await cluster.leader()
        client = await RawClient().connect(node.me.client)
        frame = await client.hello(user="ann", secret=None)
        assert code_of(frame.message) == Code.AUTHENTICATION_FAILED
        client = await RawClient().connect(node.me.client)
        await client.hello(user="ann", secret=("token", b"x"))
        client.send(Authenticate("token", b"ann-token"))
        await client.closed()
        assert not len(leadership_of(cluster.nodes["n1"]).sessions)


async def test_a_client_on_this_machine_is_the_loopback_user(tmp_path: Path) -> None:
    async with running(tmp_path, 1, users=(ANN, LOCAL)) as cluster:
        node = await cluster.leader()
        ann = await welcomed(node, "ann")
        await ann.declare("orders")
        local = await RawClient().connect(node.me.client)
        await local.welcome()
        await local.subscribe("orders")
        assert code_of(await local.ask(Declare("other", {}))) == Code.PERMISSION_DENIED


async def test_a_missing_permission_is_denied_and_named(tmp_path: Path) -> None:
    async with running(tmp_path, 1, users=(ANN, BOB)) as cluster:
        node = await cluster.leader()
        ann, bob = await welcomed(node, "ann"), await welcomed(node, "bob")
        for name in ("orders", "private"):
            await ann.declare(name)
        answer = await bob.ask(Publish("private", 0, 0, 1, 1, ()))
        assert isinstance(answer, Error)
        assert answer.text == "user bob has no permission to publish on queue 'private'"
        assert code_of(await bob.ask(Publish("missing", 0, 0, 1, 1, ()))) == Code.PERMISSION_DENIED
        assert code_of(await bob.ask(Subscribe("private", "", 1))) == Code.PERMISSION_DENIED
        assert code_of(await bob.ask(Status())) == Code.PERMISSION_DENIED
        listed = await bob.ask(QueueQuery(None, "list"))
        assert isinstance(listed, Ok)
        assert [one["name"] for one in listed.result] == ["orders"]
        await bob.confirmed(bob.publish("orders", 0, 1, [b"x"]))
        await bob.subscribe("orders")
        await bob.delivery()


async def test_a_named_producer_shows_only_the_queues_that_the_user_publishes_to(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1, users=(ANN, BOB)) as cluster:
        node = await cluster.leader()
        ann, bob = await welcomed(node, "ann"), await welcomed(node, "bob")
        opened = await ann.ask(OpenProducer("shared"))
        assert isinstance(opened, Ok)
        for name in ("orders", "private"):
            await ann.declare(name)
            await ann.confirmed(ann.publish(name, 0, 1, [b"x"], opened.result["producer"]))
        again = await bob.ask(OpenProducer("shared"))
        assert isinstance(again, Ok)
        assert again.result["last"] == {"orders": 1}
        # A deleted queue needs no permission.
        await ann.declare("gone")
        await ann.confirmed(ann.publish("gone", 0, 1, [b"x"], opened.result["producer"]))
        assert isinstance(await ann.ask(QueueAction("gone", "delete")), Ok)
        # It would begin anew for all queues, so who gives it up has to manage them all.
        refused = await bob.ask(ForgetProducer("shared"))
        assert isinstance(refused, Error)
        assert refused.code == Code.PERMISSION_DENIED
        assert "private" not in refused.text
        assert isinstance(await ann.ask(ForgetProducer("shared")), Ok)
        anew = {"producer": 4, "last": {}, "queues": {}}
        assert await ann.ask(OpenProducer("shared")) == Ok(anew)


async def test_a_producer_that_has_published_nowhere_is_forgotten_by_its_opener_or_an_operator(
    tmp_path: Path,
) -> None:
    operator = user("op", operate=True)
    async with running(tmp_path, 1, users=(ANN, BOB, operator)) as cluster:
        node = await cluster.leader()
        ann, bob, op = [await welcomed(node, name) for name in ("ann", "bob", "op")]
        for _ in range(2):
            assert isinstance(await ann.ask(OpenProducer("loader")), Ok)
            await bob.ask(OpenProducer("loader"))  # who comes second opens nothing
            refused = await bob.ask(ForgetProducer("loader"))
            assert isinstance(refused, Error)
            assert refused.code == Code.PERMISSION_DENIED
            assert "was opened by another user" in refused.text
            assert isinstance(await ann.ask(ForgetProducer("loader")), Ok)
        assert isinstance(await ann.ask(OpenProducer("loader")), Ok)
        assert isinstance(await op.ask(ForgetProducer("loader")), Ok)
        unknown = await bob.ask(ForgetProducer("loader"))
        assert isinstance(unknown, Error)
        assert unknown.code == Code.UNKNOWN_PRODUCER


async def test_a_session_is_resumed_by_its_own_user_only(tmp_path: Path) -> None:
    async with running(tmp_path, 1, users=(ANN, BOB)) as cluster:
        node = await cluster.leader()
        ann = await welcomed(node, "ann")
        await ann.declare("orders")
        await ann.confirmed(ann.publish("orders", 0, 1, [b"x"]))
        await ann.subscribe("orders")
        delivered, _ = await ann.delivery()
        thief = await RawClient(ann.session, ann.incarnation).connect(node.me.client)
        for resume in (True, False):
            frame = await thief.hello(
                user="bob", secret=("password", b"bob-password"), resume=resume
            )
            assert code_of(frame.message) == Code.PERMISSION_DENIED
            thief = await RawClient(ann.session).connect(node.me.client)
        assert await ann.settle(delivered.consumer, 1, 1) == ((1, 1, 0, False),)


async def test_a_session_loses_its_consumers_when_its_user_may_no_longer_consume(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1, users=(ANN, BOB)) as cluster:
        node = await cluster.leader()
        ann, bob = await welcomed(node, "ann"), await welcomed(node, "bob")
        await ann.declare("orders")
        await ann.confirmed(ann.publish("orders", 0, 1, [b"x"]))
        await bob.subscribe("orders")
        await bob.delivery()
        await cluster.stop()
        fewer = user("bob", publish=("orders",))
        restarted = LocalCluster(replace(cluster.config, users=(ANN, fewer)))
        try:
            await restarted.start()
            node = await restarted.leader()
            again = await RawClient(bob.session, bob.incarnation).connect(node.me.client)
            frame = await again.hello(user="bob", secret=("password", b"bob-password"), resume=True)
            assert isinstance(frame.message, Redirect)
            assert frame.message.leader == node.me.name  # itself: it leads
            again = await RawClient(bob.session, bob.incarnation).connect(node.me.client)
            frame = await again.hello(user="bob", secret=("password", b"bob-password"), resume=True)
            assert isinstance(frame.message, Welcome)
            assert (frame.message.session_state, frame.message.consumers) == (SESSION_RESUMED, ())
            ann = await welcomed(node, "ann")
            await ann.subscribe("orders")
            _, bodies = await ann.delivery()
            assert bodies == [b"x"]
        finally:
            await restarted.stop()


async def test_the_state_of_a_node_is_for_monitors(tmp_path: Path) -> None:
    async with running(tmp_path, 1, users=(ANN, BOB)) as cluster:
        node = await cluster.leader()
        watcher = await welcomed(node, "ann", role=2)
        assert isinstance(await watcher.ask(Status()), Ok)
        reader = await welcomed(node, "bob", role=2)  # for pinned views of what he may see
        assert code_of(await reader.ask(Status())) == Code.PERMISSION_DENIED


async def test_unauthenticated_connections_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNOPENED_MAX", 3)
    async with running(tmp_path, 1, users=(ANN,)) as cluster:
        node = await cluster.leader()
        strangers = []
        for _ in range(4):
            client, _ = await asked(node)
            strangers.append(client)
        said = await strangers[0].closed()
        assert code_of(said[-1]) == Code.OVERLOADED
        await welcomed(node, "ann")


async def asked(node: Node) -> tuple[RawClient, Message]:
    """A client that leaves the challenge unanswered."""
    client = await RawClient().connect(node.me.client)
    client.send(
        Hello(1, 1, 0, client.session, client.incarnation, user="ann", mechanism="password")
    )
    frame = await client.take(lambda frame: True)
    assert isinstance(frame.message, Challenge)
    return client, frame.message


async def test_a_reload_between_challenge_and_answer_refuses_no_client(tmp_path: Path) -> None:
    async with running(tmp_path, 1, users=(ANN,)) as cluster:
        node = await cluster.leader()
        client, _ = await asked(node)
        node.reload(node.config)
        client.send(Authenticate("password", b"ann-password"))
        answer = await client.take(lambda frame: True)
        assert isinstance(answer.message, Welcome)


async def test_the_loop_goes_on_while_a_password_is_hashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, 1, users=(ANN,)) as cluster:
        node = await cluster.leader()
        ann = await welcomed(node, "ann")
        begun, release = threading.Event(), threading.Event()

        def slow(self: PasswordHash, secret: bytes) -> bool:
            begun.set()
            return not release.wait(10)

        monkeypatch.setattr(PasswordHash, "matches", slow)
        guessing = asyncio.ensure_future(login(node, "ann", b"guess"))
        await eventually(begun.is_set)
        await ann.declare("orders")
        assert not guessing.done()
        release.set()
        _, answer = await guessing
        assert code_of(answer) == Code.AUTHENTICATION_FAILED


@pytest.mark.process
async def test_connections_that_never_shake_hands_are_bounded_and_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HANDSHAKES_MAX", 3)
    made = certificate(tmp_path / "certs")
    async with running(tmp_path, 1, users=(ANN,), tls=made.settings) as cluster:
        node = await cluster.leader()
        silent = [await RawClient().connect(node.me.client) for _ in range(4)]
        await silent[0].closed()
        garbage = await RawClient().connect(node.me.client)
        garbage.send_bytes(b"\0" * 100)
        await garbage.closed()
        assert not len(cluster.nodes["n1"].broker.connections)
        url = f"fifos://ann:ann-password@{node.me.client}?ca={made.ca}"
        async with fifo.connect(url) as client:
            await client.declare(fifo.QueueSpec("q"))


@pytest.mark.process
async def test_a_node_with_a_bad_certificate_does_not_start_and_says_which_file(
    tmp_path: Path,
) -> None:
    made = certificate(tmp_path / "certs")
    assert certificate(tmp_path / "other").ca != made.ca
    for settings, words in (
        (
            TlsSettings(tmp_path, "gone.pem", "certs/key.pem"),
            r"client_cert: .*gone\.pem: c",
        ),
        (
            TlsSettings(tmp_path, "certs/cert.pem", "gone.pem"),
            r"client_key: .*gone\.pem: c",
        ),
        (TlsSettings(tmp_path, "certs/cert.pem", "other/key.pem"), "is not the unencrypted PEM"),
    ):
        config = replace(loopback_config(tmp_path, 1), users=(ANN,), tls=settings)
        with pytest.raises(ConfigError, match=words):
            await Node(config, "n1").start()
