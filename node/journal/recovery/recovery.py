"""Opening a journal: replay the log, cut a torn tail, refuse everything else.

Owns the judgement of what is found on the disk. It never skips a record and never guesses: what
comes out is exactly what was written, or an error that names file, offset and what to do. Where a
snapshot stands for the beginning of the log, segments below it are not read now, only their
headers; their entries are checked when they are. The
rule (raft.md 3.2): a tail is torn, and may be cut, only in the last segment, only where no valid
record follows that proves otherwise (`proof_of_damage`), and only above every position known to be
synced. The one thing this cannot tell from a tear is damage to the very last group while no mark
says that it was synced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

from node.journal import notebook, passport, records, skips, wrong_state
from node.journal.errors import (
    REMEDY,
    JournalDamaged,
    JournalError,
    JournalForeign,
    JournalFull,
    JournalUnusable,
)
from node.journal.index import LogIndex
from node.journal.io.storage import FULL_ERRNOS
from node.journal.record_files import TEMPORARY_SUFFIX, RecordReader
from node.journal.records import SEGMENT_MAGIC, RecordHead
from node.journal.recovery.recovery_marker import MARKER_NAME, is_set_aside
from node.journal.reserve import RESERVE_NAME
from node.journal.segments import (
    MARK_NAME,
    Preamble,
    Segment,
    SegmentHeader,
    Segments,
    parse_segment_name,
)
from node.journal.snapshots.catalog import Catalog, read_catalog
from node.journal.snapshots.compacted_file import parse_compacted_name
from node.journal.snapshots.file import parse_snapshot_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.journal.io.storage import OpenFiles, Storage
    from node.journal.records import JournalIdentity
    from node.journal.snapshots.file import SnapshotFile


_NOTED: Final = records.NOTED_BYTE[0]


@dataclass(slots=True)
class ReplayedLog:
    """The log and its state, once all records are replayed.

    `synced` is the highest position that a group or the mark knows to be on the disk, `cut_bytes`
    what was cut of a torn tail, the zeros at its end not counted.
    """

    log: LogIndex
    synced: int
    term: int = 0
    voted_for: str | None = None
    commit_index: int = 0
    cut_bytes: int = 0
    memory: bytes = b""
    """The note of the log's owner that came last beside a commit hint."""
    noted: dict[int, bytes] = field(default_factory=dict)
    """The commands that begin with `NOTED_BYTE`, by index."""
    catalog: Catalog = field(default_factory=Catalog)

    def below_base(self, position: int) -> bool:
        """Whether a snapshot stands for what lies there."""
        base = self.catalog.base
        return base is not None and position < base.end.log_position

    @property
    def first_to_go(self) -> int:
        """The first entry that may be cut off. The log keeps its first one, unless it goes on
        behind a snapshot of the leader's: the head that stands for it is put in at the end."""
        base = self.catalog.base
        behind = base is not None and base.end.restarts and self.log.first_index > base.meta.index
        return self.log.first_index + (not behind)

    def forget_noted(self, first: int) -> None:
        """The entries from `first` on are no longer part of the log."""
        for index in [index for index in self.noted if index >= first]:
            del self.noted[index]


class Recovery:
    """Opens one folder. `run` may be called once."""

    def __init__(
        self,
        storage: Storage,
        files: OpenFiles,
        segments: Segments,
        identity: JournalIdentity,
        *,
        chunk_bytes: int,
    ) -> None:
        self._storage = storage
        self._files = files
        self._segments = segments
        self._identity = identity
        self._chunk_bytes = chunk_bytes

    def run(self) -> ReplayedLog:
        """Replay the folder, or make its first segment; afterwards everything is durable."""
        names = self._clean_names()
        segment_names = [name for name in names if parse_segment_name(name)]
        mark = self._segments.read_mark()
        if not segment_names:
            self._begin(names, mark)
            catalog = Catalog()
        else:
            # A name can be visible and yet not be on the disk after a kill.
            self._storage.sync_folder()
            for name in segment_names:
                self._adopt(name)
            catalog = read_catalog(
                names, self._files, self._identity, self._segments, self._chunk_bytes
            )
        # The order matters. All is judged before the first byte changes, so that a refusal leaves
        # the folder as it was found; the tail is durable before the log counts as open, so that
        # nothing stands on a record that a power cut takes back; and the mark comes last, because
        # it says that all before it is durable.
        found = self._replay_from(catalog, mark)
        self._check_end(found)
        self._make_tail_durable(found)
        if catalog.base is not None:
            self._begin_log(found, catalog.base)
        self._check_snapshots(found)
        if found.synced != mark:
            self._segments.write_mark(found.synced)
            self._storage.sync_folder()
        return found

    def _clean_names(self) -> list[str]:
        """The folder's names, after removing what a crash during a creation left."""
        names = self._storage.listdir()
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX) and _is_ours(name.removesuffix(TEMPORARY_SUFFIX)):
                self._storage.unlink(name)
        names = self._storage.listdir()
        others = (
            *(MARKER_NAME, RESERVE_NAME),
            *notebook.NAMES,
            *passport.NAMES,
            *wrong_state.NAMES,
            *skips.NAMES,
        )
        return [name for name in names if name not in others and not is_set_aside(name)]

    def _begin(self, names: list[str], mark: int) -> None:
        """The folder has no segment: make the first, if the folder is empty as it should be."""
        if MARK_NAME in names:
            raise JournalDamaged(
                MARK_NAME, 0, f"all segments are gone, {mark} bytes were known to be synced", REMEDY
            )
        ours = [name for name in names if _is_ours(name)]
        if ours:
            raise JournalDamaged(ours[0], 0, "all segments are gone", REMEDY)
        if names:
            raise JournalForeign(
                f"the folder {self._storage.folder} holds {names[0]!r} and no journal; "
                "give the node an empty folder, or the one it had before"
            )
        preamble = Preamble(term=0, voted_for=None, commit_index=0)
        self._segments.create(first_index=1, previous_term=0, preamble=preamble)

    def _adopt(self, name: str) -> None:
        """Read a segment's header."""
        file = self._storage.open(name)
        try:
            found, header_bytes, seed = self._identity.read_header(file, name, SEGMENT_MAGIC)
            size = file.size()
        finally:
            file.close()
        header = SegmentHeader.of(found)
        if parse_segment_name(name) != (header.sequence, header.first_index):
            raise JournalDamaged(name, 0, "the file was renamed from another segment", REMEDY)
        self._segments.adopt(Segment(name, header, header_bytes, seed, size))

    def _replay_from(self, catalog: Catalog, mark: int) -> ReplayedLog:
        """Replay the log from where its base, or entry 1, lies."""
        first = self._first_to_replay(catalog.base)
        log = LogIndex(first.header.first_index, first.header.previous_term)
        found = ReplayedLog(log, mark, catalog=catalog)
        before: Segment | None = None
        for segment in self._segments:
            if segment.header.sequence < first.header.sequence:
                continue
            if before is not None:
                _check_continues(before, segment)
            self._replay(segment, found)
            before = segment
        return found

    def _first_to_replay(self, base: SnapshotFile | None) -> Segment:
        if base is None:
            return self._segments.first
        position = base.end.log_position
        segment = self._segments.at(position)
        inside = segment.header.base <= position < segment.end
        if base.end.restarts:
            # The segment that begins there is made after the snapshot: where it is missing, the log
            # ends there. How far its last file is filled will be seen, see `_begin_log`.
            last = segment is self._segments.current
            missing = last and segment.header.base < position <= segment.end
            begins = inside and segment.header.base == position
            inside = missing or begins
        if not inside:
            problem = f"its log goes on at position {position}, which no segment holds"
            raise JournalDamaged(base.meta.name, 0, problem, REMEDY)
        return segment

    def _replay(self, segment: Segment, found: ReplayedLog) -> None:
        if segment.header.first_index != found.log.last_index + 1:
            begins = segment.header.first_index
            gap = f"begins at entry {begins} after entry {found.log.last_index}"
            reasons = "; ".join([gap, *found.catalog.warnings])
            raise JournalDamaged(segment.name, 0, reasons, REMEDY)
        reader = RecordReader(
            self._segments.file(segment),
            offset=segment.header_bytes,
            size=segment.size,
            base=segment.header.base,
            seed=segment.seed,
            chunk_bytes=self._chunk_bytes,
        )
        for offset, head, payload in reader:
            problem = _apply(found, head, payload, segment.header.base + offset)
            if problem is not None:
                raise JournalDamaged(segment.name, offset, problem, REMEDY)
        if reader.problem is not None:
            self._judge_tail(segment, reader, found)

    def _judge_tail(self, segment: Segment, reader: RecordReader, found: ReplayedLog) -> None:
        """No valid record: room, a torn tail that may be cut, or damage?"""
        problem, offset, base = reader.problem, reader.offset, segment.header.base
        # Three proofs that these bytes were once durable, and are damage now: a later segment is
        # made after the sync of this one; the mark or a group's head names a synced position
        # beyond them; or a record follows that was written after them (`proof_of_damage`). Without
        # any of them they were never acknowledged, and may go.
        if segment is not self._segments.current:
            problem = f"{problem}, and later segments follow"
        elif base + offset < found.synced:
            problem = f"{problem}, below position {found.synced} that is known to be synced"
        else:
            rest = reader.rest()
            following = proof_of_damage(rest, offset, base, segment.seed)
            if following is None:
                # Zeros are room that nothing was written to.
                found.cut_bytes = len(rest.rstrip(b"\0"))
                segment.size = offset
                return
            problem = f"{problem}, and a valid record follows at byte {following}"
        raise JournalDamaged(segment.name, offset, problem, REMEDY)

    def _check_end(self, found: ReplayedLog) -> None:
        last = self._segments.current
        if last.end < found.synced:
            raise JournalDamaged(
                last.name,
                last.size,
                f"the log ends here, but position {found.synced} is known to be synced",
                REMEDY,
            )

    def _begin_log(self, found: ReplayedLog, base: SnapshotFile) -> None:
        """Lets the log begin with its base, and makes the segment that an installation which
        was interrupted did not come to make."""
        meta, log = base.meta, found.log
        found.commit_index = max(found.commit_index, meta.index)
        if not base.end.restarts:
            self._check_holds(found, base)
        elif base.end.log_position == self._segments.current.end:
            log.restart(meta.index + 1, meta.term)
            found.forget_noted(meta.index + 1)
            self._segments.create(
                first_index=meta.index + 1,
                previous_term=meta.term,
                preamble=Preamble(found.term, found.voted_for, found.commit_index, found.memory),
            )
            found.synced = self._segments.current.end
        elif not self._restarts_at(found, base):
            self._refuse(base, "its log does not go on there")
        log.begin_at(meta.index, meta.term, meta.previous_term)

    def _restarts_at(self, found: ReplayedLog, base: SnapshotFile) -> bool:
        position, log = base.end.log_position, found.log
        begins = self._segments.at(position).header.base == position
        start = (log.first_index, log.term_at(log.first_index - 1))
        return begins and start == (base.meta.index + 1, base.meta.term)

    def _check_snapshots(self, found: ReplayedLog) -> None:
        """Each snapshot after the base stands for a beginning of this log."""
        for snapshot in found.catalog.snapshots:
            if snapshot is not found.catalog.base:
                self._check_holds(found, snapshot)
                found.commit_index = max(found.commit_index, snapshot.meta.index)

    def _check_holds(self, found: ReplayedLog, snapshot: SnapshotFile) -> None:
        meta, log = snapshot.meta, found.log
        if not log.first_index <= meta.index <= log.last_index:
            self._refuse(snapshot, f"the log has no entry {meta.index}")
        position = log.extent_at(meta.index).position
        if (log.term_at(meta.index), position) != (meta.term, snapshot.end.log_position):
            self._refuse(snapshot, f"the log has another entry {meta.index}")

    def _refuse(self, snapshot: SnapshotFile, problem: str) -> NoReturn:
        raise JournalDamaged(snapshot.meta.name, 0, problem, REMEDY)

    def _make_tail_durable(self, found: ReplayedLog) -> None:
        """Cut what is behind the last record, and bring all above the synced position to the
        disk.

        A whole record of a torn tail must never come to lie behind a new one that ends where it
        begins; so room is not used again either. After a kill the tail may only be in the page
        cache; after a failed sync the kernel may even hold it as clean, so that syncing alone would
        do nothing. Writing the same bytes again makes the pages dirty, and one sync then covers
        them.
        """
        last = self._segments.current
        file = self._segments.file(last)
        beyond = file.size() > last.size
        if last.end == found.synced and not beyond:
            return
        if beyond:
            file.truncate(last.size)
        offset = max(found.synced - last.header.base, 0)
        while offset < last.size:
            piece = file.read(offset, min(self._chunk_bytes, last.size - offset))
            file.write(offset, (piece,))
            offset += len(piece)
        file.sync()
        found.synced = last.end


def is_journal_file(name: str) -> bool:
    """Whether a file of this name in a data folder is the journal's, in use or set aside."""
    return (
        name in (MARK_NAME, MARKER_NAME, RESERVE_NAME)
        or name in notebook.NAMES
        or name in passport.NAMES
        or name in skips.NAMES
        or is_set_aside(name)
        or _is_ours(name.removesuffix(TEMPORARY_SUFFIX))
    )


def _is_ours(name: str) -> bool:
    return bool(
        parse_segment_name(name)
        or parse_snapshot_name(name)
        or parse_compacted_name(name) is not None
    )


def _check_continues(before: Segment, segment: Segment) -> None:
    expected = before.header.sequence + 1
    if segment.header.sequence != expected:
        problem = f"segment {expected} before it is missing"
        raise JournalDamaged(segment.name, 0, problem, REMEDY)
    if segment.header.base != before.end:
        size = segment.header.base - before.header.base
        problem = f"the file should have {size} bytes"
        raise JournalDamaged(before.name, before.size, problem, REMEDY)


def _apply(found: ReplayedLog, head: RecordHead, payload: memoryview, position: int) -> str | None:
    """Apply one record; what is wrong with it, in words, if it cannot have been written so."""
    log = found.log
    match head.kind:
        case records.ENTRY:
            if head.log_index != log.last_index + 1 or head.term < log.last_term:
                return (
                    f"entry {head.log_index} of term {head.term} after entry {log.last_index} "
                    f"of term {log.last_term}"
                )
            log.append(head.term, position, head.size)
            if head.size and payload[0] == _NOTED:
                found.noted[head.log_index] = bytes(payload)
        case records.GROUP:
            synced = records.decode_group(payload)
            if synced is None or synced > position:
                return f"position {synced} cannot be the synced position"
            found.synced = max(found.synced, synced)
        case records.TRUNCATE:
            if head.log_index <= log.first_index and found.below_base(position):
                # The entries before lie in segments that are gone, or need not be read.
                log.restart(head.log_index, 0)
            elif found.first_to_go <= head.log_index <= log.last_index:
                log.truncate_from(head.log_index)
            else:
                return f"truncates from entry {head.log_index}, which the log does not have"
            found.forget_noted(head.log_index)
        case records.HARD_STATE:
            if head.term < found.term:
                return f"term {head.term} after term {found.term}"
            found.term = head.term
            found.voted_for = str(payload, "utf-8") or None
        case records.COMMIT:
            found.commit_index = max(found.commit_index, head.log_index)
            found.memory = bytes(payload) or found.memory
        case _:
            return f"a record of kind {head.kind}, which this version does not know"
    return None


def unusable(folder: str, problem: OSError) -> JournalError:
    """The error for an operator whose folder raised an OSError during opening."""
    reason = problem.strerror or str(problem)
    if problem.errno in FULL_ERRNOS:
        return JournalFull(f"no room to open the journal in {folder}: {reason}; free some space")
    return JournalUnusable(
        f"cannot use the journal folder {folder}: {reason}; "
        "it has to be a folder that this user can read and write"
    )


_SECTOR_BYTES: Final = 512
"""The unit that a disk writes whole or not at all, counted from the start of a file; many disks
have a larger one."""


def proof_of_damage(rest: bytes, offset: int, base: int, seed: int) -> int | None:
    """Where a valid record follows that could not be there if an invalid one, at `offset` of a
    segment, were the beginning of a torn tail; None if it is one. `rest` is the file from there on.
    """
    # A group's head was written after the sync of the group before it, so it proves damage wherever
    # it stands. Any other record belongs to the group of the gap in front of it: a power cut can
    # lose a sector of that one write, which then still holds zeros, and a gap without such a sector
    # is damage. Only the first record is judged so, because whatever follows a torn record is cut.
    first = True
    for at, head in _whole_records(rest, base + offset, seed):
        if head.kind == records.GROUP or (first and not _lost_sector(rest, at, offset)):
            return offset + at
        first = False
    return None


def _whole_records(rest: bytes, position: int, seed: int) -> Iterator[tuple[int, RecordHead]]:
    """(offset in `rest`, head) of each valid record behind the first byte."""
    view = memoryview(rest)
    at = rest.find(records.MAGIC, 1)
    while 0 <= at <= len(rest) - records.RECORD_BYTES:
        head = records.decode_record(view, at, position + at)
        end = at + records.RECORD_BYTES
        if (
            isinstance(head, RecordHead)
            and end + head.size <= len(rest)
            and records.record_is_whole(view, at, head, seed)
        ):
            yield at, head
            at = rest.find(records.MAGIC, end + head.size)
        else:
            at = rest.find(records.MAGIC, at + 1)


def _lost_sector(rest: bytes, end: int, offset: int) -> bool:
    """Whether a sector that ends in the first `end` bytes of `rest` is all zeros there."""
    begin = 0
    for sector_end in range(_SECTOR_BYTES - offset % _SECTOR_BYTES, end + 1, _SECTOR_BYTES):
        if not any(rest[begin:sector_end]):
            return True
        begin = sector_end
    return False
