"""Entries that are not in memory, read beside the loop for those who wait for them.

Owns who waits, one flight after the other, and how a flight reads: whatever gathered while the one
before was in the air, neighbours on the disk in one read, each entry checked as if it were read
alone. What a flight brought is in the cache while those who waited for it are told, whatever the
cache's bound; who does not use it then asks again. Knows nothing of what is done with an entry.
"""

from __future__ import annotations

import errno
import os
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from node.raft import limits
from node.raft.flight import Flight
from node.raft.placereader import Holder, read_places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from node.raft.cache import CommandCache
    from node.raft.journal import Journal
    from node.raft.offload import Offload
    from node.raft.places import EntryPlace
    from node.raft.records import Entry
    from node.raft.snapshots import SnapshotStore
    from node.raft.storage import Storage


class NotAtHand(Exception):
    """An entry is there, but not in memory: whoever needs it has to ask for it."""


class Asker(Protocol):
    """Somebody who needs entries."""

    def needs(self) -> Iterable[Sequence[int]]:
        """Indexes of entries in the order in which they are needed, in groups each of which is of
        use only as a whole. Asked when the reading begins; it may be cut off behind a group."""

    def came(self) -> None:
        """Entries were read and are at hand until this returns: at least the first group, but for
        what is gone or has moved meanwhile."""


class Following:
    """Nobody yet: an entry that is likely to be needed soon."""

    def __init__(self, index: int) -> None:
        self._index = index

    def needs(self) -> Iterable[Sequence[int]]:
        """See `Asker`."""
        return [[self._index]]

    def came(self) -> None:
        """It is in the cache for whoever comes."""


class Fetch(Flight):
    """What is read together: made on the loop's thread, read on another with descriptors of its
    own, so that nothing that is closed or removed meanwhile concerns it."""

    def __init__(self, storage: Storage, cache: CommandCache, store: SnapshotStore) -> None:
        super().__init__(self._read)
        self._storage = storage
        self._cache = cache
        self._store = store
        self._wanted: dict[int, None] = {}
        self._places: dict[Holder, list[EntryPlace]] = {}
        self.size = 0
        """Bytes of the entries in it, those that were at hand included."""
        self.entries: list[Entry] = []
        self.gone: list[EntryPlace] = []
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
        place = self._store.locate(index)
        if place is None:
            return False
        self.size += place.size + limits.ENTRY_COST_BYTES
        command = self._cache.peek(index)
        if command is None:
            self._places.setdefault(self._store.holder(place), []).append(place)
        else:
            # It could be driven out while the others are read.
            self.entries.append((command, index, place.term))
        return True

    def _read(self) -> None:
        for holder, places in self._places.items():
            try:
                for place, command in read_places(self._storage, holder, places):
                    self.entries.append((command, place.log_index, place.term))
            except FileNotFoundError:
                self.gone += places

    def still_there(self) -> list[Entry]:
        """What it has read, but for what is not in the journal any more. FileNotFoundError if a
        file was missing that should be there."""
        for place in self.gone:
            if self._store.locate(place.log_index) == place:
                name = self._store.holder(place).name
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return [entry for entry in self.entries if self._is_there(entry)]

    def _is_there(self, entry: Entry) -> bool:
        """Whether the journal still has an entry of that index, in that term: the same one."""
        place = self._store.locate(entry[1])
        return place is not None and place.term == entry[2]


class Fetching:
    """Those who wait for entries, and the one flight that may be under way."""

    def __init__(
        self, journal: Journal, offload: Offload, failed: Callable[[Exception], None]
    ) -> None:
        """`failed` is told what ends the node: a disk that does not read what was written."""
        self._journal = journal
        self._offload = offload
        self._failed = failed
        self._waiting: dict[Asker, None] = {}
        self._aboard: dict[Asker, None] = {}
        self._flight: Fetch | None = None
        self._sending = False
        self._ahead = range(0)

    def __repr__(self) -> str:
        return f"<Fetching {len(self._waiting)} wait, {len(self._aboard)} aboard>"

    def ask(self, asker: Asker) -> None:
        """Have `asker` told once what it needs was read; once, however often this is asked."""
        if asker not in self._aboard:
            self._waiting[asker] = None
            self._go_on()

    def used(self, index: int) -> None:
        """An entry is used. Where it was read ahead, the next ones are from now on, so that who
        reads the log in order need not stand again."""
        if index in self._ahead:
            following = self._ahead.stop
            self._ahead = range(0)
            self.ask(Following(following))

    def drop(self, asker: Asker) -> None:
        """It needs nothing any more, and is not told."""
        self._waiting.pop(asker, None)
        self._aboard.pop(asker, None)

    def _go_on(self) -> None:
        if self._sending:
            return  # A flight has landed within `run`: the loop below sees it.
        self._sending = True
        try:
            while self._flight is None and self._waiting:
                self._take_off()
        except Exception as error:
            self._failed(error)
        finally:
            self._sending = False

    def _take_off(self) -> None:
        fetch = self._flight = self._journal.begin_fetch()
        while self._waiting and fetch.size < limits.FETCH_BYTES:
            asker = next(iter(self._waiting))
            del self._waiting[asker]
            self._aboard[asker] = None
            fetch.add(asker.needs())
        self._offload.run(fetch.run, lambda _: self._landed(fetch))

    def _landed(self, fetch: Fetch) -> None:
        try:
            with self._journal.fetched(fetch):
                while self._aboard:
                    asker = next(iter(self._aboard))
                    del self._aboard[asker]
                    asker.came()
        except Exception as error:
            self._failed(error)
            return
        self._flight = None
        self._ahead = fetch.ahead
        self._go_on()
