"""Readers of entries that are not in memory, off the event loop: in order, or by index.

Owns who waits for what. A `LogReader` follows the log for a reader that may be far behind (a peer,
the state machine) and keeps a chunk or two ahead of it. A `BodyFetcher` serves those that wait for
entries anywhere, one fetch after the other, each for all that gathered while the one before was
under way. Its entries are in the cache while its waiters are called, whatever the cache's bound; a
waiter that does not use them then asks again. Must not know peers, nor what is done with an entry.
"""

from __future__ import annotations

import errno
import os
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from node.journal import limits
from node.journal.io.jobs import Job, Prefetch, Steps
from node.journal.record_files import read_entries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from node.journal.commands import CommandCache
    from node.journal.entry_store import EntryStore
    from node.journal.io.jobs import Work, Worker
    from node.journal.io.storage import Storage
    from node.journal.locations import EntryLocation
    from node.journal.log import DurableLog
    from node.journal.record_files import RecordFile
    from node.journal.records import Entry


class NotCached(Exception):
    """An entry is there, but not in memory: it has to be fetched first."""


class FetchWaiter(Protocol):
    """Waits for entries."""

    def needs(self) -> Iterable[Sequence[int]]:
        """Indexes of entries in the order of need, in groups each of which is of use only as a
        whole. Asked when the reading begins; it may be cut off behind a group."""

    def entries_cached(self) -> None:
        """Called when entries were read, which are in memory until this returns: at least the first
        group, but for entries that are gone or have moved meanwhile."""


class ReadAhead:
    """A waiter that uses nothing: reads an entry that is likely to be needed soon."""

    def __init__(self, index: int) -> None:
        self._index = index

    def needs(self) -> Iterable[Sequence[int]]:
        """See `FetchWaiter`."""
        return [[self._index]]

    def entries_cached(self) -> None:
        """Nothing to do: the entry is in the cache."""


class BodyFetch(Job[None]):
    """Entries that are read together. Gathered on the event loop, read on any thread through
    descriptors of its own, so that closing or removing a file meanwhile does no harm."""

    def __init__(self, storage: Storage, cache: CommandCache, store: EntryStore) -> None:
        super().__init__(self._read)
        self._storage = storage
        self._cache = cache
        self._store = store
        self._wanted: dict[int, None] = {}
        self._locations: dict[RecordFile, list[EntryLocation]] = {}
        self.size = 0
        """Bytes of the entries in it, cached ones included."""
        self.entries: list[Entry] = []
        self.gone: list[EntryLocation] = []
        """Entries whose file was removed before it was opened."""
        self.damaged: list[EntryLocation] = []
        """Entries that did not read as they were written."""
        self.read_ahead = range(0)
        """Entries that are read ahead of any need: what follows in the log."""

    def add(self, needs: Iterable[Sequence[int]]) -> bool:
        """Take what one waiter needs, about `limits.FETCH_ASKER_BYTES` at most, and what follows in
        the log: most queues are read in the order in which they were written. False, and nothing
        taken, where the first of it waits for a repair."""
        full = self.size + limits.FETCH_ASKER_BYTES
        damaged = self._store.damages.entries
        index = 0
        for group in islice(needs, limits.FETCH_GROUPS_MAX):
            if damaged and not damaged.keys().isdisjoint(group):
                if not index:
                    return False
                break
            for index in group:
                if index not in self._wanted:
                    self.want(index)
            if self.size >= full:
                break
        if index:
            self._read_on(index + 1)
        return True

    def _read_on(self, first: int) -> None:
        index, full = first, self.size + limits.FETCH_AHEAD_BYTES
        damaged = self._store.damages.entries
        while self.size < full and index not in self._wanted and self._cache.peek(index) is None:
            if index in damaged or not self.want(index):
                break
            index += 1
        self.read_ahead = range(first, index)

    def want(self, index: int) -> bool:
        """Have an entry read, or held until then; False if there is no such entry."""
        self._wanted[index] = None
        location = self._store.locate(index)
        if location is None:
            return False
        self.size += location.size + limits.ENTRY_COST_BYTES
        command = self._cache.peek(index)
        if command is None:
            self._locations.setdefault(self._store.file_of(location), []).append(location)
        else:
            # The cache could evict it while the others are read.
            self.entries.append((command, index, location.term))
        return True

    def _read(self) -> None:
        for file, locations in self._locations.items():
            try:
                self.entries += read_entries(self._storage, file, locations, self.damaged)
            except FileNotFoundError:
                self.gone += locations

    def still_there(self) -> list[Entry]:
        """The entries read, without those that are damaged, which is noted, and those that have
        left the journal meanwhile. FileNotFoundError if a file was missing that should be there."""
        self._store.damages.note(self._store, self.damaged)
        for location in self.gone:
            if self._store.locate(location.log_index) == location:
                name = self._store.file_of(location).name
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return [entry for entry in self.entries if self._is_there(entry)]

    def _is_there(self, entry: Entry) -> bool:
        """Whether the journal still has an entry of that index, in that term: the same one."""
        location = self._store.locate(entry[1])
        return location is not None and location.term == entry[2]


class FetchSource(Protocol):
    """A journal, as a fetcher asks it for entries."""

    def begin_fetch(self) -> BodyFetch:
        """Return a fetch to gather in."""

    def fetched(self, fetch: BodyFetch) -> AbstractContextManager[None]:
        """Keep what was read in memory within the context. Raises `JournalFailed`, which is
        final."""


class BodyFetcher:
    """The waiters of one journal, and the one fetch that may be under way."""

    def __init__(
        self, journal: FetchSource, worker: Worker, failed: Callable[[Exception], None]
    ) -> None:
        """`failed` gets the error that ends the node: a disk that does not read what was
        written."""
        self._journal = journal
        self._failed = failed
        self._waiting: dict[FetchWaiter, None] = {}
        self._served: dict[FetchWaiter, None] = {}
        self._parked: dict[FetchWaiter, None] = {}
        self._steps: Steps[None] = Steps(worker, self._advance)
        self._read_ahead = range(0)

    def __repr__(self) -> str:
        return (
            f"<BodyFetcher {len(self._waiting)} waiting, {len(self._served)} in the fetch, "
            f"{len(self._parked)} parked>"
        )

    @property
    def parked(self) -> bool:
        """Whether there is a waiter for an entry that has to be repaired first."""
        return bool(self._parked)

    def repaired(self) -> None:
        """Entries were repaired, or are gone: those that waited for them are served."""
        self._waiting |= self._parked
        self._parked.clear()
        self._advance()

    def ask(self, waiter: FetchWaiter) -> None:
        """Have `waiter.entries_cached` called when what it needs was read: once, however often
        this is asked."""
        if waiter not in self._served and waiter not in self._parked:
            self._waiting[waiter] = None
            self._advance()

    def used(self, index: int) -> None:
        """Note that an entry is used. Where it was read ahead, the next ones are read from now on,
        so that a reader in the order of the log need not wait again."""
        if index in self._read_ahead:
            following = self._read_ahead.stop
            self._read_ahead = range(0)
            self.ask(ReadAhead(following))

    def drop(self, waiter: FetchWaiter) -> None:
        """Forget a waiter: it needs nothing any more, and is not called."""
        self._waiting.pop(waiter, None)
        self._served.pop(waiter, None)
        self._parked.pop(waiter, None)

    def _advance(self) -> None:
        """Within a step (a waiter that asks again), nothing: the step sees the new waiter."""
        try:
            if self._steps.idle:
                self._steps.begin(self._fetches())
            while self._steps.runnable:
                self._steps.step()
        except Exception as error:
            self._failed(error)

    def _fetches(self) -> Work:
        """Fetch, again and again, while there are waiters."""
        while self._waiting:
            fetch = self._gather()
            yield fetch
            with self._journal.fetched(fetch):
                while self._served:
                    waiter = next(iter(self._served))
                    del self._served[waiter]
                    waiter.entries_cached()
            self._read_ahead = fetch.read_ahead

    def _gather(self) -> BodyFetch:
        fetch = self._journal.begin_fetch()
        while self._waiting and fetch.size < limits.FETCH_BYTES:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            served = fetch.add(waiter.needs())
            (self._served if served else self._parked)[waiter] = None
        return fetch


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
        """Whether the entries from `first` on are being read, or repaired before that."""
        if self._log.waits_for_repair(first):
            return True
        prefetch = self._prefetch
        return prefetch is not None and prefetch.waiting and self._next_index == first

    def take(self, first: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Entries from `first` on, up to `max_bytes` of commands and `max_count`, at least one.

        None of them where there is none, or while they are read, or the first is repaired: `wake`
        is called then. Raises what `DurableLog.read` does, but for damage, which is final.
        """
        entries = self._log.cached_entries(first, max_bytes, max_count)
        if entries or first > self._last():
            return entries
        chunk = self._chunk
        if not (chunk and chunk[0][1] <= first <= chunk[-1][1]):
            if self._log.waits_for_repair(first):
                return []
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
