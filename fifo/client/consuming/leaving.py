"""Leaving a consumer: it gets nothing more, and what was not handed out goes back, uncounted.

Owns the end of a consumer whose program leaves it, and of one whose program lets go of it without
leaving. Must not know how messages are handed out.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from functools import partial

from fifo.client import limits
from fifo.client.connection.calls import Call
from fifo.client.connection.session import Session
from fifo.client.connection.threads import call_in
from fifo.client.consuming import ranges
from fifo.client.consuming.message import Ledger
from fifo.client.consuming.ranges import Range
from fifo.client.consuming.settler import Settler
from fifo.client.errors import LockLost
from fifo.wire import limits as wire
from fifo.wire.messages import Cancel

_log = logging.getLogger("fifo.client")


def leave(
    session: Session, settler: Settler, ledger: Ledger, unopened: tuple[Range, ...] = ()
) -> Call:
    """End the deliveries and give back what is `unopened`; what is in hand can still be settled.

    Not connected, it is sent after the next resume.
    """
    ledger.retired = True
    settler.flush(ledger)
    pieces = list(ranges.chunks(unopened, wire.SETTLE_RANGES_MAX, limits.SETTLE_TOKENS)) or [()]
    call = session.begin(Cancel(ledger.number, pieces[0]))
    ledger.resolve(pieces[0])
    for piece in pieces[1:]:
        settler.release_unopened(ledger, piece)
    call.future.add_done_callback(partial(_left, session, settler, ledger))
    return call


def _left(
    session: Session, settler: Settler, ledger: Ledger, future: asyncio.Future[object]
) -> None:
    error = None if future.cancelled() else future.exception()
    if isinstance(error, LockLost):
        session.unbind(ledger.number)
    elif error is not None:
        _log.info(
            "consumer %d of %s could not be cancelled: %s", ledger.number, ledger.queue, error
        )
    elif not ledger.has_unresolved():
        settler.finish(ledger)


def let_go(session: Session, settler: Settler, ledger: Ledger, unopened: tuple[Range, ...]) -> None:
    """Leave a consumer that its program has dropped.

    A message in hand stays locked as long as the program keeps it: dropped unsettled, it can never
    be settled any more, and goes back as well.
    """
    if ledger.void or session.fatal is not None:
        return
    leave(session, settler, ledger, unopened)
    dropped = _Dropped(settler, ledger)
    for token, message in ledger.open.items():
        weakref.finalize(message, dropped.report, token).atexit = False
    ledger.open = weakref.WeakValueDictionary(ledger.open)


class _Dropped:
    """Messages that the program has let go of: those of one turn go back in one frame."""

    def __init__(self, settler: Settler, ledger: Ledger) -> None:
        self._settler = settler
        self._ledger = ledger
        self._tokens: list[int] = []

    def report(self, token: int) -> None:
        """Take the token of a message that was collected, on whatever thread."""
        call_in(self._settler.loop, self._note, token)

    def _note(self, token: int) -> None:
        self._tokens.append(token)
        if len(self._tokens) == 1:
            self._settler.loop.call_soon(self._release)

    def _release(self) -> None:
        tokens, self._tokens = self._tokens, []
        # What was settled meanwhile is resolved by now: a settlement keeps its messages.
        left = [token for token in tokens if self._ledger.is_unresolved(token)]
        if left and not self._ledger.void:
            self._settler.release_unopened(self._ledger, ranges.from_tokens(left))
