"""The segments of a journal folder, the preallocation at the end of the last, and the synced mark.

Owns their names, creation, writing, and which file holds a position. Writes the records that
open a segment; the records behind them are the journal's, and what an invalid one means is the
recovery's. The format is in `records.py` and `docs/storage.md`. The journal judges an OSError.

An append changes a file's size and its map of blocks, which the file system has to bring to the
disk with every sync, beside the data. So a small group that would pass the end of the file brings
zeros with it, in the same write, and the groups behind it are written into them: their syncs have
only data to bring. A file ends with its last record when the log goes on in another.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from node.journal import limits, records
from node.journal.io.storage import FULL_ERRNOS
from node.journal.record_files import TEMPORARY_SUFFIX, RecordFile
from node.journal.records import SEGMENT_MAGIC, FileHeader, seed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from node.journal.io.storage import OpenFiles, Storage, StorageFile
    from node.journal.records import JournalIdentity
    from node.journal.reserve import Reserve


T = TypeVar("T")

MARK_NAME: Final = "synced"
_SEGMENT_NAME: Final = re.compile(r"(\d{10})-(\d{20})\.segment")


def segment_name(sequence: int, first_index: int) -> str:
    """The file name: sequence first, so that names sort in the order of the log.

    The first index alone would not do: after a truncation a later segment can begin at the
    same or a smaller index than an earlier one.
    """
    return f"{sequence:010d}-{first_index:020d}.segment"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """(sequence, first index) of a segment's file name; None for any other name."""
    match = _SEGMENT_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """The first bytes of a segment file.

    `sequence` counts segments from 1 without gaps; `base` is the position of the file's first
    byte; `first_index` is the index that the next entry had when the segment was made, and
    `previous_term` the term of the entry before it (0 when there is none).
    """

    sequence: int
    base: int
    first_index: int
    previous_term: int
    cluster_id: bytes
    node: str

    @classmethod
    def of(cls, header: FileHeader) -> SegmentHeader:
        """The header of a segment, from that of its file."""
        return cls(*header.numbers, header.cluster_id, header.node)

    def encode(self) -> bytes:
        """The header's bytes, its CRC32C last."""
        numbers = (self.sequence, self.base, self.first_index, self.previous_term)
        return FileHeader(SEGMENT_MAGIC, numbers, self.cluster_id, self.node).encode()


@dataclass(slots=True)
class Segment:
    """A segment file: its header, the seed of its checksums, and how far it is written: the last
    one's file may go on with preallocation, which is not counted anywhere."""

    name: str
    header: SegmentHeader
    header_bytes: int
    seed: int
    size: int

    @property
    def end(self) -> int:
        """The position after its last byte."""
        return self.header.base + self.size

    @property
    def source(self) -> RecordFile:
        """The file, for reading at known locations."""
        return RecordFile(self.name, self.header.base, self.seed)


@dataclass(frozen=True, slots=True)
class Preamble:
    """The state that a new segment repeats, so that it stands alone when older ones are dropped."""

    term: int
    voted_for: str | None
    commit_index: int
    memory: bytes = b""

    def encode(self, position: int, synced: int, seed: int) -> bytes:
        """Group, hard state and commit hint, as the first records of a segment."""
        vote = (self.voted_for or "").encode()
        group = records.encode_group(position, synced, seed)
        position += len(group)
        state = records.encode_record(records.HARD_STATE, position, self.term, 0, vote, seed) + vote
        position += len(state)
        memory, index = self.memory, self.commit_index
        hint = records.encode_record(records.COMMIT, position, 0, index, memory, seed) + memory
        return group + state + hint


class NewSegment:
    """A segment that stands in the order of the log already; on the disk after `make`."""

    def __init__(
        self, storage: Storage, segment: Segment, content: Sequence[bytes], reserve: Reserve
    ) -> None:
        self._storage = storage
        self._reserve = reserve
        self._content = content
        self.segment = segment
        self.file: StorageFile

    def make(self) -> None:
        """Return when the file and its name are on the disk. May run on another thread.

        It is built under a temporary name, so that a segment file never has a torn header.
        """
        name = self.segment.name
        file = self._fitting(lambda: self._storage.create(name + TEMPORARY_SUFFIX))
        try:
            self._fitting(lambda: file.write(0, self._content))
            file.sync()
            self._storage.rename(name + TEMPORARY_SUFFIX, name)
            self._storage.sync_folder()
        except BaseException:
            file.close()
            raise
        self.file = file

    def _fitting(self, change: Callable[[], T]) -> T:
        """Make a change that needs room; once more with that of the reserve."""
        try:
            return change()
        except OSError as problem:
            if not self._reserve.helps(problem):
                raise
            return change()


class Segments:
    """The segments in the order of the log; the last one is written. Older ones may be gone, so
    their sequence numbers ascend, with gaps."""

    def __init__(
        self,
        storage: Storage,
        files: OpenFiles,
        identity: JournalIdentity,
        *,
        segment_bytes: int,
        preallocation_bytes: int,
        reserve: Reserve,
    ) -> None:
        """A segment that reaches `segment_bytes` is full; it is extended by zeros, some
        `preallocation_bytes` at a time."""
        self._storage = storage
        self._open_files = files
        self._segment_bytes = segment_bytes
        self._reserve = reserve
        self._preallocation_bytes = preallocation_bytes
        self._preallocation: Preallocation | None = None
        self._identity = identity
        self._segments: list[Segment] = []
        self.current: Segment
        """The segment that is written."""
        self.full = False
        """Whether it takes no further group behind the one that was appended last."""
        self._bases: list[int] = []
        self._by_sequence: dict[int, Segment] = {}
        self._mark: StorageFile | None = None
        self._identity_seed = records.identity_seed(identity.cluster_id, identity.node)

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._segments[0]

    @property
    def disk_bytes(self) -> int:
        """Bytes that are written in all segments."""
        return sum(segment.size for segment in self._segments)

    def get(self, sequence: int) -> Segment | None:
        """The segment of that number, if it is still there."""
        return self._by_sequence.get(sequence)

    def has(self, sequence: int) -> bool:
        """Whether the segment of that number is still there."""
        return sequence in self._by_sequence

    def at(self, position: int) -> Segment:
        """The segment that holds `position`, or the last one before it."""
        return self._segments[bisect_right(self._bases, position) - 1]

    def spots(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """(sequence, offset) of each of these ascending positions."""
        found = []
        base = end = sequence = 0
        for position in positions:
            if position >= end:
                segment = self.at(position)
                base, sequence = segment.header.base, segment.header.sequence
                last = segment is self.current
                end = 1 << 64 if last else segment.end
            found.append((sequence, position - base))
        return found

    def adopt(self, segment: Segment) -> None:
        """Take an existing segment as the next in order."""
        self._add(segment)
        self._open_files.written = segment.name

    def _add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self.current = segment
        self._bases.append(segment.header.base)
        self._by_sequence[segment.header.sequence] = segment

    def create(self, *, first_index: int, previous_term: int, preamble: Preamble) -> None:
        """Make the next segment; returns when it and its name are on the disk."""
        new = self.begin(first_index=first_index, previous_term=previous_term, preamble=preamble)
        new.make()
        self.opened(new)

    def begin(self, *, first_index: int, previous_term: int, preamble: Preamble) -> NewSegment:
        """The next segment, which is the current one from now on. It has to be made, on whichever
        thread, and `opened` after that, before anything of it is written or read."""
        sequence = self.current.header.sequence + 1 if self._segments else 1
        base = self.current.end if self._segments else 0
        header = SegmentHeader(
            sequence,
            base,
            first_index,
            previous_term,
            self._identity.cluster_id,
            self._identity.node,
        )
        start = header.encode()
        seed = seed_of(start)
        content = preamble.encode(base + len(start), base, seed)
        name = segment_name(sequence, first_index)
        segment = Segment(name, header, len(start), seed, len(start) + len(content))
        self._add(segment)
        return NewSegment(self._storage, segment, (start, content), self._reserve)

    def opened(self, new: NewSegment) -> None:
        """A segment is on the disk, and the one that is written from now on."""
        name = new.segment.name
        self._open_files.keep(name, new.file)
        self._open_files.written = name
        self._preallocation = None

    def forget(self, segment: Segment) -> None:
        """Drop a segment that is no longer needed, and whose file is about to go."""
        slot = self._segments.index(segment)
        del self._segments[slot], self._bases[slot]
        del self._by_sequence[segment.header.sequence]
        if self._segments:
            self.current = self._segments[-1]

    def append(self, parts: Sequence[bytes], size: int) -> Callable[[], None]:
        """Take `parts`, `size` bytes together, to the end of the current segment: the work that
        writes and syncs them, which may run on another thread, one after the other."""
        segment = self.current
        offset = segment.size
        if self._preallocation is None:
            file, full = self.file(segment), self._segment_bytes
            self._preallocation = Preallocation(
                file,
                offset,
                full=full,
                preallocation_bytes=self._preallocation_bytes,
                reserve=self._reserve,
            )
        segment.size += size
        self.full = segment.size >= self._segment_bytes
        return partial(self._preallocation.write, offset, parts, size)

    def end_file(self) -> None:
        """Return when the current segment's file ends with its last record, on the disk too."""
        if self._preallocation is not None and self._preallocation.cut(self.current.size):
            self.file(self.current).sync()

    def file(self, segment: Segment) -> StorageFile:
        """The open file of a segment."""
        return self._open_files.get(segment.name)

    def read_mark(self) -> int:
        """The position of the synced mark; 0 where there is none that can be believed."""
        if MARK_NAME not in self._storage.listdir():
            return 0
        self._mark = self._storage.open(MARK_NAME)
        content = self._mark.read(0, records.MARK_BYTES)
        return records.decode_mark(content, self._identity_seed) or 0

    def write_mark(self, position: int) -> None:
        """Note that everything before `position` is on the disk; itself not synced."""
        if self._mark is None:
            self._mark = self._storage.create(MARK_NAME)
        self._mark.write(0, (records.encode_mark(position, self._identity_seed),))

    def sync_mark(self) -> None:
        """Return when the mark is on the disk."""
        if self._mark is not None:
            self._mark.sync()

    def close(self) -> None:
        """Give the descriptor of the mark back."""
        if self._mark is not None:
            self._mark.close()
            self._mark = None


class Preallocation:
    """Zero-filled preallocation at the end of one segment file. Not thread-safe."""

    def __init__(
        self,
        file: StorageFile,
        size: int,
        *,
        full: int,
        preallocation_bytes: int,
        reserve: Reserve,
    ) -> None:
        """The file ends at `size`. Below `full`, `preallocation_bytes` of zeros are added at a
        time; a group that reaches `full` is the last of the file, and none are added beyond it."""
        self._file = file
        self._reserve = reserve
        self._size = size
        self._full = full
        self._zeros = bytes(preallocation_bytes)

    def write(self, offset: int, parts: Sequence[bytes], size: int) -> None:
        """Write and sync a group of `parts`, `size` bytes together, at `offset`."""
        end = offset + size
        if end > self._size:
            self._extend(offset, parts, end, size)
        else:
            self._file.write(offset, parts)
        self._file.sync()

    def _extend(self, offset: int, parts: Sequence[bytes], end: int, size: int) -> None:
        """A large group brings no zeros: its own data takes the time."""
        zeros = (
            self._zeros[: max(self._full - end, 0)]
            if size <= limits.PREALLOCATION_GROUP_BYTES
            else b""
        )
        self._size = end + len(zeros)
        try:
            self._file.write(offset, [*parts, zeros] if zeros else parts)
        except OSError as problem:
            if problem.errno not in FULL_ERRNOS:
                raise
            # The disk is nearly full: this file preallocates no more. A failed write, unlike a
            # failed sync, dropped no page of the cache, so the group itself may still fit.
            self._zeros = b""
            self._write_without(offset, parts, problem if not zeros else None)
            self.cut(end)

    def _write_without(self, offset: int, parts: Sequence[bytes], problem: OSError | None) -> None:
        """Write a group alone, in the end with the room of the reserve; `problem`: of the write
        that has failed already."""
        if problem is None:
            try:
                self._file.write(offset, parts)
            except OSError as failed:
                problem = failed
            else:
                return
        if not self._reserve.helps(problem):
            raise problem
        self._file.write(offset, parts)

    def cut(self, end: int) -> bool:
        """Truncate the file to `end`, where its last record ends; durable after a sync. False if it
        ends there already."""
        if self._size == end:
            return False
        self._file.truncate(end)
        self._size = end
        return True
