"""The commands of the log by index: from memory what is there, the rest from the disk in runs.

Owns a bounded cache, so that replication and delivery seldom read the disk, and how far a run of
reads goes, on the caller's thread or off the event loop. The oldest command is evicted first, but
one that was used meanwhile gets a second chance; the journal says up to which index commands may be
evicted, because one that is not yet written exists only here. A run puts nothing into the cache: a
peer that catches up would only evict recent commands. Must not know snapshots.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from node.journal import limits, records
from node.journal.io.jobs import read_off_loop
from node.journal.locations import EntryLocation
from node.journal.record_files import read_entries, read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextlib import AbstractContextManager

    from node.journal.entry_store import EntryStore
    from node.journal.index import LogIndex
    from node.journal.io.jobs import Job
    from node.journal.io.storage import OpenFiles, Storage
    from node.journal.record_files import RecordFile
    from node.journal.records import Entry
    from node.journal.segments import Segments


ENTRY_OVERHEAD_BYTES: Final = 256
"""Memory that a command takes beside its bytes (object header, slots of a dict, a
queue and a set); counted, so that a million tiny commands stay within the bound too."""


class CommandCache:
    """At most `bytes_max` of commands, apart from those that are not written yet."""

    __slots__ = ("_bytes", "_bytes_max", "_commands", "_order", "_used")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._commands: dict[int, bytes] = {}
        # The dict has an order too, but finding its first key passes over all that were dropped
        # before it: the square of the commands in the cache.
        self._order: deque[int] = deque()
        self._used: set[int] = set()

    def __len__(self) -> int:
        return len(self._commands)

    def __repr__(self) -> str:
        return f"<CommandCache {len(self._commands)} commands, {self._bytes}/{self._bytes_max} B>"

    @property
    def held_bytes(self) -> int:
        """Bytes held, overhead included."""
        return self._bytes

    def put(self, index: int, command: bytes) -> None:
        """Keep a command, or use the one that is here; `trim` is the caller's next step."""
        if self.get(index) is None:
            self.put_run(index, (command,), len(command))

    def put_run(self, first: int, commands: Sequence[bytes], size: int) -> None:
        """Keep the commands, `size` bytes together, of the entries from `first` on; none is here.

        What is done for each of them is done by the interpreter's own loops: every entry of the log
        passes here.
        """
        indexes = range(first, first + len(commands))
        self._commands.update(zip(indexes, commands, strict=True))
        self._order.extend(indexes)
        self._bytes += size + ENTRY_OVERHEAD_BYTES * len(commands)

    def get(self, index: int) -> bytes | None:
        """The command, which counts as used; None if it is not here."""
        command = self._commands.get(index)
        if command is not None:
            self._used.add(index)
        return command

    def peek(self, index: int) -> bytes | None:
        """The command, which does not count as used; None if it is not here."""
        return self._commands.get(index)

    def peek_run(self, first: int, last: int) -> list[bytes] | None:
        """The same of the entries from `first` to `last`; None if one of them is not here."""
        try:
            return list(map(self._commands.__getitem__, range(first, last + 1)))
        except KeyError:
            return None

    def missing_until(self, first: int, last: int) -> int:
        """The end of the gap that begins with `first`, which is not here: at most `last`."""
        for index in range(first + 1, last + 1):
            if index in self._commands:
                return index - 1
        return last

    def drop_range(self, first: int, last: int) -> None:
        """Forget the commands of indexes `first` to `last`, both included."""
        for index in range(first, last + 1):
            command = self._commands.pop(index, None)
            if command is not None:
                self._bytes -= len(command) + ENTRY_OVERHEAD_BYTES
        self._order = deque(index for index in self._order if index in self._commands)
        self._used.intersection_update(self._order)

    def clear(self) -> None:
        """Forget every command."""
        self._commands.clear()
        self._order.clear()
        self._used.clear()
        self._bytes = 0

    def trim(self, written_index: int) -> None:
        """Evict the oldest unused commands until the bound holds; never one above `written_index`.

        It stops at the first that it may not drop: what is not written is one group, and the
        next trim after its sync makes good for it.
        """
        order, used = self._order, self._used
        while self._bytes > self._bytes_max and order:
            index = order[0]
            if index in used:
                used.discard(index)
                order.rotate(-1)
            elif index > written_index:
                return
            else:
                order.popleft()
                self._bytes -= len(self._commands.pop(index)) + ENTRY_OVERHEAD_BYTES


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
        store: EntryStore,
    ) -> None:
        """`final` is entered around each read of the disk, and around the end of one off the event
        loop; `store` keeps note of entries that do not read as they were written."""
        self._log = log
        self._cache = cache
        self._segments = segments
        self._files = files
        self._storage = storage
        self._final = final
        self._store = store

    def commands(self, first: int, last: int) -> list[bytes]:
        """The commands of entries `first` to `last`.

        `JournalDamaged` if one is not what was written; OSErrors pass through.
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
        in memory, or damaged, which is noted, or above `last()` then; yields the jobs, and the
        entries of each run."""
        damaged: list[EntryLocation] = []
        while first <= last() and self._cache.peek(first) is None and not damaged:
            source, run = self._run(first, min(last(), first + limits.READ_ENTRIES_MAX - 1))
            entries = yield from read_off_loop(
                partial(self._read, source, run, damaged),
                self._final,
                partial(self._segments.has, run[0].file),
            )
            if entries is None:
                return  # The log begins later by now.
            if damaged:
                self._store.damages.note(self._store, damaged)
                entries = [entry for entry in entries if entry[1] < damaged[0].log_index]
            if entries:
                yield entries
                first += len(entries)

    def read_whole(self, index: int) -> bytes | None:
        """The command of one entry, from the disk; None where it is damaged, which is noted."""
        damaged: list[EntryLocation] = []
        entries = self._read(*self._run(index, index), damaged)
        self._store.damages.note(self._store, damaged)
        return entries[0][0] if entries else None

    def _read(
        self, source: RecordFile, run: list[EntryLocation], damaged: list[EntryLocation]
    ) -> list[Entry]:
        return list(read_entries(self._storage, source, run, damaged))

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
