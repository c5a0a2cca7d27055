"""The screen sets aside ordinary lives alone: all damage is found, and figures count all lives."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.check.figures import measure
from bench.check.reading import read
from bench.check.specs import Rare
from bench.check.verdict import all_findings
from tests.bench.merged import lines
from tests.jepsen import checkers
from tests.jepsen.history import Event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Life = list[Event]

INVOKE, CONFIRM, DELIVER, ASK, ANSWER = range(5)
"""An ordinary life."""

PUBLISHERS = 2
"""With a single one the order of publishing counts, and nothing is ordinary."""


def life(number: int) -> Life:
    """The life of message `number`, which overlaps no other in time."""
    body, process, consumer = f"b{number}", f"p{number % PUBLISHERS}", 1 + number % 3
    publish = {"queue": "work", "body": body}
    held = {"id": f"1.1.{number}", "queue": "work", "consumer": consumer, "token": number}
    deliver = {
        **held,
        "body": body, "attempt": 1, "failures": 0, "intact": True, "reason": None,
        "lock_ms": 30_000, "transit_s": 0.01, "waited_s": 0.0,
    }  # fmt: skip
    ack = {**held, "verb": "ack", "delay_s": None}
    events = [
        ("invoke", "publish", process, publish),
        ("ok", "publish", process, {**publish, "id": held["id"]}),
        ("ok", "deliver", f"c{consumer}", deliver),
        ("invoke", "settle", f"c{consumer}", ack),
        ("ok", "settle", f"c{consumer}", {**ack, "status": "ok", "late": False}),
    ]
    return [
        {"type": kind, "f": f, "process": who, "value": value, "time": number + place / 100}
        for place, (kind, f, who, value) in enumerate(events)
    ]


def changed(place: int, **value: Any) -> Callable[[Life], None]:
    return lambda events: events[place]["value"].update(value)


def without(*places: int) -> Callable[[Life], None]:
    def remove(events: Life) -> None:
        for place in sorted(places, reverse=True):
            events.pop(place)

    return remove


def again(at: int, of: int, kind: str | None = None, **value: Any) -> Callable[[Life], None]:
    """Insert a copy of the event `of`, changed, before place `at`."""

    def add(events: Life) -> None:
        one = copy.deepcopy(events[of])
        one["value"].update(value)
        one["type"] = kind or one["type"]
        one["time"] = events[at - 1]["time"] + 0.005
        events.insert(at, one)

    return add


def all_of(*some: Callable[[Life], None]) -> Callable[[Life], None]:
    def do(events: Life) -> None:
        for one in some:
            one(events)

    return do


def overtaken(events: Life) -> None:
    """Returned at once, and handed out again only after an ordinary, younger one."""
    for place in (ASK, ANSWER):
        events[place]["value"].update(verb="nack", delay_s=0.1, delay_max_s=0.1)
    again(5, DELIVER, consumer=9, token=6, attempt=2, failures=1)(events)
    events[5]["time"] += 3.4


DAMAGES: list[Callable[[Life], None]] = [
    overtaken,
    without(ASK, ANSWER),
    without(DELIVER, ASK, ANSWER),
    without(INVOKE, CONFIRM),
    without(ANSWER),
    changed(DELIVER, body="b0"),
    changed(DELIVER, body="never-sent"),
    changed(DELIVER, id="1.1.9999"),
    changed(CONFIRM, id="1.1.0"),
    changed(DELIVER, intact=False),
    changed(DELIVER, failures=5),
    changed(DELIVER, attempt=4),
    changed(DELIVER, queue="dead"),
    changed(DELIVER, queue="dead", reason="max_deliveries"),
    changed(INVOKE, delay_s=0.5),
    changed(ANSWER, status="lock_lost"),
    changed(ANSWER, late=True),
    all_of(changed(ASK, verb="nack"), changed(ANSWER, verb="nack", late=True)),
    all_of(changed(ASK, verb="terminate"), changed(ANSWER, verb="terminate")),
    again(2, INVOKE, kind="fail"),
    again(5, DELIVER, consumer=9, token=1, attempt=2, failures=1),
    again(5, DELIVER, consumer=9, token=2, attempt=1),
    again(3, DELIVER, consumer=9, token=3, attempt=2, failures=0),
    all_of(again(5, ASK, token=4), again(6, ANSWER, token=4)),
    again(5, DELIVER, queue="dead", consumer=9, token=5, reason="terminated"),
    changed(DELIVER, queue="line"),
    changed(CONFIRM, queue="line"),
]

DECLARED: list[tuple[str, dict[str, Any]]] = [
    ("dead", {}),
    ("work", {"dead_letter": "dead", "max_deliveries": 5}),
    ("line", {"ordering": "single_active"}),
]


def history(damages: list[Callable[[Life], None]]) -> list[Event]:
    """Each damage done to a message of its own, with an ordinary one after it."""
    lives = [life(number) for number in range(2 * len(damages) + 2)]
    for number, damage in enumerate(damages):
        damage(lives[2 * number + 1])
    declared: list[Event] = [
        {"type": "ok", "f": "declare", "process": "d", "time": -1.0,
         "value": {"queue": queue, "spec": spec}}
        for queue, spec in DECLARED
    ]  # fmt: skip
    last: Event = {
        "type": "ok", "f": "left", "process": "d", "time": 10_000.0, "value": {"queues": {}}
    }  # fmt: skip
    events = [*declared, *(event for some in lives for event in some), last]
    events.sort(key=lambda event: float(event["time"]))
    return [{**event, "index": index} for index, event in enumerate(events)]


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_every_damage_is_found_and_only_ordinary_messages_are_set_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = history(DAMAGES)
    wanted = {(one.rule, one.subject) for one in checkers.find(events)}
    assert len({rule for rule, _ in wanted}) >= 8, "these damages break many rules"
    path = tmp_path / "history.jsonl"
    path.write_text(lines(events))
    found = read(spark, path, tmp_path / "work")
    assert found.complaints == ()
    found.events.createOrReplaceTempView("events")
    rare = Rare.read(spark)
    findings, made = all_findings(spark, rare)
    try:
        assert {(row["rule"], row["subject"]) for row in findings.collect()} == wanted
        # Undamaged messages, but for the two whose body or id another one took.
        assert made.ordinary == len(DAMAGES) + 2 - 1
        figures = measure(spark, rare)
    finally:
        made.free()
    delivered = [event for event in events if event["f"] == "deliver"]
    assert sum(figures.attempts.values()) == len(delivered)
    asked = [one for one in events if one["f"] == "settle" and one["type"] == "invoke"]
    assert sum(figures.outcomes.values()) == len(asked)
    waits = figures.totals["publish to confirm"]
    assert waits.most == pytest.approx(10)
    assert waits.p50 == pytest.approx(10, rel=0.01)
