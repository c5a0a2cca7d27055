"""The scrub of this member's disk: when a pass begins, how fast it reads, what follows from it.

Owns the rate, and the rest between two passes. Damaged entries are `repairs.py`'s; for other damage
a later snapshot is asked for, which replaces the file. Must not know the files.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from node.journal.io.jobs import Steps
from node.raft import limits
from node.raft.config import ScrubStats

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.io.jobs import Worker
    from node.journal.journal import Journal
    from node.journal.scrub import Piece
    from node.raft.config import RaftConfig

logger = logging.getLogger(__name__)


class Scrubbing:
    """The passes of one member, one after the other."""

    def __init__(
        self,
        config: RaftConfig,
        journal: Journal,
        clock: Callable[[], float],
        worker: Worker,
        wake: Callable[[], None],
    ) -> None:
        """`worker` reads; `wake` asks for a turn."""
        self._config = config
        self._journal = journal
        self._clock = clock
        self._wake = wake
        self._steps: Steps[Piece] = Steps(worker, self._resumed)
        self.due = clock() + config.scrub_first_seconds
        """When `step` has something to do."""
        self.passes_total = 0
        self.read_bytes_total = 0

    def __repr__(self) -> str:
        return f"<Scrubbing {self.passes_total} passes, {self._steps}>"

    def _resumed(self) -> None:
        self.due = 0.0
        self._wake()

    def step(self) -> bool:
        """Read a piece, if it is time. True at the end of a pass that found a file in doubt."""
        now, steps = self._clock(), self._steps
        if now < self.due or steps.waiting:
            return False
        if steps.idle:
            steps.begin(self._journal.scrubbing())
        piece = None
        try:
            while piece is None and steps.runnable:
                piece = steps.step()
        except OSError as error:  # No descriptor, say: nothing is known to be damaged by that.
            logger.warning("event=scrub_failed error=%s", error)
            self.due = now + self._config.scrub_again_seconds
            return False
        if steps.idle:
            return self._ended(now)
        self.due = math.inf  # Until the piece has come.
        if piece is not None:
            self.read_bytes_total += piece.read_bytes
            self.due = now + piece.cost_bytes / limits.SCRUB_BYTES_PER_SECOND
        return False

    def _ended(self, now: float) -> bool:
        doubts = self._journal.damages.doubts
        self.passes_total += 1
        again_seconds = self._config.scrub_again_seconds
        self.due = now + (again_seconds if doubts else limits.SCRUB_REST_SECONDS)
        return bool(doubts)

    def stats(self) -> ScrubStats:
        """For status and metrics."""
        damages = self._journal.damages
        return ScrubStats(
            passes_total=self.passes_total,
            read_bytes_total=self.read_bytes_total,
            found_total=damages.found_total,
            repaired_total=damages.repaired_total,
            damaged=len(damages.entries) + len(damages.doubts),
        )

    def close(self) -> None:
        """Drop the pass."""
        self._steps.stop()
