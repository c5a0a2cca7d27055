"""Taking a journal's folder: its lock, what the records say, and starting over where they cannot.

Owns the decision between a whole journal, one that is refused, and one that is given up because
its operator said so (`fifo serve --recover`). Records are judged in `recovery.py`, files are set
aside in `recovery_marker.py`, and the node gets its vote back in node/raft.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.journal import notebook, passport, skips, wrong_state
from node.journal.entry_store import EntryStore
from node.journal.errors import JournalDamaged, JournalWhole
from node.journal.io.storage import OpenFiles
from node.journal.recovery import recovery_marker
from node.journal.recovery.recovery import Recovery, ReplayedLog, unusable
from node.journal.reserve import RESERVE_NAME, Reserve
from node.journal.segments import Segments
from node.journal.snapshots.store import SnapshotStore

if TYPE_CHECKING:
    from node.journal.io.storage import Storage
    from node.journal.limits import JournalLimits
    from node.journal.passport import Keeper, Passport
    from node.journal.records import JournalIdentity
    from node.journal.recovery.recovery_marker import Marker

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class RecoveredJournal:
    """A locked folder whose log is replayed and durable. `marker` is there while the node is one
    that lost its journal."""

    segments: Segments
    snapshots: SnapshotStore
    recovered: ReplayedLog
    marker: Marker | None
    reserve: Reserve
    passport: Passport | None = None


def take(
    storage: Storage,
    identity: JournalIdentity,
    limits: JournalLimits,
    recover: str | None,
    keeper: Keeper | None = None,
) -> RecoveredJournal:
    """Lock the folder and replay it; an empty one becomes a new journal.

    With `recover`, a stamp, the operator wants to start over: files that are damaged are set aside
    under it, and an empty folder counts as lost. Raises what `Journal.open` says, and leaves the
    folder unlocked then.
    """
    try:
        storage.lock()
        # Before anything is written: a disk that is full has its room for this start.
        reserve = Reserve(storage, limits.reserve_bytes)
        marker = _marker(storage, recover)
        if marker is not None and not marker.emptied:
            marker = _set_aside(storage, marker)
        try:
            found = _replay(storage, identity, limits, marker, reserve, keeper)
            if recover is not None and marker is None:
                _refuse_if_whole(storage, found)
        except JournalDamaged as damage:
            if recover is None:
                raise
            where = f"{damage.file} at byte {damage.offset}"
            logger.warning("event=journal_lost reason=%s: %s", where, damage.problem)
            marker = _set_aside(storage, recovery_marker.begin(storage, recover))
            found = _replay(storage, identity, limits, marker, reserve, keeper)
    except BaseException as problem:
        storage.unlock()
        if isinstance(problem, OSError):
            raise unusable(storage.folder, problem) from problem
        raise
    return found


def _marker(storage: Storage, recover: str | None) -> Marker | None:
    """The marker that is there, or a new one where the operator says that a journal is missing."""
    try:
        found = recovery_marker.read_marker(storage)
    except JournalDamaged:
        if recover is None:
            raise
        return recovery_marker.begin(storage, recover)
    if found is not None or recover is None:
        return found
    if holds_nothing(storage):
        logger.warning("event=journal_lost reason=the folder %s is empty", storage.folder)
        return recovery_marker.begin(storage, recover)
    return None


def holds_nothing(storage: Storage) -> bool:
    """Whether nothing is there but what a node without a journal may have."""
    others = {
        RESERVE_NAME,
        recovery_marker.MARKER_NAME,
        *notebook.NAMES,
        *passport.NAMES,
        *wrong_state.NAMES,
        *skips.NAMES,
    }
    names = (name for name in storage.listdir() if name not in others)
    return all(map(recovery_marker.is_set_aside, names))


def may_begin(storage: Storage) -> bool:
    """Whether no journal of a member is there, nor a part of one. Raises `JournalDamaged`."""
    if holds_nothing(storage):
        return True
    papers = passport.read(storage)
    return papers is not None and not papers.begun and recovery_marker.read_marker(storage) is None


def _set_aside(storage: Storage, marker: Marker) -> Marker:
    marker, count = recovery_marker.finish(storage, marker)
    logger.warning(
        "event=set_aside files=%d folder=%s suffix=.lost-%s", count, storage.folder, marker.stamp
    )
    return marker


def _replay(
    storage: Storage,
    identity: JournalIdentity,
    limits: JournalLimits,
    marker: Marker | None,
    reserve: Reserve,
    keeper: Keeper | None,
) -> RecoveredJournal:
    papers, empty = None, keeper is not None and holds_nothing(storage)
    if keeper is not None:
        names, recovering = storage.listdir(), marker is not None
        papers = passport.prepare(storage, keeper, names, empty=empty, recovering=recovering)
    files = OpenFiles(storage, limits.open_segments)
    segments = Segments(
        storage,
        files,
        identity,
        segment_bytes=limits.segment_bytes,
        preallocation_bytes=limits.preallocation_bytes,
        reserve=reserve,
    )
    try:
        recovered = Recovery(
            storage, files, segments, identity, chunk_bytes=limits.replay_chunk_bytes
        ).run()
        if papers is not None:
            if papers.begun or not empty:
                passport.write(storage, papers)
            passport.end_orders(storage)
    except BaseException:
        segments.close()
        files.close()
        raise
    entries = EntryStore(
        storage,
        files,
        identity,
        segments,
        recovered.log,
        recovered.catalog,
        segment_bytes=limits.segment_bytes,
    )
    snapshots = SnapshotStore(entries)
    return RecoveredJournal(segments, snapshots, recovered, marker, reserve, papers)


def _refuse_if_whole(storage: Storage, found: RecoveredJournal) -> None:
    """Nothing is given up that can be read: what a start does not read is read here.

    Raises `JournalDamaged` or `JournalWhole`; the folder's files are closed then.
    """
    try:
        locations = found.recovered.catalog.locations
        logger.info("event=checking entries=%d folder=%s", len(locations), storage.folder)
        for location in locations:
            found.snapshots.entries.read(location)
        raise JournalWhole(
            f"the journal in {storage.folder} is intact, there is nothing to recover: start "
            "without --recover; if it is an older copy of this node's folder, which must not be "
            "used, move its files away and start with --recover on the empty folder"
        )
    finally:
        found.segments.close()
        found.snapshots.files.close()
