"""The writing end of the log: records gather in memory and reach the disk in groups.

Owns the position of the next record, the group in the making, the one on its way to the disk, the
turn from a full segment to the next, and the synced mark. Must not know terms or commits. OSErrors
pass through: the journal judges them.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from node.journal import limits, records
from node.journal.io.jobs import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from node.journal.records import Entry
    from node.journal.segments import NewSegment, Preamble, Segments

SYNC_BUCKET_SECONDS: Final = (
    0.000_25,
    0.000_5,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.25,
    1.0,
)
"""Upper bounds of the sync histogram: from a fast NVMe disk to one that makes elections fail."""


class Group:
    """Records that one write and one sync bring to the disk, which take `seconds`, and the segment
    that follows where they fill their own. `end` is the log position that they reach, `index` the
    newest entry that is durable then: a truncation meanwhile takes it back."""

    __slots__ = ("_clock", "_write", "end", "following", "index", "seconds", "size")

    def __init__(
        self,
        write: Callable[[], None],
        clock: Callable[[], float],
        *,
        end: int,
        index: int,
        size: int,
    ) -> None:
        self._write = write
        self._clock = clock
        self.end = end
        self.index = index
        self.size = size
        self.following: NewSegment | None = None
        self.seconds = 0.0

    def write(self) -> None:
        """Return when all of it is on the disk. May run on another thread."""
        started = self._clock()
        try:
            self._write()
        finally:
            self.seconds = self._clock() - started
        # Only now: where a later segment is, an earlier one has no torn tail.
        if self.following is not None:
            self.following.make()


class GroupJob(Job[None]):
    """A group whose write runs on any thread."""

    def __init__(self, group: Group) -> None:
        super().__init__(group.write)
        self.group = group


class LogWriter:
    """Writes to the current one of `segments`; everything in them is durable when it begins."""

    def __init__(self, segments: Segments, clock: Callable[[], float]) -> None:
        """`clock` (seconds) only times the syncs."""
        self._segments = segments
        self._clock = clock
        self._seed = segments.current.seed
        self._parts: list[bytes] = []
        self.gathering = False
        """Whether something has been added since the last group began."""
        self.job: GroupJob | None = None
        """The group on its way to the disk."""
        self.figures = SyncStats()
        self.end = segments.current.end
        """Position after everything added so far."""
        self.synced_end = self.end
        """Position up to which everything is on the disk."""
        self._marked_end = self.end

    def __repr__(self) -> str:
        return f"<LogWriter {self.synced_end}..{self.end} {self.job}>"

    def add(self, kind: int, term: int, index: int, payload: bytes) -> None:
        """Gather one record, opening a group if it is the first."""
        if not self.gathering:
            self._open_group()
        parts = self._parts
        parts.append(records.encode_record(kind, self.end, term, index, payload, self._seed))
        if payload:
            parts.append(payload)
        self.end += records.RECORD_BYTES + len(payload)

    def add_entries(self, entries: Sequence[Entry]) -> list[int]:
        """Gather a record for each, opening a group if they are the first; their positions."""
        if not self.gathering:
            self._open_group()
        parts, positions, self.end = records.encode_entries(entries, self.end, self._seed)
        self._parts += parts
        return positions

    def _open_group(self) -> None:
        self.gathering = True
        self._parts.append(records.encode_group(self.end, self.synced_end, self._seed))
        self.end += records.GROUP_BYTES

    def write_group(self, index: int, follow: Callable[[], tuple[int, int, Preamble]]) -> Group:
        """Bring everything gathered, up to entry `index`, to the disk; return it. None may be under
        way.

        Where the group fills its segment, the next one is made too, which `follow` describes.
        """
        group = self._take_group(index, follow)
        group.write()
        self._written(group)
        return group

    def begin_group(self, index: int, follow: Callable[[], tuple[int, int, Preamble]]) -> GroupJob:
        """The same as a job for any thread; `finish_group` has to follow on this one. Records that
        are added from now on go behind it."""
        job = self.job = GroupJob(self._take_group(index, follow))
        return job

    def finish_group(self, job: GroupJob) -> Group | None:
        """Note that a group is durable, after waiting for its job; return it. Harmless when
        repeated, and None then. Raises what the job raised, which is final."""
        if job is not self.job:
            return None
        self.job = None
        job.result()
        self._written(job.group)
        return job.group

    def _take_group(self, index: int, follow: Callable[[], tuple[int, int, Preamble]]) -> Group:
        # One group at a time: each group's head says that all before it was synced, which the
        # judgement of a torn tail stands on (`recovery/recovery.py`).
        assert self.job is None, "one group after the other"
        size = self.end - self.synced_end
        parts, self._parts, self.gathering = self._parts, [], False
        write = self._segments.append(parts, size)
        group = Group(write, self._clock, end=self.end, index=index, size=size)
        if self._segments.full:
            group.following = self._follow(*follow())
            group.end = self.end
        return group

    def _written(self, group: Group) -> None:
        self.figures.note(group.seconds, group.size)
        if group.following is not None:
            self._segments.opened(group.following)
        self.synced_end = group.end

    def begin_segment(self, first_index: int, previous_term: int, preamble: Preamble) -> None:
        """The log goes on in a segment of its own; returns when that is on the disk. Nothing may
        be gathered or under way."""
        self._segments.end_file()
        new = self._follow(first_index, previous_term, preamble)
        new.make()
        self._segments.opened(new)
        self.synced_end = self.end

    def _follow(self, first_index: int, previous_term: int, preamble: Preamble) -> NewSegment:
        new = self._segments.begin(
            first_index=first_index, previous_term=previous_term, preamble=preamble
        )
        self._seed = new.segment.seed
        self.end = new.segment.end
        return new

    def write_mark(self) -> None:
        """The synced mark, if it moved; not synced itself, because it is only a second proof."""
        if self._marked_end != self.synced_end:
            self._segments.write_mark(self.synced_end)
            self._marked_end = self.synced_end


class SyncStats:
    """Counts syncs and their times."""

    __slots__ = (
        "buckets",
        "last_seconds",
        "recent_seconds",
        "syncs",
        "total_seconds",
        "written_bytes",
    )

    def __init__(self) -> None:
        self.syncs = 0
        self.total_seconds = 0.0
        self.last_seconds = 0.0
        self.recent_seconds = 0.0
        self.written_bytes = 0
        self.buckets = [0] * (len(SYNC_BUCKET_SECONDS) + 1)

    def __repr__(self) -> str:
        return f"<SyncStats {self.syncs} syncs, {self.total_seconds:.3f} s>"

    def note(self, seconds: float, size: int) -> None:
        """Count a group of `size` bytes that was written and synced in `seconds`."""
        self.syncs += 1
        self.total_seconds += seconds
        self.last_seconds = seconds
        self.recent_seconds += (seconds - self.recent_seconds) * limits.SYNC_WEIGHT
        self.written_bytes += size
        self.buckets[bisect_left(SYNC_BUCKET_SECONDS, seconds)] += 1
