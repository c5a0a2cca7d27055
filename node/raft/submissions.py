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
from typing import TYPE_CHECKING

from node.raft.config import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from node.raft.config import RaftConfig, RaftCounters

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Submission:
    """One submitted entry. `term` is the leadership it was meant for, `index` 0 until appended."""

    command: bytes
    size: int
    done: Callable[[Outcome, int], None]
    deadline: float
    term: int
    index: int = 0
    settled: bool = False


class Submissions:
    """Everything submitted on this node that has no outcome yet."""

    def __init__(self, config: RaftConfig, counters: RaftCounters) -> None:
        self._config = config
        self._counters = counters
        self._queue: deque[Submission] = deque()
        self._refused: list[tuple[Submission, Outcome]] = []
        self._waiting: dict[int, list[Submission]] = {}
        self._by_deadline: deque[Submission] = deque()
        self._queued_count = 0
        self.queued_bytes = 0

    def add(self, submission: Submission, *, accepted: bool) -> None:
        """Queue it; or refuse it, in the next turn, when not `accepted` or the queue is full."""
        if not accepted:
            self._refused.append((submission, Outcome.NOT_LEADER))
            return
        if (
            self._queued_count >= self._config.queue_commands_max
            or self.queued_bytes + submission.size > self._config.queue_bytes_max
        ):
            self._refused.append((submission, Outcome.QUEUE_FULL))
            return
        self._queue.append(submission)
        self._by_deadline.append(submission)
        self._queued_count += 1
        self.queued_bytes += submission.size

    def take(self, term: int) -> Iterator[Submission]:
        """What is to be appended in `term`, in order; the caller stops when it has enough.

        What was meant for another leadership of this node is refused: the owner's first entry
        of a term has to stand before every other.
        """
        while self._queue:
            submission = self._queue.popleft()
            if submission.settled:
                continue
            self._unqueue(submission)
            if submission.term == term:
                yield submission
            else:
                self._settle(submission, Outcome.NOT_LEADER)

    def refuse_queued(self) -> None:
        """This node does not lead: nothing queued will be appended."""
        queue, self._queue = self._queue, deque()
        for submission in queue:
            if not submission.settled:
                self._unqueue(submission)
                self._settle(submission, Outcome.NOT_LEADER)

    def appended(self, submission: Submission, index: int) -> None:
        """It is in the log and waits for its commit; the log keeps the bytes."""
        submission.index = index
        submission.command = b""
        self._waiting.setdefault(index, []).append(submission)

    def applied(self, index: int, term: int) -> None:
        """The entry of `term` was applied at `index`: whoever waits for that index knows now."""
        for submission in self._waiting.pop(index, ()):
            same = submission.term == term
            self._settle(submission, Outcome.COMMITTED if same else Outcome.DISCARDED)

    def jumped(self, index: int) -> None:
        """A snapshot stands for everything up to `index`: what waited there was committed or was
        replaced, and this node will not learn which (b22)."""
        for at in [at for at in self._waiting if at <= index]:
            for submission in self._waiting.pop(at):
                self._settle(submission, Outcome.UNKNOWN)

    def answer_refused(self) -> None:
        """Tell the refused; kept until a turn so that `submit` never calls back into its caller."""
        refused, self._refused = self._refused, []
        for submission, outcome in refused:
            self._settle(submission, outcome)

    def expire(self, now: float) -> None:
        """Answer what is past its deadline: QUEUE_FULL while queued, UNKNOWN once in the log."""
        by_deadline = self._by_deadline
        while by_deadline and (by_deadline[0].settled or by_deadline[0].deadline <= now):
            submission = by_deadline.popleft()
            if submission.settled:
                continue
            if submission.index == 0:
                self._unqueue(submission)
                self._settle(submission, Outcome.QUEUE_FULL)
            else:
                self._stop_waiting(submission)
                self._settle(submission, Outcome.UNKNOWN)

    def abandon(self) -> None:
        """The node stops: nothing further will be known."""
        self.answer_refused()
        self.refuse_queued()
        waiting, self._waiting = self._waiting, {}
        for submissions in waiting.values():
            for submission in submissions:
                self._settle(submission, Outcome.UNKNOWN)

    @property
    def pending(self) -> bool:
        """Whether a turn would find something to do here."""
        return bool(self._queue or self._refused)

    def _unqueue(self, submission: Submission) -> None:
        self._queued_count -= 1
        self.queued_bytes -= submission.size

    def _stop_waiting(self, submission: Submission) -> None:
        left = [s for s in self._waiting.get(submission.index, ()) if s is not submission]
        if left:
            self._waiting[submission.index] = left
        else:
            self._waiting.pop(submission.index, None)

    def _settle(self, submission: Submission, outcome: Outcome) -> None:
        """Fire the callback, once. It cannot disturb the log: what it raises is logged (b05)."""
        if submission.settled:
            return
        submission.settled = True
        submission.command = b""
        try:
            submission.done(outcome, submission.index)
        except Exception:
            self._counters.callback_errors_total += 1
            logger.exception("raft: the callback of entry %d raised", submission.index)
