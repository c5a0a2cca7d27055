"""A node's own snapshots: when one is due, and taking it in slices between turns.

Owns the triggers (the log's growth and, seldom, time), the slices, and what follows a finished one:
letting go of the log's head and of segments with little left in them. What takes as long as the
disk wants runs off the event loop. A snapshot that the disk has no room for is given up and tried
again later; the node goes on. Knows nothing of peers.
"""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING

from node.journal.errors import SnapshotFailed
from node.journal.io.jobs import Steps
from node.journal.record_files import aborting
from node.raft import limits
from node.raft.snapshots.shortage import Shortage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from node.journal.io.jobs import Work, Worker
    from node.journal.journal import Journal
    from node.journal.snapshots.store import SnapshotWriter
    from node.raft.config import RaftConfig, RaftCounters
    from node.raft.environment import StateSource

logger = logging.getLogger(__name__)


class SnapshotTaker:
    """The one snapshot that may be in the making, and the cleaning up behind the last."""

    def __init__(
        self,
        journal: Journal,
        source: StateSource,
        config: RaftConfig,
        counters: RaftCounters,
        clock: Callable[[], float],
        worker: Worker,
        wake: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._log = journal.log
        self._source = source
        self._config = config
        self._counters = counters
        self._steps: Steps[None] = Steps(worker, wake)
        self._steps.begin(self._clean_up())
        self._not_below_bytes = 0
        self._clock = clock
        self.rests_until = 0.0
        """When to look next at what the log's growth does not tell."""
        self.rests_below = 0.0
        """Position of the log before which its growth is no reason for a snapshot, where nothing is
        under way; 0 otherwise."""
        self._looked_at = self._tried_at = clock()
        self._shortage = Shortage(journal, source, clock, low_bytes=config.disk_low_bytes)
        self._wanted_above: int | None = None
        self.index = 0
        """The snapshot in the making, 0 for none."""
        self.members_at: Callable[[int], bytes] = lambda _: b""
        """The members at an entry, as a snapshot has them."""

    @property
    def idle(self) -> bool:
        """Whether nothing is in the making and nothing is cleaned up."""
        return self._steps.idle

    @property
    def waiting(self) -> bool:
        """Whether something runs off the event loop: there is no stopping it."""
        return self._steps.waiting

    def step(self, applied_index: int) -> bool:
        """Run one step of what is due. True while there is more that need not wait."""
        self.rests_below = 0.0
        if self._steps.idle:
            work = self._due_work(applied_index)
            if work is None:
                self.rests_below = self._grown_end
                return False
            self._steps.begin(work)
        if self.index > self._log.synced_index:
            return False  # A slow leader: the others have committed what its own disk will have.
        try:
            self._steps.step()
        except SnapshotFailed as failed:
            self._failed(failed)
        return self._steps.runnable

    def want(self, above: int) -> None:
        """Take a snapshot of a state after entry `above`, as soon as there is one, for a peer."""
        self._wanted_above = above
        self.rests_until = self.rests_below = 0.0

    def clean_up(self) -> None:
        """Release what an installation has made useless."""
        if self._steps.idle:
            self._steps.begin(self._clean_up())

    def stop(self) -> None:
        """Give up what is in the making: the state it is of will be replaced, or the node ends."""
        self._steps.stop()

    def _due_work(self, applied_index: int) -> Work | None:
        """The work that is to begin now, if any."""
        if self._is_wanted(applied_index) and self._has_news(applied_index):
            self._wanted_above = None
            return self._take(applied_index)
        if self._log.gathered_end >= self._grown_end and self._has_news(applied_index):
            return self._take(applied_index)
        now = self._clock()
        if now < self.rests_until:
            return None
        self.rests_until = now + limits.TAKER_LOOK_SECONDS
        if self._has_news(applied_index) and self._holds_much(now):
            return self._take(applied_index)
        if not self._shortage.look():
            return self._make_reserve() if self._shortage.plenty else None
        if self._has_news(applied_index):
            return self._gain(self._take(applied_index))
        # Nothing was applied since the newest snapshot; the older one may keep what is dead in it.
        return self._gain(self._clean_up()) if self._journal.releases else None

    def _make_reserve(self) -> Work:
        yield self._journal.making_reserve()

    def _gain(self, work: Work) -> Work:
        """Work for the sake of room: the next try has its time from the end of this one."""
        self._shortage.begin()
        try:
            yield from work
        finally:
            self._shortage.end()

    def _has_news(self, applied_index: int) -> bool:
        # Two entries stay at the head of every log, the first of them not the common entry 1.
        return applied_index >= max(self._newest + 1, 3)

    def _is_wanted(self, applied_index: int) -> bool:
        """Whether a peer waits for a snapshot, and one of now is what it waits for."""
        above = self._wanted_above
        return above is not None and self._newest <= above < applied_index

    @property
    def _newest(self) -> int:
        return 0 if self._journal.snapshot is None else self._journal.snapshot.index

    @property
    def _grown_end(self) -> int:
        """The end of a log that has grown enough for a snapshot."""
        enough_bytes = max(self._config.snapshot_bytes, self._not_below_bytes)
        return self._journal.snapshot_end + enough_bytes

    def _holds_much(self, now: float) -> bool:
        """Whether to look after bodies that a few entries may have settled: only a snapshot finds
        out."""
        if now - self._looked_at < limits.SNAPSHOT_LOOK_SECONDS:
            return False
        self._looked_at = now
        figures = self._journal.stats()
        held_bytes = figures.snapshots.held_bytes
        short = figures.free_bytes < held_bytes
        rest = limits.SNAPSHOT_REST_SECONDS_SHORT if short else limits.SNAPSHOT_REST_SECONDS
        return held_bytes >= self._config.snapshot_bytes and now - self._tried_at >= rest

    def _take(self, index: int) -> Work:
        self.index = index
        writer: SnapshotWriter | None = None
        try:
            writer = yield from self._write(index)
            yield writer.seal()
            meta = writer.finish()
        finally:
            self.index = 0
            if writer is not None:
                writer.abort()
        logger.info(
            "event=snapshot index=%d state_bytes=%d live_entries=%d",
            meta.index,
            meta.state_bytes,
            meta.live_count,
        )
        self._not_below_bytes = 0
        self._tried_at = self._clock()
        self._counters.snapshots_taken_total += 1
        self._counters.snapshot_at = self._tried_at
        yield from self._clean_up()

    def _write(self, index: int) -> Generator[None, None, SnapshotWriter]:
        """All of the state at this entry, handed to the operating system."""
        view = self._source.freeze()
        try:
            live = array("Q")
            for indexes in view.live():
                live.extend(indexes)
                yield
            writer = self._journal.begin_snapshot(
                index, self._log.term_at(index), live, members=self.members_at(index)
            )
            with aborting(writer):
                for chunk in view.chunks():
                    if chunk:
                        writer.write(chunk)
                    yield
            return writer
        finally:
            view.release()

    def _clean_up(self) -> Work:
        self._journal.release(short=self._shortage.short)
        while True:
            yield self._journal.blocking_work()
            if not self._journal.compact_step(limits.COMPACT_BYTES_PER_STEP):
                break
        yield from self._journal.unmarking()

    def _failed(self, failed: SnapshotFailed) -> None:
        """Not before the log has grown again: a full disk is not asked in every turn."""
        self._counters.snapshots_failed_total += 1
        self._tried_at = self._clock()
        pause_bytes = self._config.snapshot_bytes // limits.SNAPSHOT_RETRY_PARTS
        self._not_below_bytes = self._journal.bytes_since_snapshot + pause_bytes
        logger.warning("event=snapshot_failed reason=%s", failed)
