"""What a user can ask of the machine, asked of a real cluster: nothing gets lost on the way there.

The tables hold client, command line and protocol against the machine's own lists, so that a new
option or verb cannot be forgotten by one of them. Redrive, move and durable consumers have modules
of their own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import typer.testing

import fifo
from fifo.machine.spec import ConsumerOptions
from fifo.words.queue_options import BY_NAME
from node.cli import queue as queue_commands
from node.cli.main import app
from node.config import RaftSettings
from tests.client.test_cluster import crash_leader, three, url_of
from tests.support.cluster import passed, running

EVERY_OPTION: dict[str, Any] = {
    "lock": 7,
    "max_lock": 70,
    "max_deliveries": 3,
    "dead_letter": "dlq",
    "dead_letter_expired": False,
    "dead_letter_overflow": True,
    "on_exhausted": "drop",
    "nack_backoff": "exponential:1s..8s*2",
    "timeout_backoff": "table:1s,5s",
    "count_timeouts": False,
    "ttl": 3600,
    "expires_unused": 7200,
    "max_length": 1000,
    "max_bytes": 1_000_000,
    "overflow": "drop_oldest",
    "ordering": "key",
    "priorities": True,
    "on_delay": "skip",
    "disconnect_grace": 5,
    "dedup_window": 60,
    "dedup_max": 10,
}
"""Each option of a queue with another value than its default."""


def of_the_machine(options: dict[str, Any]) -> dict[str, Any]:
    """Options as the machine names and counts them."""
    found = {}
    for name, value in options.items():
        wire_name = BY_NAME[name].wire_name
        found[wire_name] = value * 1000 if wire_name.endswith("_ms") else value
    return found


def test_client_and_command_line_have_every_option_of_a_queue() -> None:
    assert set(EVERY_OPTION) == set(BY_NAME)
    for command in (queue_commands.declare, queue_commands.update):
        assert set(EVERY_OPTION) - set(inspect.signature(command).parameters) <= (
            {"ordering", "priorities"} if command is queue_commands.update else set()
        )


def test_the_client_has_every_option_of_a_consumer() -> None:
    names = {"lock_ms": "lock", "max_lock_ms": "max_lock", "credit": "pull"}
    wanted = {names.get(f.name, f.name) for f in dataclasses.fields(ConsumerOptions)}
    assert wanted <= set(inspect.signature(fifo.Client.consume).parameters)


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_every_option_of_a_queue_arrives_by_client_and_command_line(tmp_path: Path) -> None:
    async with three(tmp_path) as (cluster, client):
        await client.declare(fifo.QueueSpec("one", **EVERY_OPTION))
        shown = (await client.queue("one")).spec
        wanted = of_the_machine(EVERY_OPTION)
        assert {name: shown[name] for name in wanted} == wanted
        await client.update("one", max_length=5, ttl=None, on_delay="block")
        shown = (await client.queue("one")).spec
        assert (shown["max_length"], shown["ttl_ms"], shown["on_delay"]) == (5, None, "block")

        words = "--lock 7s --max-lock 70s --max-deliveries 3 --dead-letter dlq --drop-expired"
        words += " --dead-letter-overflow --on-exhausted drop --nack-backoff exponential:1s..8s*2"
        words += " --timeout-backoff table:1s,5s --no-count-timeouts --ttl 1h --expires-unused 2h"
        words += " --max-length 1000 --max-bytes 1000000 --overflow drop_oldest --ordering key"
        words += " --priorities --on-delay skip --disconnect-grace 5s --dedup-window 60s"
        words += " --dedup-max 10"
        line = ["queue", "declare", "two", *words.split(), "--url", url_of(cluster)]
        runner = typer.testing.CliRunner()
        done = await asyncio.to_thread(runner.invoke, app, line)
        assert done.exit_code == 0, done.output
        shown = (await client.queue("two")).spec
        assert {name: shown[name] for name in wanted} == wanted
        line = ["queue", "show", "two", "--json", "--url", url_of(cluster)]
        done = await asyncio.to_thread(runner.invoke, app, line)
        assert json.loads(done.output)["spec"]["dedup_max"] == 10


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_a_consumer_that_pulls_gets_what_it_asks_for(tmp_path: Path) -> None:
    async with three(tmp_path) as (_, client):
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


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_a_repeated_dedup_id_is_confirmed_as_the_message_that_is_stored(
    tmp_path: Path,
) -> None:
    async with three(tmp_path) as (cluster, client):
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
        await crash_leader(cluster)
        await cluster.leader()
        line = ["publish", "q", "--body", "a", "--dedup-id", "a", "--url", url_of(cluster)]
        runner = typer.testing.CliRunner()
        done = await asyncio.to_thread(runner.invoke, app, [*line, "--json"])
        assert json.loads(done.output) == {"id": first.id, "duplicate": True}
        done = await asyncio.to_thread(runner.invoke, app, line)
        assert done.output == f"message {first.id} is a duplicate\n"

        stored = [message.id for message in await client.get("q", count=10, lock=30)]
        assert stored == [first.id, other.id, confirms[0].id, confirms[2].id]


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_a_forgotten_producer_begins_anew(tmp_path: Path) -> None:
    async with three(tmp_path) as (cluster, client):
        await client.declare(fifo.QueueSpec("q"))
        producer = await client.open_producer("loader")
        await producer.publish("q", b"one")
        await producer.publish("q", b"two")
        [shown] = await client.producers("q")
        assert (shown.name, shown.last, shown.queues) == ("loader", 2, 1)

        async def typed(*words: str) -> typer.testing.Result:
            line = [*words, "--url", url_of(cluster)]
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


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_long_texts_of_dead_letters_are_kept_whole_in_the_log(tmp_path: Path) -> None:
    why, said, long = "why " * 500, "ü" * 8_000, "x" * 20_000
    raft = RaftSettings(snapshot_bytes=30_000)
    async with running(tmp_path, raft=raft) as cluster:
        await cluster.leader()
        async with fifo.connect(url_of(cluster)) as client:
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
        async with fifo.connect(url_of(cluster)) as client:
            assert (await client.status()).snapshot.index > 0
            peek = ["peek", "dlq", "--details", "--url", url_of(cluster)]
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


@pytest.mark.cluster
@pytest.mark.timeout(120)
async def test_every_verb_of_a_queue_and_of_a_message_arrives(tmp_path: Path) -> None:
    async with three(tmp_path) as (_, client):
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
