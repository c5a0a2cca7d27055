"""S12 and V1 to V4: the nodes agree, there is a leader, queues drain, and no call hangs.

Owns these rules of docs/history.md, and their bounds.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.jepsen.checkers.sorting import RATE_ERROR, SortedHistory, Violation, index_of
from tests.jepsen.history import Event

LEADER_SECONDS = 10.0
"""After healing (V1)."""

LASTING_P99_SECONDS = 5.0
"""A publish while a minority is sick for good (V2): one election, and a client's way to it."""

FULL = "QueueFull"
"""Of a publish that fails: the queue is full, which only a cluster that serves can tell (V2)."""

LASTING_SETTLE_SECONDS = 2.0
"""From the begin of a lasting fault on this much does not count: it may take the leader."""

CALL_SLACK_SECONDS = 0.5
"""A call may outlive its timeout by this: what it has to tidy up (V4)."""

PLACES = ("ready", "locked", "delayed")


def agreed(history: SortedHistory) -> Iterator[Violation]:
    """S12: equal states at equal indexes, and counters that equal what is there."""
    first: dict[int, Event] = {}
    for state in history.by_kind["state"]:
        value = state["value"]
        other = first.setdefault(value["applied"], state)
        if other["value"]["hash"] != value["hash"]:
            yield Violation("S12", value["node"], "another state at one index", (other, state))
        for name, queue in value["queues"].items():
            counters = queue.get("counters")
            there = sum(queue[place] for place in PLACES)
            left = there if counters is None else _left_by(counters)
            if not there == left == queue["messages"]:
                text = (
                    f"on {value['node']} {queue['messages']} messages, {there} found, {left} left"
                )
                yield Violation("S12", name, text, (state,))


def _left_by(counters: dict[str, int]) -> int:
    """Number of messages that the counters leave in a queue; those not given are 0."""
    left = sum(counters.get(name, 0) for name in _CAME) - sum(
        counters.get(name, 0) for name in _WENT
    )
    # What expired or overflowed into the dead-letter queue is counted as moved out as well.
    both = counters.get("dead_lettered_expired", 0) + counters.get("dead_lettered_overflow", 0)
    return left + both


_CAME = ("published", "moved_in")
_WENT = (
    "acked",
    "exhausted_dropped",
    "overflow_dropped",
    "purged",
    "moved_out",
    "expired",
    "deleted",
)


def led(history: SortedHistory) -> Iterator[Violation]:
    """V1: a leader soon after healing, and nodes that have applied the same in the end."""
    for heal in history.by_kind["nemesis"]:
        if heal["type"] != "ok" or heal["value"]["fault"] != "heal":
            continue
        leaders = [one for one in history.by_kind["leader"] if index_of(one) > index_of(heal)]
        if not leaders or leaders[0]["time"] > heal["time"] + LEADER_SECONDS:
            yield Violation("V1", "cluster", "no leader after healing", (heal, *leaders[:1]))
    applied = {one["value"]["node"]: one["value"]["applied"] for one in history.by_kind["state"]}
    if len(set(applied.values())) > 1:
        yield Violation("V1", "cluster", f"nodes did not become equal: {applied}")


def served(history: SortedHistory) -> Iterator[Violation]:
    """V2: while a minority is sick for good, publishing goes on."""
    for begun, ended in _lasting(history):
        asked = [
            event
            for event in history.invoked.values()
            if begun["time"] + LASTING_SETTLE_SECONDS < event["time"] < ended
        ]
        waits = sorted(_waited(history, event) for event in asked)
        if waits and (p99 := waits[int(0.99 * (len(waits) - 1))]) > LASTING_P99_SECONDS:
            text = f"p99 of {len(waits)} publishes is {p99:.1f} s during {begun['value']['fault']}"
            yield Violation("V2", begun["value"]["fault"], text, (begun,))


def _lasting(history: SortedHistory) -> Iterator[tuple[Event, float]]:
    events = history.by_kind["nemesis"]
    for begun in events:
        if begun["type"] != "invoke" or not begun["value"].get("lasting"):
            continue
        same = [
            one["time"]
            for one in events
            if one["type"] == "ok"
            and index_of(one) > index_of(begun)
            and one["value"]["fault"] in (begun["value"]["fault"], "heal")
        ]
        yield begun, min(same, default=float("inf"))


def _waited(history: SortedHistory, asked: Event) -> float:
    body = asked["value"]["body"]
    answer = history.confirmed.get(body)
    refusal = history.refused.get(body)
    if answer is None and refusal is not None:
        answer = refusal if str(refusal["value"].get("error")).startswith(FULL) else None
    return float("inf") if answer is None else float(answer["time"] - asked["time"])


def drained(history: SortedHistory) -> Iterator[Violation]:
    """V3: the queues drain to zero."""
    for left in history.by_kind["left"]:
        for queue, messages in left["value"]["queues"].items():
            if messages:
                yield Violation("V3", queue, f"{messages} messages are left", (left,))


def ended_in_time(history: SortedHistory) -> Iterator[Violation]:
    """V4: no call outlives its timeout."""
    for call in history.by_kind["call"]:
        limit_s = call["value"]["limit_s"] * (1 + RATE_ERROR) + CALL_SLACK_SECONDS
        if call["value"]["seconds"] > limit_s:
            yield Violation("V4", call["process"], "a call outlived its timeout", (call,))
