"""Batch reads against real nodes, mode by mode: what is taken, acked, given back, and lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader, InputPartition

import fifo
import fifo.spark
from fifo.blocking import BlockingClient
from fifo.machine import limits as machine_limits
from fifo.spark import SourceError, batches
from fifo.spark.batches import to_batches
from fifo.spark.scanning import ScanPart, ScanReader
from node.broker.broker import Broker
from tests.spark.conftest import Cluster
from tests.spark.reads import batch_reader, bodies, planned, rows
from tests.spark.tasks import wait_for
from tests.support.shared import SharedCluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

TTL_S = 0.1


def fill(client: BlockingClient, queue: str, count: int) -> list[bytes]:
    found = [b"%d" % n for n in range(count)]
    client.publish_many(queue, found)
    return found


def read_all(reader: DataSourceReader) -> list[bytes]:
    return bodies(planned(reader))


def depth(client: BlockingClient, queue: str) -> tuple[int, int]:
    view = client.queue(queue)
    return view.ready, view.locked


def test_every_column_round_trips(cluster: Cluster, client: BlockingClient, queue: str) -> None:
    confirm = client.publish(queue, b"\x00", key="k", headers={"a": "1"}, priority=7)
    [row] = rows(planned(batch_reader(cluster.url, queue))[0])
    published_at = row.pop("published_at")
    assert abs((datetime.now(UTC) - published_at).total_seconds()) < 60
    assert row == {
        "body": b"\x00",
        "key": "k",
        "headers": [("a", "1")],
        "priority": 7,
        "id": confirm.id,
        "attempt": 1,
        "queue": queue,
        "token": None,
    }


def test_a_task_gets_large_bodies_in_batches_of_bounded_bytes(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    client.publish_many(queue, [b"x" * 2**20] * 20)
    reader = batch_reader(cluster.url, queue, ackMode="manual", reservation="r")
    [task] = planned(reader)
    assert [batch.num_rows for batch in task] == [1] * 20


def test_the_token_of_a_row_is_its_place_in_the_reservation(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, 3)
    reader = batch_reader(cluster.url, queue, ackMode="manual", reservation="r", partitions=2)
    tokens = [row["token"].split(".") for task in planned(reader) for row in rows(task)]
    assert [token for _, token in tokens] == ["1", "2", "3"]
    assert len({consumer for consumer, _ in tokens}) == 1


def test_a_read_that_was_planned_before_the_ack_fails_behind_it(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    fill(client, queue, 3)
    [task] = planned(batch_reader(cluster.url, queue, ackMode="manual", reservation="r"))
    assert fifo.spark.ack(cluster.url, queue, "r").messages == 3
    with pytest.raises(SourceError, match="3 of 3 messages are no longer held"):
        list(task)


def test_a_key_that_is_no_text_needs_the_option(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    client.publish(queue, b"x", key=b"\xff")
    with pytest.raises(SourceError, match=r'is not UTF-8; read with \.option\("binaryKeys"'):
        bodies(planned(batch_reader(cluster.url, queue)))
    [task] = planned(batch_reader(cluster.url, queue, binaryKeys="true"))
    assert [row["key"] for row in rows(task)] == [b"\xff"]


def test_a_read_drains_a_queue_past_many_that_wait_for_their_key(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    # What waits takes the broker more steps to pass than one answer has.
    waiting = 2 * machine_limits.STEP_MESSAGES // machine_limits.RECORD_COST + 7
    keyed = f"{queue}.keyed"
    client.declare(fifo.QueueSpec(keyed, ordering="key"))
    client.publish_many(keyed, [b"1"] * (waiting + 1), keys=["a"] * (waiting + 1))
    client.publish(keyed, b"2", key="b")
    reader = batch_reader(cluster.url, keyed, ackMode="manual", reservation="r")
    assert bodies(planned(reader)) == [b"1", b"2"]


def test_a_read_drains_a_queue_past_many_that_expired(
    shared_cluster: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired = 2 * machine_limits.STEP_MESSAGES // machine_limits.LEAVE_COST + 7
    # No leader looks for what is due, so that the read has to meet it.
    monkeypatch.setattr(Broker, "look", lambda self, gap_s: None)
    with fifo.blocking.connect(shared_cluster.url) as asking:
        asking.declare(fifo.QueueSpec("expiring"))
        asking.publish_many("expiring", [b"late"] * expired, ttls=[TTL_S] * expired)
        asking.publish("expiring", b"live")
        threading.Event().wait(2 * TTL_S)
        reader = batch_reader(shared_cluster.url, "expiring", ackMode="manual", reservation="r")
        assert read_all(reader) == [b"live"]


class TestManual:
    """`ackMode=manual`."""

    def test_a_reservation_gives_the_same_messages_until_it_is_acked(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        found = fill(client, queue, 20)
        given = {"ackMode": "manual", "reservation": "r", "partitions": 2}
        first = planned(batch_reader(cluster.url, queue, maxMessages=12, **given))
        again = planned(batch_reader(cluster.url, queue, maxMessages=3, **given))
        # The first plan still reads, though the second has opened the reservation after it.
        assert [len(bodies([task])) for task in again] == [6, 6]
        assert bodies(first) == found[:12]
        assert depth(client, queue) == (8, 12)
        assert fifo.spark.ack(cluster.url, queue, "r") == (12, 0)
        assert fifo.spark.ack(cluster.url, queue, "r") == (0, 0)
        assert bodies(planned(batch_reader(cluster.url, queue, **given))) == found[12:]
        assert fifo.spark.ack(cluster.url, queue, "r") == (8, 0)
        reader = batch_reader(cluster.url, queue, **given)
        assert reader.partitions() == []
        assert list(reader.read(InputPartition(None))) == []

    def test_a_read_of_few_columns_leaves_bodies_at_the_broker(
        self,
        cluster: Cluster,
        client: BlockingClient,
        queue: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """By the bytes of what comes; and what is wanted is there."""
        confirms = client.publish_many(queue, [b"x" * 1000] * 3, keys=["a", "b", "c"])
        came: list[int] = []

        def watched(messages: Any, *given: Any, **more: Any) -> Iterator[pa.RecordBatch]:
            came.append(sum(one.delivery.size for one in messages.stretches))
            yield from to_batches(messages, *given, **more)

        monkeypatch.setattr(batches, "to_batches", watched)
        given = {"ackMode": "manual", "reservation": "r"}
        for names in ("attempt,id,token", "id,key"):
            [task] = planned(batch_reader(cluster.url, queue, columns=names, **given))
            found = rows(task)
            assert [list(row) for row in found] == [names.split(",")] * 3
            assert [row["id"] for row in found] == [one.id for one in confirms]
        assert [row["key"] for row in found] == ["a", "b", "c"]
        assert came[0] < 500
        assert came[1] > 3000

    def test_on_a_queue_with_key_order_a_read_gets_one_message_of_each_key(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        keyed = f"{queue}.keyed"
        client.declare(fifo.QueueSpec(keyed, ordering="key"))
        client.publish_many(keyed, [b"1", b"2", b"3"], keys=["a", "a", "b"])
        reader = batch_reader(cluster.url, keyed, ackMode="manual", reservation="r")
        assert bodies(planned(reader)) == [b"1", b"3"]
        assert fifo.spark.ack(cluster.url, keyed, "r") == (2, 0)
        assert bodies(planned(reader)) == [b"2"]

    def test_with_runs_a_read_gets_all_of_a_key_in_order(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        keyed = f"{queue}.keyed"
        client.declare(fifo.QueueSpec(keyed, ordering="key"))
        client.publish_many(keyed, [b"1", b"2", b"3", b"4"], keys=["a", "a", "b", "a"])
        given = {"ackMode": "manual", "reservation": "r", "keyRuns": "true"}
        assert bodies(planned(batch_reader(cluster.url, keyed, **given))) == [
            b"1",
            b"2",
            b"3",
            b"4",
        ]
        other = given | {"reservation": "s"}
        assert bodies(planned(batch_reader(cluster.url, keyed, **other))) == []
        assert fifo.spark.ack(cluster.url, keyed, "r") == (4, 0)

    def test_a_read_that_is_back_in_time_renews_before_it_is_planned(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        fill(client, queue, 5)
        given = {"ackMode": "manual", "reservation": "r", "lock": "4s"}
        planned(batch_reader(cluster.url, queue, **given))
        threading.Event().wait(2)
        planned(batch_reader(cluster.url, queue, **given))
        assert min(one.remaining_s for one in client.locks(queue)) > 3

    @pytest.mark.slow
    def test_a_task_renews_the_locks_while_it_reads(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        client.publish_many(queue, [b"x" * 2**20] * 5)
        given = {"ackMode": "manual", "reservation": "r", "lock": "2s"}
        [task] = planned(batch_reader(cluster.url, queue, **given))
        next(task)
        threading.Event().wait(3)
        assert len(list(task)) == 4
        assert client.queue(queue).counters["lock_timeouts"] == 0

    @pytest.mark.slow
    def test_a_lock_is_a_second_to_five_minutes(self, cluster: Cluster, queue: str) -> None:
        for lock in ("0.5s", "6m"):
            reader = batch_reader(cluster.url, queue, ackMode="manual", reservation="r", lock=lock)
            with pytest.raises(SourceError, match="lock"):
                reader.partitions()

    def test_nothing_is_acked_by_reading_or_by_a_failed_task(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        found = fill(client, queue, 5)
        reader = batch_reader(cluster.url, queue, ackMode="manual", reservation="r")
        [task] = planned(reader)
        next(task)
        task.close()  # type: ignore[attr-defined]
        assert depth(client, queue) == (0, 5)
        assert bodies(planned(reader)) == found

    def test_a_released_reservation_returns_its_messages_uncounted(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        fill(client, queue, 5)
        reader = batch_reader(cluster.url, queue, ackMode="manual", reservation="r")
        [task] = planned(reader)
        fifo.spark.release(cluster.url, queue, "r")
        assert depth(client, queue) == (5, 0)
        with pytest.raises(SourceError, match="is gone with all that it held"):
            bodies([task])

    def test_a_renewed_reservation_is_kept_and_ack_reports_an_expired_one(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        fill(client, queue, 5)
        given = {"ackMode": "manual", "reservation": "r", "lock": "1s"}
        tasks = planned(batch_reader(cluster.url, queue, **given))
        for _ in range(3):
            threading.Event().wait(0.5)
            fifo.spark.renew(cluster.url, queue, "r")
        assert depth(client, queue) == (0, 5)
        [taken] = _until_taken(client, queue)
        with pytest.raises(SourceError, match=r"5 of 5 messages are no longer held.*; read again"):
            bodies(tasks)
        # They were not read: none of those that are back in the queue is acked unseen.
        assert fifo.spark.ack(cluster.url, queue, "r") == (0, 5)
        assert fifo.spark.ack(cluster.url, queue, "r") == (0, 0)
        assert depth(client, queue) == (4, 1)
        assert taken.body == b"0"

    @pytest.mark.parametrize("verb", [fifo.spark.ack, fifo.spark.renew, fifo.spark.release])
    def test_a_reservation_that_is_not_there_is_an_error(
        self, cluster: Cluster, queue: str, verb: object
    ) -> None:
        assert callable(verb)
        with pytest.raises(SourceError, match="there is no durable consumer 'missing'"):
            verb(cluster.url, queue, "missing")


def _until_taken(client: BlockingClient, queue: str) -> list[fifo.blocking.BlockingMessage]:
    return client.get(queue, wait=10)


class TestScan:
    """A read that takes nothing: the default."""

    def test_a_read_takes_nothing(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        found = fill(client, queue, 5)
        reader = batch_reader(cluster.url, queue, maxMessages=3)
        for _ in range(2):
            assert bodies(planned(reader)) == found[:3]
        assert depth(client, queue) == (5, 0)
        [message] = client.get(queue)
        assert message.attempt == 1

    def test_a_read_shows_all_in_parts_whatever_becomes_of_them_meanwhile(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        found = fill(client, queue, 5_000)
        held = client.get(queue, 10)
        tasks = planned(batch_reader(cluster.url, queue, partitions=3))
        assert len(tasks) == 3
        client.settle_many(held)
        client.purge(queue)
        fill(client, queue, 7)
        assert bodies(tasks) == found

    def test_columns_are_chosen_and_bodies_stay_at_the_broker(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        """Where none of body, key and headers is wanted: by the bytes of what comes."""
        confirms = client.publish_many(queue, [b"x" * 1000] * 3, keys=["a", "b", "c"])
        for names, least, most in (("attempt, id", 0, 500), ("ID,key", 3000, 3500)):
            reader = batch_reader(cluster.url, queue, columns=names)
            assert isinstance(reader, ScanReader)
            [task] = planned(reader)
            found = rows(task)
            assert [list(row) for row in found] == [names.lower().replace(" ", "").split(",")] * 3
            assert [row["id"] for row in found] == [one.id for one in confirms]
            [part] = reader.partitions()
            assert isinstance(part, ScanPart)
            view = client.pinned(part.ref)
            [page] = reader._pages(view, part)
            assert least <= sum(one.delivery.size for one in page.stretches) <= most
            view.leave()
        assert [row["key"] for row in found] == ["a", "b", "c"]

    def test_large_bodies_come_in_pages(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        for n in range(6):
            client.publish(queue, b"%d" % n * 1_000_000)
        shown = bodies(planned(batch_reader(cluster.url, queue)))
        assert [body[:1] for body in shown] == [b"0", b"1", b"2", b"3", b"4", b"5"]

    @pytest.mark.slow
    def test_an_id_stays_through_the_dead_letter_queue_and_back(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        dead = f"{queue}.dead"
        client.update(queue, dead_letter=dead)
        stored = client.publish(queue, b"x").id
        [message] = client.get(queue)
        message.terminate("bad")
        [task] = planned(batch_reader(cluster.url, dead))
        assert [row["id"] for row in rows(task)] == [stored]
        client.redrive(dead)
        wait_for(lambda: client.queue(queue).ready == 1)
        [task] = planned(batch_reader(cluster.url, queue))
        assert [row["id"] for row in rows(task)] == [stored]

    def test_a_state_is_chosen(self, cluster: Cluster, client: BlockingClient, queue: str) -> None:
        found = fill(client, queue, 5)
        client.get(queue, 2)
        for state, wanted in (("ready", found[2:]), ("locked", found[:2]), ("delayed", [])):
            assert bodies(planned(batch_reader(cluster.url, queue, state=state))) == wanted

    def test_an_empty_queue_has_no_rows(self, cluster: Cluster, queue: str) -> None:
        assert bodies(planned(batch_reader(cluster.url, queue))) == []

    def test_a_view_that_has_ended_fails_the_task(
        self, cluster: Cluster, client: BlockingClient, queue: str
    ) -> None:
        fill(client, queue, 5)
        reader = batch_reader(cluster.url, queue)
        [part] = reader.partitions()
        assert isinstance(part, ScanPart)
        client.pinned(part.ref).close()
        with pytest.raises(SourceError, match="pin anew"):
            list(reader.read(part))


@pytest.mark.parametrize("given", [{}, {"ackMode": "manual", "reservation": "r"}])
def test_a_wrong_queue_or_url_is_said_when_the_read_is_planned(
    cluster: Cluster, given: dict[str, str]
) -> None:
    with pytest.raises(SourceError, match="there is no queue 'nowhere'; declare it first"):
        batch_reader(cluster.url, "nowhere", **given).partitions()
    url = "fifo://127.0.0.1:1?connect_timeout=0.3"
    with pytest.raises(SourceError, match=r"no leader within 0.3 s.*check the option url"):
        batch_reader(url, "nowhere", **given).partitions()
