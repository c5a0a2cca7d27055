"""Proves the tasks of a write against real nodes: numbers, repeats, refusals."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

import fifo
from fifo.blocking import BlockingClient
from fifo.spark import FifoDataSource, SourceError, options
from fifo.spark.numbering import Numbering
from fifo.spark.writing import (
    FifoStreamWriter,
    FifoWriter,
    Sending,
    see_the_queue,
    stream_producer,
)
from tests.spark.conftest import Cluster
from tests.spark.reads import send, settings

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def texts(count: int, first: int = 0) -> list[str]:
    return [str(n) for n in range(first, first + count)]


def stored(client: BlockingClient, queue: str) -> list[bytes]:
    return [message.body for message in client.peek(queue, 1000)]


def test_a_repeated_task_stores_nothing_twice_however_far_it_came(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    def batches(count: int) -> Iterator[pa.RecordBatch]:
        yield from pa.table({"body": texts(count)}).to_batches()
        raise RuntimeError("the task ends here")

    wanted = settings(options.STREAM_WRITE, cluster.url, queue, {})
    for count in (0, 300, 501, 800):
        with pytest.raises(RuntimeError, match="the task ends here"):
            Sending(wanted, "job/0", 0).run(batches(count))
    assert send(cluster.url, queue, "job/0", 0, texts(900)).rows == 900
    assert send(cluster.url, queue, "job/0", 0, texts(900)).duplicates == 900
    assert stored(client, queue) == [text.encode() for text in texts(900)]


def test_rows_with_ids_go_in_one_call_for_each_batch(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    """Not some hundred at a time; a row that is refused is named by its number."""
    client.update(queue, dedup_window=600)
    wanted = settings(options.BATCH_WRITE, cluster.url, queue, {"idColumn": "body"})
    calls: list[int] = []

    class Watched(Sending):
        def confirmed(self, bodies: Sequence[bytes]) -> None:
            calls.append(len(bodies))

    def batches(*counts: int, first: int = 0) -> Iterator[pa.RecordBatch]:
        for count in counts:
            yield pa.table({"body": texts(count, first)}).to_batches()[0]
            first += count

    done = Watched(wanted, "unused", 0).run(batches(3000, 700))
    assert (done.rows, done.duplicates) == (3700, 0)
    assert calls == [3000, 700]
    again = Sending(wanted, "unused", 1).run(batches(4000))
    assert (again.rows, again.duplicates) == (4000, 3700)
    client.update(queue, max_length=4100)
    with pytest.raises(SourceError, match=r"partition 0, row 351 was not stored"):
        Sending(wanted, "unused", 0).run(batches(250, 200, first=3750))


def test_two_attempts_at_once_store_each_row_once(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    def batches(rest: list[str], meanwhile: Callable[[], object]) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(rest), 100):
            if at == 500:
                meanwhile()
            yield pa.table({"body": rest[at : at + 100]}).to_batches()[0]

    wanted = settings(options.STREAM_WRITE, cluster.url, queue, {})
    rows = texts(1000)

    def other() -> None:
        assert send(cluster.url, queue, "job/0", 0, rows).rows == 1000

    done = Sending(wanted, "job/0", 0).run(batches(rows, other))
    assert done.rows == 1000
    assert done.duplicates >= 500
    assert stored(client, queue) == [text.encode() for text in rows]


def test_batches_of_a_stream_are_distinguished_by_their_number(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    send(cluster.url, queue, "query/0", 7, texts(2))
    send(cluster.url, queue, "query/0", 8, texts(3))
    assert send(cluster.url, queue, "query/0", 8, texts(3)).duplicates == 3
    assert send(cluster.url, queue, "query/0", 7, texts(2)).duplicates == 2
    assert len(stored(client, queue)) == 5


def test_a_batch_that_is_run_again_with_other_rows_fails(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    send(cluster.url, queue, "query/0", 7, texts(1000))
    for other in (texts(1000)[::-1], texts(999), texts(1001), texts(500), []):
        with pytest.raises(SourceError, match="an earlier attempt stored other rows"):
            send(cluster.url, queue, "query/0", 7, other)
    assert send(cluster.url, queue, "query/0", 8, texts(1)).duplicates == 0
    assert len(client.peek(queue, 1000)) == 1000


def test_a_batch_that_is_run_again_in_fewer_partitions_fails_at_its_commit(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    wanted = settings(options.STREAM_WRITE, cluster.url, queue, {})
    writer = FifoStreamWriter(wanted)
    for batch in (7, 8):
        parts = [send(cluster.url, queue, f"query/{n}", batch, texts(10)) for n in range(3)]
        writer.commit(list(parts), batch)
    writer.commit([send(cluster.url, queue, "query/0", 9, texts(10))], 9)
    for _ in range(2):
        again = [send(cluster.url, queue, f"other/{n}", 8, texts(10)) for n in range(2)]
        writer.commit(list(again), 8)
    with pytest.raises(SourceError, match="1 partitions: an earlier attempt stored other rows"):
        writer.commit([again[0]], 8)


def test_a_stream_has_other_producers_behind_a_million_batches() -> None:
    names = [stream_producer("query", batch, 3) for batch in (0, 2**20 - 1, 2**20)]
    assert names == ["spark/query/0/3", "spark/query/0/3", "spark/query/1/3"]
    bodies = pa.chunked_array([["x"]])
    same = [Numbering(batch, 0).next(bodies, is_last=True)[0] for batch in (5, 2**20 + 5)]
    assert same[0] == same[1] < 2**63


def test_each_job_has_producers_of_its_own_unless_it_is_named(cluster: Cluster) -> None:
    def job(**given: str) -> str:
        return FifoWriter(settings(options.BATCH_WRITE, cluster.url, "q", given)).job

    assert job() != job()
    assert job(job="load-2026-11-22") == "load-2026-11-22"


def test_a_full_queue_fails_the_task_and_names_the_row_and_the_remedy(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    client.declare(fifo.QueueSpec(f"{queue}.small", max_length=640))
    with pytest.raises(SourceError) as refused:
        send(cluster.url, f"{queue}.small", "job/0", 0, texts(2000))
    text = str(refused.value)
    assert "partition 0, row 641 was not stored (640 rows before it are stored)" in text
    assert "raise its limit" in text
    assert "\n" not in text
    client.update(f"{queue}.small", max_length=5000)
    assert send(cluster.url, f"{queue}.small", "job/0", 0, texts(2000)).duplicates == 640
    assert client.queue(f"{queue}.small").ready == 2000


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x" * (2**20 + 1), "rows 1 to 2: body: 1048577 bytes; .* at most 1048576"),
        (None, "rows 1 to 2: row 2: body is null; filter such rows out"),
    ],
)
def test_a_row_that_cannot_be_sent_fails_the_task(
    cluster: Cluster, client: BlockingClient, queue: str, body: str | None, words: str
) -> None:
    wanted = settings(options.STREAM_WRITE, cluster.url, queue, {})
    rows = pa.table({"body": ["fine", body]}).to_batches()
    with pytest.raises(SourceError, match=words):
        Sending(wanted, "job/0", 0).run(iter(rows))
    assert stored(client, queue) == []


def test_a_wrong_url_or_queue_is_said_before_any_task(cluster: Cluster) -> None:
    for url, queue, words in (
        (cluster.url, "nowhere", "there is no queue 'nowhere'; declare it first"),
        ("fifo://127.0.0.1:1?connect_timeout=0.3", "q", "check the option url"),
    ):
        wanted = settings(options.BATCH_WRITE, url, queue, {})
        with pytest.raises(SourceError, match=words):
            see_the_queue(wanted)


def test_a_cluster_that_dies_in_the_middle_ends_the_task_with_an_error(
    cluster: Cluster, client: BlockingClient, queue: str
) -> None:
    wanted = settings(options.STREAM_WRITE, f"{cluster.url}?timeout=1", queue, {})
    sending = Sending(wanted, "job/0", 0)

    def batches() -> Generator[pa.RecordBatch, None, None]:
        yield from pa.table({"body": texts(1000)}).to_batches()
        with cluster.without_majority():
            yield from pa.table({"body": texts(500, 1000)}).to_batches()
            yield from pa.table({"body": ["the last"] * 50_000}).to_batches()
            raise AssertionError("no task has failed")

    began = time.monotonic()
    rows = batches()
    with pytest.raises(SourceError, match="that a majority of the nodes runs"):
        sending.run(rows)
    rows.close()
    assert time.monotonic() - began < 60
    assert set(stored(client, queue)[:500]) == {text.encode() for text in texts(500)}


def test_a_queue_is_only_appended_to() -> None:
    source = FifoDataSource({"url": "fifo://h:1", "queue": "q"})
    schema = StructType([StructField("body", StringType())])
    for write in (source.writer, source.streamWriter):
        with pytest.raises(fifo.InvalidArgument, match="can only be appended to"):
            write(schema, True)


def test_a_password_is_in_no_error() -> None:
    url = "fifo://me:secret@127.0.0.1:1?connect_timeout=0.3"
    with pytest.raises(SourceError) as refused:
        see_the_queue(settings(options.BATCH_WRITE, url, "q", {}))
    assert "secret" not in str(refused.value)
