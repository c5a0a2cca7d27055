"""Entries that are read together beside the loop, wherever they lie.

Owns how one flight reads: neighbours on the disk in one read, each entry checked as if it were read
alone. Knows neither who waits for them nor what is done with them.
"""

from __future__ import annotations

import errno
import os
from itertools import islice
from typing import TYPE_CHECKING

from node.journal import limits
from node.journal.io.job import Job
from node.journal.place_reader import RecordFile, read_locations

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from node.journal.cache import CommandCache
    from node.journal.io.storage import Storage
    from node.journal.locations import EntryLocation
    from node.journal.records import Entry
    from node.journal.snapshots.store import SnapshotStore


class BodyFetch(Job):
    """What is read together: made on the loop's thread, read on another with descriptors of its
    own, so that nothing that is closed or removed meanwhile concerns it."""

    def __init__(self, storage: Storage, cache: CommandCache, store: SnapshotStore) -> None:
        super().__init__(self._read)
        self._storage = storage
        self._cache = cache
        self._store = store
        self._wanted: dict[int, None] = {}
        self._locations: dict[RecordFile, list[EntryLocation]] = {}
        self.size = 0
        """Bytes of the entries in it, those that were at hand included."""
        self.entries: list[Entry] = []
        self.gone: list[EntryLocation] = []
        """Entries whose file was removed before it was opened."""
        self.ahead = range(0)
        """Entries that nobody has asked for yet: what follows in the log."""

    def add(self, needs: Iterable[Sequence[int]]) -> None:
        """Takes what somebody needs, but not much more than `limits.FETCH_ASKER_BYTES`, and what
        follows in the log: most queues are read in the order in which they were written."""
        full = self.size + limits.FETCH_ASKER_BYTES
        index = 0
        for group in islice(needs, limits.FETCH_GROUPS_MAX):
            for index in group:
                if index not in self._wanted:
                    self.want(index)
            if self.size >= full:
                break
        if index:
            self._read_on(index + 1)

    def _read_on(self, first: int) -> None:
        index, full = first, self.size + limits.FETCH_AHEAD_BYTES
        while self.size < full and index not in self._wanted and self._cache.peek(index) is None:
            if not self.want(index):
                break
            index += 1
        self.ahead = range(first, index)

    def want(self, index: int) -> bool:
        """Have it read, or held until then; whether there is such an entry."""
        self._wanted[index] = None
        location = self._store.locate(index)
        if location is None:
            return False
        self.size += location.size + limits.ENTRY_COST_BYTES
        command = self._cache.peek(index)
        if command is None:
            self._locations.setdefault(self._store.holder(location), []).append(location)
        else:
            # It could be driven out while the others are read.
            self.entries.append((command, index, location.term))
        return True

    def _read(self) -> None:
        for holder, locations in self._locations.items():
            try:
                for location, command in read_locations(self._storage, holder, locations):
                    self.entries.append((command, location.log_index, location.term))
            except FileNotFoundError:
                self.gone += locations

    def still_there(self) -> list[Entry]:
        """What it has read, but for what is not in the journal any more. FileNotFoundError if a
        file was missing that should be there."""
        for location in self.gone:
            if self._store.locate(location.log_index) == location:
                name = self._store.holder(location).name
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return [entry for entry in self.entries if self._is_there(entry)]

    def _is_there(self, entry: Entry) -> bool:
        """Whether the journal still has an entry of that index, in that term: the same one."""
        location = self._store.locate(entry[1])
        return location is not None and location.term == entry[2]
