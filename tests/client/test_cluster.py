"""The client against real nodes: the whole way of a message, and leaders that go away.

Three nodes on a thread, shared by all tests (`tests.support.shared`), and once as processes that
are killed. What only a scripted node can do stands in the other modules.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.testing

import fifo
from fifo.client import observe
from node.cli.main import app
from node.config import RaftSettings
from tests.node.cli.local import free_base_port
from tests.support.cluster import leadership_of, passed, running
from tests.support.shared import SharedCluster
from tests.support.wire_peer import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


async def take(messages: fifo.Consumer[fifo.Message], count: int) -> list[fifo.Message]:
    async with asyncio.timeout(10):
        return [await anext(messages) for _ in range(count)]


async def test_a_label_is_shown_with_consumers_and_locks(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish("orders", b"one")
    async with client.consume("orders", label="row 7") as messages:
        await take(messages, 1)
        assert [one.label for one in await client.consumers("orders")] == ["row 7"]
        assert [one.label for one in await client.locks("orders")] == ["row 7"]
    with pytest.raises(
        fifo.InvalidArgument, match=r"label: contains the control character U\+001B"
    ):
        client.consume("orders", label="\x1b[2J")


async def test_the_whole_way_of_a_message(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    spec = fifo.QueueSpec(
        "orders",
        lock=30,
        max_deliveries=2,
        dead_letter="orders.dlq",
        nack_backoff=fifo.Fixed(0.05),
    )
    assert await client.declare(spec) is True
    assert await client.declare(spec) is False
    with pytest.raises(fifo.QueueExists) as exists:
        await client.declare(fifo.QueueSpec("orders", lock=20))
    assert exists.value.difference["lock_ms"] == (30_000, 20_000)
    confirm = await client.publish("orders", b"first", key="k", headers={"a": "b"})
    await client.publish_many("orders", [b"%d" % n for n in range(1000)])
    [peeked] = await client.peek("orders")
    assert (peeked.id, peeked.key, peeked.headers) == (confirm.id, "k", {"a": "b"})
    async with client.consume("orders", prefetch=2000) as messages:
        [first, failing, hopeless] = await take(messages, 3)
        assert (first.body, first.id, first.attempt) == (b"first", confirm.id, 1)
        assert 25 < first.remaining <= 30
        locks = await client.locks("orders")
        assert {lock.token for lock in locks} >= {1, 2, 3}
        assert (await first.ack(receipt=True)).status == "ok"
        assert (await failing.nack()).status == "ok"
        async with hopeless.process():
            raise fifo.Terminal("hopeless", "no such customer")
        rest = await take(messages, 999)
        assert [message.body for message in rest if message.attempt == 2] == [b"0"]
        [again] = [message for message in rest if message.attempt == 2]
        assert again.failures == 1
        assert (await again.nack()).status == "dead_lettered"
        messages.ack_many([message for message in rest if message is not again])
        await until(lambda: client.metrics.acked == 999)
    dead = await client.get("orders.dlq", 10, wait=5)
    assert {letter.body for letter in dead} == {b"0", b"1"}
    reasons = {letter.body: letter.dead_letter for letter in dead}
    assert reasons[b"0"] is not None
    assert reasons[b"0"].reason == "max_deliveries"
    assert reasons[b"1"] is not None
    assert (reasons[b"1"].reason, reasons[b"1"].detail) == ("terminated", "hopeless")
    assert reasons[b"1"].source == "orders"
    overview = await client.queue("orders")
    assert (overview.ready, overview.locked) == (0, 0)
    assert {queue.name for queue in await client.queues()} == {"orders", "orders.dlq"}
    status = await client.status()
    assert status.role == "leader"
    followers = [await observe(str(node.client)) for node in shared_cluster.config.nodes]
    assert Counter(one["role"] for one in followers) == {"leader": 1, "follower": 2}


async def test_refusals_of_the_nodes_have_their_errors(client: fifo.Client) -> None:
    with pytest.raises(fifo.QueueNotFound):
        await client.publish("nowhere", b"x")
    with pytest.raises(fifo.QueueNotFound):
        await client.publish_many("nowhere", [b"x"] * 2000)
    with pytest.raises(fifo.QueueNotFound):
        async with client.consume("nowhere"):
            pass
    with pytest.raises(fifo.QueueNotFound):
        await client.get("nowhere")
    with pytest.raises(fifo.QueueNotFound):
        await client.queue("nowhere")
    with pytest.raises(fifo.QueueNotFound):
        await client.redrive("nowhere")
    with pytest.raises(fifo.QueueNotFound):
        await client.durable("nowhere", "reader").reserve(1)
    await client.declare(fifo.QueueSpec("small", max_length=3))
    with pytest.raises(fifo.QueueFull) as full:
        await client.publish_many("small", [b"%d" % n for n in range(5000)])
    error: Any = full.value
    assert (error.index, len(error.confirms)) == (3, 3)
    [message] = await client.get("small", wait=5)
    with pytest.raises(fifo.NoDeadLetterQueue):
        await message.terminate("never")
    assert (await message.ack(receipt=True)).status == "ok"
    await client.publish("small", b"room again")


async def test_cancelled_consumers_do_not_pile_up_in_the_cluster(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish_many("orders", [b"x"] * 20)
    for _ in range(3):
        async with client.consume("orders", prefetch=10) as messages:
            one, two = await take(messages, 2)
            await one.ack()
        assert (await two.ack(receipt=True)).status == "ok"

    async def left() -> int:
        return len(await client.consumers("orders"))

    async with asyncio.timeout(5):
        while await left():  # noqa: ASYNC110 - each look is a request
            await asyncio.sleep(0.01)
    assert (await client.queue("orders")).ready == 14


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_deleted_queue_ends_its_consumers(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    async with client.consume("orders") as messages:
        waiting = asyncio.create_task(messages.next())
        await asyncio.sleep(0)
        await client.delete("orders")
        with pytest.raises(fifo.QueueNotFound, match="orders"):
            await asyncio.wait_for(waiting, 10)


@pytest.mark.fifo_cluster(nodes=3)
async def test_a_lock_is_renewed_while_the_handler_works_and_lost_without_renewals(
    client: fifo.Client,
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish_many("orders", [b"a", b"b"])
    async with client.consume("orders", lock=1) as renewing:
        one, two = await take(renewing, 2)
        await asyncio.sleep(1.5)
        assert not one.lock_lost.is_set()
        assert one.remaining > 0.3
        assert (await one.ack(receipt=True)).status == "ok"
        assert (await two.release()).status == "ok"
    async with client.consume("orders", lock=1, auto_renew=False) as messages:
        [message] = await take(messages, 1)
        await asyncio.wait_for(message.lock_lost.wait(), 5)
        # Asking for more says that this program lives: it gets the message once more.
        [again] = await take(messages, 1)
        assert (again.id, again.failures) == (message.id, 1)
        assert (await again.ack(receipt=True)).status == "ok"
        assert (await message.ack(receipt=True)).status == "lock_lost"


async def test_publishers_and_consumers_go_on_by_themselves_when_the_leader_crashes(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    confirmed: list[bytes] = []
    seen: Counter[bytes] = Counter()
    attempts: Counter[int] = Counter()
    loop = asyncio.get_running_loop()
    at: list[float] = []
    stop = asyncio.Event()

    async def publish(name: int) -> None:
        n = 0
        while not stop.is_set():
            body = b"%d-%d" % (name, n)
            await client.publish("orders", body)
            confirmed.append(body)
            at.append(loop.time())
            n += 1

    async def consume() -> None:
        async with client.consume("orders", prefetch=200) as messages:
            async for message in messages:
                async with message.process():
                    seen[message.body] += 1
                    attempts[message.attempt] += 1

    consuming = asyncio.create_task(consume())
    publishing = [asyncio.create_task(publish(name)) for name in range(5)]
    await until(lambda: len(confirmed) > 300, 20)
    before = len(confirmed)
    await shared_cluster.crash_leader()
    await until(lambda: len(confirmed) > before + 300, 20)
    stop.set()
    await asyncio.gather(*publishing)
    await until(lambda: len(seen) >= len(confirmed), 20)
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    assert set(seen) == set(confirmed)
    assert set(seen.values()) == {1}, "the same consumer got a message twice"
    assert set(attempts) == {1}
    assert client.metrics.disconnects >= 1
    gap = max(later - earlier for earlier, later in itertools.pairwise(at))
    assert gap < 5, "publishing stopped for too long"


async def test_a_windowed_publish_across_a_crash_stores_each_message_once_and_in_order(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    bodies = [b"%05d" % n + b"x" * 500 for n in range(20_000)]
    publishing = asyncio.create_task(client.publish_many("orders", bodies))
    await until(lambda: client.metrics.confirmed > 2_000, 20)
    await shared_cluster.crash_leader()
    confirms = await publishing
    assert len(confirms) == len(bodies)
    assert len({confirm.id for confirm in confirms}) == len(bodies)
    found: list[bytes] = []
    async with client.consume("orders", prefetch=5000) as messages:
        async for batch in messages.batches(1000):
            found += [message.body for message in batch]
            messages.ack_many(batch)
            if len(found) >= len(bodies):
                break
    assert found == bodies


async def test_locks_stay_held_through_a_crash_of_the_leader(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish_many("orders", [b"%d" % n for n in range(50)])
    async with client.consume("orders", prefetch=20, lock=5) as messages:
        held = await take(messages, 10)
        await shared_cluster.crash_leader()
        await until(lambda: client.metrics.connects == 2, 20)
        for message in held:
            assert (await message.ack(receipt=True)).status == "ok"
        rest = await take(messages, 20)
        assert [message.body for message in [*held, *rest]] == [b"%d" % n for n in range(30)]
        assert all(message.attempt == 1 for message in rest)


LOST: dict[str, Any] = {"lock": 1, "handler_timeout": 0.1}
"""Of a consumer whose handlers lose their locks after a second: they are not renewed."""


@pytest.mark.fifo_cluster(nodes=3)
async def test_one_hung_handler_starves_no_consumer(client: fifo.Client) -> None:
    seen: list[bytes] = []

    async def work(messages: fifo.Consumer[fifo.Message]) -> None:
        while len(seen) < 6 and (message := await messages.next(timeout=10)) is not None:
            async with message.process():
                seen.append(message.body)

    await client.declare(fifo.QueueSpec("orders"))
    await client.publish("orders", b"hangs")
    async with client.consume("orders", prefetch=10, **LOST) as messages:
        [message] = await take(messages, 1)
        async with message.process(reraise=True), asyncio.TaskGroup() as tasks:
            for _ in range(9):
                tasks.create_task(work(messages))
            await message.lock_lost.wait()
            await client.publish_many("orders", [b"%d" % n for n in range(5)])
            await until(lambda: len(seen) >= 6, 10)
            assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4", b"hangs"]
            await messages.cancel()


async def test_with_one_place_asking_frees_nothing_and_the_operator_sees_why(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish("orders", b"hangs")
    async with client.consume("orders", prefetch=1, **LOST) as messages:
        [message] = await take(messages, 1)
        async with message.process(reraise=True):
            asking = asyncio.create_task(messages.next(timeout=10))
            async with asyncio.timeout(10):
                while not (shown := (await client.consumers("orders"))[0]).lost_running:
                    await passed(0.02)
            assert (shown.flags, shown.suspected_why) == (("suspected",), "all_places_lost")
            line = ["consumers", "orders", "--url", shared_cluster.url]
            done = await asyncio.to_thread(typer.testing.CliRunner().invoke, app, line)
            assert "all_places_lost" in done.output
            await client.publish("orders", b"next")
            assert not asking.done()
        # The handler has ended: its settlement, late as it is, is carried out and frees the place.
        following = await asking
        assert following is not None
        assert (following.body, following.attempt) == (b"next", 1)


async def test_a_dropped_connection_redelivers_nothing(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish_many("orders", [b"%d" % n for n in range(500)])
    seen: list[int] = []
    async with client.consume("orders", prefetch=50) as messages:
        async for message in messages:
            async with message.process():
                seen.append(int(message.body))
            if len(seen) % 50 == 0 and len(seen) < 400:
                link = client._session.link
                if link is not None:
                    link.abort(fifo.ConnectionLost("cut by the test"))
            if len(seen) == 500:
                break
    assert seen == list(range(500))
    assert client.metrics.disconnects >= 3
    overview = await client.queue("orders")
    assert overview.counters["delivered"] == 500


async def test_a_worker_that_left_its_iterator_keeps_its_lock_through_an_interruption(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    async with fifo.connect(shared_cluster.url) as other:
        await client.declare(fifo.QueueSpec("orders"))
        await client.publish("orders", b"one")
        async with client.consume("orders") as messages:
            [held] = await take(messages, 1)
        [mine] = [
            session
            for session in leadership_of(await shared_cluster.leader()).sessions
            if session.session_id == client._session.identity.session
        ]
        await until(lambda: len(mine.connections) == 2)

        async def abort() -> None:
            for connection in mine.connections:
                connection.abort()  # both at once, so that the session is disconnected

        await shared_cluster.there(abort())
        await until(lambda: client.metrics.connects == 2)
        [lock] = await other.locks("orders")
        assert (lock.consumer, lock.attempt) == (held.consumer, 1)
        assert (await held.ack(receipt=True)).status == "ok"
        assert (await other.queue("orders")).messages == 0


async def test_a_named_producer_is_known_to_the_next_client(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    producer = await client.open_producer("loader")
    await producer.publish_many("orders", [b"a", b"b"], numbers=[10, 20])
    async with fifo.connect(shared_cluster.url) as other:
        again = await other.open_producer("loader")
        assert again.last("orders") == 20
        confirms = await again.publish_many("orders", [b"b", b"c"], numbers=[20, 30])
        assert [confirm.duplicate for confirm in confirms] == [True, False]
    assert (await client.queue("orders")).ready == 3


async def test_a_client_that_comes_and_goes_leaves_nothing_behind(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("orders"))
    await client.publish_many("orders", [b"x"] * 10)
    async with fifo.connect(shared_cluster.url) as other:
        messages = other.consume("orders")
        await take(messages, 3)
    overview = await client.queue("orders")
    assert (overview.ready, overview.locked, overview.consumers) == (10, 0, 0)
    assert (await client.status()).sessions == 1


def test_the_blocking_client_goes_the_same_way(shared_cluster: SharedCluster) -> None:
    with fifo.blocking.connect(shared_cluster.url) as client:
        client.declare(fifo.QueueSpec("orders", dead_letter="orders.dlq"))
        client.publish("orders", b"one")
        client.publish_many("orders", [b"two", b"three"])
        found = []
        with client.consume("orders") as messages:
            for message in messages:
                with message.process():
                    found.append(message.body)
                    if message.body == b"two":
                        raise fifo.Terminal("no twos")
                if len(found) == 3:
                    break
        [dead] = client.get("orders.dlq", wait=5)
        assert dead.body == b"two"
        assert dead.ack(receipt=True).status == "ok"
        assert found == [b"one", b"two", b"three"]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """Three node processes, started and stopped by the command line."""
    folder = tmp_path / "cluster"
    base = ["--dir", str(folder)]
    command = [sys.executable, "-m", "node", "cluster"]
    port = free_base_port()
    ports = ["--base-port", str(port)]
    started = subprocess.run(
        [*command, "start", "-n", "3", *base, *ports, "--detach", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    try:
        yield json.loads(started.stdout)
    finally:
        subprocess.run(
            [*command, "stop", *base],
            capture_output=True,
            timeout=60,
            check=True,
        )


async def test_a_killed_leader_process_stops_publishing_for_less_than_three_seconds(
    processes: dict[str, Any],
) -> None:
    async with fifo.connect(processes["url"]) as client:
        await client.declare(fifo.QueueSpec("orders"))
        pids = {node["client"]: node["pid"] for node in processes["nodes"]}
        assert client.address is not None
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        async with client.consume("orders", prefetch=100) as messages:

            async def consume() -> None:
                async for message in messages:
                    async with message.process():
                        seen.append(int(message.body))

            consuming = asyncio.create_task(consume())
            for n in range(100):
                await client.publish("orders", b"%d" % n)
            os.kill(pids[client.address], signal.SIGKILL)
            began = loop.time()
            await client.publish("orders", b"100")
            # The number of the specification is 3 s on a quiet machine; a busy one gets more.
            assert loop.time() - began < 6
            await client.publish_many("orders", [b"%d" % n for n in range(101, 1000)])
            await until(lambda: len(seen) >= 1000, 20)
            consuming.cancel()
        assert sorted(seen) == list(range(1000))
        assert client.metrics.sessions_ended == 0


async def test_a_pulling_consumer_gets_its_credit(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("q"))
    await client.publish_many("q", [b"1", b"2", b"3"])
    async with client.consume("q", pull=True, renewable=False, priority=3) as messages:
        [shown] = await client.consumers("q")
        facts = (shown.credit, shown.renewable, shown.priority, shown.held)
        assert facts == (0, False, 3, 0)
        await messages.credit(2)
        async with asyncio.timeout(10):
            first, second = [await anext(messages) for _ in range(2)]
        assert (first.body, second.body) == (b"1", b"2")
        assert (await client.queue("q")).ready == 1
        with pytest.raises(fifo.NotRenewable):
            await first.renew()
        await messages.credit(5, drain=True)
        async with asyncio.timeout(10):
            third = await anext(messages)
        [shown] = await client.consumers("q")
        assert (third.body, shown.credit, shown.held) == (b"3", 0, 3)
        assert len(await client.locks("q")) == 3


async def test_a_repeated_dedup_id_is_confirmed_as_the_message_that_is_stored(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("q", dedup_window=60))
    first = await client.publish("q", b"a", dedup_id="a")
    assert not first.duplicate
    other = await client.publish("q", b"b", dedup_id="b")
    ids = ["c", "b", None, "a", "c"]
    confirms = await client.publish_many("q", [b"c", b"b", b"d", b"a", b"c"], dedup_ids=ids)
    assert [one.duplicate for one in confirms] == [False, True, False, True, True]
    assert [confirms[at].id for at in (1, 3, 4)] == [other.id, first.id, confirms[0].id]
    assert confirms.duplicates == 3

    # Another session, after a change of leader, by the command line.
    await shared_cluster.crash_leader()
    await shared_cluster.leader()
    line = ["publish", "q", "--body", "a", "--dedup-id", "a", "--url", shared_cluster.url]
    runner = typer.testing.CliRunner()
    done = await asyncio.to_thread(runner.invoke, app, [*line, "--json"])
    assert json.loads(done.output) == {"id": first.id, "duplicate": True}
    done = await asyncio.to_thread(runner.invoke, app, line)
    assert done.output == f"message {first.id} is a duplicate\n"

    stored = [message.id for message in await client.get("q", count=10, lock=30)]
    assert stored == [first.id, other.id, confirms[0].id, confirms[2].id]


async def test_a_forgotten_producer_begins_anew(
    shared_cluster: SharedCluster, client: fifo.Client
) -> None:
    await client.declare(fifo.QueueSpec("q"))
    producer = await client.open_producer("loader")
    await producer.publish("q", b"one")
    await producer.publish("q", b"two")
    [shown] = await client.producers("q")
    assert (shown.name, shown.last, shown.queues) == ("loader", 2, 1)

    async def typed(*words: str) -> typer.testing.Result:
        line = [*words, "--url", shared_cluster.url]
        runner = typer.testing.CliRunner()
        return await asyncio.to_thread(runner.invoke, app, line)

    [printed] = json.loads((await typed("producers", "q", "--json")).output)
    assert (printed["name"], printed["last"]) == ("loader", 2)
    unsure = await typed("forget-producer", "loader")
    assert "may be stored twice" in str(unsure.exception)
    done = await typed("forget-producer", "loader", "--yes")
    assert done.output == "producer loader is forgotten\n"
    assert await client.producers("q") == []
    with pytest.raises(fifo.UnknownProducer):
        await producer.publish("q", b"three")
    with pytest.raises(fifo.UnknownProducer):
        await client.forget_producer("loader")
    again = await client.open_producer("loader")
    assert not (await again.publish("q", b"two", number=2)).duplicate
    assert (await client.queue("q")).ready == 3


def whole_of(dead: fifo.DeadLetter | None) -> list[str | None]:
    assert dead is not None
    return [dead.detail, dead.description, dead.exception, dead.stack]


async def test_long_texts_of_dead_letters_are_kept_whole_in_the_log(tmp_path: Path) -> None:
    why, said, long = "why " * 500, "ü" * 8_000, "x" * 20_000
    raft = RaftSettings(snapshot_bytes=30_000)
    async with running(tmp_path, raft=raft) as cluster:
        await cluster.leader()
        async with fifo.connect(cluster.url) as client:
            await client.declare(fifo.QueueSpec("q", dead_letter="dlq"))
            await client.publish_many("q", [b"long", b"too long", b"short"])
            first, second, third = await client.get("q", count=3)
            await first.terminate(why, said, ValueError("no " * 1_000))
            await second.terminate(long, long, ValueError(long))
            await third.terminate("short")
            # What follows is more than a snapshot's worth: the log before it goes.
            for _ in range(20):
                await client.publish_many("q", [bytes(1_000)] * 10)
                await client.purge("q")
            before = [whole_of(one.dead_letter) for one in await client.peek("dlq", 3)]
        await cluster.stop()
        await cluster.start()
        await cluster.leader()
        async with fifo.connect(cluster.url) as client:
            assert (await client.status()).snapshot.index > 0
            peek = ["peek", "dlq", "--details", "--url", cluster.url]
            done = await asyncio.to_thread(typer.testing.CliRunner().invoke, app, peek)
            for text in (why, said, "ValueError: " + "no " * 1_000, "x" * 16_381 + "..."):
                assert text in done.output
            after = [whole_of(one.dead_letter) for one in await client.get("dlq", count=3)]
            assert after == before
        [detail, description, exception, stack] = after[0]
        assert (detail, description) == (why, said)
        assert exception == "ValueError: " + "no " * 1_000
        assert stack is not None
        assert stack.endswith("no " * 1_000 + "\n")
        cut = "x" * 16_381 + "..."
        assert after[1][:3] == [cut, cut, f"ValueError: {cut}"]
        assert str(after[1][3]).startswith("...xxx")
        assert after[2] == ["short", None, None, None]


async def test_every_verb_of_a_queue_and_of_a_message_arrives(client: fifo.Client) -> None:
    await client.declare(fifo.QueueSpec("q", dead_letter="dlq"))
    await client.pause("q")
    for body in (b"ack", b"nack", b"release", b"terminate", b"purged"):
        await client.publish("q", body)
    [peeked] = await client.peek("q")
    assert peeked.body == b"ack"
    assert await client.get("q") == [], "it is paused"
    await client.resume("q")
    acked, nacked, released, terminated = await client.get("q", 4)
    assert (await acked.ack(receipt=True)).status == "ok"
    assert (await nacked.nack(delay=60)).status == "ok"
    assert (await released.release(delay=90)).status == "ok"
    assert (await terminated.terminate("why", "what", receipt=True)).status == "ok"
    delayed = {one.cause: one.failures for one in await client.delayed("q")}
    assert delayed == {"nack": 1, "released": 0}
    [letter] = await client.peek("dlq")
    assert letter.dead_letter is not None
    assert (letter.body, letter.dead_letter.reason) == (b"terminate", "terminated")
    assert await client.purge("q") == 3
    async with client.consume("q") as messages:
        await messages.alive()
        while not await client.consumers("q"):
            await passed(0.02)
    await client.delete("q")
    assert [queue.name for queue in await client.queues()] == ["dlq"]
