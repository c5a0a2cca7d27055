"""The catalog of a folder beside its log: snapshots, compacted files, and the base of the log.

Owns finding and checking them at the start, and the rule which snapshot is the *base*: the oldest
that is kept. The log begins there, and what the base needs stays on the disk, so that it can stand
in for a newer one that is damaged. Changes nothing on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from node.journal import limits
from node.journal.errors import REMEDY, JournalDamaged
from node.journal.io.jobs import off_loop
from node.journal.locations import EntryLocations, FileUse
from node.journal.snapshots.compacted_file import CompactedFile, parse_compacted_name
from node.journal.snapshots.file import SnapshotFile, parse_snapshot_name

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from node.journal.io.jobs import Job, OffLoop
    from node.journal.io.storage import OpenFiles
    from node.journal.records import JournalIdentity
    from node.journal.segments import Segments

SNAPSHOTS_KEPT: Final = 2
"""The newest, and one more to start from if that is damaged."""

_CHUNK_COST_BYTES: Final = limits.LOCATIONS_PER_RECORD * limits.LOCATION_COST_BYTES


@dataclass(slots=True)
class Catalog:
    """The snapshots from the oldest to the newest, the base among them, and what it needs.

    `locations` says where the base's entries lie and `uses` what that means for each file;
    `unneeded` are files that nothing refers to; `warnings` are lines for the node's log.
    """

    snapshots: list[SnapshotFile] = field(default_factory=list)
    base: SnapshotFile | None = None
    locations: EntryLocations = field(default_factory=EntryLocations)
    uses: dict[int, FileUse] = field(default_factory=dict)
    compacted_files: dict[int, CompactedFile] = field(default_factory=dict)
    next_number: int = 1
    unneeded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_catalog(
    names: list[str],
    files: OpenFiles,
    identity: JournalIdentity,
    segments: Segments,
    chunk_bytes: int,
) -> Catalog:
    """Read the snapshots and compacted files among `names`, whose segments are adopted.

    Raises `JournalDamaged` or `JournalForeign`.
    """
    found = Catalog()
    for name in sorted(filter(parse_snapshot_name, names), reverse=True):
        if len(found.snapshots) == SNAPSHOTS_KEPT or (
            found.snapshots and found.snapshots[0].end.restarts
        ):
            found.unneeded.append(name)
            continue
        try:
            found.snapshots.insert(0, SnapshotFile.open(files, name, identity, chunk_bytes))
        except JournalDamaged as problem:
            found.warnings.append(
                f"snapshot {name} is damaged at byte {problem.offset} ({problem.problem}); "
                "check the disk"
            )
    found.base = choose_base(found.snapshots, begins_at_one=_gap_in(segments) is None)
    _check_reach(found, segments)
    kept_names = [name for name in names if parse_compacted_name(name) is not None]
    if found.base is None:
        found.unneeded += kept_names
    else:
        for name in kept_names:
            kept = CompactedFile.open(files, name, identity)
            found.compacted_files[kept.file] = kept
        for _ in load_locations(found, found.base, files):
            pass
        check_uses(found.uses, found, segments, found.base)
    numbers = [snapshot.next_number for snapshot in found.snapshots]
    numbers += [parse_compacted_name(name) or 0 for name in kept_names]
    found.next_number = max(numbers, default=0) + 1
    return found


def choose_base(snapshots: list[SnapshotFile], *, begins_at_one: bool) -> SnapshotFile | None:
    """The snapshot that the log begins with; None where it begins with entry 1.

    While there is only one snapshot, the whole log is what stands in for it, if it is there.
    """
    if not snapshots:
        return None
    oldest = snapshots[0]
    if len(snapshots) == 1 and begins_at_one and not oldest.end.restarts:
        return None
    return oldest


def _gap_in(segments: Segments) -> tuple[str, str] | None:
    """The first segment that does not continue the one before, and why; None if each does."""
    expected = 1
    for segment in segments:
        if segment.header.sequence != expected:
            return segment.name, f"segment {expected} before it is missing"
        expected += 1
    if segments.first.header.first_index != 1:
        problem = f"the log begins at entry {segments.first.header.first_index}"
        return segments.first.name, problem
    return None


def _check_reach(found: Catalog, segments: Segments) -> None:
    """A log that does not begin at entry 1 needs a snapshot to begin with (b10)."""
    gap = _gap_in(segments)
    if found.base is None and gap is not None:
        name, problem = gap
        reasons = "; ".join([problem, "no whole snapshot stands for it", *found.warnings])
        raise JournalDamaged(name, 0, reasons, REMEDY)


def load_locations(
    into: Catalog, base: SnapshotFile, files: OpenFiles
) -> Generator[Job[Any] | int]:
    """Read where the base's entries lie into `into.locations` and `into.uses`, in small steps that
    yield what they count for in a budget, or the read that has to come before the next: it may run
    on another thread if nothing else uses `files`. Uses `into.compacted_files`. Raises
    `JournalDamaged`.
    """
    locations = EntryLocations()
    pieces = base.through(files).locations()
    while (some := (yield from _next(pieces))) is not None:
        if not locations.extend(some):
            raise JournalDamaged(base.meta.name, 0, "its locations are out of order", REMEDY)
        yield _CHUNK_COST_BYTES
    for kept in sorted(into.compacted_files.values(), key=lambda kept: kept.number):
        if kept.number < base.next_number:
            continue
        pieces = kept.locations(files)
        while (some := (yield from _next(pieces))) is not None:
            if not locations.override(some):
                raise JournalDamaged(
                    kept.name, 0, "its entries differ from those of the snapshot", REMEDY
                )
            yield _CHUNK_COST_BYTES
    uses: dict[int, FileUse] = {}
    for first in range(0, len(locations), limits.LOCATIONS_PER_RECORD):
        locations.tally(first, first + limits.LOCATIONS_PER_RECORD, uses)
        yield _CHUNK_COST_BYTES
    into.locations, into.uses = locations, uses


def _next(pieces: Iterator[EntryLocations]) -> OffLoop[EntryLocations | None]:
    """The next of `pieces`, which takes a read; None behind the last."""
    return off_loop(lambda: next(pieces, None))


def check_uses(
    uses: dict[int, FileUse], found: Catalog, segments: Segments, base: SnapshotFile
) -> None:
    """Every file that the base needs is there, and long enough. Raises `JournalDamaged`."""
    for file, use in uses.items():
        kept, segment = found.compacted_files.get(file), segments.get(file)
        holder = kept or segment
        if holder is None:
            problem = f"the file {file:#x} that holds entries it needs is missing"
            raise JournalDamaged(base.meta.name, 0, problem, REMEDY)
        if use.end > holder.size:
            problem = f"the file should have {use.end} bytes or more"
            raise JournalDamaged(holder.name, holder.size, problem, REMEDY)


def newest_to_keep(
    snapshots: list[SnapshotFile], pinned: Iterable[str], count: int
) -> list[SnapshotFile]:
    """Those that stay: the newest `count`, the pinned ones, and none from before a restart."""
    names = set(pinned)
    stay: list[SnapshotFile] = []
    for snapshot in reversed(snapshots):
        if len(stay) < count or snapshot.meta.name in names:
            stay.insert(0, snapshot)
        if snapshot.end.restarts:
            break
    return stay
