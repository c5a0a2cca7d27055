"""Events of one partition, written as Parquet in the form of docs/history.md.

Owns columns, batches and the clock: monotonic, which all processes of one machine share. Events
carry no number yet; `bench.check.numbering` gives it, over all partitions. Knows no queue.
"""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.check.form import VALUES

BATCH = 20_000
"""Events held in memory: some 10 MB."""

STAMP = "published_ms"
"""Wall-clock time that the broker stamped on the message: for people, not for checkers."""

ARROW = {"string": "string", "bigint": "int64", "double": "float64", "boolean": "bool_"}


class Recorder:
    """Writes one file; a context manager. Until `close` the file cannot be read."""

    def __init__(self, folder: Path, writer: str) -> None:
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

    def add(self, kind: str, f: str, process: str, at: float | None = None, **value: Any) -> None:
        """An event, now, or at a monotonic time in seconds."""
        self._rows.append(
            {
                "type": kind,
                "f": f,
                "value": value,
                "process": process,
                "time": round(time.monotonic() if at is None else at, 6),
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
