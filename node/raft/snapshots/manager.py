"""Everything a node does about snapshots but sending them: taking, receiving, installing, starting.

Owns the order of these: one at a time, because each is about the whole state. Decides nothing
about terms, commits or the applied index; `core.py` does, with what this says. Work goes on in
steps between turns.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from node.journal.errors import SnapshotFailed
from node.journal.io.jobs import Steps
from node.raft import limits
from node.raft.errors import RaftError, RaftStopped
from node.raft.snapshots.receiver import SnapshotReceiver, offered
from node.raft.snapshots.taker import SnapshotTaker

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.io.jobs import Work, Worker
    from node.journal.journal import Journal
    from node.peers.message import Message
    from node.raft.config import RaftConfig, RaftCounters
    from node.raft.environment import StateSource

logger = logging.getLogger(__name__)


class SnapshotManager:
    """The snapshots of one node. Without a `source` it takes none and starts from none."""

    def __init__(
        self,
        config: RaftConfig,
        journal: Journal,
        source: StateSource | None,
        counters: RaftCounters,
        clock: Callable[[], float],
        worker: Worker,
        wake: Callable[[], None],
    ) -> None:
        """`worker` does what waits for the disk, and is closed before this is; `wake` asks
        for a turn when a wait is over."""
        self._journal = journal
        self._source = source
        self._counters = counters
        self._clock = clock
        self._taker = (
            None
            if source is None
            else SnapshotTaker(journal, source, config, counters, clock, worker, wake)
        )
        self._receiver = SnapshotReceiver(journal)
        self._heard_at = 0.0
        self._applied_index = 0
        self._installation: Steps[None] = Steps(worker, wake)
        self.rests_until = self.rests_below = 0.0
        """Before this instant, and while the log ends below this position, `step` has nothing to
        do; 0 while anything is under way: one is taken, cleaned up after, received or installed."""
        self.restoring = False
        """A snapshot stands in the journal that is not the owner's state yet: nothing may be
        applied."""
        self.installed_index = 0
        """News for the caller of `step`: a snapshot was installed or, with `restoring` over,
        taken over by the owner. The caller sets it back to 0."""

    def keep_members(self, members_at: Callable[[int], bytes]) -> None:
        """Have each snapshot hold who the members were then."""
        if self._taker is not None:
            self._taker.members_at = members_at

    # --- start ---

    def restore_newest(self) -> int:
        """Hand the newest snapshot to the owner, whole; its index, or 0 where there is none."""
        meta = self._journal.snapshot
        if meta is None:
            return 0
        if self._source is None:
            raise RaftStopped(
                "raft: there is a snapshot, but the owner gave no source to restore it to"
            )
        try:
            for _ in self._source.restore(self._journal.state_pieces(meta)):
                pass
        except RaftError:
            raise
        except Exception as error:
            raise RaftStopped(f"raft: snapshot {meta.name} cannot be read: {error}") from error
        logger.info("event=restored index=%d state_bytes=%d", meta.index, meta.state_bytes)
        return meta.index

    # --- from the leader ---

    @property
    def busy(self) -> bool:
        """Whether a snapshot is being installed: this node does not stand for election."""
        return not self._installation.idle or self._receiver.complete

    def received(
        self, message: Message, has_index: int, *, replaces: bool = False
    ) -> Message | None:
        """Take an offer or a piece; what to answer, if anything. A snapshot up to `has_index` is
        not needed. `replaces`: the state here is wrong, and the log further than that."""
        if message["index"] <= has_index:
            self.not_needed()
            return self.done()
        if self.busy or self._source is None or (self._taker is not None and self._taker.waiting):
            return None  # It asks again, and there will be an answer then.
        self._heard_at = self._clock()
        self.rests_until = self.rests_below = 0.0
        receiver = self._receiver
        try:
            if message["type"] == "snapshot_offer":
                if self._taker is not None:
                    self._taker.stop()
                receiver.begin(offered(message), replaces=replaces)
                return self._answer(gap=True)
            if not receiver.takes(message):
                return None
            return self._answer(gap=not receiver.add(message))
        except SnapshotFailed as failed:
            receiver.stop()
            self._refused(failed)
            return None

    def _answer(self, *, gap: bool) -> Message:
        return self._receiver.position() | {"gap": gap, "done": False}

    def want(self, above: int) -> None:
        """Have a snapshot of a state after entry `above` soon, for a peer whose own is wrong."""
        if self._taker is not None:
            self._taker.want(above)
            self.rests_until = self.rests_below = 0.0

    def done(self) -> Message:
        """The answer for a snapshot that this node has, or does not need."""
        return {"state_bytes": 0, "live_count": 0, "gap": False, "done": True}

    def not_needed(self) -> None:
        """The leader sends entries that follow this node's log, or this node leads."""
        if not self._receiver.complete:
            self._receiver.stop()

    def _refused(self, failed: SnapshotFailed) -> None:
        self._counters.snapshots_refused_total += 1
        logger.warning("event=snapshot_refused reason=%s", failed)

    # --- steps ---

    def step(self, applied_index: int, *, takes: bool = True) -> bool:
        """Run one step of what is due. True while there is more. Not `takes`: the state is wrong,
        and no snapshot is taken of it."""
        self._applied_index = applied_index
        self.rests_until = self.rests_below = 0.0
        if self._installation.idle and self._receiver.complete:
            self._installation.begin(self._install())
        if not self._installation.idle:
            self._installation.step()
            return self._installation.runnable
        if self._receiver.meta is not None:
            if self._clock() - self._heard_at >= limits.SNAPSHOT_PIN_SECONDS:
                self._receiver.stop()
            return False
        taker = self._taker
        if taker is None or not takes:
            self.rests_until = self.rests_below = float("inf")
            return False
        more = taker.step(applied_index)
        self.rests_until, self.rests_below = taker.rests_until, taker.rests_below
        return more

    def _install(self) -> Work:
        """From the last piece that came to the owner's new state."""
        assert self._source is not None
        assert self._taker is not None
        try:
            meta = yield from self._receiver.finishing()
        except SnapshotFailed as failed:
            self._refused(failed)
            return
        if self._applied_index >= meta.index:
            # The log came further while the disk took its time: there is nothing to take over.
            self._taker.clean_up()
            return
        self.restoring = True
        self.installed_index = meta.index
        yield None
        for _ in self._source.restore(self._journal.state_pieces(meta)):
            yield None
        self.restoring = False
        self.installed_index = meta.index
        self._counters.snapshots_installed_total += 1
        self._counters.snapshot_at = self._clock()
        logger.info("event=installed index=%d state_bytes=%d", meta.index, meta.state_bytes)
        self._taker.clean_up()

    def clean_up(self) -> None:
        """Release soon what a hold has kept."""
        if self._taker is not None:
            self._taker.clean_up()
            self.rests_until = self.rests_below = 0.0

    def close(self) -> None:
        """Give up what is in the making."""
        self._installation.stop()
        if self._taker is not None:
            self._taker.stop()
        self._receiver.stop()
