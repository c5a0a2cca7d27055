"""The pinned views of this node: the state and its bodies at one index of the log, for readers.

Owns how many there are, who may have one more, and when each ends: unused for its lease, where room
is short, where what they keep takes too much memory, or where another node's snapshot replaces the
state. A pin is a frozen view of the machine, and a hold of the journal, so that both can be read
while entries go on being applied. Must not know requests, or what is read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from fifo.machine.contract import Machine, Past
from fifo.wire import Code
from fifo.wire.limits import PIN_BYTES
from node.broker import limits
from node.broker.pin_copies import ViewCopy
from node.raft import BodyHold

logger = logging.getLogger(__name__)

SHORT: Final = "the disk of this node has too little room left"

NEVER: Final = 1 << 63
"""An index that no log reaches."""


class Log(Protocol):
    """The part of Raft that a pin stands on."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""

    @property
    def applied_index(self) -> int:
        """Index of the newest entry applied."""

    @property
    def commit_index(self) -> int:
        """Index of the newest entry known to be committed."""

    @property
    def differs(self) -> bool:
        """Whether this replica is known to differ from the majority."""

    def knows_leader(self) -> bool:
        """Whether a leader is known and connected."""

    def waits_for(self) -> str | None:
        """Describe what a recovering member waits for; None for every other one."""

    def hold_bodies(self) -> BodyHold:
        """Keep every entry that the state of now points to readable."""

    def let_go(self, hold: BodyHold) -> None:
        """End a hold."""


class Pin:
    """A view and a hold, under a name that any connection may use."""

    def __init__(
        self,
        name: bytes,
        user: str,
        index: int,
        past: Past,
        copy: ViewCopy,
        hold: BodyHold,
        lease_s: float,
    ) -> None:
        self.name = name
        self.user = user
        self.index = index
        self.past = past
        self.copy = copy
        self.hold = hold
        self.lease_s = lease_s
        self.until = 0.0
        self.ended: str | None = None
        """Why it ended; None while it lasts."""


class Awaited:
    """A pin that is to be made of the state at one index, and of no other."""

    def __init__(self, index: int, user: str, lease_s: float) -> None:
        self.index = index
        self.user = user
        self.lease_s = lease_s
        self.pin: Pin | None = None


class Pins:
    """The pins of one node, the one that was made first in front."""

    def __init__(
        self,
        node: str,
        log: Log,
        machine: Callable[[], Machine],
        now: Callable[[], float],
        entropy: Callable[[int], bytes],
        room_is_low: Callable[[], bool],
    ) -> None:
        self._node = node
        self._log = log
        self._machine = machine
        self._now = now
        self._entropy = entropy
        self._room_is_low = room_is_low
        self._pins: dict[bytes, Pin] = {}
        self._awaited: list[Awaited] = []
        self.awaits = NEVER
        """The lowest index of which a pin is awaited: `reaches` is to be called before an entry
        above it is applied."""

    def __len__(self) -> int:
        return len(self._pins)

    @property
    def applied(self) -> int:
        """Index of the newest entry applied."""
        return self._log.applied_index

    def unsound(self) -> str | None:
        """Why no state of this node must be shown to a reader."""
        waits = self._log.waits_for()
        if waits is not None:
            return f"node {self._node} recovers ({waits}): ask another node"
        if self._log.differs:
            return f"node {self._node} differs from the other replicas: ask another node"
        return None

    def lags(self, at_least: int) -> str | None:
        """Why the state of now must not be shown to a reader who wants it `at_least` so new."""
        log, unsound = self._log, self.unsound()
        if unsound is not None:
            return unsound
        if log.applied_index < at_least:
            return f"node {self._node} has applied {log.applied_index} of {at_least} entries"
        if at_least:
            return None
        if not (log.is_leader or log.knows_leader()):
            return f"node {self._node} knows no leader, and so not how far behind it is"
        if log.applied_index < log.commit_index:
            return f"node {self._node} has applied {log.applied_index} of {log.commit_index}"
        return None

    def refusal(self, user: str) -> tuple[Code, str] | None:
        """Why there may not be one pin more."""
        users = [pin.user for pin in self._pins.values()] + [one.user for one in self._awaited]
        own = users.count(user)
        share = limits.PINS_MAX // limits.SHARE_PARTS if user else limits.PINS_MAX
        if len(users) >= limits.PINS_MAX or own >= share:
            text = f"node {self._node} has {len(users)} pinned views, {own} of this user, at most"
            return Code.OVERLOADED, f"{text} {limits.PINS_MAX} and {share}: end one, or ask later"
        if self._room_is_low():
            return Code.OVERLOADED, f"{SHORT} for a pinned view: ask another node"
        return None

    def make(self, user: str, lease_s: float, index: int | None = None) -> Pin:
        """Pin the state of now, which is that of `index`: by default the newest entry applied."""
        name = self._entropy(PIN_BYTES)
        view = self._machine().freeze()
        hold = self._log.hold_bodies()
        if index is None:
            index = self._log.applied_index
        pin = self._pins[name] = Pin(name, user, index, Past(view), ViewCopy(view), hold, lease_s)
        pin.until = self._now() + lease_s
        logger.info("event=pinned index=%d user=%s lease_s=%g", pin.index, user, lease_s)
        return pin

    def awaiting(self, index: int, user: str, lease_s: float) -> Awaited | None:
        """A pin of the state at `index`, made when that is reached; None where that is past.
        `forget` has to follow."""
        if self._log.applied_index > index:
            return None
        awaited = Awaited(index, user, lease_s)
        self._awaited.append(awaited)
        self.awaits = min(self.awaits, index)
        self.made(awaited)
        return awaited

    def made(self, awaited: Awaited) -> bool:
        """Whether it is made by now: where its index was the last, no entry says that it is."""
        if awaited.pin is None and self._log.applied_index >= awaited.index:
            self.reaches(awaited.index + 1)
        return awaited.pin is not None

    def reaches(self, index: int) -> None:
        """The entry of this index is to be applied next: make what is awaited below it. Entries of
        Raft's own lie between, and change no state."""
        for one in self._awaited:
            if one.pin is None and one.index < index:
                one.pin = self.make(one.user, one.lease_s, one.index)
        self._note_awaited()

    def forget(self, awaited: Awaited) -> None:
        """Wait for it no longer."""
        self._awaited.remove(awaited)
        self._note_awaited()

    def _note_awaited(self) -> None:
        waiting = [one.index for one in self._awaited if one.pin is None]
        self.awaits = min(waiting, default=NEVER)

    def used(self, name: bytes) -> Pin | None:
        """The pin of this name, whose lease begins anew; None where it has ended."""
        pin = self._pins.get(name)
        if pin is None:
            return None
        self._look_at(pin)
        if pin.ended is not None:
            return None
        pin.until = self._now() + pin.lease_s
        return pin

    def _look_at(self, pin: Pin) -> None:
        if pin.hold.ended:
            self.end(pin, SHORT)
        elif self._log.differs:
            # It was found after it was pinned: since when it is wrong no one knows.
            self.end(pin, "the state of this node is not that of the majority")
        elif self._now() >= pin.until:
            self.end(pin, "unused for its lease")

    def end(self, pin: Pin, reason: str) -> None:
        """End a pin: what it kept is let go of."""
        if self._pins.pop(pin.name, None) is None:
            return
        pin.ended = reason
        pin.past.release()
        self._log.let_go(pin.hold)
        logger.info("event=pin_ended index=%d user=%s reason=%s", pin.index, pin.user, reason)

    def sweep(self) -> None:
        """End what is over, and the oldest where all together keep too much."""
        for pin in list(self._pins.values()):
            self._look_at(pin)
        kept = {pin.name: pin.past.kept_messages for pin in self._pins.values()}
        while sum(kept.values()) > limits.PINNED_MESSAGES_MAX:
            pin = next(iter(self._pins.values()))
            del kept[pin.name]
            self.end(pin, "the messages that pins keep take too much memory")

    @property
    def kept_messages(self) -> int:
        """Messages in queues that pins had to copy, or that were read of: what they cost."""
        return sum([pin.past.kept_messages for pin in self._pins.values()])

    def replaced(self) -> None:
        """End all: another node's snapshot has replaced the state."""
        for pin in list(self._pins.values()):
            self.end(pin, "a snapshot of another node has replaced the state")
