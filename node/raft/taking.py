"""A node's own snapshots: when one is due, and taking it in slices between turns.

Owns the triggers (the log's growth and, seldom, time), the slices, and what follows a finished one:
letting go of the log's head and of segments with little left in them. A snapshot that the disk has
no room for is given up and tried again later; the node goes on. Knows nothing of peers.
"""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING

from node.raft import limits
from node.raft.errors import SnapshotFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from node.raft.config import RaftConfig, RaftCounters
    from node.raft.journal import Journal
    from node.raft.statesource import StateSource

logger = logging.getLogger(__name__)


class Taking:
    """The one snapshot that may be in the making, and the cleaning up behind the last."""

    def __init__(
        self,
        journal: Journal,
        source: StateSource,
        config: RaftConfig,
        counters: RaftCounters,
        clock: Callable[[], float],
    ) -> None:
        self._journal = journal
        self._source = source
        self._config = config
        self._counters = counters
        self._work: Iterator[None] | None = self._clean_up()
        self._not_below_bytes = 0
        self._clock = clock
        self._looked_at = clock()
        self.index = 0
        """The snapshot in the making, 0 for none."""

    def step(self, applied_index: int) -> bool:
        """One step of what there is to do. True while there is more."""
        if self._work is None:
            if not self._due(applied_index):
                return False
            self._work = self._take(applied_index)
        try:
            next(self._work)
            return True
        except StopIteration:
            self._work = None
        except SnapshotFailed as failed:
            self._work = None
            self._failed(failed)
        return False

    def stop(self) -> None:
        """Give up what is in the making: the state it is of will be replaced, or the node ends."""
        work, self._work = self._work, None
        if work is not None:
            work.close()  # type: ignore[attr-defined]  # it is a generator

    def _due(self, applied_index: int) -> bool:
        journal = self._journal
        newest = 0 if journal.snapshot is None else journal.snapshot.index
        # Two entries stay at the head of every log, the first of them not the common entry 1.
        if applied_index < max(newest + 1, 3):
            return False
        grown = journal.bytes_since_snapshot
        if grown >= max(self._config.snapshot_bytes, self._not_below_bytes):
            return True
        if self._clock() - self._looked_at < limits.SNAPSHOT_LOOK_SECONDS:
            return False
        # Much may have been settled by a few entries; only a snapshot finds out.
        self._looked_at = self._clock()
        return journal.stats().snapshots.held_bytes >= self._config.snapshot_bytes

    def _take(self, index: int) -> Iterator[None]:
        self.index = index
        view = self._source.freeze()
        try:
            live = array("Q")
            for indexes in view.live():
                live.extend(indexes)
                yield
            yield from self._write(index, live, view.chunks())
        finally:
            view.release()
            self.index = 0
        self._counters.snapshots_taken_total += 1
        self._not_below_bytes = 0
        self._looked_at = self._clock()
        yield from self._clean_up()

    def _write(self, index: int, live: array[int], chunks: Iterator[bytes]) -> Iterator[None]:
        journal = self._journal
        writer = journal.begin_snapshot(index, journal.term_at(index), live)
        try:
            for chunk in chunks:
                if chunk:
                    writer.write(chunk)
                yield
            meta = writer.finish()
        except BaseException:
            writer.abort()
            raise
        logger.info(
            "event=snapshot index=%d state_bytes=%d live_entries=%d",
            meta.index,
            meta.state_bytes,
            meta.live_count,
        )

    def _clean_up(self) -> Iterator[None]:
        self._journal.release()
        while self._journal.compact_step(limits.COMPACT_BYTES_PER_STEP):
            yield

    def _failed(self, failed: SnapshotFailed) -> None:
        """Not before the log has grown again: a full disk is not asked in every turn."""
        self._counters.snapshots_failed_total += 1
        pause_bytes = self._config.snapshot_bytes // limits.SNAPSHOT_RETRY_PARTS
        self._not_below_bytes = self._journal.bytes_since_snapshot + pause_bytes
        logger.warning("event=snapshot_failed reason=%s", failed)
