"""Entries of the log in order, for one who needs them and may be far behind: a peer, or the state.

Owns where they come from: memory, and where they are not in it the disk, beside the loop and a
piece or two ahead of the reader, who waits alone. Knows neither peers nor what is done with an
entry; how far may be read is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.journal.io.prefetch import Prefetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.io.worker import Worker
    from node.journal.log import DurableLog
    from node.journal.records import Entry


class LogReader:
    """One reader's way through the log. Keeps at most three pieces of `limits.RUN_BYTES`: the one
    in use, the next, and one that is being read."""

    def __init__(
        self, log: DurableLog, offload: Worker, wake: Callable[[], None], last: Callable[[], int]
    ) -> None:
        """Reads no entry behind what `last` says, for it could be replaced by another before it is
        taken; `stop` has to come before that."""
        self._log = log
        self._offload = offload
        self._wake = wake
        self._last = last
        self._here: list[Entry] = []
        self._ahead: Prefetch[list[Entry]] | None = None
        self._ahead_from = 0

    def __repr__(self) -> str:
        return f"<LogReader {self._ahead} from {self._ahead_from}>"

    def waits(self, first: int) -> bool:
        """Whether the entries from `first` on are being read."""
        ahead = self._ahead
        return ahead is not None and ahead.waiting and self._ahead_from == first

    def take(self, first: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Entries from `first` on, at most so many; none where there is none, or while they are
        read: `wake` is called then. Raises what `DurableLog.read` does, which is final."""
        entries = self._log.cached_entries(first, max_bytes, max_count)
        if entries or first > self._last():
            return entries
        here = self._here
        if not (here and here[0][1] <= first <= here[-1][1]):
            here = self._here = self._next(first)
        if not here:
            return []
        last = self._log.last_of(first, max_bytes, max_count)
        return here[first - here[0][1] : last - here[0][1] + 1]

    def _next(self, first: int) -> list[Entry]:
        if self._ahead is None or self._ahead.ended or self._ahead_from != first:
            self.stop()
            pieces = self._log.reading_log(first, self._last)
            self._ahead = Prefetch(pieces, self._offload, self._wake)
            self._ahead_from = first
        entries = self._ahead.take() or []
        self._ahead_from += len(entries)
        return entries

    def stop(self) -> None:
        """Forget what was read. Does not wait for what is being read."""
        self._here = []
        if self._ahead is not None:
            self._ahead.stop()
            self._ahead = None
