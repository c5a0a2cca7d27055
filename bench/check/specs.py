"""Facts of a history about its queues and the cluster, in a few rows held in memory.

Owns the rare events (declarations, faults, leaders, nodes at rest) and the rules that need only
these: S12, V1, V3. Pure but for `Rare.read`; the rest is for `tables` and `rules`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.check.form import TEXTS_OF_JSON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RARE = ("declare", "nemesis", "leader", "state", "left", "drop", "redrive", "subscribe")

LEADER_S = 10.0
"""From healing to a leader (V1)."""

NEVER = 1 << 62
"""An index after all others: what did not happen, or was never answered."""

PLACES = ("ready", "locked", "delayed")
CAME = ("published", "moved_in", "dead_lettered_expired", "dead_lettered_overflow")
"""Messages that expired or overflowed into a dead-letter queue count as moved out once."""

WENT = (
    "acked",
    "exhausted_dropped",
    "overflow_dropped",
    "purged",
    "moved_out",
    "expired",
    "deleted",
)

REASONS = ("terminated", "max_deliveries")
REASON_OF_OPTION = {"dead_letter_expired": "expired", "dead_letter_overflow": "overflow"}

Event = dict[str, Any]


class Finding(NamedTuple):
    """A rule is broken: which, about what, in words, and the indexes of events that show it."""

    rule: str
    subject: str
    text: str
    events: tuple[int, ...] = ()


@dataclass(slots=True)
class Queue:
    """Fields of a queue's spec that the rules need."""

    name: str
    ordering: str = "none"
    max_deliveries: int | None = None
    source: Queue | None = None
    """Where it is a dead-letter queue: whose."""
    reasons: tuple[str, ...] = REASONS

    @property
    def is_grave(self) -> bool:
        """Whether it is a dead-letter queue of another."""
        return self.source is not None


@dataclass(slots=True)
class Rare:
    """The rare events of a history, by kind and in order."""

    by_kind: dict[str, list[Event]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, events: Iterable[Event]) -> Rare:
        """From events in order."""
        found = cls()
        for event in events:
            if event["f"] in RARE:
                found.by_kind[event["f"]].append(event)
        return found

    @classmethod
    def read(cls, spark: SparkSession) -> Rare:
        """From the view `events`."""
        kinds = ", ".join(f"'{kind}'" for kind in RARE)
        rows = spark.sql(
            f"SELECT type, f, process, time, index, to_json(value) AS value FROM events"
            f" WHERE f IN ({kinds}) ORDER BY index"
        ).collect()
        return cls.of({**row.asDict(), "value": _value(row["value"])} for row in rows)

    @property
    def redriven(self) -> bool:
        """Whether dead letters went back, so that attempts start again."""
        return bool(self.by_kind["redrive"])

    @property
    def drained(self) -> bool:
        """Whether the history ends with a count of what is left."""
        return bool(self.by_kind["left"])

    def queues(self) -> dict[str, Queue]:
        """By name: what was declared, and dead-letter queues that only others name."""
        specs = {
            event["value"]["queue"]: event["value"].get("spec") or {} for event in self._declared()
        }
        found = {
            name: Queue(name, spec.get("ordering") or "none", spec.get("max_deliveries"))
            for name, spec in specs.items()
        }
        for name, spec in specs.items():
            grave = spec.get("dead_letter")
            if grave:
                queue = found.setdefault(grave, Queue(grave))
                queue.source = found[name]
                more = (reason for option, reason in REASON_OF_OPTION.items() if spec.get(option))
                queue.reasons = (*REASONS, *more)
        return found

    def redriven_since(self, name: str) -> int:
        """The index from which on messages of a queue may have come back from their grave."""
        specs = {one["value"]["queue"]: one["value"].get("spec") or {} for one in self._declared()}
        graves = {spec.get("dead_letter") for spec in specs.values()}
        own = {name, specs.get(name, {}).get("dead_letter")}
        starts = (
            one["index"]
            for one in self.by_kind["redrive"]
            if one["value"].get("queue") in own or one["value"].get("queue") not in graves
        )
        return min(starts, default=NEVER)

    def _declared(self) -> list[Event]:
        return [event for event in self.by_kind["declare"] if event["type"] == "ok"]

    def explained(self) -> dict[str, int]:
        """Messages of a queue that were dropped with a reason."""
        found: dict[str, int] = defaultdict(int)
        for event in self.by_kind["drop"]:
            found[event["value"]["queue"]] += event["value"]["count"]
        return found

    def lasting(self) -> Iterator[tuple[Event, float]]:
        """Faults that stay while the cluster has to serve: (begin, time of the end)."""
        events = self.by_kind["nemesis"]
        for begun in events:
            if begun["type"] == "invoke" and begun["value"].get("lasting"):
                yield begun, self.end_of(begun)

    def end_of(self, begun: Event) -> float:
        """When a fault ended, or all was healed; infinity where neither was seen."""
        ends = (
            event["time"]
            for event in self.by_kind["nemesis"]
            if event["type"] == "ok"
            and event["index"] > begun["index"]
            and event["value"]["fault"] in (begun["value"]["fault"], "heal")
        )
        return float(min(ends, default=float("inf")))


def _value(text: str) -> dict[str, Any]:
    value = {name: found for name, found in json.loads(text).items() if found is not None}
    for name in TEXTS_OF_JSON:
        if isinstance(value.get(name), str):
            value[name] = json.loads(value[name])
    return value


def judge(rare: Rare) -> Iterator[Finding]:
    """S12, V1 and V3."""
    yield from _agreed(rare)
    yield from _led(rare)
    for left in rare.by_kind["left"]:
        for queue, messages in left["value"]["queues"].items():
            if messages:
                yield Finding("V3", queue, f"{messages} messages are left", (left["index"],))


def _agreed(rare: Rare) -> Iterator[Finding]:
    first: dict[int, Event] = {}
    for state in rare.by_kind["state"]:
        value, index = state["value"], state["index"]
        other = first.setdefault(value["applied"], state)
        if other["value"]["hash"] != value["hash"]:
            shown = (other["index"], index)
            yield Finding("S12", value["node"], "another state at one index", shown)
        for name, queue in (value.get("queues") or {}).items():
            there = sum(queue[place] for place in PLACES)
            counters = queue.get("counters")
            left = there if counters is None else _left_by(counters)
            if not there == left == queue["messages"]:
                text = (
                    f"{queue['messages']} messages on {value['node']}, {there} found, {left} left"
                )
                yield Finding("S12", name, text, (index,))


def _left_by(counters: dict[str, int]) -> int:
    """Number of messages that a queue's counters leave in it."""
    came = sum(counters.get(name, 0) for name in CAME)
    return came - sum(counters.get(name, 0) for name in WENT)


def _led(rare: Rare) -> Iterator[Finding]:
    for heal in rare.by_kind["nemesis"]:
        if heal["type"] != "ok" or heal["value"]["fault"] != "heal":
            continue
        later = [one for one in rare.by_kind["leader"] if one["index"] > heal["index"]]
        if not later or later[0]["time"] > heal["time"] + LEADER_S:
            yield Finding("V1", "cluster", "no leader after healing", (heal["index"],))
    applied = {one["value"]["node"]: one["value"]["applied"] for one in rare.by_kind["state"]}
    if len(set(applied.values())) > 1:
        yield Finding("V1", "cluster", f"nodes did not become equal: {applied}")
