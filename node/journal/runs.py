"""Reading consecutive entries of the log: from memory what is there, the rest in runs.

Owns how far a run goes, which is one read of the disk: within one segment, and of bounded size, on
the caller's thread or beside the loop. Each record in it is checked as if it were read alone. Puts
nothing into the cache, which keeps what is fresh: a peer that catches up would only drive that out.
Knows nothing of snapshots.
"""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from node.journal import limits, records
from node.journal.errors import REMEDY, JournalDamaged
from node.journal.io.prefetch import reading
from node.journal.place_reader import RecordFile
from node.journal.record_reader import check_record

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager

    from node.journal.cache import CommandCache
    from node.journal.index import Extent, LogIndex
    from node.journal.io.job import Job
    from node.journal.io.storage import Storage, StorageFile
    from node.journal.open_files import OpenFiles
    from node.journal.records import Entry
    from node.journal.segments import Segment, Segments


class Run(NamedTuple):
    """Consecutive entries from `first` on in one file, at `locations` of the log."""

    holder: RecordFile
    first: int
    locations: list[Extent]
    terms: array[int]

    def commands(self, file: StorageFile) -> list[bytes]:
        """What stands there, in one read. `JournalDamaged` if it is not what was written."""
        name, base, seed = self.holder
        start, newest = self.locations[0].position, self.locations[-1]
        end = newest.position + records.RECORD_BYTES + newest.size
        content = file.read(start - base, end - start)
        view = memoryview(content)
        commands = []
        for index, (position, size), term in zip(
            count(self.first), self.locations, self.terms, strict=False
        ):
            at = position - start
            head = check_record(view, at, size, position=position, seed=seed)
            wanted = (records.ENTRY, index, term)
            if isinstance(head, str) or (head.kind, head.log_index, head.term) != wanted:
                problem = f"entry {index} does not read as it was written"
                raise JournalDamaged(name, position - base, problem, REMEDY)
            at += records.RECORD_BYTES
            commands.append(content[at : at + size])
        return commands

    def entries(self, storage: Storage) -> list[Entry]:
        """The same with a descriptor of its own, for whichever thread."""
        file = storage.open(self.holder.name)
        try:
            return list(zip(self.commands(file), count(self.first), self.terms, strict=False))
        finally:
            file.close()


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
        """`final` is entered around each read of the disk, and around the end of one beside the
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
                    run = self._run(index, self._cache.missing_until(index, last))
                    found += run.commands(self._files.get(run.holder.name))
        return found

    def at_hand(self, first: int, last: int) -> list[bytes]:
        """The same from memory alone: as many as are there before the first that is not."""
        whole = self._cache.peek_run(first, last)
        if whole is not None:
            return whole
        found: list[bytes] = []
        while (command := self._cache.peek(first + len(found))) is not None:
            found.append(command)
        return found

    def beside(self, first: int, last: Callable[[], int]) -> Generator[Job | list[Entry]]:
        """The entries from `first` on, read beside the loop run by run, up to the first that is in
        memory, or is not below what `last` says then."""
        while first <= last() and self._cache.peek(first) is None:
            run = self._run(first, min(last(), first + limits.READ_ENTRIES_MAX - 1))
            segment = self._segments.at(run.locations[0].position)
            entries = yield from reading(
                partial(run.entries, self._storage), self._final, partial(self._is_kept, segment)
            )
            if entries is None:
                return  # The log begins later by now.
            yield entries
            first += len(entries)

    def _is_kept(self, segment: Segment) -> bool:
        return self._segments.get(segment.header.sequence) is segment

    def _run(self, first: int, last: int) -> Run:
        """`first`, and what follows it up to `last`, as far as one read goes."""
        start = self._log.extent_at(first).position
        segment = self._segments.at(start)
        locations = self._locations(first, last, start, segment.end)
        holder = RecordFile(segment.name, segment.header.base, segment.seed)
        return Run(holder, first, locations, self._log.terms(first, first + len(locations) - 1))

    def _locations(self, first: int, last: int, start: int, segment_end: int) -> list[Extent]:
        """What lies between entries (a group's head, a vote) is read along, and passed over."""
        end = min(start + limits.RUN_BYTES, segment_end)
        locations = self._log.extents_until(first, last, end)
        newest = locations[-1]
        if len(locations) > 1 and newest.position + records.RECORD_BYTES + newest.size > end:
            locations.pop()
        return locations
