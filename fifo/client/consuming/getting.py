"""`get`: messages asked for one at a time or a few, through the session's implicit consumer.

Owns the deliveries for such a consumer and the calls that wait for them, and its end: of those with
nothing in hand only the last used ones are kept. One box per consumer number. A delivery whose call
is over is given back at once, uncounted, and so is a message whose lock ran out before its call
could hand it out.
"""

from __future__ import annotations

from dataclasses import replace

from fifo.client import limits
from fifo.client.connection.calls import EXPIRED, until
from fifo.client.connection.session import Session
from fifo.client.consuming.delivery import Delivery
from fifo.client.consuming.lock_ledger import LockLedger
from fifo.client.consuming.message import Ledger
from fifo.client.consuming.ranges import Ranges
from fifo.client.consuming.settler import Settler
from fifo.client.errors import LimitReached
from fifo.wire import Code, Frame, RemoteProtocolError
from fifo.wire import limits as wire
from fifo.wire.messages import VERB_ACK, Cancel, Get, Got, Settle


class Box:
    """The deliveries for one implicit consumer that no call has claimed yet."""

    def __init__(self, ledger: Ledger, session: Session, settler: Settler) -> None:
        self.ledger = ledger
        self.waiting = 0
        self.next_token = 0
        self._session = session
        self._settler = settler
        self._unclaimed: dict[int, tuple[Delivery, int]] = {}

    @property
    def is_bound(self) -> bool:
        """Whether the session still has this consumer: it did not end, nor did the queue."""
        return self._session.ledgers.get(self.ledger.number) is self.ledger

    @property
    def is_idle(self) -> bool:
        """Whether no call waits for it, and no message of it is to be settled."""
        return not self.waiting and not self._unclaimed and self.ledger.is_idle()

    def leave(self) -> None:
        """Say that nothing of this idle consumer is asked about again, and cancel it: with both it
        is gone. Their answers do nothing here, for a later get may be given its number."""
        ledger, number = self.ledger, self.ledger.number
        ledger.resolve(ledger.unresolved())  # lost, all of them
        below = max(ledger.resolved_below, self.next_token)
        self._session.tell(Settle(number, VERB_ACK, (), below, automatic=True))
        self._session.tell(Cancel(number))

    def deliver(self, delivery: Delivery) -> None:
        """Messages came, before the answer that says whose they are."""
        new = self.ledger.admit(delivery)
        for start, stop in new:
            for index in range(start, stop):
                self._unclaimed[delivery.first_token + index] = delivery, index
            self._session.metrics.delivered += stop - start
        if not self.waiting:
            self.give_back()

    def claim(self, first: int, count: int, wanted: int) -> list[tuple[Delivery, int]]:
        """Claim the messages of an answer; without other waiting calls also those of a lost one."""
        claimed: list[tuple[Delivery, int]] = []
        if not self.waiting:
            mine = range(first, first + count)
            left = sorted([token for token in self._unclaimed if token not in mine])
            claimed = [self._unclaimed.pop(token) for token in left[: max(0, wanted - count)]]
        for token in range(first, first + count):
            found = self._unclaimed.pop(token, None)
            if found is not None:
                claimed.append(found)
        if not self.waiting:
            self.give_back()
        return claimed

    def give_back(self) -> None:
        """Release all unclaimed messages."""
        if self._unclaimed:
            self._settler.release_unopened(
                self.ledger, tuple(Ranges([(token, token) for token in self._unclaimed]))
            )
            self._unclaimed.clear()

    def activity(self, active: bool) -> None:
        """An implicit consumer is neither active nor waiting."""

    def lost(self) -> None:
        """Do nothing: no iterator waits here."""

    def removed(self) -> None:
        """The queue was deleted: all locks are lost; the next get says whether another has its
        name."""
        ledger = self.ledger
        self._session.lose(ledger, ledger.unresolved(), suspected=False)
        self._session.unbind(ledger.number)
        self._unclaimed.clear()


class Getter:
    """All implicit consumers of a client."""

    def __init__(self, session: Session, settler: Settler) -> None:
        self._session = session
        self._settler = settler
        self._boxes: dict[str, Box] = {}  # the least recently used first
        self._asking: dict[str, int] = {}

    async def get(self, request: Get, *, timeout: float, renew: bool) -> list[tuple[Delivery, int]]:
        """Ask, and take what came; where one more consumer is refused, again without idle ones."""
        loop = self._session.loop
        deadline = loop.time() + timeout
        box = self._boxes.pop(request.queue, None)
        if box is not None:
            self._boxes[request.queue] = box
        self._leave_idle(limits.GETS_IDLE_MAX)
        try:
            return await self._ask(request, timeout, renew=renew)
        except LimitReached:
            if not self._leave_idle(0):
                raise
        return await self._ask(request, max(0.0, deadline - loop.time()), renew=renew)

    async def _ask(
        self, request: Get, seconds: float, *, renew: bool
    ) -> list[tuple[Delivery, int]]:
        session, queue = self._session, request.queue
        self._count(queue, 1)
        waits = True

        def taken(frame: Frame) -> list[tuple[Delivery, int]]:
            nonlocal waits
            if not waits:
                self._taken_late(queue, frame)
                return []
            waits = False
            self._count(queue, -1)
            return self._taken(request, frame, renew=renew)

        try:
            call = session.begin(request, on_answer=taken)
            try:
                result = await until(call.future, session.loop.time() + seconds, session.loop)
            finally:
                # Sent again it has to name its consumer, and to keep no message from a program.
                session.abandon(call, replace(request, count=1, wait_ms=0))
        finally:
            if waits:
                waits = False
                self._count(queue, -1)
        if result is EXPIRED:
            raise session.expired(seconds, "get", call.tries)
        assert isinstance(result, list), "what `taken` gives"
        return self._still_locked(result)

    def _still_locked(self, found: list[tuple[Delivery, int]]) -> list[tuple[Delivery, int]]:
        """Those that may be handed out: a paused program wakes up, and an answer comes again after
        a resume, when locks are over. Where that is not known to the node they are given back."""
        now = self._session.environment.monotonic()
        locked: list[tuple[Delivery, int]] = []
        for delivery, index in found:
            token, ledger = delivery.first_token + index, delivery.ledger
            assert ledger is not None, "it was admitted when it came"
            if ledger.is_lost(token) or not ledger.is_unresolved(token):
                # Lost, and its consumer may have been left since.
                ledger.resolve(((token, token),))
            elif now >= ledger.deadline(token, delivery):
                self._settler.release_unopened(ledger, ((token, token),))
            else:
                locked.append((delivery, index))
        return locked

    def _count(self, queue: str, change: int) -> None:
        self._asking[queue] = self._asking.get(queue, 0) + change
        box = self._boxes.get(queue)
        if box is not None:
            box.waiting = self._asking[queue]
        if not self._asking[queue]:
            del self._asking[queue]

    def _leave_idle(self, kept: int) -> int:
        """Leave the idle consumers but the `kept` last used ones; return how many were left."""
        if len(self._boxes) <= kept:
            return 0
        idle = [box for box in self._boxes.values() if box.is_idle or not box.is_bound]
        ended = idle[: max(0, len(idle) - kept)]
        left = [box for box in ended if box.is_bound]
        for box in ended:
            del self._boxes[box.ledger.queue]
        for box in left:
            box.leave()
        self._session.unbind(*[box.ledger.number for box in left])
        return len(left)

    def _taken(self, request: Get, frame: Frame, *, renew: bool) -> list[tuple[Delivery, int]]:
        message = _got(frame)
        if not message.consumer:
            return []
        box = self._box(request.queue, message)
        claimed = box.claim(message.first_token, message.count, request.count)
        if not renew:
            for delivery, index in claimed:
                token = delivery.first_token + index
                box.ledger.do_not_renew(token, token)
        # What is left of a fresh lock is its length; the shortest one sets the pace of renewals.
        left = [delivery.remaining_s for delivery, _ in claimed]
        box.ledger.lock_s = max(limits.LOCK_S_MIN, min([*left, box.ledger.lock_s]))
        return claimed

    def _taken_late(self, queue: str, frame: Frame) -> None:
        """No program waits for this answer any more: keep its consumer, and give back the rest."""
        message = _got(frame)
        if message.consumer:
            box = self._box(queue, message)
            if not box.waiting:
                box.give_back()

    def _box(self, queue: str, message: Got) -> Box:
        """The box of the consumer that an answer names."""
        box = self._boxes.get(queue)
        if box is None or not box.is_bound or box.ledger.number != message.consumer:
            ledger: Ledger = LockLedger(
                message.consumer,
                queue,
                self._settler,
                lock_s=limits.LOCK_S_MAX,
                max_lock_s=wire.DURATION_MS_MAX / 1000,
                renewable=True,
                handle_key=self._session.handle_key,
            )
            ledger.together = message.together
            box = self._boxes[queue] = Box(ledger, self._session, self._settler)
            # One more while what waits for this number is handed over: this very call.
            box.waiting = 1
            self._session.bind(ledger, box)
            box.waiting = self._asking.get(queue, 0)
        box.next_token = max(box.next_token, message.first_token + message.count)
        return box


def _got(frame: Frame) -> Got:
    message = frame.message
    if not isinstance(message, Got):
        raise RemoteProtocolError(
            Code.PROTOCOL, f"expected Got in reply to Get, got {type(message).__name__}"
        )
    return message
