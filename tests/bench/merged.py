"""Many small histories as a few large ones, for a checker whose start costs more than they do.

Owns the renaming: every name gets its history's in front, so that what is found in the sum can be
held against what is found in the parts. Only histories of one kind go together, because a rule may
depend on what the whole history holds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from tests.jepsen.history import Event

NAMES = ("queue", "body", "id", "node", "key")
SECONDS_APART = 10_000
CONSUMERS_APART = 1_000_000
TERMS_APART = 1_000
RARE = ("state", "left", "stamp")
"""Judged without Spark, one history at a time."""

Kind = tuple[bool, bool, bool]


def kind_of(events: list[Event]) -> Kind:
    """Whether there are checkouts, redrives, and a last word on what was left."""
    kinds = {event["f"] for event in events}
    return "checkout" in kinds, "redrive" in kinds, "left" in kinds


def merged(histories: dict[str, list[Event]]) -> Iterator[tuple[Kind, list[Event]]]:
    """The histories by kind, each kind as one: by time, numbered anew."""
    groups: dict[Kind, list[Event]] = defaultdict(list)
    ordered = sorted(histories.items(), key=lambda item: (_lasting(item[1]), "bad" in item[0]))
    for number, (name, events) in enumerate(ordered):
        for event in events:
            if event["f"] not in RARE and event["value"].get("fault") != "heal":
                groups[kind_of(events)].append(renamed(event, name, number))
    for kind, some in groups.items():
        if kind[2]:
            some.append({**some[-1], "f": "left", "type": "ok", "value": {"queues": {}}})
        yield kind, [{**event, "index": index} for index, event in enumerate(some)]


def _lasting(events: Iterable[Event]) -> bool:
    return any(event["value"].get("lasting") for event in events)


def renamed(event: Event, name: str, number: int) -> Event:
    """An event of one history as one of the sum."""
    value: dict[str, Any] = dict(event["value"])
    for field in NAMES:
        if isinstance(value.get(field), str):
            value[field] = f"{name}/{value[field]}"
    if value.get("fault") not in (None, "heal"):
        value["fault"] = f"{name}/{value['fault']}"
    if isinstance(value.get("consumer"), int):
        value["consumer"] += number * CONSUMERS_APART
    if isinstance(value.get("term"), int):
        value["term"] += number * TERMS_APART
    if isinstance(value.get("spec"), dict) and value["spec"].get("dead_letter"):
        grave = f"{name}/{value['spec']['dead_letter']}"
        value["spec"] = {**value["spec"], "dead_letter": grave}
    time = event["time"] + number * SECONDS_APART
    return {**event, "value": value, "process": f"{name}/{event['process']}", "time": time}


def lines(events: Iterable[Event]) -> str:
    """As a file holds them."""
    return "".join(json.dumps(event) + "\n" for event in events)
