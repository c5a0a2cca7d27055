"""`fifo.testing` with the blocking client and with clients on other event loops."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import fifo
import fifo.blocking
import fifo.testing
from fifo.client.connection import in_process

pytestmark = pytest.mark.slow

ORDERS = fifo.QueueSpec("orders", lock=30)


@pytest.fixture
def cluster() -> Iterator[fifo.testing.BlockingCluster]:
    with fifo.testing.cluster() as made:
        yield made


def test_a_test_without_an_event_loop_has_a_cluster(
    cluster: fifo.testing.BlockingCluster,
) -> None:
    began = time.perf_counter()
    with fifo.blocking.connect(cluster.url) as client:
        client.declare(ORDERS)
        client.publish("orders", b"one", delay=600)
        assert client.get("orders") == []
        cluster.advance(minutes=10)
        (message,) = client.get("orders")
        with message.process():
            assert cluster.queue("orders").view.locked == 1
        cluster.advance()
        assert cluster.queue("orders").view.messages == 0
    assert time.perf_counter() - began < 20


def test_a_lost_leader_is_invisible_to_a_blocking_client() -> None:
    with fifo.testing.cluster(nodes=3) as cluster, fifo.blocking.connect(cluster.url) as client:
        client.declare(ORDERS)
        client.publish("orders", b"one")
        killed = cluster.kill_leader()
        client.publish("orders", b"two")
        assert cluster.leader not in (None, killed)
        cluster.start(killed)
        assert [one.body for one in cluster.queue("orders").messages] == [b"one", b"two"]


def test_a_blocking_client_can_be_cut_off(cluster: fifo.testing.BlockingCluster) -> None:
    with fifo.blocking.connect(cluster.url) as client:
        client.declare(ORDERS)
        cluster.cut(client)
        with pytest.raises(fifo.Timeout):
            client.publish("orders", b"one", timeout=20)
        cluster.heal()
        client.publish("orders", b"two", dedup_id="two")


def test_time_stands_still_while_no_thread_waits_for_the_cluster(
    cluster: fifo.testing.BlockingCluster,
) -> None:
    cluster.advance(seconds=1)
    before = cluster.now
    threading.Event().wait(0.1)  # real time, which must not be the cluster's
    assert cluster.now - before < 0.1


def test_threads_share_a_cluster_and_no_message_runs_twice(
    cluster: fifo.testing.BlockingCluster,
) -> None:
    with fifo.blocking.connect(cluster.url) as client, ThreadPoolExecutor(4) as pool:
        client.declare(ORDERS)
        client.publish_many("orders", [b"%d" % number for number in range(200)])
        consumer = client.consume("orders", prefetch=10)

        def handle(_: int) -> list[bytes]:
            done = []
            while message := consumer.next(timeout=1):
                with message.process():
                    done.append(message.body)
            return done

        with consumer:
            handled = [body for bodies in pool.map(handle, range(4)) for body in bodies]
        cluster.advance()
        assert sorted(handled) == sorted(b"%d" % number for number in range(200))
        assert cluster.queue("orders").view.messages == 0


async def test_a_blocking_client_runs_in_a_thread_of_an_asynchronous_test() -> None:
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as beside:

        def program() -> int:
            with fifo.blocking.connect(cluster.url) as client:
                client.declare(ORDERS)
                client.publish("orders", b"one", delay=600)
                with client.consume("orders", prefetch=1) as messages:
                    message = messages.next(timeout=3600)
                    assert message is not None
                    with message.process():
                        pass
                    return message.attempt

        before = cluster.now
        assert await asyncio.to_thread(program) == 1
        assert cluster.now - before > 600
        assert (await beside.queue("orders")).messages == 0


async def test_a_blocking_client_on_the_loop_of_its_cluster_is_refused() -> None:
    async with fifo.testing.cluster() as cluster:
        with pytest.raises(fifo.InvalidArgument, match=r"would stop the event loop.*to_thread"):
            fifo.blocking.connect(cluster.url)
        client = await asyncio.to_thread(fifo.blocking.connect, cluster.url)
        with pytest.raises(fifo.ClientClosed, match="would wait for itself"):
            client.declare(ORDERS)
        await asyncio.to_thread(client.close)


def test_a_call_that_waits_when_the_cluster_is_closed_ends() -> None:
    raised: list[BaseException] = []

    def wait(client: fifo.blocking.BlockingClient) -> None:
        try:
            client.get("orders", wait=3600, timeout=3600)
        except BaseException as error:
            raised.append(error)

    with fifo.testing.cluster() as cluster:
        client = fifo.blocking.connect(cluster.url)
        client.declare(ORDERS)
        thread = threading.Thread(target=wait, args=(client,))
        thread.start()
        cluster.advance(seconds=1)
    thread.join(10)
    assert [type(error) for error in raised] == [fifo.ClientClosed]
    with pytest.raises(fifo.ClientClosed, match="is closed"):
        client.close()


async def test_a_client_on_another_event_loop_has_the_time_of_people() -> None:
    """Celery's client has a loop of its own; what is due hours later comes by `advance`."""
    async with fifo.testing.cluster() as cluster, fifo.connect(cluster.url) as client:
        await client.declare(ORDERS)
        await client.publish("orders", b"one", delay=600)
        connected = threading.Event()

        async def elsewhere() -> bytes:
            async with (
                fifo.connect(cluster.url) as other,
                other.consume("orders", prefetch=1) as messages,
            ):
                connected.set()
                message = await messages.next(timeout=60)
                assert message is not None
                await message.ack(receipt=True)
                return message.body

        result = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
        async with asyncio.timeout(30):
            while not connected.is_set():  # noqa: ASYNC110 - set by a thread
                await asyncio.sleep(0.01)
        assert cluster.now < 60
        await cluster.advance(seconds=600)
        assert await result == b"one"
        assert cluster.queue("orders").view.messages == 0


def test_a_cluster_of_another_process_is_refused_with_what_works() -> None:
    """As in a child of Celery's prefork pool, without a fork of a process with threads."""
    with fifo.testing.cluster() as cluster:
        name = cluster.url.partition(".")[2].partition(".")[0]
        _, home = in_process._homes[name]
        in_process._homes[name] = (os.getpid() + 1, home)
        with pytest.raises(fifo.InvalidArgument, match=r"prefork.*`fifo serve --dev`"):
            fifo.blocking.connect(cluster.url)
