"""Entries of the log in order, for a reader that may be far behind: a peer, or the state machine.

Owns where they come from: memory, and for those that are not in memory the disk, off the event
loop and a chunk or two ahead of the reader, which waits alone. Must not know peers, nor what is
done with an entry; the reader says how far may be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.journal.io.steps import Prefetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.io.worker import Worker
    from node.journal.log import DurableLog
    from node.journal.records import Entry


class LogReader:
    """A reader's way through the log. Keeps at most three chunks of `limits.RUN_BYTES`: the one
    in use, the next, and one that is being read."""

    def __init__(
        self, log: DurableLog, worker: Worker, wake: Callable[[], None], last: Callable[[], int]
    ) -> None:
        """Read no entry above `last()`: another could replace it before it is taken. Where the log
        is truncated at or below that, `stop` has to come first."""
        self._log = log
        self._worker = worker
        self._wake = wake
        self._last = last
        self._chunk: list[Entry] = []
        self._prefetch: Prefetch[list[Entry]] | None = None
        self._next_index = 0

    def __repr__(self) -> str:
        return f"<LogReader {self._prefetch} from {self._next_index}>"

    def waits(self, first: int) -> bool:
        """Whether the entries from `first` on are being read."""
        prefetch = self._prefetch
        return prefetch is not None and prefetch.waiting and self._next_index == first

    def take(self, first: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Entries from `first` on, up to `max_bytes` of commands and `max_count`, at least one.

        None of them where there is none, or while they are read: `wake` is called then. Raises
        what `DurableLog.read` does, which is final.
        """
        entries = self._log.cached_entries(first, max_bytes, max_count)
        if entries or first > self._last():
            return entries
        chunk = self._chunk
        if not (chunk and chunk[0][1] <= first <= chunk[-1][1]):
            chunk = self._chunk = self._next_chunk(first)
        if not chunk:
            return []
        last = self._log.last_of(first, max_bytes, max_count)
        return chunk[first - chunk[0][1] : last - chunk[0][1] + 1]

    def _next_chunk(self, first: int) -> list[Entry]:
        if self._prefetch is None or self._prefetch.ended or self._next_index != first:
            self.stop()
            chunks = self._log.reading_log(first, self._last)
            self._prefetch = Prefetch(chunks, self._worker, self._wake)
            self._next_index = first
        entries = self._prefetch.take() or []
        self._next_index += len(entries)
        return entries

    def stop(self) -> None:
        """Drop what was read. Does not wait for what is being read."""
        self._chunk = []
        if self._prefetch is not None:
            self._prefetch.stop()
            self._prefetch = None
