"""Events of one partition, written as Parquet in the form of docs/history.md.

Owns columns, batches, and the numbers that events get over all partitions in the end. The clock is
the caller's: one for all of them. Knows no queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.check.form import FIELDS, VALUES

BATCH = 20_000
"""Events held in memory: some 10 MB."""

STAMP = "published_ms"
"""Wall-clock time that the broker stamped on the message: for people, not for checkers."""

ARROW = {"string": "string", "bigint": "int64", "double": "float64", "boolean": "bool_"}


class Recorder:
    """Writes one file; a context manager. Until `close` the file cannot be read."""

    def __init__(
        self, folder: Path, writer: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        fields = [(name, getattr(pa, ARROW[kind])()) for name, kind in VALUES.items()]
        fields.append((STAMP, pa.int64()))
        self._schema = pa.schema(
            [
                ("type", pa.string()),
                ("f", pa.string()),
                ("value", pa.struct(fields)),
                ("process", pa.string()),
                ("time", pa.float64()),
                ("place", pa.int64()),
            ]
        )
        folder.mkdir(parents=True, exist_ok=True)
        self._table = pa.Table
        self._file = parquet.ParquetWriter(folder / f"{writer}.parquet", self._schema)
        self._rows: list[dict[str, Any]] = []
        self._count = 0
        self._clock = clock

    def add(self, kind: str, f: str, process: str, at: float | None = None, **value: Any) -> None:
        """An event, now, or at a time of the clock in seconds."""
        self._rows.append(
            {
                "type": kind,
                "f": f,
                "value": value,
                "process": process,
                "time": round(self._clock() if at is None else at, 6),
                "place": self._count,
            }
        )
        self._count += 1
        if len(self._rows) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._file.write_table(self._table.from_pylist(self._rows, schema=self._schema))
            self._rows = []

    def close(self) -> None:
        """Write what is left, and make the file whole."""
        self._flush()
        self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class NoRecorder(Recorder):
    """Where no history is wanted."""

    def __init__(self) -> None:
        pass

    def add(self, kind: str, f: str, process: str, at: float | None = None, **value: Any) -> None:
        """Forget it."""

    def close(self) -> None:
        """Nothing is open."""


def number(parts: Path, folder: Path) -> int:
    """Make one history of what was recorded, and give how many events it has.

    Only times and places are in memory together: each part is written again with its numbers.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import parquet

    files = sorted(parts.glob("*.parquet"))
    read = [parquet.read_table(path, columns=["time", "place"]) for path in files]
    marked = [
        table.append_column("file", pa.repeat(pa.scalar(at, pa.int32()), table.num_rows))
        for at, table in enumerate(read)
    ]
    events = pa.concat_tables(marked)
    keys = [(name, "ascending") for name in ("time", "file", "place")]
    ordered = pc.sort_indices(events, sort_keys=keys)
    numbers = pc.sort_indices(ordered).cast(pa.int64())  # the inverse of a permutation
    folder.mkdir(parents=True)
    begin = 0
    for at, path in enumerate(files):
        with parquet.ParquetFile(path) as file:
            writer = None
            for batch in file.iter_batches(BATCH):
                index = numbers.slice(begin, batch.num_rows)
                begin += batch.num_rows
                numbered = pa.Table.from_batches([batch]).append_column("index", index)
                numbered = numbered.select(list(FIELDS))
                if writer is None:
                    writer = parquet.ParquetWriter(
                        folder / f"part-{at:05}.parquet", numbered.schema
                    )
                writer.write_table(numbered)
            if writer is not None:
                writer.close()
    return int(events.num_rows)
