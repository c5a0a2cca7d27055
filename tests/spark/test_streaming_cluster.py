"""The streaming reader against real nodes, hook by hook in the orders in which Spark calls them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import fifo
import fifo.spark
from fifo.blocking import BlockingClient
from fifo.spark import SourceError
from fifo.spark.streaming import FifoStreamReader
from tests.spark.conftest import Cluster
from tests.spark.reads import bodies, planned, stream_reader
from tests.spark.tasks import wait_for
from tests.spark.test_reading_cluster import depth, fill

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


class Readers:
    """Makes readers of one queue, and stops them all."""

    def __init__(self, url: str, queue: str) -> None:
        self._url = url
        self._queue = queue
        self._made: list[FifoStreamReader] = []

    def __call__(self, **given: Any) -> FifoStreamReader:
        wanted = {"reservation": "r", "maxRowsPerTrigger": 4, **given}
        self._made.append(stream_reader(self._url, wanted.pop("queue", self._queue), **wanted))
        return self._made[-1]

    def stop(self) -> None:
        for reader in self._made:
            reader.stop()


@pytest.fixture
def readers(cluster: Cluster, queue: str) -> Iterator[Readers]:
    made = Readers(cluster.url, queue)
    yield made
    made.stop()


def following(reader: FifoStreamReader, start: Any) -> Any:
    return reader.latestOffset(start, reader.getDefaultReadLimit())


def test_batches_are_bounded_in_order_and_acked_when_spark_is_behind_them(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    found = fill(client, queue, 10)
    reader = readers(partitions=2)
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    assert depth(client, queue) == (10, 0)
    first = following(reader, start)
    tasks = planned(reader, start, first)
    assert (len(tasks), bodies(tasks)) == (2, found[:4])
    assert bodies(planned(reader, start, first)) == found[:4]
    second = following(reader, first)
    assert depth(client, queue) == (2, 4), "the first batch is acked, the second held"
    reader.commit(first)
    last = following(reader, second)
    assert bodies(planned(reader, second, last)) == found[8:]
    assert following(reader, last) == last
    assert client.queue(queue).messages == 0, "so the last batch is acked without a next one"


def test_commit_acks_too(client: BlockingClient, queue: str, readers: Readers) -> None:
    fill(client, queue, 3)
    reader = readers()
    end = following(reader, reader.initialOffset())
    for _ in range(2):
        reader.commit(end)
        assert client.queue(queue).messages == 0


def test_after_a_restart_the_same_batch_comes_from_its_offsets_alone(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    found = fill(client, queue, 10)
    before = readers()
    start = before.initialOffset()
    end = following(before, start)
    before.stop()
    fill(client, queue, 10)
    after = readers(maxRowsPerTrigger=1)
    assert after.initialOffset() == start, "Spark asks for it again where no batch is committed"
    assert bodies(planned(after, start, end)) == found[:4]
    again = readers()
    assert bodies(planned(again, start, end)) == found[:4]
    more = following(again, end)
    assert bodies(planned(again, end, more)) == found[4:8]


def test_messages_locked_for_a_batch_that_never_was_come_first(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    found = fill(client, queue, 10)
    before = readers()
    start = before.initialOffset()
    following(before, start)
    after = readers(maxRowsPerTrigger=3)
    end = following(after, start)
    assert bodies(planned(after, start, end)) == found[:3]
    last = following(after, end)
    assert bodies(planned(after, end, last)) == found[3:4]
    assert depth(client, queue)[1] == 1


def test_a_second_query_takes_the_reservation_over_and_the_first_one_ends(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    found = fill(client, queue, 10)
    before = readers()
    start = before.initialOffset()
    end = following(before, start)
    tasks = planned(before, start, end)
    after = readers()
    assert bodies(planned(after, start, end)) == found[:4]
    words = "only one running query or read may use a reservation"
    for refused in (lambda: bodies(tasks), lambda: before.commit(end)):
        with pytest.raises(SourceError, match=words):
            refused()
    assert depth(client, queue) == (6, 4)


def test_a_checkpoint_of_another_queue_is_refused_and_opens_nothing(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    client.declare(fifo.QueueSpec(f"{queue}.other"))
    start = readers().initialOffset()
    stranger = readers(queue=f"{queue}.other")
    for refused in (lambda: following(stranger, start), lambda: stranger.partitions(start, start)):
        with pytest.raises(SourceError, match=f"checkpoint is of queue '{queue}'.* of its own"):
            refused()
    assert client.consumers(f"{queue}.other") == []
    with pytest.raises(SourceError, match="checkpoint is of queue None"):
        following(readers(), {"some": "thing"})


def test_a_reservation_that_is_gone_is_not_mistaken_for_a_new_one(
    cluster: Cluster, client: BlockingClient, queue: str, readers: Readers
) -> None:
    fill(client, queue, 4)
    before = readers()
    start = before.initialOffset()
    end = following(before, start)
    before.stop()
    fifo.spark.release(cluster.url, queue, "r")
    with pytest.raises(SourceError, match=r"is gone .* new checkpointLocation"):
        readers().partitions(start, end)


def test_messages_whose_lock_expired_fail_the_batch_by_default(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    fill(client, queue, 3)
    before = readers(lock="1s")
    start = before.initialOffset()
    end = following(before, start)
    tasks = planned(before, start, end)
    before.stop()
    taken = client.get(queue, 3, wait=10)
    assert taken, "others get them once the lock is over"
    assert {one.failures for one in taken} == {1}, "counted, as every timeout"
    with pytest.raises(SourceError, match=r'3 of 3 .*"failOnDataLoss", "false"'):
        bodies(tasks)
    with pytest.raises(SourceError, match="3 of 3 messages are no longer held"):
        readers(lock="1s").partitions(start, end)
    careless = readers(failOnDataLoss="false", lock="1s")
    assert bodies(planned(careless, start, end)) == []
    assert following(careless, end) == end


def test_a_batch_whose_locks_ran_out_before_its_commit_fails_once_and_is_reported(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    fill(client, queue, 6)
    given = {"lock": "1s", "maxLock": "1s", "maxRowsPerTrigger": 3}
    careful = readers(**given)
    end = following(careful, careful.initialOffset())
    wait_until_lost(client, queue, 3)
    with pytest.raises(SourceError, match=r"3 messages .* processed, but their locks had expired"):
        careful.commit(end)
    careful.stop()
    again = readers(**given)
    again.commit(end)
    assert again.reportLatestOffset()["lost"] == 0


def test_a_careless_batch_goes_on_and_its_loss_is_in_the_progress(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    fill(client, queue, 3)
    careless = readers(lock="1s", maxLock="1s", failOnDataLoss="false")
    end = following(careless, careless.initialOffset())
    wait_until_lost(client, queue, 3)
    careless.commit(end)
    shown = careless.reportLatestOffset()
    assert (shown["lost"], shown["held"]) == (3, 0)


def wait_until_lost(client: BlockingClient, queue: str, count: int) -> None:
    wait_for(lambda: client.queue(queue).counters["lock_timeouts"] >= count)


def test_a_driver_that_is_back_in_time_keeps_its_batch(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    """Away for half a lock, then at work for longer than what was left of it."""
    found = fill(client, queue, 3)
    before = readers(lock="4s")
    start = before.initialOffset()
    end = following(before, start)
    before.stop()
    threading.Event().wait(2)
    after = readers(lock="4s")
    assert bodies(planned(after, start, end)) == found
    assert min(one.remaining_s for one in client.locks(queue)) > 3
    after.commit(end)
    assert client.queue(queue).counters["lock_timeouts"] == 0


def test_the_progress_shows_how_long_the_locks_last(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    fill(client, queue, 1)
    reader = readers(lock="1s")
    following(reader, reader.initialOffset())
    until = time.monotonic() + 1.5  # Longer than the lock: renewals alone keep it above zero.
    while time.monotonic() < until:
        assert 0 < reader.reportLatestOffset()["lock_left_s"] <= 1


def test_the_driver_renews_its_locks(client: BlockingClient, queue: str, readers: Readers) -> None:
    found = fill(client, queue, 3)
    reader = readers(lock="1s")
    start = reader.initialOffset()
    end = following(reader, start)
    threading.Event().wait(1.5)
    assert bodies(planned(reader, start, end)) == found
    reader.commit(end)
    assert client.queue(queue).messages == 0


def test_available_now_takes_the_messages_ready_at_its_start(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    found = fill(client, queue, 6)
    reader = readers()
    reader.prepareForTriggerAvailableNow()
    fill(client, queue, 6)
    at = reader.initialOffset()
    seen: list[bytes] = []
    while (end := reader.latestOffset(at, ReadMaxRows(4))) != at:
        seen += bodies(planned(reader, at, end))
        at = end
    assert seen == found
    assert depth(client, queue) == (6, 0)


def test_a_limit_that_spark_leaves_open_is_the_options(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    fill(client, queue, 6)
    reader = readers()
    assert reader.getDefaultReadLimit() == ReadMaxRows(4)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable())["rows"] == 4


def test_a_batch_larger_than_a_step_of_the_broker_is_one_batch(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    found = fill(client, queue, 25_000)
    reader = readers(maxRowsPerTrigger=24_000, partitions=3)
    start = reader.initialOffset()
    end = following(reader, start)
    assert end["rows"] == 24_000
    assert bodies(planned(reader, start, end)) == found[:24_000]
    assert following(reader, end)["rows"] == 1_000
    assert depth(client, queue) == (0, 1_000)


def test_a_leader_that_dies_between_the_hooks_changes_nothing(
    cluster: Cluster, client: BlockingClient, queue: str, readers: Readers
) -> None:
    found = fill(client, queue, 12)
    reader = readers()
    start = reader.initialOffset()
    first = following(reader, start)
    cluster.kill_leader()
    assert bodies(planned(reader, start, first)) == found[:4]
    second = following(reader, first)
    assert bodies(planned(reader, first, second)) == found[4:8]
    assert depth(client, queue) == (4, 4)


def test_a_single_active_queue_cannot_be_streamed(
    client: BlockingClient, queue: str, readers: Readers
) -> None:
    client.declare(fifo.QueueSpec(f"{queue}.one", ordering="single_active"))
    with pytest.raises(SourceError, match="a single-active queue has no durable consumers"):
        readers(queue=f"{queue}.one").initialOffset()


def test_a_cluster_that_is_gone_ends_hooks_and_tasks_and_nothing_is_acked(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    found = fill(client, queue, 3)
    reader = stream_reader(f"{cluster.url}?timeout=1&connect_timeout=1", queue, reservation="r")
    start = reader.initialOffset()
    end = following(reader, start)
    tasks = planned(reader, start, end)
    began = time.monotonic()
    with cluster.without_majority():
        for refused in (
            lambda: bodies(tasks),
            lambda: reader.commit(end),
            lambda: following(reader, end),
        ):
            with pytest.raises(SourceError, match="that a majority of the nodes runs"):
                refused()
        assert time.monotonic() - began < 60
    assert depth(client, queue) == (0, 3)
    assert bodies(planned(reader, start, end)) == found
    reader.stop()
