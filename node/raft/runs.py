"""Reading consecutive entries of the log: from memory what is there, the rest in runs.

Owns how far a run goes, which is one read of the disk: within one segment, and of bounded size.
Each record in it is checked as if it were read alone. Puts nothing into the cache, which keeps
what is fresh: a peer that catches up would only drive that out. Knows nothing of snapshots.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from node.raft import limits, records
from node.raft.errors import REMEDY, JournalDamaged
from node.raft.recordreader import check_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from node.raft.cache import CommandCache
    from node.raft.logindex import LogIndex, Place
    from node.raft.openfiles import OpenFiles
    from node.raft.segments import Segments


class RunReader:
    """Reads what `log` says is in `cache` or written in `segments`."""

    def __init__(
        self,
        log: LogIndex,
        cache: CommandCache,
        segments: Segments,
        files: OpenFiles,
        reading: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`reading` is entered around each read of the disk."""
        self._log = log
        self._cache = cache
        self._segments = segments
        self._files = files
        self._reading = reading

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
                with self._reading():
                    found += self._read_run(index, self._cache.missing_until(index, last))
        return found

    def _read_run(self, first: int, last: int) -> list[bytes]:
        """`first`, and what follows it up to `last`, as far as one read goes."""
        start = self._log.place_at(first).position
        segment = self._segments.at(start)
        base, seed = segment.header.base, segment.seed
        places = self._places(first, last, start, segment.end)
        end = places[-1].position + records.RECORD_BYTES + places[-1].size
        content = self._files.get(segment.name).read(start - base, end - start)
        view = memoryview(content)
        terms = self._log.terms(first, first + len(places) - 1)
        commands = []
        for index, (position, size), term in zip(count(first), places, terms, strict=False):
            at = position - start
            head = check_record(view, at, size, position=position, seed=seed)
            wanted = (records.ENTRY, index, term)
            if isinstance(head, str) or (head.kind, head.log_index, head.term) != wanted:
                problem = f"entry {index} does not read as it was written"
                raise JournalDamaged(segment.name, position - base, problem, REMEDY)
            at += records.RECORD_BYTES
            commands.append(content[at : at + size])
        return commands

    def _places(self, first: int, last: int, start: int, segment_end: int) -> list[Place]:
        """What lies between entries (a group's head, a vote) is read along, and passed over."""
        end = min(start + limits.RUN_BYTES, segment_end)
        places = self._log.places_until(first, last, end)
        newest = places[-1]
        if len(places) > 1 and newest.position + records.RECORD_BYTES + newest.size > end:
            places.pop()
        return places
