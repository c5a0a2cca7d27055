"""The digests of this node's whole state, at indexes that the log names, to be compared by Raft.

Owns the frozen view, the slices in which it is hashed, and when that begins: the members one after
the other, so that they are not all busy with it at once. The indexes come from the log's own time
(`machine_host.py`). A view that comes to cost too much memory is given up: the next one is compared
instead. Must not know what becomes of a member that differs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator

from fifo.machine.contract import Frozen, Machine, Past
from node.broker import limits
from node.broker.pin_copies import ViewCopy
from node.raft import Mark

logger = logging.getLogger(__name__)


class Digests:
    """The digest in the making, if any, and what the newest one came to."""

    def __init__(
        self,
        place: int,
        machine: Callable[[], Machine],
        now: Callable[[], float],
        note: Callable[[Mark], None],
    ) -> None:
        """`place` of this member among all, from 0; `note` takes what is to be compared."""
        self._wait_s = place * limits.DIGEST_APART_SECONDS
        self._machine = machine
        self._now = now
        self._note = note
        self._view: Frozen | None = None
        self._past: Past | None = None
        self._steps: Generator[None, None, bytes] | None = None
        self._begins_at = 0.0
        self._looks = 0
        self._index = self._version = 0
        self.made_total = 0
        """Digests that were made, since the start of the process."""
        self.given_up_total = 0
        """Views that were given up: the next one came, or they took too much memory."""

    def named(self, index: int) -> None:
        """The log names the state below entry `index`, which is to be applied next."""
        self._give_up("the next one is due")
        machine = self._machine()
        self._view = machine.freeze()
        self._past = Past(self._view)
        self._steps = _digest(ViewCopy(self._view))
        self._index, self._version = index - 1, machine.version
        self._begins_at = self._now() + self._wait_s
        self._looks = 0

    def look(self, stopwatch: Callable[[], float]) -> None:
        """Hash for a slice of time, if it is this member's turn."""
        if self._steps is None:
            return
        self._looks += 1
        if self._looks % limits.DIGEST_COST_LOOKS == 1 and self._costs_too_much():
            self._give_up("what it keeps takes too much memory")
        if self._steps is None or self._now() < self._begins_at:
            return
        until = stopwatch() + limits.DIGEST_SLICE_SECONDS
        try:
            for _ in range(limits.DIGEST_STEPS_MAX):
                next(self._steps)
                if stopwatch() >= until:
                    return
        except StopIteration as end:
            mark = Mark.of_state(self._index, self._version, end.value)
            self._end()
            self.made_total += 1
            logger.info("event=digest index=%d digest=%014x", mark.index, mark.hash)
            self._note(mark)

    def _costs_too_much(self) -> bool:
        assert self._past is not None, "made together"
        return self._past.unshared_messages > limits.DIGEST_MESSAGES_MAX

    def replaced(self) -> None:
        """Another state has taken the place of this one."""
        self._end()

    def _give_up(self, reason: str) -> None:
        if self._steps is None:
            return
        logger.warning("event=digest_given_up index=%d reason=%s", self._index, reason)
        self.given_up_total += 1
        self._end()

    def _end(self) -> None:
        self._steps = None
        past, self._past, self._view = self._past, None, None
        if past is not None:
            past.release()


def digest_of(machine: Machine) -> Generator[None, None, bytes]:
    """The digest of a machine that is changed by nothing meanwhile, in bounded steps."""
    view = machine.freeze()
    past = Past(view)
    try:
        return (yield from _digest(ViewCopy(view)))
    finally:
        past.release()


def _digest(copy: ViewCopy) -> Generator[None, None, bytes]:
    """The digest of a view, in bounded steps."""
    at = 0
    while True:
        piece = yield from copy.state(at)
        assert piece is not None, "nothing else reads this copy"
        if piece.digest:
            return piece.digest
        at = piece.after
