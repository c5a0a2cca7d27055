"""S6 to S8: attempts, failures, dead letters and delays are what the settlements made of them.

Owns these rules of docs/history.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

from tests.jepsen.checkers.sorting import (
    RATE_ERROR,
    Key,
    Settle,
    SortedHistory,
    Violation,
    index_of,
    key_of,
)
from tests.jepsen.history import Event

CLOCK_SECONDS = 0.005
"""Both times of a delay are read from a clock of milliseconds."""

REASONS = ("terminated", "max_deliveries")
REASON_OF = {"dead_letter_expired": "expired", "dead_letter_overflow": "overflow"}


def counted(history: SortedHistory) -> Iterator[Violation]:
    """S6: attempts grow by one, failures by what counted, and never to the limit."""
    for number, found in history.hand_outs.items():
        answers = {key_of(settle.asked): settle for settle in history.settles.get(number, ())}
        for stay in _stays(history, found):
            yield from _one_stay(history, number, stay, answers)
        known = {key_of(one): one["value"] for one in history.checkouts.get(number, ())}
        for deliver in history.delivers[number] if history.traced else ():
            value, own = deliver["value"], known.get(key_of(deliver))
            if own is not None and any(own[of] != value[of] for of in ("attempt", "failures")):
                yield Violation("S6", number, "the client received another count", (deliver,))


def _stays(history: SortedHistory, found: list[Event]) -> Iterator[list[Event]]:
    """The hand-outs of a message, one list for each stay in a queue."""
    for _, group in groupby(found, key=lambda event: str(event["value"]["queue"])):
        stay: list[Event] = []
        for event in group:
            again = stay and event["value"]["attempt"] <= stay[-1]["value"]["attempt"]
            if again and history.redriven:
                yield stay
                stay = []
            stay.append(event)
        yield stay


def _one_stay(
    history: SortedHistory, number: str, stay: list[Event], answers: dict[Key, Settle]
) -> Iterator[Violation]:
    limit = history.spec_of(stay[0]).get("max_deliveries")
    for place, one in enumerate(stay):
        value = one["value"]
        if history.traced and value["attempt"] != place + 1:
            text = f"attempt {value['attempt']} is the number {place + 1}"
            yield Violation("S6", number, text, (one,))
        if value["failures"] >= value["attempt"]:
            text = f"{value['failures']} failures before attempt {value['attempt']}"
            yield Violation("S6", number, text, (one,))
        if limit and not history.is_grave(one) and value["failures"] >= limit:
            yield Violation("S6", number, f"delivered at the limit of {limit}", (one,))
    for before, after in pairwise(stay):
        steps = after["value"]["attempt"] - before["value"]["attempt"]
        if steps <= 0 and not history.traced:
            yield Violation("S6", number, "an attempt that was before", (before, after))
            continue
        grown = after["value"]["failures"] - before["value"]["failures"]
        settle = answers.get(key_of(before))
        verb = settle.verb if settle is not None and settle.done and steps == 1 else None
        allowed = {"nack": range(1, 2), "release": range(1)}.get(
            verb or "", range(max(steps, 1) + 1)
        )
        if grown not in allowed:
            yield Violation("S6", number, f"failures grew by {grown}", (before, after))


def buried_once(history: SortedHistory) -> Iterator[Violation]:
    """S7: a dead letter is gone from its source, has its reason, and was not acked there."""
    drained = bool(history.by_kind["left"])
    for number, found in history.hand_outs.items():
        dead = [one for one in found if history.is_grave(one)]
        live = [one for one in found if not history.is_grave(one)]
        keys = {key_of(one) for one in live}
        own = [
            one for one in history.settles.get(number, ()) if one.done and key_of(one.asked) in keys
        ]
        terminated = [settle for settle in own if settle.verb == "terminate"]
        if not dead:
            back = history.redriven and any(history.newer(one.asked) for one in terminated)
            if terminated and drained and not back:
                shown = terminated[0].asked, terminated[0].answer
                yield Violation("S7", number, "terminated, and no dead letter", shown)
            continue
        yield from _reasons(history, number, live, bool(terminated))
        if history.redriven:
            continue
        after = [one for one in live if index_of(one) > index_of(dead[0])]
        if any(history.traced or _surely_after(one, dead[0]) for one in after):
            yield Violation("S7", number, "live and dead", (dead[0], after[-1]))
        for settle in own:
            if settle.verb == "ack":
                yield Violation("S7", number, "acked, and a dead letter", (settle.answer, dead[0]))


def _surely_after(live: Event, dead: Event) -> bool:
    """Whether a delivery was handed out after a dead letter, however long it took to be had."""
    transit_s, waited_s = (live["value"].get(name) for name in ("transit_s", "waited_s"))
    return transit_s is not None and live["time"] - transit_s - (waited_s or 0.0) > dead["time"]


def _reasons(
    history: SortedHistory, number: str, live: list[Event], terminated: bool
) -> Iterator[Violation]:  # fmt: skip
    limits = {
        spec["dead_letter"]: spec for spec in history.specs.values() if spec.get("dead_letter")
    }
    for deliver in history.delivers[number]:
        if not history.is_grave(deliver):
            continue
        reason, spec = deliver["value"].get("reason"), limits[deliver["value"]["queue"]]
        more = [name for option, name in REASON_OF.items() if spec.get(option)]
        wrong = terminated and reason != "terminated" and not history.redriven
        if reason not in (*REASONS, *more) or wrong:
            yield Violation("S7", number, f"a dead letter because of {reason}", (deliver,))
        elif reason == "max_deliveries" and history.traced and not _at_limit(live, spec):
            yield Violation("S7", number, "dead-lettered before its limit", (deliver,))


def _at_limit(live: list[Event], spec: dict[str, int]) -> bool:
    return bool(live) and live[-1]["value"]["failures"] + 1 == spec.get("max_deliveries")


def waited(history: SortedHistory) -> Iterator[Violation]:
    """S8: what was delayed is not handed out before its delay is over, or it died and was redriven
    meanwhile, so that its attempts begin anew."""
    for number, settles in history.settles.items():
        for settle in settles:
            delay_s = settle.asked["value"].get("delay_s")
            if not delay_s or not settle.done or settle.verb not in ("nack", "release"):
                continue
            newer = history.newer(settle.asked)
            if (
                newer
                and not history.is_grave(newer[0])
                and not (history.redriven and newer[0]["value"]["attempt"] == 1)
                and _too_soon(settle.asked, newer[0], delay_s)
            ):
                shown = settle.asked, settle.answer, newer[0]
                yield Violation("S8", number, "came back too soon", shown)
    for body, confirm in history.confirmed.items():
        asked = history.invoked.get(body, confirm)
        delay_s = asked["value"].get("delay_s")
        first = history.hand_outs.get(confirm["value"]["id"], [])[:1]
        if delay_s and first and _too_soon(asked, first[0], delay_s):
            number = confirm["value"]["id"]
            yield Violation("S8", number, "came before its delay was over", (asked, first[0]))


def _too_soon(asked: Event, again: Event, delay_s: float) -> bool:
    return bool(again["time"] < asked["time"] + delay_s * (1 - RATE_ERROR) - CLOCK_SECONDS)
