"""The durable Raft log: entries, term and vote, in the one order in which they were written.

Owns the log as the node sees it and when it becomes durable. Gathering and syncing are
`writer.py`, files are `segments.py`, bytes are `records.py`; opening, snapshots and the entries
that outlive the log are for `journal.py`. Must not know elections, peers or queues.

The rules it stands on (raft.md 3.2):

1. Records gather in memory and reach the disk in `sync`: one write, one fdatasync. Nothing that
   depends on a record may leave the node before that.
2. The log on disk is append-only. A truncation is a record too, so a crash at any byte leaves
   the log as it was at some earlier moment, never a mixture.
3. Entries and hard state share one order: a durable vote implies that everything the voter
   compared against is durable.
4. A failed write or sync is final. The kernel may have dropped the pages that it could not
   write, so a second sync that succeeds would prove nothing.
5. A call that would break Raft's own rules (a gap, a falling term, a second vote, a truncation
   of committed entries) is refused with `JournalRefused`: stopping is safe, going on is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, overload

from node.journal import limits, records
from node.journal.commands import CommandCache, RunReader
from node.journal.errors import JournalRefused
from node.journal.index import in_order
from node.journal.segments import Preamble
from node.journal.writer import LogWriter, SyncStats

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from node.journal.failstop import FailStop
    from node.journal.io.jobs import Job, OffLoop
    from node.journal.io.storage import Storage
    from node.journal.limits import JournalLimits
    from node.journal.records import Entry
    from node.journal.recovery.open import RecoveredJournal
    from node.journal.snapshots.file import SnapshotMeta
    from node.journal.writer import Group, GroupJob


PLACEHOLDER = b"\x01"
"""The command that `read` returns for the two entries at the head of a log that a snapshot
replaces, where their own is gone: a no-op. It is never applied and never sent."""


class DurableLog:
    """The log of a `Journal`, which makes and closes it. Not for several threads."""

    def __init__(
        self,
        storage: Storage,
        found: RecoveredJournal,
        journal_limits: JournalLimits,
        clock: Callable[[], float],
        cache: CommandCache,
        failstop: FailStop,
    ) -> None:
        """`found` is what is there; everything in it is durable. `clock` only times the syncs."""
        recovered, segments = found.recovered, found.segments
        self._entries = found.snapshots.entries
        self._limits = journal_limits
        self._cache = cache
        self._failstop = failstop
        self._index = recovered.log
        self._term = recovered.term
        self._term_end = 0
        self.defers_vote_sync = False
        """Whether `set_term` leaves its sync to the next one, which a slow disk does off the
        event loop: whatever promises something by the term or the vote has to wait for that."""
        self._voted_for = recovered.voted_for
        self._commit_index = min(recovered.commit_index, self._index.last_index)
        self._commit_written = self._commit_index
        self.memory = self._memory_written = recovered.memory
        """A few bytes of the owner's that the commit hint carries."""
        self.remember: Callable[[], bytes] | None = None
        """Asked once a second for these bytes: they go with a group that is synced anyway."""
        self._runs = RunReader(
            self._index,
            cache,
            segments,
            self._entries.files,
            storage,
            failstop.reading,
            self._entries,
        )
        self._head: Entry | None = None
        self._tail: Entry | None = None
        self._writer = LogWriter(segments, clock)
        # Read many times for each command, and so kept instead of computed: see `_changed`.
        self.last_index: int
        """Index of the newest entry, durable or not; `first_index - 1` while there is none."""
        self.synced_index = self._index.last_index
        """Every entry up to this one is on the disk."""
        self.dirty: bool
        """Something has been added, truncated or changed that is not on the disk yet."""
        self.gathered_end: int
        """Position after everything added so far: what a promise made now stands on."""
        self.synced_end: int
        """Position up to which everything is on the disk."""
        self.recent_sync_seconds: float
        """Mean time of the newest syncs."""
        self.term_at: Callable[[int], int] = self._index.term_at
        """Term of an entry, without reading it. 0 for index 0. IndexError if not in the log."""
        self.size_at: Callable[[int], int] = self._index.size_at
        """Bytes of an entry's command, without reading it. IndexError if not in the log."""
        self.command_bytes: Callable[[int, int], int] = self._index.command_bytes
        """Bytes of the commands of the entries from one index to another, without reading them; 0
        where there are none. IndexError if one is not in the log."""
        self._changed()

    def _changed(self) -> None:
        """Follow a change of the index or of the writer."""
        writer = self._writer
        self.last_index = self._index.last_index
        self.dirty = writer.gathering or writer.job is not None
        self.gathered_end, self.synced_end = writer.end, writer.synced_end
        self.recent_sync_seconds = writer.figures.recent_seconds

    # --- the log, as the node reads it ---

    @property
    def first_index(self) -> int:
        """Index of the oldest entry: 1, or one below the index of the oldest snapshot kept."""
        return self._index.first_index

    @property
    def first_whole_index(self) -> int:
        """Index of the oldest entry that `entries` gives; of those below only terms are left."""
        return self._entries.base_index + 1

    @property
    def last_term(self) -> int:
        """Term of the newest entry; 0 while there is none."""
        return self._index.last_term

    def span_bytes(self, first: int, last: int) -> int:
        """Bytes that the entries from `first` to `last` take in the log; of those below
        `first_whole_index` nothing counts."""
        return self._index.span_bytes(max(first, self.first_whole_index), last)

    def read(self, index: int) -> bytes:
        """The command of an entry of the log, or of one that a snapshot needs, from the cache or
        the disk (checksum verified).

        IndexError if there is no such entry; `JournalDamaged` if the disk returns something else
        than was written, which the node has to take as final.
        """
        command = self._cache.get(index)
        if command is not None:
            return command
        command = self._read_from_disk(index)
        self._cache.put(index, command)
        self._cache.trim(self.synced_index)
        return command

    def read_or_note(self, index: int) -> bytes | None:
        """The same; None where the entry is damaged, which is noted, so that it is repaired."""
        command = self._cache.get(index)
        if command is None and not self.waits_for_repair(index):
            with self._failstop.reading():
                command = self._runs.read_whole(index)
        return command

    def entries(self, first: int, max_bytes: int, max_count: int | None = None) -> list[Entry]:
        """Entries from `first` on: at least one (if there is one), at most `max_bytes` of
        commands beyond it, at most `max_count`. Reads no more than it returns, from the cache or in
        runs from the disk, as `read` does.

        IndexError if `first` is below `first_whole_index`.
        """
        last = self.last_of(first, max_bytes, max_count)
        return self._as_entries(first, self._runs.commands(first, last))

    def cached_entries(self, first: int, max_bytes: int, max_count: int) -> list[Entry]:
        """The same from memory alone: fewer, or none, where one of them is not in it."""
        tail = self._tail
        if tail is not None and tail[1] == first:
            return [tail]  # One command at a time is all that there is, then.
        last = self.last_of(first, max_bytes, max_count)
        return self._as_entries(first, self._runs.cached(first, last))

    def reading_log(self, first: int, last: Callable[[], int]) -> Generator[Job[Any] | list[Entry]]:
        """The entries from `first` on that are not in memory, in bounded pieces: yields each job
        that reads one, and then what it has read. Puts nothing into memory. Ends
        behind the entry that `last` says then, where the rest is in memory, where the log has begun
        later meanwhile, or before an entry that is damaged, which is noted. Raises what `read`
        does, but for that.
        """
        return self._runs.reading(first, lambda: min(last(), self.synced_index))

    def waits_for_repair(self, index: int) -> bool:
        """Whether an entry is known to be damaged where it lies, and not in memory either."""
        return index in self._entries.damages.entries and self._cache.peek(index) is None

    def last_of(self, first: int, max_bytes: int, max_count: int | None) -> int:
        """The last entry of those that `entries` gives; `first - 1` where it gives none."""
        if first < self.first_whole_index:
            raise IndexError(f"entries from {first} on: the log begins at {self.first_whole_index}")
        last = self.last_index
        if max_count is not None:
            last = min(last, first + max_count - 1)
        return self._index.last_within(first, last, max_bytes) if first <= last else first - 1

    def _as_entries(self, first: int, commands: list[bytes]) -> list[Entry]:
        if not commands:
            return []
        indexes = range(first, first + len(commands))
        return list(zip(commands, indexes, self._index.terms(first, indexes[-1]), strict=True))

    # --- durability ---

    @property
    def syncing(self) -> bool:
        """Whether a sync that `begin_sync` gave is under way."""
        return self._writer.job is not None

    @property
    def covered_end(self) -> int:
        """Position up to which everything is on the disk, or will be with the sync under way."""
        job = self._writer.job
        return self._writer.synced_end if job is None else job.group.end

    @property
    def term_synced(self) -> bool:
        """Whether term and vote, as they are now, are on the disk."""
        return self._term_end <= self._writer.synced_end

    @property
    def sync_stats(self) -> SyncStats:
        """Number and times of the syncs since the start."""
        return self._writer.figures

    def sync(self) -> None:
        """Make everything gathered durable: one write and one sync; nothing if not dirty.

        A sync under way is waited for. Raises `JournalFailed`, which is final.
        """
        if not self._failstop.works:
            self._failstop.check()
        if self._writer.job is not None:
            self.finish_sync(self._writer.job)
        if self._writer.gathering:
            self._write_hint()
            try:
                group = self._writer.write_group(self.last_index, self._next_segment)
            except OSError as problem:
                self._fail(problem)
            self._synced(group)

    def begin_sync(self) -> GroupJob | None:
        """Everything gathered, as a job for any thread; `finish_sync` has to follow on this one.

        None while one is under way, and where nothing is gathered. What is added meanwhile goes
        with the next.
        """
        self._failstop.check()
        if self._writer.job is not None or not self._writer.gathering:
            return None
        self._write_hint()
        try:
            job = self._writer.begin_group(self.last_index, self._next_segment)
        except OSError as problem:
            self._fail(problem)
        self._changed()
        return job

    def _fail(self, problem: OSError) -> NoReturn:
        self._changed()
        self._failstop.fail(problem)

    def making_durable(self) -> OffLoop[None]:
        """Sync off the event loop until everything gathered by now is durable.
        Raises `JournalFailed`, which is final."""
        end = self.gathered_end
        while self.synced_end < end:
            job = self._writer.job or self.begin_sync()
            assert job is not None, "something is gathered"
            yield job
            self.finish_sync(job)

    def finish_sync(self, job: GroupJob) -> None:
        """Note that the records of a job of `begin_sync` are durable, after waiting for it.
        Harmless where `sync` came first. Raises `JournalFailed`, which is final."""
        try:
            group = self._writer.finish_group(job)
        except OSError as problem:
            self._fail(problem)
        if group is not None:
            self._synced(group)

    def _synced(self, group: Group) -> None:
        before = self.synced_end
        self._changed()
        if before < self._term_end <= group.end:
            # With the mark, damage to this very record is seen as damage, not as a torn tail.
            self._write_mark()
        self.synced_index = group.index
        self._cache.trim(group.index)

    # --- the log as a sequence ---

    def __len__(self) -> int:
        return len(self._index)

    @overload
    def __getitem__(self, item: int) -> Entry: ...

    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...

    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        """Entries by slot in the log, not by index. The two ends are kept at hand."""
        if isinstance(item, slice):
            first = self.first_index
            return [self._entry(first + slot) for slot in range(*item.indices(len(self)))]
        count = len(self._index)
        slot = item + count if item < 0 else item
        if not 0 <= slot < count:
            raise IndexError(f"slot {item} of a log of {count} entries")
        if slot == count - 1:
            if self._tail is None:
                self._tail = self._entry(self.last_index)
            return self._tail
        if slot == 0:
            if self._head is None or self._head[1] != self.first_index:
                self._head = self._entry(self.first_index)
            return self._head
        return self._entry(self.first_index + slot)

    def add(self, command: bytes, index: int, term: int) -> None:
        """Add the next entry as `extend` does."""
        self.extend([(bytes(command), index, term)])

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add the next entries, uncopied; durable after the next `sync`."""
        if not self._failstop.works:
            self._failstop.check()
        if not entries:
            return
        commands, indexes, terms = zip(*entries, strict=True)
        sizes = list(map(len, commands))
        self._check_order(indexes, terms, max(sizes))
        # Every check comes before the first change: a refused call leaves index, writer and cache
        # in step.
        self._index.extend(terms, self._writer.add_entries(entries), sizes)
        self._cache.put_run(indexes[0], commands, sum(sizes))
        self._tail = entries[-1]
        self._changed()

    def _check_order(self, indexes: Sequence[int], terms: Sequence[int], largest: int) -> None:
        last_index, last_term = self._index.last_index, self._index.last_term
        if not in_order(indexes, terms, last_index, last_term):
            raise JournalRefused(
                f"entries {indexes[0]} to {indexes[-1]} of terms {terms[0]} to {terms[-1]} "
                f"cannot follow entry {last_index} of term {last_term}"
            )
        bytes_max = self._limits.command_bytes
        if largest > bytes_max:
            raise JournalRefused(
                f"entries {indexes[0]} to {indexes[-1]}: one has {largest} bytes, "
                f"the maximum is {bytes_max}"
            )

    def truncate(self, length: int) -> None:
        """Keep the first `length` entries only; durable after the next `sync`.

        Raises `JournalRefused` where a committed entry would go.
        """
        self._failstop.check()
        first_removed = self.first_index + length
        last_removed = self.last_index
        if first_removed > last_removed:
            return
        if first_removed <= max(self._commit_index, self.first_index):
            raise JournalRefused(
                f"cannot truncate from entry {first_removed}: "
                f"entries up to {max(self._commit_index, self.first_index)} stay"
            )
        self._writer.add(records.TRUNCATE, self._term, first_removed, b"")
        self._index.truncate_from(first_removed)
        # Durable entries of these indexes are no longer those of the log, and a group under way may
        # carry more of them: neither counts as synced. What replaces them goes with a later group.
        self._cache.drop_range(first_removed, last_removed)
        self.synced_index = min(self.synced_index, first_removed - 1)
        if (job := self._writer.job) is not None:
            job.group.index = min(job.group.index, first_removed - 1)
        self._tail = None
        self._changed()

    def set_term(self, term: int, voted_for: str | None) -> None:
        """Set term and vote, and return when they and all before them are on the disk; with
        `defers_vote_sync` that may be later, see `term_synced`."""
        self._failstop.check()
        if term < self._term:
            raise JournalRefused(f"term {term} cannot follow term {self._term}")
        if term == self._term and self._voted_for not in (None, voted_for):
            raise JournalRefused(
                f"the vote of term {term} went to {self._voted_for!r}, "
                f"it cannot go to {voted_for!r}"
            )
        if voted_for is not None:
            check_name(voted_for)
        if (term, voted_for) != (self._term, self._voted_for):
            self._writer.add(records.HARD_STATE, term, 0, (voted_for or "").encode())
            self._term, self._voted_for = term, voted_for
            self._term_end = self._writer.end
            self._changed()
        if not self.defers_vote_sync:
            self.sync()
            self._write_mark()

    @property
    def term(self) -> int:
        """The current term; 0 before the first election."""
        return self._term

    @property
    def voted_for(self) -> str | None:
        """The node that has this node's vote in the current term."""
        return self._voted_for

    def note_commit(self, index: int) -> None:
        """Note how far the log is committed. A hint for the next start: it is written beside
        other records, or within about a second, and never goes back or past the log's end."""
        self._commit_index = max(self._commit_index, min(index, self.last_index))

    def commit_hint(self) -> int:
        """The newest commit index noted; never beyond the log's end. Entry 1 counts as
        committed, because it is the same no-op in every log."""
        return min(max(self._commit_index, 1), self.last_index)

    def each_second(self) -> None:
        """Buffers the commit hint if it moved, and writes the synced mark if that moved."""
        self._failstop.check()
        if self.remember is not None:
            self.memory = self.remember()
        self._write_hint(news=self.memory if self.memory != self._memory_written else b"")
        self._changed()
        self._write_mark()

    def finish(self) -> None:
        """Make everything durable, and note that it is: the log is about to be closed."""
        self.each_second()
        self.sync()
        self._write_mark()

    # --- inside ---

    def _write_hint(self, *, news: bytes = b"") -> None:
        if news or self._commit_index != self._commit_written:
            self._writer.add(records.COMMIT, 0, self._commit_index, news)
            self._commit_written = self._commit_index
            self._memory_written = news or self._memory_written

    def _next_segment(self) -> tuple[int, int, Preamble]:
        """The first index, previous term and preamble of a segment that would begin now."""
        preamble = Preamble(self._term, self._voted_for, self._commit_index, self.memory)
        return self._index.last_index + 1, self._index.last_term, preamble

    def _entry(self, index: int) -> Entry:
        return self.read(index), index, self._index.term_at(index)

    def _read_from_disk(self, index: int) -> bytes:
        with self._failstop.reading():
            location = self._entries.locate(index)
            if location is not None:
                return self._entries.read(location)
            # IndexError if it is not one of the two at the head.
            self._index.size_at(index)
            return PLACEHOLDER

    def _write_mark(self) -> None:
        with self._failstop.final():
            self._writer.write_mark()

    def restart(self, meta: SnapshotMeta) -> None:
        """The log goes on behind an installed snapshot, with a segment of its own."""
        self._index.restart(meta.index + 1, meta.term)
        self._index.begin_at(meta.index, meta.term, meta.previous_term)
        self._cache.clear()
        self._head = self._tail = None
        self._commit_index = meta.index
        self.synced_index = meta.index
        with self._failstop.final():
            self._writer.begin_segment(*self._next_segment())
        self._commit_written = self._commit_index
        self._changed()


def check_name(name: str) -> None:
    """Names are stored with a one-byte length, and an empty one means no vote."""
    size = len(name.encode())
    if not 1 <= size <= limits.NODE_NAME_BYTES_MAX:
        raise ValueError(f"a node name has 1 to {limits.NODE_NAME_BYTES_MAX} bytes, not {size}")
