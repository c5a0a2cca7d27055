"""What a folder holds beside the log: snapshots, kept files, and which of them the log begins with.

Owns finding and checking them at the start, and the rule which snapshot is the *base*: the oldest
that is kept. The log begins there, and what the base needs stays on the disk, so that it can stand
in for a newer one that is damaged. Changes nothing on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final

from node.journal import limits
from node.journal.errors import REMEDY, JournalDamaged
from node.journal.io.job import landing
from node.journal.places import FileUse, Places
from node.journal.snapshots.compacted_file import KeptFile, parse_kept_name
from node.journal.snapshots.file import SnapshotFile, parse_snapshot_name

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator

    from node.journal.file_header import Owner
    from node.journal.io.job import Flight
    from node.journal.open_files import OpenFiles
    from node.journal.segments import Segments

SNAPSHOTS_KEPT: Final = 2
"""The newest, and one more to start from if that is damaged."""

_SOME_PLACES_COST: Final = limits.PLACES_PER_RECORD * limits.PLACE_COST_BYTES


@dataclass(slots=True)
class Retained:
    """The snapshots from the oldest to the newest, the base among them, and what it needs.

    `places` says where the base's entries lie and `uses` what that means for each file;
    `unneeded` are files that nothing refers to; `warnings` are lines for the node's log.
    """

    snapshots: list[SnapshotFile] = field(default_factory=list)
    base: SnapshotFile | None = None
    places: Places = field(default_factory=Places)
    uses: dict[int, FileUse] = field(default_factory=dict)
    kept_files: dict[int, KeptFile] = field(default_factory=dict)
    next_number: int = 1
    unneeded: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def find_retained(
    names: list[str], files: OpenFiles, owner: Owner, segments: Segments, chunk_bytes: int
) -> Retained:
    """Reads the snapshots and kept files among `names`, whose segments are adopted.

    Raises `JournalDamaged` or `JournalForeign`.
    """
    found = Retained()
    for name in sorted(filter(parse_snapshot_name, names), reverse=True):
        if len(found.snapshots) == SNAPSHOTS_KEPT or (
            found.snapshots and found.snapshots[0].end.restarts
        ):
            found.unneeded.append(name)
            continue
        try:
            found.snapshots.insert(0, SnapshotFile.open(files, name, owner, chunk_bytes))
        except JournalDamaged as problem:
            found.warnings.append(
                f"snapshot {name} is damaged at byte {problem.offset} ({problem.problem}); "
                "check the disk"
            )
    found.base = choose_base(found.snapshots, begins_at_one=_gap_in(segments) is None)
    _check_reach(found, segments)
    kept_names = [name for name in names if parse_kept_name(name) is not None]
    if found.base is None:
        found.unneeded += kept_names
    else:
        for name in kept_names:
            kept = KeptFile.open(files, name, owner)
            found.kept_files[kept.file] = kept
        for _ in load_places(found, found.base, files):
            pass
        check_uses(found.uses, found, segments, found.base)
    numbers = [snapshot.next_number for snapshot in found.snapshots]
    numbers += [parse_kept_name(name) or 0 for name in kept_names]
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


def _check_reach(found: Retained, segments: Segments) -> None:
    """A log that does not begin at entry 1 needs a snapshot to begin with (b10)."""
    gap = _gap_in(segments)
    if found.base is None and gap is not None:
        name, problem = gap
        reasons = "; ".join([problem, "no whole snapshot stands for it", *found.warnings])
        raise JournalDamaged(name, 0, reasons, REMEDY)


def load_places(into: Retained, base: SnapshotFile, files: OpenFiles) -> Generator[Flight | int]:
    """Reads where the base's entries lie into `into.places` and `into.uses`, in small steps that
    yield what they count for in a budget, or the read that has to come before the next: it may run
    on another thread if nobody else uses `files`. Uses `into.kept_files`. Raises `JournalDamaged`.
    """
    places = Places()
    pieces = base.through(files).places()
    while (some := (yield from _next(pieces))) is not None:
        if not places.extend(some):
            raise JournalDamaged(base.meta.name, 0, "its places are out of order", REMEDY)
        yield _SOME_PLACES_COST
    for kept in sorted(into.kept_files.values(), key=lambda kept: kept.number):
        if kept.number < base.next_number:
            continue
        pieces = kept.places(files)
        while (some := (yield from _next(pieces))) is not None:
            if not places.override(some):
                raise JournalDamaged(kept.name, 0, "it holds other entries", REMEDY)
            yield _SOME_PLACES_COST
    uses: dict[int, FileUse] = {}
    for first in range(0, len(places), limits.PLACES_PER_RECORD):
        places.tally(first, first + limits.PLACES_PER_RECORD, uses)
        yield _SOME_PLACES_COST
    into.places, into.uses = places, uses


def _next(pieces: Iterator[Places]) -> Generator[Flight, None, Places | None]:
    """The next of `pieces`, which takes a read; None behind the last."""
    found: list[Places] = []
    yield from landing(lambda: found.extend(islice(pieces, 1)))
    return found[0] if found else None


def check_uses(
    uses: dict[int, FileUse], found: Retained, segments: Segments, base: SnapshotFile
) -> None:
    """Every file that the base needs is there, and long enough. Raises `JournalDamaged`."""
    for file, use in uses.items():
        kept, segment = found.kept_files.get(file), segments.get(file)
        holder = kept or segment
        if holder is None:
            problem = f"the file {file:#x} that holds entries it needs is missing"
            raise JournalDamaged(base.meta.name, 0, problem, REMEDY)
        if use.end > holder.size:
            problem = f"the file should have {use.end} bytes or more"
            raise JournalDamaged(holder.name, holder.size, problem, REMEDY)


def newest_to_keep(snapshots: list[SnapshotFile], pinned: Iterable[str]) -> list[SnapshotFile]:
    """Those that stay: the newest two, the pinned ones, and none from before a restart."""
    names = set(pinned)
    stay: list[SnapshotFile] = []
    for snapshot in reversed(snapshots):
        if len(stay) < SNAPSHOTS_KEPT or snapshot.meta.name in names:
            stay.insert(0, snapshot)
        if snapshot.end.restarts:
            break
    return stay
