"""The checker on Spark as the score asks it: all copies of a kind are one large history to it.

Owns the sum and its parts: every name gets its copy's number in front, and every finding goes back
to its copy. Only histories of one kind go together, because a rule may depend on what the whole
history holds; rules that need no table are judged copy by copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.check.reading import read
from bench.check.specs import Rare, judge
from bench.check.verdict import all_findings
from tests.bench.merged import RARE, Kind, kind_of, lines, renamed
from tests.jepsen.history import Event
from tests.jepsen.score.scoring import Findings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE = frozenset({"S12", "V1", "V3"})
"""Rules that `judge` finds in the few events that they are about."""


class OnSpark:
    """The checker, in a session; `work` is for what is written on the way."""

    def __init__(self, spark: SparkSession, work: Path) -> None:
        self._spark = spark
        self._work = work

    def __call__(self, histories: Mapping[str, list[Event]]) -> dict[str, Findings]:
        """The findings in each."""
        found: dict[str, Findings] = {
            name: {(one.rule, one.subject) for one in judge(Rare.of(events))}
            for name, events in histories.items()
        }
        kinds: dict[Kind, list[str]] = defaultdict(list)
        for name, events in histories.items():
            kinds[kind_of(events)].append(name)
        for kind, names in kinds.items():
            for rule, subject in self._judge(kind, [histories[name] for name in names]):
                number, _, rest = subject.partition("/")
                if rule not in ALONE:
                    found[names[int(number)]].add((rule, rest))
        return found

    def _judge(self, kind: Kind, copies: list[list[Event]]) -> Iterator[tuple[str, str]]:
        name = "-".join(str(one) for one in kind)
        path = self._work / f"{name}.jsonl"
        path.write_text(lines(_sum(kind, copies)))
        history = read(self._spark, path, self._work / name)
        assert history.complaints == (), history.complaints
        history.events.createOrReplaceTempView("events")
        findings, made = all_findings(self._spark, Rare.read(self._spark))
        try:
            for row in findings.select("rule", "subject").distinct().collect():
                yield row["rule"], row["subject"]
        finally:
            made.free()


def _sum(kind: Kind, copies: list[list[Event]]) -> Iterator[Event]:
    """All copies, one after the other, numbered anew."""
    events: list[Event] = []
    for number, copy in enumerate(copies):
        began = copy[0]["time"]
        for event in _without_healing(copy):
            if event["f"] not in RARE:
                at = {**event, "time": round(event["time"] - began, 6)}
                events.append(renamed(at, str(number), number))
    if kind[2]:
        events.append({**events[-1], "f": "left", "type": "ok", "value": {"queues": {}}})
    return ({**event, "index": index} for index, event in enumerate(events))


def _without_healing(events: list[Event]) -> Iterator[Event]:
    """Where all is healed, an end of each fault that was on: healing would end others' as well."""
    begun: dict[str, Any] = {}
    for event in events:
        if event["f"] != "nemesis":
            yield event
        elif event["value"]["fault"] != "heal":
            begun[event["value"]["fault"]] = event["value"]
            if event["type"] == "ok":
                del begun[event["value"]["fault"]]
            yield event
        else:
            yield from ({**event, "value": value} for value in begun.values())
            begun.clear()
