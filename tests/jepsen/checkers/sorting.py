"""A history, sorted by its subjects: the terms in which the rules are written.

Owns hand-outs, settlements and confirmed holds as docs/history.md defines them. Knows only the form
of an event. An event's place in the list is its place in time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.jepsen.history import Event

RATE_ERROR = 0.05
"""Clocks of two machines differ by this part at most, and a little."""

NEVER = 1 << 62
"""An index after all others: what did not happen, or was never answered."""

Key = tuple[int, int]
"""A delivery: consumer and token."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule is broken: which, about what, in words, and the events that show it."""

    rule: str
    subject: str
    text: str
    events: tuple[Event, ...] = ()

    def __str__(self) -> str:
        shown = "".join(f"\n  {event}" for event in self.events)
        return f"{self.rule}: {self.subject}: {self.text}{shown}"


class Settle(NamedTuple):
    """A settlement: its request, and the answer (`info` at the end of time if none came)."""

    asked: Event
    answer: Event

    @property
    def verb(self) -> str:
        """ack, nack, release or terminate."""
        return str(self.asked["value"]["verb"])

    @property
    def done(self) -> bool:
        """Whether the node said that it was carried out."""
        return bool(self.answer["type"] == "ok" and self.answer["value"].get("status") == "ok")

    @property
    def late(self) -> bool:
        """Whether it was carried out after the lock was lost."""
        return bool(self.answer["value"].get("late"))

    @property
    def may_have_acked(self) -> bool:
        """An ack that was carried out, or perhaps was."""
        refused = self.answer["value"].get("status") in ("lock_lost", "unknown_consumer")
        return self.verb == "ack" and self.answer["type"] != "fail" and not refused


class Hold(NamedTuple):
    """A delivery that was held from its receipt until this settlement was asked for."""

    message: str
    queue: str
    key: Key
    deliver: Event
    asked: Event

    def overlaps(self, other: Hold) -> bool:
        """Whether both were held at once."""
        first, second = sorted((self, other), key=lambda hold: index_of(hold.deliver))
        return index_of(second.deliver) < index_of(first.asked)


def key_of(event: Event) -> Key:
    """Consumer and token of an event."""
    return event["value"]["consumer"], event["value"]["token"]


def index_of(event: Event) -> int:
    """The place of an event in its history."""
    return int(event["index"])


class SortedHistory:
    """A history, sorted."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)
        self.specs: dict[str, dict[str, Any]] = {}
        self.invoked: dict[str, Event] = {}
        self.confirmed: dict[str, Event] = {}
        self.refused: dict[str, Event] = {}
        self.checkouts: dict[str, list[Event]] = defaultdict(list)
        self.delivers: dict[str, list[Event]] = defaultdict(list)
        self.settles: dict[str, list[Settle]] = defaultdict(list)
        self.sure: dict[str, list[Event]] = defaultdict(list)
        self.cancelled: dict[int, int] = {}
        self.by_kind: dict[str, list[Event]] = defaultdict(list)
        self._asked: dict[tuple[str, str, Key], Event] = {}
        for event in self.events:
            self.by_kind[event["f"]].append(event)
            self._sort(event)
        for asked in self._asked.values():  # Killed before it was answered, or the run was over.
            never = {**asked, "type": "info", "index": NEVER}
            self.settles[asked["value"]["id"]].append(Settle(asked, never))
        self._name_repeats()
        self.traced = bool(self.checkouts)
        self.redriven = bool(self.by_kind["redrive"])
        self.graves = {
            spec["dead_letter"]: None for spec in self.specs.values() if spec.get("dead_letter")
        }
        self.hand_outs = {
            number: self._in_order(self.checkouts.get(number) or self.delivers[number])
            for number in {**self.checkouts, **self.delivers}
        }

    def _sort(self, event: Event) -> None:
        value = event["value"]
        match event["f"], event["type"]:
            case "declare", "ok":
                self.specs[value["queue"]] = value["spec"]
            case "publish", "invoke":
                self.invoked[value["body"]] = event
            case "publish", "ok":
                self.confirmed[value["body"]] = event
            case "publish", "fail":
                self.refused[value["body"]] = event
            case "checkout", _:
                self.checkouts[value["id"]].append(event)
            case "deliver", _:
                self.delivers[value["id"]].append(event)
            case "settle", "invoke":
                self._asked[(event["process"], value["id"], key_of(event))] = event
            case "settle", _:
                asked = self._asked.pop((event["process"], value["id"], key_of(event)), None)
                if asked is None:
                    raise ValueError(f"a hole: no request of the settlement answered in {event}")
                self.settles[value["id"]].append(Settle(asked, event))
            case "holds", _:
                self.sure[value["id"]].append(event)
            case "cancel", _:
                self.cancelled[value["consumer"]] = event["index"]

    def _name_repeats(self) -> None:
        """Confirms without an id, of what was stored before under a dedup id: by their bodies."""
        ids = {one["value"]["body"]: one["value"]["id"] for one in self.by_kind["deliver"]}
        for body, confirm in self.confirmed.items():
            if confirm["value"].get("id") is None:
                value = {**confirm["value"], "id": ids.get(body, "")}
                self.confirmed[body] = {**confirm, "value": value}

    def _in_order(self, found: list[Event]) -> list[Event]:
        """The hand-outs of a message: docs/history.md, "Order of hand-outs"."""
        if self.traced:
            return found
        once = list({key_of(event): event for event in reversed(found)}.values())
        begun = self._redriven_since({event["value"]["queue"] for event in once})
        once.sort(key=lambda event: self._place(event, begun))
        return once

    def _redriven_since(self, queues: set[str]) -> int:
        """Since when a message that was in these queues may have come back from its grave."""
        graves = {self.specs.get(queue, {}).get("dead_letter") for queue in queues} | queues
        starts = (
            index_of(one)
            for one in self.by_kind["redrive"]
            if one["value"].get("queue") in graves or one["value"].get("queue") not in self.graves
        )
        return min(starts, default=NEVER)

    def _place(self, event: Event, begun: int) -> tuple[bool, bool, int, int]:
        """Of a hand-out among its message's; `begun`: since when attempts may start again."""
        if index_of(event) > begun:
            return True, False, 0, index_of(event)
        return False, self.is_grave(event), event["value"]["attempt"], index_of(event)

    def is_grave(self, event: Event) -> bool:
        """Whether this happened in a dead-letter queue."""
        return event["value"]["queue"] in self.graves

    def spec_of(self, event: Event) -> dict[str, Any]:
        """The spec of an event's queue; empty where it is not known."""
        return self.specs.get(event["value"].get("queue", ""), {})

    def single_active(self, event: Event) -> bool:
        """Whether this delivery is of a queue with one active consumer at a time."""
        queue = event["value"].get("queue") or self._queue_of(event)
        return bool(self.specs.get(queue, {}).get("ordering") == "single_active")

    def _queue_of(self, event: Event) -> str:
        """The queue of an event that names a delivery only."""
        for one in self.hand_outs.get(event["value"]["id"], ()):
            if key_of(one) == key_of(event):
                return str(one["value"]["queue"])
        return ""

    def newer(self, event: Event) -> list[Event]:
        """Hand-outs of the same message after the one that this event is about, in order."""
        mine = key_of(event)
        found = self.hand_outs.get(event["value"]["id"], [])
        places = [place for place, one in enumerate(found) if key_of(one) == mine]
        return found[places[0] + 1 :] if places else []

    def newer_before(self, event: Event, index: int) -> Event | None:
        """The first newer hand-out that was seen before some index."""
        for one in self.newer(event):
            if one["index"] < index:
                return one
        return None

    def holds(self) -> dict[str, list[Hold]]:
        """Confirmed holds by message, in order of receipt."""
        found: dict[str, list[Hold]] = defaultdict(list)
        for number, settles in self.settles.items():
            received = {key_of(event): event for event in reversed(self.delivers[number])}
            for settle in settles:
                deliver = received.get(key_of(settle.asked))
                if deliver is not None and settle.done and not settle.late:
                    queue = deliver["value"]["queue"]
                    key = key_of(deliver)
                    found[number].append(Hold(number, queue, key, deliver, settle.asked))
        for holds in found.values():
            holds.sort(key=lambda hold: index_of(hold.deliver))
        return found
