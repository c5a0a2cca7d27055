"""S8 and S9 from the other side: what may be taken again is, before what stands behind it.

Owns the upper bounds of both rules, as docs/history.md defines them. Clients cannot see when a lock
ends, but they see others served: a message that is due goes back to its place, so a younger one
that is handed out long after shows that it was not there. Only where order and delay are known, the
client says that it renews nothing, and nothing was wrong just then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, pairwise

from tests.jepsen.checkers.sorting import (
    NEVER,
    RATE_ERROR,
    SortedHistory,
    Violation,
    index_of,
    key_of,
)
from tests.jepsen.history import Event

LATE_S = 2.0
"""A due message may be overtaken for this long: a look of the lock clock, a commit, and how long
the process that looks may wait for a busy machine."""

SEEN_S = 2.0
"""A new leader was there for this long at most before somebody saw it."""


class _Overtaking:
    """Times at which messages were served, and spans in which something was wrong."""

    def __init__(self, history: SortedHistory) -> None:
        self._history = history
        self._bodies = {one["value"]["id"]: body for body, one in history.confirmed.items()}

    @cached_property
    def _firsts(self) -> dict[str, list[Event]]:
        """First hand-outs of confirmed messages, by queue and in order of time."""
        found: dict[str, list[Event]] = defaultdict(list)
        for number, some in self._history.hand_outs.items():
            first = some[0]
            known = self._handed(first) is not None and number in self._bodies
            if known and first["value"]["attempt"] == 1 and not self._history.is_grave(first):
                found[first["value"]["queue"]].append(first)
        for some in found.values():
            some.sort(key=lambda event: (event["time"], event["index"]))
        return found

    @cached_property
    def _times(self) -> dict[str, list[float]]:
        return {queue: [one["time"] for one in some] for queue, some in self._firsts.items()}

    @cached_property
    def _wrong(self) -> list[tuple[float, float]]:
        """Since when something was wrong, and until when at most, in order of the begin."""
        return wrong_spans(self._history.by_kind["nemesis"], self._history.by_kind["leader"])

    def _handed(self, event: Event) -> float | None:
        """Earliest time of its hand-out; None where it is not known."""
        if self._history.traced:
            return float(event["time"])
        transit_s, waited_s = (event["value"].get(name) for name in ("transit_s", "waited_s"))
        known = transit_s is not None and waited_s is not None
        return event["time"] - transit_s - waited_s if known else None

    def by(self, due: float, grace_s: float, after: Event) -> Event | None:
        """The younger message that was handed out though `after` could have been, if any was.

        `due`: when that may be taken again at the latest. `grace_s`: how much later it may be
        after something was wrong.
        """
        queue, handed = after["value"]["queue"], self._handed(after)
        body = self._bodies.get(after["value"]["id"])
        if handed is None or body is None or not in_place_again(self._history.specs.get(queue)):
            return None
        place = bisect_left(self._times.get(queue, []), handed)
        if not place:
            return None
        younger = self._firsts[queue][place - 1]
        since = bisect_right(self._wrong, (younger["time"], float("inf")))
        if since:
            due = max(due, self._wrong[since - 1][1] + grace_s)
        asked = self._history.invoked.get(self._bodies[younger["value"]["id"]])
        overtook = asked is not None and index_of(asked) > index_of(self._history.confirmed[body])
        return younger if overtook and (self._handed(younger) or 0.0) > due + LATE_S else None


def in_place_again(spec: dict[str, object] | None) -> bool:
    """Whether a message of such a queue goes back before all that were published later."""
    given = spec or {}
    return given.get("ordering") in (None, "none") and not given.get("priorities")


def wrong_spans(nemesis: list[Event], leaders: list[Event]) -> list[tuple[float, float]]:
    """Faults, from their begin, and changes of leader: (begin, the latest end so far)."""
    spans = []
    for begun in nemesis:
        if begun["type"] == "invoke":
            ends = [
                one["time"]
                for one in nemesis
                if one["type"] == "ok"
                and one["index"] > begun["index"]
                and one["value"]["fault"] in (begun["value"]["fault"], "heal")
            ]
            spans.append((begun["time"], min(ends, default=float("inf"))))
    terms = set()
    for one in leaders:
        if one["value"]["term"] not in terms:
            terms.add(one["value"]["term"])
            spans.append((one["time"] - SEEN_S, one["time"]))
    spans.sort()
    latest = accumulate((end for _, end in spans), max)
    return [(begin, end) for (begin, _), end in zip(spans, latest, strict=True)]


def locks_end(history: SortedHistory) -> Iterator[Violation]:
    """S9: a message without renewals is available again when its lock is over."""
    unrenewed = {
        event["value"]["consumer"]: event["value"]["lock_s"]
        for event in history.by_kind["subscribe"]
        if event["value"].get("renews") is False
    }
    if not unrenewed or history.redriven:
        return
    renewed = {(event["value"]["id"], *key_of(event)) for event in history.by_kind["renew"]}
    overtaking = _Overtaking(history)
    for number, found in history.hand_outs.items():
        asked = {key_of(one.asked): index_of(one.asked) for one in history.settles.get(number, ())}
        live = [one for one in found if not history.is_grave(one)]
        for before, after in pairwise(live):
            value, key = before["value"], key_of(before)
            known = (
                key[0] in unrenewed
                and (number, *key) not in renewed
                and value.get("lock_ms") is not None
                and asked.get(key, NEVER) > index_of(after)
                and after["value"]["attempt"] == value["attempt"] + 1
                and not history.spec_of(before).get("timeout_backoff")
            )
            if not known:
                continue
            due = before["time"] + value["lock_ms"] / 1000 * (1 + RATE_ERROR)
            younger = overtaking.by(due, unrenewed[key[0]] * (1 + RATE_ERROR), after)
            if younger is not None:
                text = "its lock was over, and a younger one was handed out"
                yield Violation("S9", number, text, (before, younger, after))


def delays_end(history: SortedHistory) -> Iterator[Violation]:
    """S8: what was delayed is there when its delay is over."""
    if history.redriven:
        return
    overtaking = _Overtaking(history)
    for number, settles in history.settles.items():
        for settle in settles:
            delay_s = settle.asked["value"].get("delay_max_s")
            if delay_s is None or not settle.done or settle.verb not in ("nack", "release"):
                continue
            newer = history.newer(settle.asked)
            if not newer or history.is_grave(newer[0]):
                continue
            held = next(o for o in history.hand_outs[number] if key_of(o) == key_of(settle.asked))
            if newer[0]["value"]["attempt"] != held["value"]["attempt"] + 1:
                continue
            due = settle.answer["time"] + delay_s * (1 + RATE_ERROR)
            younger = overtaking.by(due, 0.0, newer[0])
            if younger is not None:
                text = "its delay was over, and a younger one was handed out"
                yield Violation("S8", number, text, (settle.answer, younger, newer[0]))
    for body, confirm in history.confirmed.items():
        delay_s = history.invoked.get(body, confirm)["value"].get("delay_s")
        first = history.hand_outs.get(confirm["value"]["id"], [])[:1]
        if not delay_s or not first or history.is_grave(first[0]):
            continue
        if first[0]["value"]["attempt"] != 1:
            continue
        due = confirm["time"] + delay_s * (1 + RATE_ERROR)
        younger = overtaking.by(due, 0.0, first[0])
        if younger is not None:
            text = "its first delay was over, and a younger one was handed out"
            yield Violation("S8", confirm["value"]["id"], text, (confirm, younger, first[0]))
