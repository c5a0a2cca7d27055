"""The flights as a Spark source, and the queue's own sink with a record of what was confirmed.

Owns two formats: `flights`, which reads the data in partitions, and `fifo` as `fifo.spark` has it,
with one option more: `records`, the folder in which every task writes down its confirmed chunks.
Must not know who consumes.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bench.demo.flights import flights, row_of
from bench.demo.ranges import in_chunks, ranges
from bench.demo.records import CONFIRMED, Chunk, Recorder, now_ms
from fifo.blocking import BlockingSent
from fifo.spark import FifoDataSource
from fifo.spark.options import Settings
from fifo.spark.writing import FifoWriter, Published, Sending

PUBLISHED = "published"
"""The file in the run's folder that says how many rows were sent, once all are confirmed."""

COLUMNS = pa.schema({"body": pa.binary(), "key": pa.string()})


class FlightsSource(DataSource):
    """`format("flights")`: rows 1 to the option `rows`, in `partitions` consecutive ranges."""

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return "flights"

    def schema(self) -> str:
        """As the sink takes them."""
        return "body binary, key string"

    def reader(self, schema: StructType) -> FlightsReader:
        """For `spark.read`."""
        return FlightsReader(int(self.options["rows"]), int(self.options["partitions"]))


class FlightsReader(DataSourceReader):
    """Reads the file once per partition."""

    def __init__(self, count: int, parts: int) -> None:
        self._ranges = ranges(count, parts)

    def partitions(self) -> list[InputPartition]:
        """A partition per range."""
        return [InputPartition(part) for part in self._ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Batches of as many rows as travel in one frame."""
        for rows in in_chunks(flights(*partition.value)):
            columns = {"body": [row.body for row in rows], "key": [row.key for row in rows]}
            yield pa.RecordBatch.from_pydict(columns, schema=COLUMNS)


class RecordingSource(FifoDataSource):
    """`format("fifo")` with the option `records`."""

    def __init__(self, options: dict[str, str]) -> None:
        self._folder = Path(options.pop("records", ""))
        super().__init__(options)

    def writer(self, schema: StructType, overwrite: bool) -> RecordingWriter:
        """For `df.write`."""
        return RecordingWriter(super().writer(schema, overwrite).settings, self._folder)


class RecordingWriter(FifoWriter):
    """The sink; its tasks keep records."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        super().__init__(settings)
        self._folder = folder

    def sending(self, producer: str, partition: int) -> Sending:
        """With a record."""
        return RecordingSending(self.settings, producer, partition, self._folder)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have ended well: say how many rows they sent."""
        super().commit(messages)
        sent = sum(message.rows for message in messages if isinstance(message, Published))
        (self._folder.parent / PUBLISHED).write_text(str(sent))


class Answers:
    """A thread that notes when calls are answered: Spark's task looks at them when it has its next
    rows, which may be seconds later."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[BlockingSent | None] = SimpleQueue()
        self._times_ms: SimpleQueue[int] = SimpleQueue()
        self._thread = threading.Thread(target=self._watch, name="answers", daemon=True)

    def __enter__(self) -> Answers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.put(None)
        self._thread.join()

    def watch(self, call: BlockingSent) -> None:
        """Note the time of the answer, after those of earlier calls."""
        self._calls.put(call)

    def next_ms(self) -> int:
        """The time of the next answer, in milliseconds since 1970; there has to be one."""
        return self._times_ms.get()

    def _watch(self) -> None:
        while (call := self._calls.get()) is not None:
            # Whatever ended it, the task that asks for it hears of it.
            with contextlib.suppress(Exception, asyncio.CancelledError):
                call.result()
            self._times_ms.put(now_ms())


class RecordingSending(Sending):
    """A task's publishing, with a line for each chunk when it is confirmed."""

    def __init__(self, settings: Settings, producer: str, partition: int, folder: Path) -> None:
        super().__init__(settings, producer, partition)
        self._folder = folder
        self._sent_ms: deque[int] = deque()

    def run(self, batches: Iterator[pa.RecordBatch]) -> Published:
        """The record is open as long as the task runs."""
        with (
            Recorder(self._folder, CONFIRMED, str(self.partition)) as self._recorder,
            Answers() as self._answers,
        ):
            return super().run(batches)

    def sent(self, bodies: Sequence[bytes]) -> None:
        """When the oldest unconfirmed chunk was handed over is known here."""
        self._sent_ms.append(now_ms())

    def under_way(self, sending: BlockingSent) -> None:
        """When it was answered is noted beside."""
        self._answers.watch(sending)

    def confirmed(self, bodies: Sequence[bytes]) -> None:
        """Rows follow each other, so the first and the last name them all."""
        first, last = row_of(bodies[0]), row_of(bodies[-1])
        answered_ms = self._answers.next_ms()
        self._recorder.write(Chunk(first, last, self._sent_ms.popleft(), answered_ms))
