"""Reading consecutive entries of the log: from memory what is there, the rest in runs.

Owns how far a run goes, on the caller's thread or off the event loop. Puts nothing into the cache,
which keeps recent commands: a peer that catches up would only evict those. Must not know snapshots.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from node.journal import limits, records
from node.journal.io.job import read_off_loop
from node.journal.locations import EntryLocation
from node.journal.record_reader import read_entries, read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from node.journal.cache import CommandCache
    from node.journal.index import LogIndex
    from node.journal.io.job import Job
    from node.journal.io.storage import OpenFiles, Storage
    from node.journal.record_reader import RecordFile
    from node.journal.records import Entry
    from node.journal.segments import Segments


class RunReader:
    """Reads what `log` says is in `cache` or written in `segments`."""

    def __init__(
        self,
        log: LogIndex,
        cache: CommandCache,
        segments: Segments,
        files: OpenFiles,
        storage: Storage,
        final: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`final` is entered around each read of the disk, and around the end of one off the event
        loop."""
        self._log = log
        self._cache = cache
        self._segments = segments
        self._files = files
        self._storage = storage
        self._final = final

    def commands(self, first: int, last: int) -> list[bytes]:
        """The commands of entries `first` to `last`.

        `JournalDamaged` if one does not read as it was written; OSErrors pass through.
        """
        cached = self._cache.peek_run(first, last)
        if cached is not None:
            return cached
        found: list[bytes] = []
        while (index := first + len(found)) <= last:
            command = self._cache.peek(index)
            if command is not None:
                found.append(command)
            else:
                with self._final():
                    source, run = self._run(index, self._cache.missing_until(index, last))
                    found += read_run(self._files.get(source.name), source, run)
        return found

    def cached(self, first: int, last: int) -> list[bytes]:
        """The same from memory alone: as many as are there before the first that is not."""
        whole = self._cache.peek_run(first, last)
        if whole is not None:
            return whole
        found: list[bytes] = []
        while (command := self._cache.peek(first + len(found))) is not None:
            found.append(command)
        return found

    def reading(self, first: int, last: Callable[[], int]) -> Generator[Job[Any] | list[Entry]]:
        """Read the entries from `first` on off the event loop, run by run, up to the first that is
        in memory, or above `last()` then; yields the jobs, and the entries of each run."""
        while first <= last() and self._cache.peek(first) is None:
            source, run = self._run(first, min(last(), first + limits.READ_ENTRIES_MAX - 1))
            entries = yield from read_off_loop(
                partial(self._read, source, run),
                self._final,
                partial(self._segments.has, run[0].file),
            )
            if entries is None:
                return  # The log begins later by now.
            yield entries
            first += len(entries)

    def _read(self, source: RecordFile, run: list[EntryLocation]) -> list[Entry]:
        return list(read_entries(self._storage, source, run))

    def _run(self, first: int, last: int) -> tuple[RecordFile, list[EntryLocation]]:
        """`first`, and what follows it up to `last`, as far as one read goes: within one segment
        and of bounded size. What lies between entries (a group's head, a vote) is read along."""
        start = self._log.extent_at(first).position
        segment = self._segments.at(start)
        end = min(start + limits.RUN_BYTES, segment.end)
        extents = self._log.extents_until(first, last, end)
        newest = extents[-1]
        if len(extents) > 1 and newest.position + records.RECORD_BYTES + newest.size > end:
            extents.pop()
        sequence, base = segment.header.sequence, segment.header.base
        terms = self._log.terms(first, first + len(extents) - 1)
        return segment.source, [
            EntryLocation(index, term, sequence, position - base, size)
            for index, term, (position, size) in zip(count(first), terms, extents, strict=False)
        ]
