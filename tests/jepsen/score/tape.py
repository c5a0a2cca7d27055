"""A history that can be changed: events are replaced, left out, added, or moved to another time.

Owns the cut and the splice: after every change lines are in order of time and numbered anew. A
`Life` is all that a history says of one message. Written from docs/history.md alone: it shares no
code with the checkers that are scored by it, and knows no rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.jepsen.history import Event

Place = tuple[float, int, int]
"""Of an event on the tape: its time, its index in the good history, and what was added there."""

STRANGER = 7_000_000
"""A consumer that no history has."""

SPLICED_S = 1e-6
"""Between an event and one that is added behind it."""


class NotHere(Exception):
    """This change cannot be made to this message, or to this history."""


@dataclass(eq=False, slots=True)
class Settling:
    """A settlement that was asked for, and its answer if there was one."""

    asked: Event
    answer: Event | None = None

    @property
    def verb(self) -> str:
        """ack, nack, release or terminate."""
        return str(self.asked["value"]["verb"])

    @property
    def done(self) -> bool:
        """Whether it was answered `ok`."""
        answer = self.answer
        return (
            answer is not None and answer["type"] == "ok" and answer["value"].get("status") == "ok"
        )

    @property
    def events(self) -> tuple[Event, ...]:
        """The request, and the answer."""
        return (self.asked,) if self.answer is None else (self.asked, self.answer)


@dataclass(eq=False, slots=True)
class Hand:
    """A hand-out of a message that its client wrote down, and all that was said under its token."""

    deliver: Event
    checkout: Event | None = None
    settlings: list[Settling] = field(default_factory=list)
    others: list[Event] = field(default_factory=list)
    """Events of `holds`, `renew`, `lock_lost`, and repeated deliveries."""

    @property
    def queue(self) -> str:
        """The queue that it was handed out in."""
        return str(self.deliver["value"]["queue"])

    @property
    def key(self) -> tuple[int, int]:
        """Consumer and token."""
        return self.deliver["value"]["consumer"], self.deliver["value"]["token"]

    @property
    def counted(self) -> tuple[Event, ...]:
        """The events with its attempt and failures."""
        return (self.deliver,) if self.checkout is None else (self.checkout, self.deliver)

    @property
    def events(self) -> list[Event]:
        """All of them."""
        return [*self.counted, *self.others, *(e for one in self.settlings for e in one.events)]

    def settled(self, *verbs: str) -> Settling:
        """The settlement that was carried out, by one of these verbs; NotHere where none was."""
        done = [one for one in self.settlings if one.done]
        if len(done) != 1 or done[0].verb not in verbs:
            raise NotHere
        return done[0]


@dataclass(eq=False, slots=True)
class Life:
    """A message: how it was published, and its hand-outs in order."""

    body: str
    asked: Event | None = None
    answer: Event | None = None
    hands: list[Hand] = field(default_factory=list)
    strays: list[Event] = field(default_factory=list)
    """Checkouts that no client wrote down."""

    @property
    def id(self) -> str:
        """The message's, as its deliveries name it."""
        if not self.hands:
            raise NotHere
        return str(self.hands[0].deliver["value"]["id"])

    @property
    def confirm(self) -> Event:
        """The confirm with its id; NotHere where there is none."""
        if self.answer is None or self.answer["type"] != "ok" or not self.answer["value"].get("id"):
            raise NotHere
        return self.answer

    @property
    def publishing(self) -> list[Event]:
        """The request and its answer."""
        return [one for one in (self.asked, self.answer) if one is not None]

    @property
    def handling(self) -> list[Event]:
        """All but those."""
        return [*self.strays, *(event for hand in self.hands for event in hand.events)]


class Tape:
    """A history to be changed, once: `events` gives what became of it."""

    def __init__(self, good: Good) -> None:
        self.good = good
        self._events = dict(enumerate(good.events))
        self._places: dict[int, Place] = {}
        self._added = 0

    def set(self, *events: Event, **value: Any) -> None:
        """Give these fields of these events' values another value; None takes one away."""
        for event in events:
            self._replace(event, value={**self._now(event)["value"], **value})

    def answer(self, event: Event, kind: str, **value: Any) -> None:
        """Make this event an answer of another type."""
        self._replace(event, type=kind, value={**self._now(event)["value"], **value})

    def drop(self, *events: Event) -> None:
        """Leave these out."""
        for event in events:
            self._events.pop(event["index"], None)

    def move(self, events: Iterable[Event], behind: Event, seconds: float = 0.0) -> None:
        """Have these, in their order, after another event."""
        for event in sorted(events, key=lambda one: int(one["index"])):
            place = self._behind(behind, seconds)
            self._places[event["index"]] = place
            self._replace(event, time=place[0])

    def shift(self, event: Event, seconds: float) -> None:
        """Have this event earlier or later, with its place among those of its new time."""
        time = round(event["time"] + seconds, 6)
        self._places[event["index"]] = (time, event["index"], 0)
        self._replace(event, time=time)

    def add(
        self, behind: Event, kind: str, f: str, process: str, seconds: float = 0.0, **value: Any
    ) -> Event:
        """A further event after another one."""
        place = self._behind(behind, seconds)
        event: Event = {
            "type": kind, "f": f, "value": value, "process": process,
            "time": place[0], "index": -self._added,
        }  # fmt: skip
        self._events[event["index"]] = event
        self._places[event["index"]] = place
        return event

    def hand_out(self, behind: Event, like: Hand, seconds: float = 0.0, **value: Any) -> Hand:
        """A further hand-out after an event: as another one was, to a stranger unless `value` says
        otherwise."""
        what = {"consumer": STRANGER, "token": 1, "reason": None, **value}
        shared = {name: what[name] for name in what if name not in ("reason", "body", "intact")}
        checkout = None
        if like.checkout is not None:
            at_ms = like.checkout["value"]["at_ms"]
            at_ms += int(1000 * (behind["time"] + seconds - like.checkout["time"]))
            known = {**like.checkout["value"], "at_ms": at_ms, **shared}
            checkout = self.add(
                behind, "ok", "checkout", like.checkout["process"], seconds, **known
            )
        on_its_way = {"transit_s": 0.0, "waited_s": 0.0} if like.checkout is None else {}
        known = {**like.deliver["value"], **on_its_way, **what}
        return Hand(self.add(behind, "ok", "deliver", "stranger", seconds, **known), checkout)

    def settle(
        self, behind: Event, hand: Hand, verb: str, *, kind: str = "ok", status: str = "ok",
        late: bool = False, **value: Any,
    ) -> Settling:  # fmt: skip
        """A further settlement, and its answer, after an event."""
        known = hand.deliver["value"]
        what: Event = {name: known[name] for name in ("id", "queue", "consumer", "token")}
        what = {**what, "verb": verb, "delay_s": None, **value}
        process = hand.deliver["process"]
        asked = self.add(behind, "invoke", "settle", process, **what)
        more: Event = {"status": status, "late": late} if kind == "ok" else {}
        return Settling(asked, self.add(asked, kind, "settle", process, **what, **more))

    @property
    def events(self) -> list[Event]:
        """The history as it is now."""
        places = {
            index: self._places.get(index, (event["time"], index, 0))
            for index, event in self._events.items()
        }
        return [
            {**self._events[index], "index": number}
            for number, index in enumerate(sorted(places, key=places.__getitem__))
        ]

    def _behind(self, event: Event, seconds: float) -> Place:
        self._added += 1
        time, index, _ = self._places.get(event["index"], (event["time"], event["index"], 0))
        if seconds:
            return round(time + seconds, 6), 0, self._added
        return time, index, self._added

    def _now(self, event: Event) -> Event:
        return self._events[event["index"]]

    def _replace(self, event: Event, **changed: Any) -> None:
        if event["index"] in self._events:
            self._events[event["index"]] = {**self._now(event), **changed}


@dataclass(eq=False)
class Good:
    """A good history, and what its messages went through."""

    kind: str
    """Of run that it is of."""
    events: list[Event]

    @cached_property
    def traced(self) -> bool:
        """Whether the machine was seen."""
        return any(event["f"] == "checkout" for event in self.events)

    @cached_property
    def redriven(self) -> bool:
        """Whether dead letters went back."""
        return any(event["f"] == "redrive" for event in self.events)

    @cached_property
    def specs(self) -> dict[str, dict[str, Any]]:
        """The queues as they were declared."""
        return {one["value"]["queue"]: one["value"]["spec"] for one in self.of("declare")}

    @cached_property
    def graves(self) -> dict[str, str]:
        """Dead-letter queues, and the source of each."""
        named = {queue: spec.get("dead_letter") for queue, spec in self.specs.items()}
        return {grave: queue for queue, grave in named.items() if grave}

    def of(self, f: str, kind: str | None = None) -> list[Event]:
        """Events of a kind; NotHere where there are none."""
        found = [one for one in self.events if one["f"] == f and kind in (None, one["type"])]
        if not found:
            raise NotHere
        return found

    def parts(self, messages: int) -> list[Good]:
        """The same run in parts, each with every so many of its messages, and with all that is not
        about a message: what is true of a history stays true where some messages are left out."""
        count = max(1, len(self.lives) // messages)
        part_of = {
            event["index"]: place % count
            for place, life in enumerate(self.lives)
            for event in (*life.publishing, *life.handling)
        }
        calls = [one["index"] for one in self.events if one["f"] == "call"]
        part_of |= {index: place % count for place, index in enumerate(calls)}
        found: list[Good] = []
        for number in range(count):
            kept = [one for one in self.events if part_of.get(one["index"], number) == number]
            found.append(Good(self.kind, [{**one, "index": n} for n, one in enumerate(kept)]))
        return found

    @cached_property
    def lives(self) -> list[Life]:
        """All messages, by their bodies."""
        lives: dict[str, Life] = defaultdict(lambda: Life(""))
        for event in self.events:
            if event["f"] == "publish":
                life = lives[event["value"]["body"]]
                life.body = event["value"]["body"]
                if event["type"] == "invoke":
                    life.asked = event
                else:
                    life.answer = event
        hands = dict(self._hands(lives))
        for event in self.events:
            hand = hands.get(_name(event))
            if hand is None:
                continue
            if event["f"] == "checkout":
                hand.checkout = event
            elif event["f"] == "settle":
                _sort(hand, event)
            elif event is not hand.deliver:
                hand.others.append(event)
        ids = {life.hands[0].deliver["value"]["id"]: life for life in lives.values() if life.hands}
        for event in self.events:
            if (
                event["f"] == "checkout"
                and _name(event) not in hands
                and event["value"]["id"] in ids
            ):
                ids[event["value"]["id"]].strays.append(event)
        return list(lives.values())

    def _hands(self, lives: dict[str, Life]) -> Iterator[tuple[_Name, Hand]]:
        seen: set[_Name] = set()
        for event in self.events:
            if event["f"] == "deliver" and _name(event) not in seen:
                seen.add(_name(event))
                hand = Hand(event)
                lives[event["value"]["body"]].hands.append(hand)
                yield _name(event), hand


_Name = tuple[Any, Any, Any]


def _name(event: Event) -> _Name:
    value = event["value"]
    return value.get("id"), value.get("consumer"), value.get("token")


def _sort(hand: Hand, event: Event) -> None:
    if event["type"] == "invoke":
        hand.settlings.append(Settling(event))
        return
    process = event["process"]
    asked = [one for one in hand.settlings if one.asked["process"] == process]
    asked[-1].answer = event
