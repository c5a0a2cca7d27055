"""V5: what should have happened at least once in a suite, or its faults were too tame.

Owns the interesting states and how a history shows them. Counts; judges nothing.
"""

from __future__ import annotations

from collections import Counter

from tests.jepsen.checkers.sorting import SortedHistory, key_of
from tests.jepsen.history import Event

WANTED = (
    "change of leader",
    "lock ran out without a leader",
    "renewal refused, the lock was lost",
    "client notified that its lock is lost",
    "ack unknown, and applied",
    "ack unknown, and not applied",
    "late ack carried out",
    "settled after its lock was lost",
    "publish unknown, and stored",
    "publish unknown, and not stored",
    "dead letter while something was wrong",
    "redelivered by another leader",
    "another single active consumer",
    "snapshot while something was wrong",
    "lost journal got back",
)
"""Each has to be seen in a whole suite. Others are counted where they happen."""


def sometimes(events: list[Event]) -> Counter[str]:
    """Count each interesting state in a history."""
    history = SortedHistory(events)
    found: Counter[str] = Counter()
    leaders = [one for one in history.by_kind["leader"] if one["type"] == "ok"]
    terms = {one["value"]["term"] for one in leaders}
    found["change of leader"] = max(0, len(terms) - 1)
    found["renewal refused, the lock was lost"] = _count(history, "renew", "fail")
    found["client notified that its lock is lost"] = _count(history, "lock_lost", "ok")
    found["dedup retry after an unknown answer"] = _count(history, "retried", "ok")
    found["snapshot while something was wrong"] = _snapshots(history)
    for one in history.by_kind["corrupted"]:
        found["damaged journal refused" if one["value"]["refused"] else "damage cut off"] += 1
    _ends(history, found)
    found["lost journal got back"] = _count(history, "recovered", "ok")
    _settles(history, found)
    _publishes(history, found)
    _deliveries(history, leaders, found)
    return +found


def _ends(history: SortedHistory, found: Counter[str]) -> None:
    """Ends of nodes for want of something, and copies of members that ran."""
    for one in history.by_kind["oom"]:
        found["killed by the kernel for want of memory"] += one["value"]["exit_code"] is not None
    for one in history.by_kind["disk_filled"]:
        found["ended at a full disk"] += one["value"]["died"]
    for one in history.by_kind["cloned"]:
        value = one["value"]
        found["copy beside a member, or in its place"] += 1
        found["original gave its journal up for a copy"] += bool(value["aside"])


def _count(history: SortedHistory, f: str, kind: str) -> int:
    return sum(1 for one in history.by_kind[f] if one["type"] == kind)


def _settles(history: SortedHistory, found: Counter[str]) -> None:
    wrong = _wrong(history)
    for settles in history.settles.values():
        for settle in settles:
            dead = settle.answer["value"].get("status") == "dead_lettered"
            time = settle.answer["time"]
            if dead or (settle.done and settle.verb == "terminate"):
                during = any(start < time < end for start, end in wrong)
                found["dead letter while something was wrong"] += during
            if settle.done and settle.late:
                found["late ack carried out"] += 1
            if settle.answer["value"].get("status") == "lock_lost":
                found["settled after its lock was lost"] += 1
            asked_in_vain = (
                settle.answer["type"] == "info" and "status" not in settle.answer["value"]
            )
            if settle.verb == "ack" and asked_in_vain:
                applied = not history.newer(settle.asked)
                found[
                    "ack unknown, and applied" if applied else "ack unknown, and not applied"
                ] += 1


def _publishes(history: SortedHistory, found: Counter[str]) -> None:
    seen = {one["value"]["body"] for some in history.delivers.values() for one in some}
    for body in history.invoked:
        if body not in history.confirmed and body not in history.refused:
            found[f"publish unknown, and {'' if body in seen else 'not '}stored"] += 1


def _deliveries(history: SortedHistory, leaders: list[Event], found: Counter[str]) -> None:
    gaps = _without_leader(history, leaders)
    changes = [one["time"] for one in leaders]
    holders: dict[str, int] = {}
    for event in history.by_kind["deliver"]:
        value = event["value"]
        if history.single_active(event):
            before = holders.setdefault(value["queue"], value["consumer"])
            found["another single active consumer"] += before != value["consumer"]
            holders[value["queue"]] = value["consumer"]
        ends = event["time"] + value.get("lock_ms", 0) / 1000
        unsettled = not any(
            key_of(one.asked) == key_of(event) and one.asked["time"] < ends
            for one in history.settles.get(value["id"], ())
        )
        if unsettled and any(start < ends < end for start, end in gaps):
            found["lock ran out without a leader"] += 1
        for again in history.newer(event)[:1]:
            if any(event["time"] < change < again["time"] for change in changes):
                found["redelivered by another leader"] += 1


def _snapshots(history: SortedHistory) -> int:
    """Snapshots that were first seen while some fault was on."""
    wrong = _wrong(history)
    times = [one["time"] for one in history.by_kind["snapshot"]]
    return sum(1 for time in times if any(start < time < end for start, end in wrong))


def _without_leader(history: SortedHistory, leaders: list[Event]) -> list[tuple[float, float]]:
    """From a fault that hit the leader to the next leader."""
    found = []
    for one in history.by_kind["nemesis"]:
        before = [lead for lead in leaders if lead["time"] < one["time"]][-1:]
        later = [lead for lead in leaders if lead["time"] > one["time"]][:1]
        hit = before and before[0]["value"]["node"] in one["value"]["nodes"]
        if one["type"] == "info" and hit and later:
            found.append((float(one["time"]), float(later[0]["time"])))
    return found


def _wrong(history: SortedHistory) -> list[tuple[float, float]]:
    """When some fault was on."""
    begun: dict[str, float] = {}
    found = []
    for one in history.by_kind["nemesis"]:
        name = one["value"]["fault"]
        if one["type"] == "invoke":
            begun[name] = one["time"]
        elif one["type"] == "ok" and name in begun:
            found.append((begun.pop(name), float(one["time"])))
    return found
