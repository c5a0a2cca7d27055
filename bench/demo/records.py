"""The records that publishers and consumers keep themselves: what the check stands on.

Owns the format of the files: one line of comma-separated values per confirmed chunk or per
delivery, written by one process each, readable while they grow. Times are milliseconds of the
machine's wall clock, which all processes of the demo share. Knows no queue and no verdict.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

CONFIRMED = "confirmed"
DELIVERED = "delivered"
DEAD = "dead"
"""Content of a file, as the first part of its name: chunks confirmed to a publisher, deliveries of
the queue, deliveries of its dead-letter queue."""

FLUSH_EVERY_MS = 100
"""Greatest age of a line before others can read it: often enough for a progress bar."""


class Chunk(NamedTuple):
    """Rows first..last were published together, and confirmed."""

    first: int
    last: int
    sent_ms: int
    confirmed_ms: int


class Delivery(NamedTuple):
    """A message as a consumer got it, and what it did with it.

    `outcome` is acked, nacked, terminated, or what the queue answered instead (lock_lost and so
    on). `published_ms` is the message's own, `settled_ms` the time at which the consumer was done
    with it.
    """

    row: int
    attempt: int
    failures: int
    outcome: str
    message_id: str
    published_ms: int
    received_ms: int
    settled_ms: int


def now_ms() -> int:
    """Wall time in milliseconds."""
    return time.time_ns() // 1_000_000


class Recorder:
    """Writes one file of records; a context manager. One process, one file."""

    def __init__(self, folder: Path, kind: str, writer: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = (folder / f"{kind}-{writer}.csv").open("x", encoding="ascii")
        self._flushed_ms = now_ms()

    def write(self, record: Chunk | Delivery) -> None:
        """Append a record."""
        self._file.write(",".join(map(str, record)) + "\n")
        now = now_ms()
        if now - self._flushed_ms >= FLUSH_EVERY_MS:
            self.flush(now)

    def flush(self, now: int | None = None) -> None:
        """Make the records readable for others; needed when no more may come for a while."""
        self._file.flush()
        self._flushed_ms = now_ms() if now is None else now

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


class Follower:
    """Reads the files of one kind in a folder as they grow: each line once, when it is whole."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder = folder
        self._kind = kind
        self._positions: dict[Path, int] = {}

    def lines(self) -> Iterator[str]:
        """The whole lines that were added since the last call, file by file."""
        for path in sorted(self._folder.glob(f"{self._kind}-*.csv")):
            with path.open("rb") as file:
                file.seek(self._positions.get(path, 0))
                added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            self._positions[path] = self._positions.get(path, 0) + len(whole)
            yield from whole.decode("ascii").splitlines()


def chunks(follower: Follower) -> Iterator[Chunk]:
    """The chunks that were added since the last call."""
    for line in follower.lines():
        first, last, sent_ms, confirmed_ms = map(int, line.split(","))
        yield Chunk(first, last, sent_ms, confirmed_ms)


def deliveries(follower: Follower) -> Iterator[Delivery]:
    """The deliveries that were added since the last call."""
    for line in follower.lines():
        row, attempt, failures, outcome, message_id, published, received, settled = line.split(",")
        yield Delivery(
            int(row),
            int(attempt),
            int(failures),
            outcome,
            message_id,
            int(published),
            int(received),
            int(settled),
        )
