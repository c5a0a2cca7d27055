"""Submitted entries on their way to an outcome: each gets exactly one, in bounded time.

Owns the queue in front of the log, the callbacks that wait for a commit, and the deadlines
(raft.md 3.7; b05, b16). Commands are never forwarded. A truncated entry is not reported as
discarded at once: another node may still hold it and commit it, so the callback waits until
something is applied at its index, or for its deadline.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from node.raft.config import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.records import Entry
    from node.raft.config import RaftConfig, RaftCounters

logger = logging.getLogger(__name__)

NEVER_EXPIRES: Final = float("inf")


@dataclass(slots=True, eq=False)
class Submission:
    """A submitted entry. `term` is the leadership it was meant for, `deadline` an instant on the
    node's clock, `index` 0 until it is taken into the log."""

    command: bytes
    done: Callable[[Outcome, int], None]
    deadline: float
    term: int
    index: int = 0


class Submissions:
    """Everything submitted on this node that has no outcome yet.

    Each is in one place at a time, and settled when it is taken out there: queued, refused until
    the next turn, waiting for the commit of its index, or left by an earlier leadership at an index
    that may be another entry's by now. Those queued and those waiting are in the order of index and
    deadline, so a turn looks at the first of them and not at all.
    """

    def __init__(self, config: RaftConfig, counters: RaftCounters) -> None:
        self._config = config
        self._counters = counters
        self._queue: deque[Submission] = deque()
        self.refused: list[tuple[Submission, Outcome]] = []
        """Submissions to be answered in the next turn, with their outcomes."""
        self._waiting: deque[Submission] = deque()
        self._left: dict[int, list[Submission]] = {}
        self.queued_bytes = 0
        self.expires_at = NEVER_EXPIRES
        """Instant before which nothing here is past its deadline."""

    def add(self, submission: Submission, *, accepted: bool) -> None:
        """Queue it; or refuse it, in the next turn, when not `accepted` or the queue is full."""
        if not accepted:
            self.refused.append((submission, Outcome.NOT_LEADER))
            return
        queued_bytes = self.queued_bytes + len(submission.command)
        if (
            len(self._queue) >= self._config.queue_commands_max
            or queued_bytes > self._config.queue_bytes_max
        ):
            self.refused.append((submission, Outcome.QUEUE_FULL))
            return
        self._queue.append(submission)
        self.queued_bytes = queued_bytes
        if submission.deadline < self.expires_at:
            self.expires_at = submission.deadline

    def take(self, term: int, index: int, bytes_max: int) -> tuple[list[Entry], int]:
        """The entries to be appended in `term` from `index` on, and their bytes: it stops with the
        one that brings them to `bytes_max`. Each waits for its commit from here on: whatever fails
        before it is in the log, its outcome is reported.

        What was meant for another leadership of this node is refused: the owner's first entry
        of a term has to stand before every other.
        """
        queue, waiting = self._queue, self._waiting
        if waiting and waiting[0].term != term:
            self._leave_waiting()
        entries: list[Entry] = []
        taken_bytes = 0
        while queue and taken_bytes < bytes_max:
            submission = queue.popleft()
            command = submission.command
            self.queued_bytes -= len(command)
            if submission.term != term:
                self._settle(submission, Outcome.NOT_LEADER)
                continue
            submission.index = index
            waiting.append(submission)
            entries.append((command, index, term))
            taken_bytes += len(command)
            index += 1
        return entries, taken_bytes

    def _leave_waiting(self) -> None:
        """A new leadership may write other entries where those of the last one were to be."""
        for submission in self._waiting:
            self._left.setdefault(submission.index, []).append(submission)
        self._waiting.clear()

    def refuse_queued(self) -> None:
        """This node does not lead: nothing queued will be appended."""
        queue = list(self._queue)
        self._queue.clear()
        self.queued_bytes = 0
        for submission in queue:
            self._settle(submission, Outcome.NOT_LEADER)

    @property
    def awaited(self) -> bool:
        """Whether anybody waits for an entry to be applied."""
        return bool(self._waiting or self._left)

    def applied(self, index: int, term: int) -> None:
        """Settle what waits for the entry of `term` that was applied at `index`."""
        if self._left:
            for submission in self._left.pop(index, ()):
                self._settle(submission, _outcome(submission, term))
        if self._waiting and self._waiting[0].index == index:
            submission = self._waiting.popleft()
            self._settle(submission, _outcome(submission, term))

    def jumped(self, index: int) -> None:
        """A snapshot stands for everything up to `index`: what waited there was committed or was
        replaced, and this node will not learn which (b22)."""
        passed = [s for at in [at for at in self._left if at <= index] for s in self._left.pop(at)]
        while self._waiting and self._waiting[0].index <= index:
            passed.append(self._waiting.popleft())
        for submission in passed:
            self._settle(submission, Outcome.UNKNOWN)

    def answer_refused(self) -> None:
        """Tell the refused; kept until a turn so that `submit` never calls back into its caller."""
        refused, self.refused = self.refused, []
        for submission, outcome in refused:
            self._settle(submission, outcome)

    def expire(self, now: float) -> None:
        """Answer what is past its deadline: QUEUE_FULL while queued, UNKNOWN once in the log."""
        while self._queue and self._queue[0].deadline <= now:
            submission = self._queue.popleft()
            self.queued_bytes -= len(submission.command)
            self._settle(submission, Outcome.QUEUE_FULL)
        while self._waiting and self._waiting[0].deadline <= now:
            self._settle(self._waiting.popleft(), Outcome.UNKNOWN)
        if self._left:
            self._expire_left(now)
        first = [*islice(self._queue, 1), *islice(self._waiting, 1), *chain(*self._left.values())]
        self.expires_at = min((one.deadline for one in first), default=NEVER_EXPIRES)

    def _expire_left(self, now: float) -> None:
        late = [s for left in self._left.values() for s in left if s.deadline <= now]
        for submission in late:
            left = self._left[submission.index]
            left.remove(submission)
            if not left:
                del self._left[submission.index]
        for submission in late:
            self._settle(submission, Outcome.UNKNOWN)

    def abandon(self) -> None:
        """The node stops: nothing further will be known."""
        self.answer_refused()
        self.refuse_queued()
        self._leave_waiting()
        left, self._left = self._left, {}
        for submissions in left.values():
            for submission in submissions:
                self._settle(submission, Outcome.UNKNOWN)

    def _settle(self, submission: Submission, outcome: Outcome) -> None:
        """Fire the callback, once. It cannot disturb the log: what it raises is logged (b05)."""
        try:
            submission.done(outcome, submission.index)
        except Exception:
            self._counters.callback_errors_total += 1
            logger.exception("raft: the callback of entry %d raised", submission.index)


def _outcome(submission: Submission, term: int) -> Outcome:
    """Of what waited at an index where an entry of `term` was applied."""
    return Outcome.COMMITTED if submission.term == term else Outcome.DISCARDED
