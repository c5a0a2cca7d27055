"""Users and TLS as a program sees them: both clients and the command line, against real nodes."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import fifo
import fifo.blocking
from fifo.client import observe
from node.cli import session
from node.cli.main import run
from tests.support.cluster import LocalCluster, loopback_config, running
from tests.support.shared import SharedCluster
from tests.support.users import EVERYTHING, Certificate, certificate, user

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

ANN = user("ann", **EVERYTHING, monitor=True)
BOB = user("bob", consume=("orders",))


def hosts(cluster: LocalCluster) -> str:
    return ",".join(str(node.client) for node in cluster.config.nodes)


@dataclass(frozen=True, slots=True)
class Guarded:
    """Three nodes with users and TLS, and `ann`'s URL."""

    cluster: SharedCluster
    certificate: Certificate
    url: str


@contextmanager
def guarded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = certificate(tmp_path_factory.mktemp("certs"))
    config = loopback_config(tmp_path_factory.mktemp("nodes"), 3)
    config = replace(config, users=(ANN, BOB), tls=made.settings)
    url = config.url.replace("://", "://ann:ann-password@") + f"?ca={made.ca}"
    cluster = SharedCluster(config, url)
    try:
        yield Guarded(cluster, made, url)
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def _guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_cluster(tmp_path_factory) as found:
        yield found


@pytest.fixture
def guarded(_guarded: Guarded) -> Guarded:
    """The cluster of this module, whole and empty."""
    _guarded.cluster.make_ready()
    return _guarded


async def test_the_whole_way_of_a_message_over_tls_and_through_a_change_of_leader(
    guarded: Guarded,
) -> None:
    async with fifo.connect(guarded.url) as client:
        await client.declare(fifo.QueueSpec("orders"))
        bodies = [bytes([i]) * 30_000 for i in range(100)]
        await client.publish_many("orders", bodies)
        async with client.consume("orders", prefetch=50) as messages:
            taken = [await anext(messages) for _ in range(50)]
            await guarded.cluster.crash_leader()
            for message in taken:
                await message.ack(receipt=True)
            rest: list[fifo.Message] = []
            while len(rest) < 50:
                message = await anext(messages)
                rest.append(message)
                await message.ack(receipt=True)
        assert [message.body for message in taken + rest] == bodies
        assert all(message.attempt == 1 for message in taken + rest)


async def test_the_name_and_the_user_of_a_client_are_shown_with_consumers_and_locks(
    guarded: Guarded,
) -> None:
    async with fifo.connect(guarded.url, name="shop-worker") as client:
        await client.declare(fifo.QueueSpec("orders"))
        await client.publish("orders", b"one")
        async with client.consume("orders") as messages:
            message = await anext(messages)
            for listed in (await client.consumers("orders"), await client.locks("orders")):
                assert [(one.client, one.user) for one in listed] == [("shop-worker", "ann")]
            await message.ack(receipt=True)


async def test_another_client_of_the_user_settles_with_the_handle_only(guarded: Guarded) -> None:
    async with fifo.connect(guarded.url) as worker, fifo.connect(guarded.url) as helper:
        await worker.declare(fifo.QueueSpec("orders"))
        await worker.publish_many("orders", [b"one", b"two", b"three"])
        async with worker.consume("orders", prefetch=2) as messages:
            one, two = [await anext(messages) for _ in range(2)]
            [three] = await worker.get("orders")
            for wrong in (None, two.handle):
                with pytest.raises(fifo.PermissionDenied, match="handle"):
                    await helper.settle("orders", one.consumer, one.token, handle=wrong)
            with pytest.raises(fifo.InvalidArgument, match="32 hexadecimal digits"):
                await helper.settle("orders", one.consumer, one.token, handle=one.handle[:8])
            with pytest.raises(fifo.PermissionDenied, match="not the one of"):
                await worker.settle("orders", one.consumer, one.token, handle=two.handle)
            await guarded.cluster.crash_leader()
            for message in (one, two, three):
                named = (message.consumer, message.token)
                result = await helper.settle("orders", *named, handle=message.handle)
                assert result.status == "ok"
            assert (await one.ack(receipt=True)).status == "already_settled"


async def test_another_client_of_the_user_renews_with_the_handle_only(guarded: Guarded) -> None:
    """Nor any client of another user; and a lock that is settled is lost."""
    bob = guarded.url.replace("ann:ann-password", "bob:bob-password")
    async with fifo.connect(guarded.url) as worker, fifo.connect(guarded.url) as helper:
        await worker.declare(fifo.QueueSpec("orders"))
        await worker.publish_many("orders", [b"one", b"two"])
        one, two = await worker.get("orders", 2, lock=2)
        named = (one.consumer, one.token)
        async with asyncio.timeout(10):
            while await helper.renew_lock(*named, handle=one.handle) < 1.5:
                pass
        with pytest.raises(fifo.PermissionDenied, match="nothing was renewed"):
            await helper.renew_lock(*named, handle=two.handle)
        async with fifo.connect(bob) as stranger:
            with pytest.raises(fifo.LockLost):
                await stranger.renew_lock(*named, handle=one.handle)
        await guarded.cluster.crash_leader()
        await helper.renew_lock(*named, handle=one.handle)
        await one.ack(receipt=True)
        with pytest.raises(fifo.LockLost, match=f"token {one.token} of consumer"):
            await helper.renew_lock(*named, handle=one.handle)
        await two.ack(receipt=True)


async def test_a_client_sends_nothing_to_an_untrusted_node(
    guarded: Guarded, tmp_path: Path
) -> None:
    other = certificate(tmp_path / "other", "DNS:elsewhere.test")
    all_hosts = hosts(guarded.cluster)
    port = guarded.cluster.config.nodes[0].client.port
    for url, words in (
        (f"fifos://ann:ann-password@{all_hosts}", "certificate verification failed: self"),
        (f"fifos://ann:ann-password@{all_hosts}?ca={other.ca}", "certificate verification failed"),
        (f"fifo://ann:ann-password@{all_hosts}", rf"{port} \(the node closed.*is it fifos://"),
    ):
        with pytest.raises(fifo.ConnectionLost, match=words) as caught:
            await fifo.connect(url, connect_timeout=0.3)
        assert "ann-password" not in str(caught.value)
    by_name = f"fifos://ann:ann-password@localhost:{port}?ca={guarded.certificate.ca}"
    async with fifo.connect(by_name):
        """`localhost` stands in the certificate."""
    async with running(tmp_path / "2", 1, users=(ANN,), tls=other.settings) as cluster:
        await cluster.leader()
        url = f"fifos://ann:ann-password@{hosts(cluster)}?ca={other.ca}"
        with pytest.raises(fifo.ConnectionLost, match="IP address mismatch"):
            await fifo.connect(url, connect_timeout=0.3)


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1", "TLSv1_2", "TLSv1_3"])
async def test_tls_before_1_2_is_refused(guarded: Guarded, version: str) -> None:
    context = ssl.create_default_context(cafile=guarded.certificate.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")  # Else this side offers none of the old ones.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    port = guarded.cluster.config.nodes[0].client.port
    try:
        _, writer = await asyncio.open_connection("localhost", port, ssl=context)
        writer.close()
        await writer.wait_closed()
        refusal = None
    except OSError as error:
        refusal = error
    assert "no protocols available" not in str(refusal), "this side offered nothing"
    assert (refusal is None) == (version in ("TLSv1_2", "TLSv1_3"))


async def test_a_plain_port_is_named_to_a_tls_client(shared_cluster: SharedCluster) -> None:
    with pytest.raises(fifo.ConnectionLost, match="no TLS on this port"):
        await fifo.connect(f"fifos://{hosts(shared_cluster)}", connect_timeout=0.3)


async def test_a_wrong_password_is_refused_at_once_and_another_one_still_works(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, 1, users=(ANN, BOB)) as cluster:
        await cluster.leader()
        with pytest.raises(fifo.AuthenticationFailed, match="wrong user or secret"):
            await fifo.connect(f"fifo://ann:s3cret@{hosts(cluster)}")
        with pytest.raises(fifo.AuthenticationFailed, match="needs a user"):
            await fifo.connect(f"fifo://{hosts(cluster)}")
        async with fifo.connect(f"fifo://{hosts(cluster)}", token="bob-token") as client:
            with pytest.raises(fifo.PermissionDenied, match="to publish on queue 'orders'"):
                await client.publish("orders", b"x")
            with pytest.raises(fifo.PermissionDenied, match="to declare on queue 'orders'"):
                await client.declare(fifo.QueueSpec("orders"))


async def test_no_request_reaches_a_queue_of_another_user(tmp_path: Path) -> None:
    mine = dict.fromkeys(EVERYTHING, ("mine", "mine.*"))
    async with running(tmp_path, 1, users=(ANN, user("eve", **mine))) as cluster:
        await cluster.leader()
        async with (
            fifo.connect(f"fifo://ann:ann-password@{hosts(cluster)}") as ann,
            fifo.connect(f"fifo://eve:eve-password@{hosts(cluster)}") as eve,
        ):
            await ann.declare(fifo.QueueSpec("private"))
            await ann.publish("private", b"secret")
            await eve.declare(fifo.QueueSpec("mine", dead_letter="mine.dlq"))
            await eve.publish("mine", b"forged")
            denied = (
                lambda: eve.declare(fifo.QueueSpec("mine.2", dead_letter="private")),
                lambda: eve.update("mine", dead_letter="private"),
                lambda: eve.move("mine", "private"),
                lambda: eve.move("private", "mine"),
                lambda: eve.redrive("mine.dlq", target="private"),
                lambda: eve.redrive("mine.dlq"),
                lambda: eve.redrive("private", target="mine"),
                lambda: eve.peek("private"),
                lambda: eve.get("private"),
                lambda: eve.locks("private"),
                lambda: eve.consumers("private"),
                lambda: eve.delayed("private"),
                lambda: eve.queue("private"),
                lambda: eve.purge("private"),
                lambda: eve.pause("private"),
                lambda: eve.delete("private"),
                lambda: eve.durable("private", "d").reserve(1),
                lambda: eve.status(),
            )
            for ask in denied:
                with pytest.raises(fifo.PermissionDenied):
                    await ask()
            assert [one.name for one in await eve.queues()] == ["mine.dlq", "mine"]
            assert (await ann.queue("private")).ready == 1


async def test_the_blocking_client_and_the_observer_do_the_same(guarded: Guarded) -> None:
    def work() -> list[bytes]:
        with fifo.blocking.connect(guarded.url) as client:
            client.declare(fifo.QueueSpec("orders"))
            client.publish("orders", b"x")
            with client.consume("orders") as messages:
                message = next(iter(messages))
                message.ack(receipt=True)
                return [message.body]

    assert await asyncio.to_thread(work) == [b"x"]
    address = str(guarded.cluster.config.nodes[1].client)
    status = await observe(address, options=fifo.client.from_url(guarded.url))
    assert status["node"] == "n2"
    with pytest.raises(fifo.PermissionDenied):
        await observe(
            address,
            options=fifo.client.from_url(
                f"fifos://bob:bob-password@{address}?ca={guarded.certificate.ca}"
            ),
        )


async def test_the_command_line_uses_the_url_and_never_prints_its_secret(
    guarded: Guarded, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last one goes on trying, for as long as the command lets it.
    monkeypatch.setattr(session, "CONNECT_TIMEOUT_S", 0.3)
    cluster, url = guarded.cluster, guarded.url
    bob = f"fifos://bob:bob-password@{hosts(cluster)}?ca={guarded.certificate.ca}"
    printed = ""
    for wanted, arguments in (
        (0, ("status", "--json", "--url", url)),
        (0, ("status", "--url", url)),
        (0, ("queue", "declare", "orders", "--url", url)),
        (1, ("queue", "declare", "orders", "--url", bob)),
        (1, ("status", "--url", bob)),
        (1, ("queue", "list", "--url", url.replace("ann-password", "wr0ng-password"))),
        (1, ("queue", "list", "--url", url.replace("fifos", "fifo").partition("?")[0])),
    ):
        code = await asyncio.to_thread(run, arguments)
        captured = capfd.readouterr()
        printed += captured.out + captured.err
        assert code == wanted, printed
    assert "-password" not in printed
    assert "permissions are in the [[user]] sections" in printed
    assert "wrong user or secret" in printed
