"""Doubts: no majority of the members' states is equal, so each applies its log once more.

Owns the second application, beside the state and from the oldest snapshot that is kept, and what
follows from it: a member that gets another mark than before was wrong. Where those that are left
are equal, they are right; where not, no member can be believed. `equality.py` compares. Must not
know what a state is, nor what becomes of a member that was wrong.
"""

from __future__ import annotations

import logging
import math
from enum import IntEnum
from typing import TYPE_CHECKING

from node.journal.errors import SnapshotFailed
from node.journal.io.readers import LogReader
from node.peers.message import COMMAND_BYTE, MessageRefused
from node.raft import limits
from node.raft.errors import RaftError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from node.journal.journal import Journal
    from node.journal.snapshots.file import SnapshotMeta
    from node.peers.message import Message, PeerNode
    from node.raft.environment import RaftEnvironment, Replay
    from node.raft.equality import Equality, Mark
    from node.raft.skipping import Skipping

logger = logging.getLogger(__name__)

Place = tuple[int, bool]
"""The index of marks, and whether they are of whole states."""


class Again(IntEnum):
    """The outcome of a second application on one member."""

    OTHER = 0
    """Another mark than before: its state was wrong, or its machine errs now."""
    SAME = 1
    UNKNOWN = 2
    """No mark: its log is not kept far enough back, or there is too little memory."""


class Doubts:
    """The doubt of a leader, if any, and the second application of this member."""

    def __init__(
        self,
        name: str,
        environment: RaftEnvironment,
        equality: Equality,
        skipping: Skipping,
        *,
        send: Callable[[PeerNode, Message], bool],
        decided: Callable[[Place, frozenset[str]], None],
    ) -> None:
        """`decided` gets the members that are right; none where that cannot be known."""
        self._name = name
        self._journal: Journal = environment.journal
        self._clock = environment.clock
        self._make = environment.replay
        self._equality = equality
        self._skipping = skipping
        self._send = send
        self._decided = decided
        self._last = self._next = 0
        self._reader = LogReader(
            environment.journal.log,
            environment.workers.reads,
            environment.wake,
            last=lambda: self._last,
        )
        self._work: Generator[None, None, Again] | None = None
        self._place: Place | None = None
        self._done: tuple[Place, Again] | None = None
        self._unanswered = False
        self._doubted: Place | None = None
        self._verdicts: dict[str, Again] = {}
        self._settled = False
        self._asked_at = -math.inf
        self.due = math.inf
        """When `step` has something to do."""

    def __repr__(self) -> str:
        return f"<Doubts {self._doubted} {self._verdicts}>"

    # --- the leader ---

    def begin(self) -> None:
        """A new leadership: it has no doubt yet."""
        self._doubted = None
        self._settled = False
        self._verdicts = {}

    def doubt(self, place: Place) -> None:
        """No majority is equal there: have each member look again."""
        if self._doubted is not None and not self._settled:
            return
        self._settled = False
        self._doubted, self._verdicts, self._asked_at = place, {}, -math.inf
        self._look_again(place)
        self.due = 0.0

    def on_rechecked(self, node: PeerNode, message: Message, members: Sequence[str]) -> None:
        """A member has looked again."""
        try:
            verdict = Again(message["verdict"])
        except ValueError as error:
            raise MessageRefused(f"{node.id} sent a verdict that is none") from error
        if (message["index"], message["whole"]) == self._doubted:
            self._verdicts[node.id] = verdict
            self._decide(members)

    def _decide(self, members: Sequence[str]) -> None:
        place = self._doubted
        if place is None or self._settled:
            return
        # One that has no mark there, as a member that has just joined, is not in doubt.
        hashes = self._equality.hashes_at(*place)
        if not self._verdicts.keys() >= hashes.keys() & set(members):
            return
        same = {name for name, one in self._verdicts.items() if one is not Again.OTHER}
        right = same & hashes.keys()
        alike = len({hashes[name] for name in right}) == 1
        self._settled = True
        self._decided(place, frozenset(right) if alike else frozenset())

    # --- each member ---

    def on_doubted(self, place: Place) -> None:
        """The leader wants to know whether this state would be the same again."""
        self._unanswered = True
        self._look_again(place)

    def _look_again(self, place: Place) -> None:
        self.due = 0.0
        if self._place == place or (self._done is not None and self._done[0] == place):
            return
        self._stop()
        own = self._equality.own_at(*place)
        if own is None or self._make is None:
            self._done = place, Again.UNKNOWN
        else:
            logger.warning("event=applying_again index=%d", place[0])
            self._place, self._work = place, self._again(own, self._make())

    def step(self, term: int, leader: PeerNode | None, peers: Sequence[PeerNode]) -> bool:
        """A slice of the second application; tell the leader what came of it, or as leader ask
        the others. `leader`: None where this member leads. True while there is more at once."""
        busy = self._advance()
        now = self._clock()
        if self._work is None:
            self.due = math.inf
        if leader is not None:
            self._answer(term, leader)
        elif self._doubted is not None and not self._settled:
            self._ask(term, peers, now)
        return busy

    def _ask(self, term: int, peers: Sequence[PeerNode], now: float) -> None:
        place = self._doubted
        assert place is not None, "the caller looked"
        members = [self._name, *(node.id for node in peers)]
        if self._name not in self._verdicts and self._done is not None and self._done[0] == place:
            self._verdicts[self._name] = self._done[1]
            self._decide(members)
        waits = [node for node in peers if node.id not in self._verdicts]
        if not waits:
            return
        if now >= self._asked_at + limits.DOUBT_ASK_SECONDS:
            self._asked_at = now
            for node in waits:
                index, whole = place
                message = {"type": "doubted", "term": term, "index": index, "whole": whole}
                self._send(node, message)
        self.due = min(self.due, self._asked_at + limits.DOUBT_ASK_SECONDS)

    def _answer(self, term: int, leader: PeerNode) -> None:
        if self._unanswered and self._done is not None:
            (index, whole), verdict = self._done
            message = {"type": "rechecked", "term": term, "index": index}
            self._send(leader, message | {"whole": whole, "verdict": int(verdict)})
            self._unanswered = False

    def _advance(self) -> bool:
        if self._work is None or self._place is None:
            return False
        until = self._clock() + limits.SLICE_SECONDS
        try:
            for _ in range(limits.DOUBT_STEPS_PER_TURN):
                next(self._work)
                if self._clock() >= until:
                    break
            return not self._reader.waits(self._next)
        except StopIteration as end:
            self._end(end.value)
        except (SnapshotFailed, IndexError, MemoryError, OSError) as error:
            logger.warning("event=not_applied_again reason=%s", describe(error))
            self._end(Again.UNKNOWN)
        except RaftError:
            raise
        except Exception as error:
            logger.error("event=applied_otherwise reason=%s", describe(error))
            self._end(Again.OTHER)
        return False

    def _end(self, verdict: Again) -> None:
        assert self._place is not None, "it is under way"
        logger.warning(
            "event=applied_again index=%d outcome=%s", self._place[0], verdict.name.lower()
        )
        self._done = self._place, verdict
        self._stop()

    def _stop(self) -> None:
        work, self._work, self._place = self._work, None, None
        if work is not None:
            work.close()
        self._reader.stop()

    def close(self) -> None:
        """Drop what is under way."""
        self._stop()

    def _again(self, own: Mark, replay: Replay) -> Generator[None, None, Again]:
        """Apply everything from the oldest snapshot on, up to where the mark was made."""
        self._last = own.index if own.whole else own.index - 1
        self._next = 1
        meta = self._journal.base
        if meta is not None:
            if meta.index > self._last:
                return Again.UNKNOWN
            self._journal.pin(meta)
        try:
            if meta is not None:
                for _ in replay.restore(self._state_of(meta)):
                    yield
                self._next = meta.index + 1
            while self._next <= self._last:
                self._apply_some(replay)
                yield
            mark = yield from replay.marking(own)
        finally:
            if meta is not None:
                self._journal.unpin(meta)
        return Again.SAME if mark == own else Again.OTHER

    def _state_of(self, meta: SnapshotMeta) -> Iterator[bytes]:
        yield from self._journal.state_pieces(meta)

    def _apply_some(self, replay: Replay) -> None:
        count = min(limits.DOUBT_ENTRIES_PER_STEP, self._last - self._next + 1)
        for command, index, term in self._reader.take(
            self._next, limits.APPLY_BYTES_PER_TURN, count
        ):
            if command.startswith(COMMAND_BYTE):
                payload = memoryview(command)[1:]
                skip = self._skipping.found(index, term, command) if self._skipping.known else None
                if skip is None:
                    replay.apply(index, payload)
                else:
                    replay.skip(index, payload, skip)
            self._next = index + 1
