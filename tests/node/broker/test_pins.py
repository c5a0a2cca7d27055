"""Pinned views of one node: how many there may be, and why each ends."""

from __future__ import annotations

import itertools

import pytest

from fifo.wire import Code
from node.broker import limits
from node.broker.pins import Pin, Pins
from node.journal.journal import Journal
from node.journal.snapshots.store import BodyHold
from node.testing.disk import SimStorage
from tests.node.journal.test_snapshots import filled
from tests.support.machine import Bench


class FollowerLog:
    """The part of Raft that pins need, above a real journal."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.is_leader = False
        self.applied_index = self.commit_index = 60
        self.recovering: str | None = None
        self.leader_known = True
        self.differs = False

    def knows_leader(self) -> bool:
        return self.leader_known

    def waits_for(self) -> str | None:
        return self.recovering

    def hold_bodies(self) -> BodyHold:
        return self.journal.hold()

    def let_go(self, hold: BodyHold) -> None:
        hold.end()


class Made:
    """Pins of a node, with a clock to set."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.bench.declare("q")
        self.session = self.bench.attach()
        self.log = FollowerLog(filled(SimStorage(), 60))
        self.now = 0.0
        self.low = False
        names = itertools.count(1)
        self.pins = Pins(
            "n1",
            self.log,
            lambda: self.bench.machine,
            lambda: self.now,
            lambda size: next(names).to_bytes(size, "big"),
            lambda: self.low,
        )

    def pin(self, user: str = "", lease_s: float = 60.0) -> Pin:
        """Pin the state of now."""
        assert self.pins.refusal(user) is None
        return self.pins.make(user, lease_s)


def test_pins_are_bounded_and_end_for_their_reasons() -> None:
    made = Made()
    share = limits.PINS_MAX // limits.SHARE_PARTS
    pins = [made.pin("ada") for _ in range(share)]
    refused = made.pins.refusal("ada")
    assert refused is not None
    assert refused[0] == Code.OVERLOADED
    pins += [made.pin("bob") for _ in range(share)]
    assert made.pins.refusal("eve") is not None
    pins[0].hold.end()
    pins[1].past.release()
    made.pins.end(pins[1], "let go of")
    made.pins.sweep()
    assert [pin.ended is None for pin in pins[:3]] == [False, False, True]
    assert pins[0].ended is not None
    assert "room" in pins[0].ended
    made.pins.replaced()
    assert all(pin.ended is not None and pin.hold.ended for pin in pins)
    assert len(made.pins) == 0
    assert made.bench.machine.state.frozen == []


def test_each_use_begins_the_lease_anew() -> None:
    made = Made()
    pin, other = made.pin(lease_s=10), made.pin(lease_s=10)
    made.now = 9.0
    assert made.pins.used(pin.name) is pin
    made.now = 10.0
    assert made.pins.used(other.name) is None, "its lease is over before a sweep has seen it"
    made.pins.sweep()
    assert pin.ended is None
    made.now = 19.0
    assert made.pins.used(pin.name) is None
    assert made.pins.used(b"unknown") is None
    assert (len(made.pins), pin.hold.ended) == (0, True)


def test_what_was_pinned_before_a_node_was_found_to_differ_is_read_no_more() -> None:
    """A backup that is under way then is of a state that may have been wrong."""
    made = Made()
    pin, other = made.pin(), made.pin()
    assert made.pins.used(pin.name) is pin
    made.log.differs = True
    assert made.pins.used(pin.name) is None
    made.pins.sweep()
    assert other.ended == "the state of this node is not that of the majority"
    assert (len(made.pins), pin.hold.ended, other.hold.ended) == (0, True, True)


def test_a_node_that_recovers_lags_or_knows_no_leader_is_no_source() -> None:
    made = Made()
    assert made.pins.lags(60) is None
    assert made.pins.lags(0) is None
    assert "has applied 60 of 61" in str(made.pins.lags(61))
    made.log.commit_index = 70
    assert "has applied 60 of 70" in str(made.pins.lags(0))
    made.log.leader_known = False
    assert "knows no leader" in str(made.pins.lags(0))
    assert made.pins.lags(60) is None, "what the reader asks for is there"
    made.log.differs = True
    assert "differs" in str(made.pins.lags(60))
    assert "differs" in str(made.pins.unsound())
    made.log.recovering = "n2"
    assert "recovers" in str(made.pins.lags(60))
    assert "recovers" in str(made.pins.unsound())


def test_a_disk_that_is_low_takes_no_pin() -> None:
    made = Made()
    made.low = True
    refused = made.pins.refusal("")
    assert refused is not None
    assert "too little room" in refused[1]


def test_the_oldest_pin_ends_where_they_keep_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Made()
    made.bench.publish(made.session, "q", *"ab")
    oldest, newest = made.pin(), made.pin()
    made.bench.publish(made.session, "q", *"cd")
    monkeypatch.setattr(limits, "PINNED_MESSAGES_MAX", 2)
    made.pins.sweep()
    assert oldest.ended is not None
    assert "memory" in oldest.ended
    assert newest.ended is None, "the copy of two messages is within the bound"
