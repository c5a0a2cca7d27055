"""The locks held under one consumer number: which tokens, until when, and which are lost.

Owns the ledger of tokens from their arrival until they are resolved, and the list of messages in
the program's hands. Two threads use it: the user's loop delivers and settles, the control thread
renews and learns of lost locks. State of both threads is guarded by `lock`; the rest says so.
Stands below `delivery`, `message`, `settler` and `session`, and sees of them only the protocols
`Arrival`, `Held` and `Settles`. Must not know connections.

A token is *unresolved* from its arrival until its settlement is answered (or it is given up). Below
the lowest unresolved token the client never asks again: that is `resolved_below`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, Generic, Protocol, TypeVar

from fifo.client import limits
from fifo.client.backoff import BackoffCallable
from fifo.client.consuming import ranges
from fifo.client.consuming.ranges import Range, Ranges
from fifo.client.consuming.renewed import RenewedUntil
from fifo.client.consuming.settlement import Settleable, Settlement
from fifo.client.consuming.verbs import Settles


class Held(Settleable, Protocol):
    """A message in the program's hands, as its ledger sees it."""

    @property
    def is_lost(self) -> bool:
        """Whether the lock is known to be lost."""

    @property
    def lock_ends_at(self) -> float:
        """When the lock ends, as the client knows, by its monotonic clock."""

    @property
    def has_run_out(self) -> bool:
        """Whether its deadline has passed once without a word from a node."""

    def lose_lock(self) -> None:
        """Mark the lock as lost; on any thread."""

    def run_out(self) -> None:
        """Mark the deadline as passed; on any thread."""


class Arrival(Protocol):
    """A delivery, as a ledger sees it; `ledger` is set when it is admitted."""

    ledger: LockLedger[Any] | None
    first_token: int
    count: int
    received: float
    remaining_s: float


_M = TypeVar("_M", bound=Held)


class LockLedger(Generic[_M]):
    """The locks of one consumer number of one session. `void`: the session ended, all are gone.

    `retired`: the consumer was cancelled; the ledger goes when nothing is unresolved.
    """

    __slots__ = (
        "_arrived",
        "_detached_at",
        "_first_end",
        "_gaps",
        "_handing_until",
        "_known_again",
        "_last_seen",
        "_look_at",
        "_not_renewed",
        "_opened_at",
        "_renewed",
        "_since",
        "_unresolved",
        "asked",
        "busy",
        "gathered",
        "handle_key",
        "handler_timeout_s",
        "in_flight",
        "leader_renews_s",
        "lock",
        "lock_s",
        "lost",
        "max_lock_s",
        "nack_delay",
        "number",
        "on_resolved",
        "open",
        "queue",
        "renewable",
        "renewed_for_s",
        "retired",
        "settler",
        "suspected",
        "tag",
        "together",
        "void",
    )

    def __init__(
        self,
        number: int,
        queue: str,
        settler: Settles[_M],
        *,
        lock_s: float,
        max_lock_s: float,
        renewable: bool,
        handle_key: bytes,
        tag: str = "",
    ) -> None:
        self.number = number
        self.queue = queue
        self.tag = tag
        self.handle_key = handle_key
        self.settler = settler
        self.lock_s = lock_s
        self.max_lock_s = max_lock_s
        self.renewable = renewable
        self.renewed_for_s: float | None = None
        self.leader_renews_s: float | None = None  # in all, from the delivery, while connected
        self.handler_timeout_s: float | None = None
        self.nack_delay: BackoffCallable | None = None
        self.void = False
        self.suspected = False  # or the node counts lost messages whose handlers run
        self.asked = False  # and has been notified of their number
        self.retired = False
        self.together = False  # the first lock that ends takes all others along
        # Of the user's loop only: what the program has in hand, and the acks of this turn.
        self.open: MutableMapping[int, _M] = {}
        self.busy: set[int] = set()
        self.gathered: Settlement[_M, LockLedger[_M]] | None = None
        self.in_flight = 0
        self.on_resolved: Callable[[], None] | None = None  # after the answer to a settlement
        self._last_seen = 0
        self._gaps = Ranges()
        self._known_again: Ranges | None = None
        # Of both threads.
        self.lock = threading.Lock()
        self._unresolved = Ranges()
        self.lost: dict[int, None] = {}
        self._not_renewed: set[int] = set()
        self._opened_at: dict[int, float] = {}
        self._since: dict[int, float] = {}  # when the lock began, where its renewals are bounded
        self._renewed = RenewedUntil()
        self._detached_at = math.inf
        self._handing_until = math.inf  # no message that is handed out now ends before
        self._look_at = math.inf  # no lock in the program's hands ends before
        self._arrived: list[tuple[int, int, Arrival]] = []  # what is held, where it ends together
        self._first_end: float | None = None  # of that; None where it has to be looked for

    def __repr__(self) -> str:
        return f"<ledger {self.number} of {self.queue}: {self.overview()}>"

    def overview(self) -> str:
        """A line for a log."""
        with self.lock:
            held = ranges.count(self._unresolved)
            return f"unresolved {held}, open {len(self.open)}, lost {len(self.lost)}"

    # Arrival, on the user's loop.

    def admit(self, delivery: Arrival) -> list[tuple[int, int]]:
        """Record a delivery; return the (start, stop) positions of its new messages.

        Tokens that arrived before, settled or not, are left out: after a resume the node sends
        again what is still locked, and a new leader may carry out an effect a second time.
        """
        first = delivery.first_token
        last = first + delivery.count - 1
        delivery.ledger = self
        if self._known_again is not None:
            self._known_again.add(first, last)
        if first == self._last_seen + 1:
            # The common case, without a search: tokens of one consumer are handed out in order.
            new: list[Range] = [(first, last)]
        else:
            new = self._unseen(first, last)
        if last > self._last_seen:
            if first > self._last_seen + 1:
                # The skipped tokens may still arrive, behind this delivery: what was in flight when
                # the connection broke is delivered again, and the order of that is the node's.
                # Below `_last_seen` only tokens of a gap are new; all others arrived before.
                self._gaps.add(self._last_seen + 1, first - 1)
                self._forget_gaps()
            self._last_seen = last
        # Unresolved before the program can see a message: from here on renewals name the token,
        # and `resolved_below` stays under it, so the node keeps the outcome of its settlement.
        began = delivery.received + min(0.0, delivery.remaining_s - self.lock_s)
        with self.lock:
            for one, other in new:
                self._unresolved.add(one, other)
                if self.renewed_for_s is not None:
                    self._since.update(dict.fromkeys(range(one, other + 1), began))
                if self.together:
                    self._arrived.append((one, other, delivery))
                    self._first_end = None
        if self.together and new:
            self.watch(delivery.received + delivery.remaining_s)
        return [(one - first, other - first + 1) for one, other in new]

    def resumed(self) -> None:
        """The node begins to send again all that is held here."""
        self._known_again = Ranges()
        with self.lock:
            self._detached_at = math.inf
            self._first_end = None

    def gone(self) -> tuple[Range, ...]:
        """The node has sent all of it: the tokens that were held here and are not any more. They
        were lost, or an earlier settlement of them was carried out, as its receipt will tell."""
        known, self._known_again = self._known_again, None
        if known is None:
            return ()
        with self.lock:
            missing = Ranges(self._unresolved)
        for first, last in known:
            missing.remove(first, last)
        return tuple(missing)

    def _unseen(self, first: int, last: int) -> list[Range]:
        """The tokens of first..last that never arrived: in a gap, or above all that did."""
        found = self._gaps.intersection(first, min(last, self._last_seen))
        for one, other in found:
            self._gaps.remove(one, other)
        if last > self._last_seen:
            found.append((max(first, self._last_seen + 1), last))
        return found

    def _forget_gaps(self) -> None:
        # Bounded memory: the oldest gaps go first. A token of a forgotten gap that arrives after
        # all is dropped as a repeat; its lock times out, and the message is redelivered.
        while len(self._gaps) > limits.GAPS_MAX:
            one, other = next(iter(self._gaps))
            self._gaps.remove(one, other)

    # In the program's hands, on the user's loop.

    def opened(self, message: _M, now: float) -> None:
        """The program has it now."""
        token = message.token
        self.open[token] = message
        # Looked at after the message can be found: the control thread does it the other way round.
        if self.lost and token in self.lost:
            message.lose_lock()
        if self.handler_timeout_s is not None:
            with self.lock:
                self._opened_at[token] = now

    def is_lost(self, token: int) -> bool:
        """Whether the lock of this token is known to be lost."""
        return self.void or token in self.lost

    def is_idle(self) -> bool:
        """Whether nothing is to be settled or answered but lost messages whose handlers ended."""
        if self.gathered is not None or self.in_flight or self.busy:
            return False
        with self.lock:
            return ranges.count(self._unresolved) == len(self.lost)

    def lost_running(self) -> int:
        """The lost messages in the program's hands whose handlers still run.

        A lost message outside of any `process()` block counts as finished, and is given up here:
        the program asks for more, which is the only evidence there is.
        """
        with self.lock:
            lost = [token for token in self.lost if token in self.open]
        finished = [token for token in lost if token not in self.busy]
        for token in finished:
            del self.open[token]
        self.resolve([(token, token) for token in finished])
        return len(lost) - len(finished)

    def resolve(self, resolved: Iterable[Range]) -> None:
        """These tokens are done with: settled and answered, or given up."""
        with self.lock:
            for first, last in resolved:
                self._unresolved.remove(first, last)
                if self.lost or self._not_renewed or self._opened_at or self._since:
                    self._forget(first, last)
            self._first_end = None

    def settling(self, tokens: tuple[Range, ...]) -> None:
        """These tokens are asked about: unresolved until answered, given up before or not.

        If the settlement's own `resolved_below` passed them, it could be carried out and its retry
        be answered `lock_lost`.
        """
        with self.lock:
            for first, last in tokens:
                self._unresolved.add(first, last)

    def _forget(self, first: int, last: int) -> None:
        for token in range(first, last + 1):
            self.lost.pop(token, None)
            self._not_renewed.discard(token)
            self._opened_at.pop(token, None)
            self._since.pop(token, None)

    @property
    def resolved_below(self) -> int:
        """The client never asks about a token below this one again."""
        with self.lock:
            lowest = self._unresolved.lowest
        return self._last_seen + 1 if lowest is None else lowest

    def is_unresolved(self, token: int) -> bool:
        """Whether this token is still to be settled or answered."""
        with self.lock:
            return token in self._unresolved

    def unresolved(self) -> tuple[Range, ...]:
        """All tokens that are still to be settled or answered."""
        with self.lock:
            return tuple(self._unresolved)

    def held_count(self) -> int:
        """The number of tokens that are still to be settled or answered."""
        with self.lock:
            return ranges.count(self._unresolved)

    def has_unresolved(self) -> bool:
        """Whether anything is still to be settled or answered."""
        with self.lock:
            return bool(self._unresolved)

    # Renewal, on the control thread (and for an explicit renewal on the user's loop).

    def do_not_renew(self, first: int, last: int) -> None:
        """Leave these tokens out of renewals: their getter did not ask for them."""
        with self.lock:
            self._not_renewed.update(range(first, last + 1))

    def to_renew(self, now: float) -> tuple[Range, ...]:
        """The ranges that a renewal names: all that we hold and may renew."""
        if self.void or not self.renewable:
            return ()
        with self.lock:
            left_out = set(self.lost) | self._not_renewed
            if self.handler_timeout_s is not None:
                left_out.update(
                    token
                    for token, since in self._opened_at.items()
                    if now - since >= self.handler_timeout_s
                )
            if self.renewed_for_s is not None:
                left_out.update(
                    token
                    for token, since in self._since.items()
                    if now - since >= self.renewed_for_s
                )
            found = Ranges(self._unresolved)
        for token in left_out:
            found.remove(token, token)
        return tuple(found)

    def renewed(self, items: Iterable[tuple[int, int, int]], sent_at: float) -> None:
        """A renewal was granted: (first, last, remaining ms), counted from when it was SENT."""
        answer = [(first, last, sent_at + left_ms / 1000) for first, last, left_ms in items]
        with self.lock:
            self._renewed.put(answer, sent_at)
            self._first_end = None

    def lose(self, lost: Iterable[Range], *, suspected: bool) -> list[_M]:
        """These locks are gone. Returns the messages in the program's hands that it concerns.

        `suspected`: the node says that they timed out, so it suspects this consumer.
        """
        with self.lock:
            found = [
                token
                for first, last in lost
                for part in self._unresolved.intersection(first, last)
                for token in range(part[0], part[1] + 1)
                if token not in self.lost
            ]
            for token in found:
                if len(self.lost) < limits.LOST_MAX:
                    self.lost[token] = None
            self._first_end = None
            if suspected:
                self.suspected = True
                self.asked = False
        opened = self.open
        return [message for token in found if (message := opened.get(token)) is not None]

    def end(self) -> list[_M]:
        """The session ended: every token is void. Returns what the program has in hand."""
        self.void = True
        self._known_again = None
        with self.lock:
            self._unresolved.clear()
            self.lost.clear()
            self._not_renewed.clear()
            self._opened_at.clear()
            self._since.clear()
            self._arrived.clear()
            self._first_end = None
        lost = list(self.open.values())
        self.open.clear()
        return lost

    def deadline(self, token: int, delivery: Arrival) -> float:
        """When this lock ends, by our monotonic clock.

        Never later than the node's once it was renewed, for that counts from the request; before,
        later by the time that the delivery was on its way. Where locks end together it is that of
        the first: each has ended then, whatever was said about it.
        """
        end = self._own_deadline(token, delivery)
        return min(end, self._first_end_of_all()) if self.together else end

    def _own_deadline(self, token: int, delivery: Arrival) -> float:
        end = delivery.received + delivery.remaining_s
        renewed_until = self._renewed.get(token)
        return end if renewed_until is None else renewed_until

    def _first_end_of_all(self) -> float:
        """When the first lock ends of all that is held."""
        with self.lock:
            if self._first_end is None:
                found = [
                    (one, other, delivery)
                    for first, last, delivery in self._arrived
                    for one, other in self._unresolved.intersection(first, last)
                ]
                self._arrived = found
                ends = [
                    self._own_end(token, delivery)
                    for first, last, delivery in found
                    for token in range(first, last + 1)
                    if token not in self.lost
                ]
                self._first_end = min(ends, default=math.inf)
            return self._first_end

    # The end of locks that nothing prolongs, on the control thread; what it waits for, on any.

    def ends_at(self, token: int, delivery: Arrival) -> float:
        """When this lock ends, with the renewals by the leader: while we are connected it renews,
        and when we are not any more for one lock from then."""
        end = self._own_end(token, delivery)
        return min(end, self._first_end_of_all()) if self.together else end

    def _own_end(self, token: int, delivery: Arrival) -> float:
        end = self._own_deadline(token, delivery)
        if self.leader_renews_s is None:
            return end
        renewed = min(delivery.received + self.leader_renews_s, self._detached_at + self.lock_s)
        return max(end, renewed)

    def detached(self, now: float) -> None:
        """The connection is gone: the leader may be renewing for the last time."""
        with self.lock:
            self._detached_at = now
            self._first_end = None
        if self.leader_renews_s is not None:
            self.watch(now + self.lock_s)

    def hand_out(self, until: float) -> None:
        """Messages are handed out from here on whose locks do not end before `until`."""
        self._handing_until = until
        if until < self._look_at:
            self.watch(until)

    def watch(self, at: float) -> None:
        """A lock in the program's hands may end then."""
        with self.lock:
            self._look_at = min(self._look_at, at)
        self.settler.watch(at)

    def run_out(self, now: float) -> tuple[list[_M], float]:
        """The messages in the program's hands whose locks have ended, and when to look again.

        Left out is what a settlement is under way for: its answer says what became of the lock.
        Their tokens are renewed on: the cluster may keep them, as it does over an election.
        """
        with self.lock:
            if now < self._look_at:
                return [], self._look_at
            self._look_at = math.inf
        # Looked at after that was written; `hand_out` does it the other way round.
        soonest = self._handing_until if self._handing_until > now else math.inf
        ended: list[_M] = []
        for token in ranges.tokens(self.unresolved()):
            message = self.open.get(token)
            if message is None:
                # In the buffer, or handed out in this very moment.
                soonest = min(soonest, now + self.lock_s / limits.RENEWALS_PER_LOCK)
            elif not (message.is_lost or message.has_run_out):
                end = message.lock_ends_at
                if end <= now:
                    ended.append(message)
                else:
                    soonest = min(soonest, end)
        with self.lock:
            self._look_at = min(self._look_at, soonest)
            return ended, self._look_at
