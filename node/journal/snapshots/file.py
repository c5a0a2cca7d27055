"""A snapshot on the disk: the machine's state in pieces, and locations of the entries it needs.

Owns the layout of a snapshot file, its building and its reading back. `store.py` knows which
snapshots there are; `docs/storage.md` describes the format.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from node.journal import limits, records
from node.journal.errors import REMEDY, JournalDamaged, JournalRefused
from node.journal.locations import LOCATION_BYTES, EntryLocations
from node.journal.record_files import RecordReader, RecordWriter, read_record
from node.journal.records import SNAPSHOT_MAGIC, SnapshotEnd

if TYPE_CHECKING:
    from collections.abc import Iterator

    from node.journal.io.storage import OpenFiles, Storage
    from node.journal.records import JournalIdentity, RecordHead

DIGEST_BYTES: Final = 32
_SNAPSHOT_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.snapshot")


@dataclass(frozen=True, slots=True)
class SnapshotMeta:
    """The identity of a snapshot; equal on two nodes if they hold the same one.

    `index` and `term` are of the last entry in it, `previous_term` of the one before. `digest`
    is the BLAKE2b (32 bytes) of the `state_bytes` of state; `live_count` entries are needed to
    go on from it.
    """

    index: int
    term: int
    previous_term: int
    state_bytes: int
    live_count: int
    digest: bytes
    members: bytes = b""
    """The members of the cluster then, in the words of the log's owner; empty: never changed."""

    @property
    def name(self) -> str:
        """The file's name; names sort by index."""
        return snapshot_name(self.index, self.term)


def snapshot_name(index: int, term: int) -> str:
    """The name of a snapshot's file."""
    return f"{index:020d}-{term:020d}.snapshot"


def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """(index, term) of a snapshot's file name; None for any other name."""
    match = _SNAPSHOT_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


class SnapshotFile:
    """A whole snapshot on the disk.

    Entries whose locations it holds may have moved since into compacted files of the number
    `next_number` or higher. `end` says where the log goes on.
    """

    def __init__(
        self, files: OpenFiles, meta: SnapshotMeta, next_number: int, seed: int, layout: _Layout
    ) -> None:
        self._files = files
        self._seed = seed
        self._layout = layout
        self.meta = meta
        self.next_number = next_number

    def __repr__(self) -> str:
        return f"<SnapshotFile {self.meta.name} {self.size} bytes>"

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._layout.size

    @property
    def end(self) -> SnapshotEnd:
        """The last record: where the log goes on, sizes, digest."""
        return self._layout.end

    @classmethod
    def open(
        cls, files: OpenFiles, name: str, identity: JournalIdentity, chunk_bytes: int
    ) -> SnapshotFile:
        """Read and check all of it. Raises `JournalDamaged` or `JournalForeign`."""
        file = files.get(name)
        header, header_bytes, seed = identity.read_header(file, name, SNAPSHOT_MAGIC)
        next_number, index, term, previous_term = header.numbers
        if parse_snapshot_name(name) != (index, term):
            raise JournalDamaged(name, 0, "the file was renamed from another snapshot", REMEDY)
        reader = RecordReader(
            file,
            offset=header_bytes,
            size=file.size(),
            base=0,
            seed=seed,
            chunk_bytes=chunk_bytes,
        )
        layout = _Layout.read(reader, name)
        end = layout.end
        meta = SnapshotMeta(
            index,
            term,
            previous_term,
            end.state_bytes,
            end.live_count,
            end.digest,
            layout.members,
        )
        return cls(files, meta, next_number, seed, layout)

    def through(self, files: OpenFiles) -> SnapshotFile:
        """The same snapshot, read through other descriptors, maybe on another thread."""
        return SnapshotFile(files, self.meta, self.next_number, self._seed, self._layout)

    def read_state(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes of the state from `offset`, fewer only where it ends.

        Raises `JournalDamaged` if the disk returns something else than was written.
        """
        end = min(offset + size, self.meta.state_bytes)
        if offset >= end:
            return b""
        piece_bytes = self._layout.piece_bytes
        first, last = offset // piece_bytes, (end - 1) // piece_bytes
        pieces = [self._piece(number) for number in range(first, last + 1)]
        start = offset - first * piece_bytes
        return b"".join(pieces)[start : start + end - offset]

    def _piece(self, number: int) -> bytes:
        at = number * self._layout.piece_bytes
        size = min(self._layout.piece_bytes, self.meta.state_bytes - at)
        return self._record(self._layout.state_at[number], size, records.STATE, at)

    def locations(self) -> Iterator[EntryLocations]:
        """Locations of its entries when it was made, in ascending order, some at a time."""
        layout = self._layout
        for offset, size in zip(layout.locations_at, layout.locations_bytes, strict=True):
            yield self._locations_at(offset, size)

    def indexes(self, first: int) -> Iterator[array[int]]:
        """The indexes of its entries from the `first`-th on, counted from 0, in ascending order,
        some at a time. What comes before is not read, however much it is."""
        layout = self._layout
        for offset, size in zip(layout.locations_at, layout.locations_bytes, strict=True):
            count = size // LOCATION_BYTES
            if first < count:
                yield self._locations_at(offset, size).indexes[first:]
            first = max(0, first - count)

    def _locations_at(self, offset: int, size: int) -> EntryLocations:
        found = EntryLocations.decode(self._record(offset, size, records.LOCATIONS, 0))
        if found is None:
            raise self._damaged(offset, "the locations do not read as they were written")
        return found

    def _record(self, offset: int, size: int, kind: int, index: int) -> bytes:
        file = self._files.get(self.meta.name)
        found = read_record(file, offset, size, base=0, seed=self._seed)
        if isinstance(found, str):
            raise self._damaged(offset, found)
        head, payload = found
        if (head.kind, head.log_index) != (kind, index):
            found_here = f"kind {head.kind} and index {head.log_index}"
            problem = f"a record of {found_here}, expected kind {kind} and index {index}"
            raise self._damaged(offset, problem)
        return payload

    def _damaged(self, offset: int, problem: str) -> JournalDamaged:
        return JournalDamaged(self.meta.name, offset, problem, REMEDY)


class _Layout:
    """Offsets of a snapshot's records. All pieces of the state but the last have one size."""

    def __init__(self) -> None:
        self.piece_bytes = limits.STATE_PIECE_BYTES
        self.state_at = array("Q")
        self.locations_at = array("Q")
        self.locations_bytes = array("I")
        self.size = 0
        self.members = b""
        self.end: SnapshotEnd

    @classmethod
    def read(cls, reader: RecordReader, name: str) -> _Layout:
        """Walk over a file's records and check that they are a snapshot, and all of it."""
        layout = cls()
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        state_bytes = live_count = 0
        found_end: SnapshotEnd | None = None
        for offset, head, payload in reader:
            if found_end is not None:
                raise JournalDamaged(name, offset, "a record follows the end record", REMEDY)
            if head.kind == records.STATE and layout.takes(head, state_bytes):
                layout.state_at.append(offset)
                digest.update(payload)
                state_bytes += len(payload)
            elif head.kind == records.LOCATIONS:
                layout.locations_at.append(offset)
                layout.locations_bytes.append(len(payload))
                live_count += len(payload) // LOCATION_BYTES
            elif head.kind == records.MEMBERS and not layout.begun:
                layout.members = bytes(payload)
            elif head.kind == records.SNAPSHOT_END:
                found_end = SnapshotEnd.decode(payload)
            else:
                raise JournalDamaged(
                    name, offset, f"a record of kind {head.kind} does not belong here", REMEDY
                )
        if reader.problem is not None or found_end is None:
            problem = reader.problem or "the end record is missing"
            raise JournalDamaged(name, reader.offset, problem, REMEDY)
        whole = (found_end.state_bytes, found_end.live_count, found_end.digest)
        if whole != (state_bytes, live_count, digest.digest()):
            raise JournalDamaged(
                name, 0, "state, locations or digest differ from the end record", REMEDY
            )
        layout.end = found_end
        layout.size = reader.offset
        return layout

    @property
    def begun(self) -> bool:
        """Whether a record was there before this one."""
        return bool(self.members or self.state_at or self.locations_at)

    def takes(self, head: RecordHead, state_bytes: int) -> bool:
        """Whether a piece can follow those before it, `state_bytes` together."""
        if not self.state_at:
            self.piece_bytes = head.size
        follows = head.log_index == state_bytes == len(self.state_at) * self.piece_bytes
        return follows and 0 < head.size <= self.piece_bytes


class SnapshotBuilder:
    """A snapshot file in the making. What each method may raise: see `RecordWriter`."""

    def __init__(
        self,
        storage: Storage,
        identity: JournalIdentity,
        *,
        index: int,
        term: int,
        previous_term: int,
        next_number: int,
        what: str,
        members: bytes = b"",
    ) -> None:
        header = identity.header(SNAPSHOT_MAGIC, next_number, index, term, previous_term)
        self.index, self.term, self._previous_term = index, term, previous_term
        self._next_number = next_number
        self._layout = _Layout()
        self._digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._locations = EntryLocations()
        self._last_live = 0
        self.state_bytes = 0
        self.live_count = 0
        self.file = RecordWriter(storage, snapshot_name(index, term), header, what)
        if members:
            self._layout.members = members
            self.file.add(records.MEMBERS, 0, 0, members)

    def add_state(self, data: bytes) -> None:
        """The next bytes of the state; any number."""
        self._digest.update(data)
        self._pending.append(data)
        self._pending_bytes += len(data)
        self.state_bytes += len(data)
        if self._pending_bytes >= limits.STATE_PIECE_BYTES:
            self._write_pieces(limits.STATE_PIECE_BYTES)

    def _write_pieces(self, at_least: int) -> None:
        """Write what is pending in whole pieces, as long as `at_least` bytes are left."""
        state = b"".join(self._pending)
        at = 0
        while len(state) - at >= at_least:
            piece = state[at : at + limits.STATE_PIECE_BYTES]
            start = self.state_bytes - len(state) + at
            self._layout.state_at.append(self.file.add(records.STATE, 0, start, piece))
            at += len(piece)
            if at == len(state):
                break
        self._pending = [state[at:]]
        self._pending_bytes = len(state) - at

    def add_locations(self, locations: EntryLocations) -> None:
        """Add the locations of the next live entries. `JournalRefused` if they do not ascend."""
        indexes = locations.indexes
        if (indexes and indexes[0] <= self._last_live) or not self._locations.extend(locations):
            raise JournalRefused(f"live entries are out of order after entry {self._last_live}")
        self._last_live = indexes[-1] if indexes else self._last_live
        self.live_count += len(locations)
        if len(self._locations) >= limits.LOCATIONS_PER_RECORD:
            self._write_locations()

    def _write_locations(self) -> None:
        for payload in self._locations.pieces(limits.LOCATIONS_PER_RECORD):
            self._layout.locations_at.append(self.file.add(records.LOCATIONS, 0, 0, payload))
            self._layout.locations_bytes.append(len(payload))
        self._locations = EntryLocations()

    def digest(self) -> bytes:
        """The digest of the state so far."""
        return self._digest.digest()

    def publish(self, files: OpenFiles, log_position: int, *, restarts: bool) -> SnapshotFile:
        """End the file and return when it is on the disk under its name."""
        self.seal(files, log_position, restarts=restarts)
        self.file.publish()
        return self.published(files)

    def seal(self, files: OpenFiles, log_position: int, *, restarts: bool) -> None:
        """End the file; `file.publish` has to follow, on any thread."""
        if self._pending_bytes:
            self._write_pieces(1)
        if self._locations:
            self._write_locations()
        layout = self._layout
        layout.end = SnapshotEnd(
            self.state_bytes, self.live_count, log_position, restarts, self.digest()
        )
        self.file.add(records.SNAPSHOT_END, 0, 0, layout.end.encode())
        layout.size = self.file.size
        files.drop(self.file.name)
        self.file.flush()

    def published(self, files: OpenFiles) -> SnapshotFile:
        """The snapshot, which is on the disk."""
        meta = SnapshotMeta(
            self.index,
            self.term,
            self._previous_term,
            self.state_bytes,
            self.live_count,
            self.digest(),
            self._layout.members,
        )
        return SnapshotFile(files, meta, self._next_number, self.file.seed, self._layout)
