"""Opening a journal: replay every record, cut a torn tail, refuse everything else.

Owns the judgement of what is found on the disk. It never skips a record and never guesses: what
comes out is exactly what was written, or an error that names file, offset and what to do. The
rule (raft.md 3.2): a tail is torn, and may be cut, only in the last segment, only where no valid
record follows, and only above every position known to be synced. The one thing this cannot tell
from a tear is damage to the very last group while no mark says that it was synced.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from node.raft import records
from node.raft.errors import JournalDamaged, JournalForeign
from node.raft.logindex import LogIndex
from node.raft.records import BadHeader, NewerFormat, RecordHead
from node.raft.segments import (
    MARK_NAME,
    TEMPORARY_SUFFIX,
    Opening,
    Segment,
    Segments,
    parse_segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.raft.storage import Storage, StorageFile

REMEDY: Final = (
    "keep this node stopped and its folder as it is, and check the disk; the other nodes go on "
    "without it; do not empty the folder or restore an older copy, for a node that forgets its "
    'votes can lose acknowledged messages (docs/storage.md, "Damage")'
)


@dataclass(slots=True)
class Recovered:
    """What the records say, once all of them are replayed.

    `synced` is the highest position that a group or the mark knows to be on the disk.
    """

    log: LogIndex
    synced: int
    term: int = 0
    voted_for: str | None = None
    commit_index: int = 0
    cut_bytes: int = 0


class _SegmentReader:
    """Reads one segment's records in large sequential pieces, checking each.

    After the iteration `offset` is where it stopped and `problem` says why, None at a clean end.
    """

    def __init__(self, segment: Segment, file: StorageFile, chunk_bytes: int) -> None:
        self._segment = segment
        self._file = file
        self._chunk_bytes = chunk_bytes
        self._view = memoryview(b"")
        self._view_at = segment.header_bytes
        self.offset = segment.header_bytes
        self.problem: str | None = None

    def __iter__(self) -> Iterator[tuple[int, RecordHead, memoryview]]:
        """Yields (offset, head, payload); the payload is only valid until the next one."""
        base, seed, size = self._segment.header.base, self._segment.seed, self._segment.size
        while self.offset < size:
            at = self._need(records.RECORD_BYTES)
            if at < 0:
                self.problem = "a record is cut off"
                return
            head = records.decode_record(self._view, at, base + self.offset)
            if isinstance(head, str):
                self.problem = head
                return
            whole_bytes = records.RECORD_BYTES + head.size
            at = self._need(whole_bytes)
            if at < 0:
                self.problem = "a record is cut off"
                return
            if not records.record_is_whole(self._view, at, head, seed):
                self.problem = "the checksum of a record is wrong"
                return
            yield self.offset, head, self._view[at + records.RECORD_BYTES : at + whole_bytes]
            self.offset += whole_bytes

    def _need(self, count: int) -> int:
        """Has `count` bytes from `offset` in the view; their place there, or -1 at the end."""
        at = self.offset - self._view_at
        if len(self._view) - at >= count:
            return at
        rest = self._view[at:]
        more = self._file.read(self.offset + len(rest), max(self._chunk_bytes, count - len(rest)))
        self._view = memoryview(b"".join((rest, more)))
        self._view_at = self.offset
        return 0 if len(self._view) >= count else -1

    def next_whole_record(self) -> int | None:
        """The offset of the first valid record after the place where the reading stopped."""
        start = self.offset + 1
        rest = self._file.read(start, self._segment.size - start)
        view, base, seed = memoryview(rest), self._segment.header.base, self._segment.seed
        at = rest.find(records.MAGIC)
        while 0 <= at <= len(rest) - records.RECORD_BYTES:
            head = records.decode_record(view, at, base + start + at)
            if (
                isinstance(head, RecordHead)
                and at + records.RECORD_BYTES + head.size <= len(rest)
                and records.record_is_whole(view, at, head, seed)
            ):
                return start + at
            at = rest.find(records.MAGIC, at + 1)
        return None


class Recovery:
    """One opening of one folder. `run` may be called once."""

    def __init__(
        self,
        storage: Storage,
        segments: Segments,
        *,
        cluster_id: bytes,
        node: str,
        chunk_bytes: int,
    ) -> None:
        self._storage = storage
        self._segments = segments
        self._cluster_id = cluster_id
        self._node = node
        self._chunk_bytes = chunk_bytes

    def run(self) -> Recovered:
        """Replays the folder, or makes its first segment; afterwards everything is durable."""
        names = self._clean_names()
        segment_names = [name for name in names if parse_segment_name(name)]
        mark = self._segments.read_mark()
        if not segment_names:
            self._begin(names, mark)
        else:
            # A name can be visible and yet not be on the disk after a kill.
            self._storage.sync_folder()
            for expected, name in enumerate(segment_names, start=1):
                self._adopt(name, expected)
        first = self._segments.first
        log = LogIndex(first.header.first_index, first.header.previous_term)
        found = Recovered(log, mark)
        for segment in self._segments:
            self._replay(segment, found)
        self._check_end(found)
        self._make_tail_durable(found)
        if found.synced != mark:
            self._segments.write_mark(found.synced)
            self._storage.sync_folder()
        return found

    def _clean_names(self) -> list[str]:
        """The folder's names, after removing what a crash during a creation left."""
        names = self._storage.listdir()
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX) and parse_segment_name(
                name.removesuffix(TEMPORARY_SUFFIX)
            ):
                self._storage.unlink(name)
        return self._storage.listdir()

    def _begin(self, names: list[str], mark: int) -> None:
        """The folder has no segment: make the first, if the folder is empty as it should be."""
        if MARK_NAME in names:
            raise JournalDamaged(
                MARK_NAME, 0, f"all segments are gone, {mark} bytes were known to be synced", REMEDY
            )
        if names:
            raise JournalForeign(
                f"the folder {self._storage.folder} holds {names[0]!r} and no journal; "
                "give the node an empty folder, or the one it had before"
            )
        opening = Opening(term=0, voted_for=None, commit_index=0)
        self._segments.create(first_index=1, previous_term=0, opening=opening)

    def _adopt(self, name: str, expected: int) -> None:
        """Reads a segment's header and checks that it continues the ones before it."""
        file = self._storage.open(name)
        try:
            start = file.read(0, records.SEGMENT_HEADER_BYTES_MAX)
            size = file.size()
        finally:
            file.close()
        try:
            header, header_bytes, seed = records.decode_segment_header(start)
        except BadHeader as problem:
            raise JournalDamaged(name, 0, str(problem), REMEDY) from None
        except NewerFormat as problem:
            raise JournalForeign(
                f"{self._storage.folder}/{name} is of {problem}; start the newer version again"
            ) from None
        self._check_owner(name, header)
        segment = Segment(name, header, header_bytes, seed, size)
        if parse_segment_name(name) != (header.sequence, header.first_index):
            raise JournalDamaged(name, 0, "the file was renamed from another segment", REMEDY)
        if header.sequence != expected:
            raise JournalDamaged(name, 0, f"segment {expected} before it is missing", REMEDY)
        if len(self._segments) and header.base != self._segments.current.end:
            before = self._segments.current
            raise JournalDamaged(
                before.name,
                before.size,
                f"the file should have {header.base - before.header.base} bytes",
                REMEDY,
            )
        self._segments.adopt(segment)

    def _check_owner(self, name: str, header: records.SegmentHeader) -> None:
        if header.cluster_id != self._cluster_id:
            raise JournalForeign(
                f"{self._storage.folder}/{name} belongs to cluster {header.cluster_id.hex()}, "
                f"this node to {self._cluster_id.hex()}; give the node the folder it had before"
            )
        if header.node != self._node:
            raise JournalForeign(
                f"{self._storage.folder}/{name} belongs to node {header.node!r}, this node is "
                f"{self._node!r}; give each node a folder of its own"
            )

    def _replay(self, segment: Segment, found: Recovered) -> None:
        if segment.header.first_index != found.log.last_index + 1:
            raise JournalDamaged(
                segment.name,
                0,
                f"begins at entry {segment.header.first_index} after entry {found.log.last_index}",
                REMEDY,
            )
        reader = _SegmentReader(segment, self._segments.file(segment), self._chunk_bytes)
        for offset, head, payload in reader:
            problem = _apply(found, head, payload, segment.header.base + offset)
            if problem is not None:
                raise JournalDamaged(segment.name, offset, problem, REMEDY)
        if reader.problem is not None:
            self._judge_tail(segment, reader, found)

    def _judge_tail(self, segment: Segment, reader: _SegmentReader, found: Recovered) -> None:
        """An invalid record: a torn tail that may be cut, or damage?"""
        problem, offset = reader.problem, reader.offset
        if segment is not self._segments.current:
            problem = f"{problem}, and later segments follow"
        elif segment.header.base + offset < found.synced:
            problem = f"{problem}, below position {found.synced} that is known to be synced"
        elif (following := reader.next_whole_record()) is not None:
            problem = f"{problem}, and a valid record follows at byte {following}"
        else:
            found.cut_bytes = segment.size - offset
            segment.size = offset
            return
        raise JournalDamaged(segment.name, offset, problem, REMEDY)

    def _check_end(self, found: Recovered) -> None:
        last = self._segments.current
        if last.end < found.synced:
            raise JournalDamaged(
                last.name,
                last.size,
                f"the log ends here, but position {found.synced} is known to be synced",
                REMEDY,
            )

    def _make_tail_durable(self, found: Recovered) -> None:
        """Cuts the torn tail and brings everything above the synced position to the disk.

        After a kill the tail may only be in the page cache; after a failed sync the kernel may
        even hold it as clean, so that syncing alone would do nothing. Writing the same bytes
        again makes the pages dirty, and one sync then covers them.
        """
        last = self._segments.current
        if last.end == found.synced and not found.cut_bytes:
            return
        file = self._segments.file(last)
        if found.cut_bytes:
            file.truncate(last.size)
        offset = max(found.synced - last.header.base, 0)
        while offset < last.size:
            piece = file.read(offset, min(self._chunk_bytes, last.size - offset))
            file.write(offset, (piece,))
            offset += len(piece)
        file.sync()
        found.synced = last.end


def _apply(found: Recovered, head: RecordHead, payload: memoryview, position: int) -> str | None:
    """One record's effect. What is wrong with it, in words, if it cannot be what we wrote."""
    log = found.log
    match head.kind:
        case records.ENTRY:
            if head.log_index != log.last_index + 1 or head.term < log.last_term:
                return (
                    f"entry {head.log_index} of term {head.term} after entry {log.last_index} "
                    f"of term {log.last_term}"
                )
            log.append(head.term, position, head.size)
        case records.GROUP:
            synced = records.decode_group(payload)
            if synced is None or synced > position:
                return f"position {synced} cannot be what was synced before"
            found.synced = max(found.synced, synced)
        case records.TRUNCATE:
            if not log.first_index < head.log_index <= log.last_index:
                return f"truncates from entry {head.log_index}, which the log does not have"
            log.truncate_from(head.log_index)
        case records.HARD_STATE:
            if head.term < found.term:
                return f"term {head.term} after term {found.term}"
            found.term = head.term
            found.voted_for = str(payload, "utf-8") or None
        case records.COMMIT:
            found.commit_index = max(found.commit_index, head.log_index)
        case _:
            return f"a record of kind {head.kind}, which this version does not know"
    return None
