"""Repairs: entries that are damaged on this member's disk are got from the others.

Owns whom they are asked of, when, and the answers to such questions. An entry of an index and a
term is the same on each member that has it, so any of them may answer. Its record is written again
byte by byte where it was: a write that is torn leaves it damaged, as it was before. Must not know
the files, nor whose votes count.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from node.journal.io.jobs import Steps
from node.raft import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from node.journal.io.jobs import Job, Work
    from node.journal.journal import Journal
    from node.journal.locations import EntryLocation
    from node.peers.message import Message, PeerNode
    from node.raft.environment import RaftWorkers

logger = logging.getLogger(__name__)

_NOT_ASKED: Final = (-math.inf, 0)


class Repairs:
    """The repairs of one member, and its answers to others."""

    def __init__(
        self,
        journal: Journal,
        clock: Callable[[], float],
        workers: RaftWorkers,
        wake: Callable[[], None],
        *,
        send: Callable[[PeerNode, Message], bool],
        fail: Callable[[Exception], None],
    ) -> None:
        """`send` is false where a member is not connected, or does not know the message; `fail`
        gets what ends the node."""
        self._journal = journal
        self._clock = clock
        self._workers = workers
        self._wake = wake
        self._send = send
        self._fail = fail
        self._asked: dict[int, tuple[float, int]] = {}
        self._rewriting: set[int] = set()
        self._questions: deque[tuple[PeerNode, int, int]] = deque()
        self._answers: Steps[None] = Steps(workers.reads, self._answer)
        self._needed_since: float | None = None
        self.is_needed: Callable[[], bool] = lambda: False
        """Whether something waits for a damaged entry."""
        self.others_need: Callable[[], bool] = lambda: False
        """Whether another member has to be sent a damaged entry of the log."""
        self._others_since: float | None = None
        self.on_lost: Callable[[], None] = lambda: None
        """Called when none had an entry that another member needs: a snapshot has to stand for
        it."""
        self.on_repaired: Callable[[], None] = lambda: None
        """Called when an entry was repaired, or is not damaged where it lies now."""
        self.due = math.inf
        """When `step` has something to do."""
        journal.damages.found = self._found

    def __repr__(self) -> str:
        return f"<Repairs {len(self._journal.damages.entries)} damaged>"

    def _found(self) -> None:
        """Have `step` look at what is damaged."""
        self.due = 0.0
        self._wake()

    # --- what this member lacks ---

    def step(self, peers: Sequence[PeerNode]) -> None:
        """Ask `peers` for what is damaged; end the node where what it has to have comes from
        nowhere."""
        now = self._clock()
        if now < self.due:
            return
        known = len(self._journal.damages.entries)
        damaged = self._journal.damaged_entries()
        for index in self._asked.keys() - {location.log_index for location in damaged}:
            del self._asked[index]
        if len(damaged) < known:
            self.on_repaired()
        for location in self._in_line(damaged)[: limits.REPAIRS_AT_ONCE]:
            command = self._journal.read_cached(location.log_index)
            if command is not None:
                self._rewrite(location, command, "memory")
            else:
                self._ask(location, peers, now)
        self._give_up(damaged, now, alone=not peers)
        self._give_up_for_others(damaged, now)
        self.due = now + limits.REPAIR_ASK_SECONDS if damaged else math.inf

    def _in_line(self, damaged: list[EntryLocation]) -> list[EntryLocation]:
        """Those asked for least lately first: what no member has must not hold up the others."""
        return sorted(damaged, key=lambda one: self._asked.get(one.log_index, _NOT_ASKED)[0])

    def _ask(self, location: EntryLocation, peers: Sequence[PeerNode], now: float) -> None:
        """Ask one member, the next one each time."""
        index = location.log_index
        asked_at, count = self._asked.get(index, _NOT_ASKED)
        if index in self._rewriting or now < asked_at + limits.REPAIR_ASK_SECONDS:
            return
        self._asked[index] = now, count + 1
        message = {"type": "entry_wanted", "index": index, "term": location.term}
        for peer in self._in_turn(peers, count):
            if self._send(peer, message):
                return

    @staticmethod
    def _in_turn(peers: Sequence[PeerNode], count: int) -> Sequence[PeerNode]:
        first = count % len(peers) if peers else 0
        return (*peers[first:], *peers[:first])

    def _give_up(self, damaged: list[EntryLocation], now: float, *, alone: bool) -> None:
        """A body that no member has delivers no message: the node ends, as it does where it cannot
        read what it has to apply, and its operator has it recover."""
        if not damaged or not self.is_needed():
            self._needed_since = None
            return
        if self._needed_since is None:
            self._needed_since = now
        if alone or now >= self._needed_since + limits.REPAIR_SECONDS:
            self._fail(self._journal.cannot_repair(damaged[0]))

    def _give_up_for_others(self, damaged: list[EntryLocation], now: float) -> None:
        """An entry that no member has is no reason to end, where only one that lags needs it."""
        if not damaged or not self.others_need():
            self._others_since = None
        elif self._others_since is None:
            self._others_since = now
        elif now >= self._others_since + limits.REPAIR_SECONDS:
            self._others_since = now
            self.on_lost()

    def on_entry_found(self, node: PeerNode, message: Message) -> bool:
        """A member sends an entry that this one has asked for."""
        location = self._journal.damages.entries.get(message["index"])
        if location is None or location.term != message["term"]:
            return False
        self._rewrite(location, message["data"], node.id)
        return False

    def _rewrite(self, location: EntryLocation, command: bytes, source: str) -> None:
        index = location.log_index
        job = None if index in self._rewriting else self._rewriting_job(location, command)
        if job is None:
            return
        self._rewriting.add(index)
        ended = partial(self._rewritten, location, job, source)
        self._workers.snapshots.run(job.run, lambda _: ended())

    def _rewriting_job(self, location: EntryLocation, command: bytes) -> Job[bool] | None:
        return self._journal.rewriting(location, command)

    def _rewritten(self, location: EntryLocation, job: Job[bool], source: str) -> None:
        index = location.log_index
        self._rewriting.discard(index)
        if location not in self._journal.damaged_entries():
            self._found()  # Its file was let go of meanwhile.
            return
        if job.error is not None or not job.result():
            problem = job.error or "it does not read as it was written"
            logger.error(
                "event=repair_failed index=%d error=%s advice=replace the disk", index, problem
            )
            return
        self._journal.rewritten(location)
        self._asked.pop(index, None)
        logger.info("event=entry_repaired index=%d from=%s", index, source)
        self._needed_since = None
        self.on_repaired()
        self._found()  # The next ones are asked for.

    # --- what others lack ---

    def on_entry_wanted(self, node: PeerNode, message: Message) -> bool:
        """A member asks for an entry that is damaged on its disk."""
        if len(self._questions) < limits.REPAIR_QUESTIONS_MAX:
            self._questions.append((node, message["index"], message["term"]))
            if self._answers.idle:
                self._answers.begin(self._answering())
                self._answer()
        return False

    def _answer(self) -> None:
        try:
            while self._answers.runnable:
                self._answers.step()
        except Exception as error:
            self._fail(error)
            self._wake()

    def _answering(self) -> Work:
        while self._questions:
            node, index, term = self._questions.popleft()
            try:
                entries = yield from self._journal.reading_entries([index])
            except IndexError:
                continue  # It needs it no more, or not yet.
            for command, _, found_term in entries:
                if found_term == term:
                    message = {"type": "entry_found", "index": index, "term": term}
                    self._send(node, message | {"data": command})

    def close(self) -> None:
        """Answer no more."""
        self._answers.stop()
