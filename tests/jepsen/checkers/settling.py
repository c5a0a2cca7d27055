"""S3 to S5 and S9: what is settled stays so, by its holder alone, and no lock ends early.

Owns these rules of docs/history.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.jepsen.checkers.sorting import (
    NEVER,
    RATE_ERROR,
    Hold,
    Key,
    Settle,
    SortedHistory,
    Violation,
    index_of,
    key_of,
)
from tests.jepsen.history import Event


def no_resurrection(history: SortedHistory) -> Iterator[Violation]:
    """S3: a message whose ack was answered with ok is not handed out again."""
    for number, settles in history.settles.items():
        for settle in settles:
            if not settle.done or settle.verb not in ("ack", "terminate"):
                continue
            if settle.verb == "terminate" and history.redriven:
                continue
            for again in history.newer(settle.asked):
                same = again["value"]["queue"] == _queue(history, settle.asked)
                if index_of(again) > index_of(settle.asked) and (settle.verb == "ack" or same):
                    shown = settle.asked, settle.answer, again
                    yield Violation("S3", number, f"came back after its {settle.verb}", shown)
                    break


def _queue(history: SortedHistory, event: Event) -> str:
    """The queue that a settled delivery came from."""
    for one in history.hand_outs.get(event["value"]["id"], ()):
        if key_of(one) == key_of(event):
            return str(one["value"]["queue"])
    return ""


def one_holder(history: SortedHistory) -> Iterator[Violation]:
    """S4: while a client is sure of its lock, the message is handed to no other.

    Not where one consumer is active: with its first expired lock it loses all that it holds (S10).
    """
    for sure in history.by_kind["holds"]:
        other = history.newer_before(sure, index_of(sure))
        if other is not None and not history.single_active(sure):
            number = sure["value"]["id"]
            yield Violation("S4", number, "held, and somebody else has it", (sure, other))
    yield from _overlapping(history)
    yield from _renewed(history)


def _overlapping(history: SortedHistory) -> Iterator[Violation]:
    for number, holds in history.holds().items():
        last: Hold | None = None
        for hold in holds:
            if last is not None and hold.key != last.key and hold.overlaps(last):
                shown = last.deliver, hold.deliver, last.asked, hold.asked
                yield Violation("S4", number, "two held it at once", shown)
            if last is None or index_of(hold.asked) > index_of(last.asked):
                last = hold


def _renewed(history: SortedHistory) -> Iterator[Violation]:
    asked: dict[tuple[str, str, tuple[int, int]], Event] = {}
    for event in history.by_kind["renew"]:
        name = event["process"], event["value"]["id"], key_of(event)
        if event["type"] == "invoke":
            asked[name] = event
        elif event["type"] == "ok" and (start := asked.pop(name, None)) is not None:
            other = history.newer_before(start, index_of(start))
            if other is not None:
                shown = other, start, event
                yield Violation("S4", name[1], "renewed by one who had lost it", shown)


def fenced(history: SortedHistory) -> Iterator[Violation]:
    """S5: an old token settles nothing, tokens grow, and one token alone is answered ok."""
    for number, settles in history.settles.items():
        acked: dict[str, tuple[int, int]] = {}
        received = {key_of(one): one for one in reversed(history.delivers.get(number, ()))}
        for settle in settles:
            if not settle.done:
                continue
            shown = settle.asked, settle.answer
            other = history.newer_before(settle.asked, index_of(settle.asked))
            if other is not None:
                yield Violation("S5", number, "an old token settled it", (other, *shown))
            yield from _unreceived(number, settle, received)
            if settle.late and settle.verb in ("nack", "release"):
                yield Violation("S5", number, "a late return was carried out", shown)
            if settle.verb == "ack":
                queue = _queue(history, settle.asked)
                if acked.setdefault(queue, key_of(settle.asked)) != key_of(settle.asked):
                    yield Violation("S5", number, "acked under two tokens", shown)
    yield from _tokens(history)


def _unreceived(number: str, settle: Settle, received: dict[Key, Event]) -> Iterator[Violation]:
    """A settlement by a token that its message was not delivered under before, in that queue."""
    deliver = received.get(key_of(settle.asked))
    if deliver is None or index_of(deliver) > index_of(settle.asked):
        text = "settled by a token that no client had received"
        yield Violation("S5", number, text, (settle.asked, settle.answer))
    elif settle.asked["value"].get("queue") not in (None, deliver["value"]["queue"]):
        shown = deliver, settle.asked, settle.answer
        yield Violation("S5", number, "settled in another queue", shown)


def _tokens(history: SortedHistory) -> Iterator[Violation]:
    last: dict[int, int] = {}
    everything = [event for events in history.checkouts.values() for event in events]
    handed = {(event["value"]["id"], *key_of(event)) for event in everything}
    for checkout in sorted(everything, key=index_of):
        consumer, token = key_of(checkout)
        if token <= last.get(consumer, 0):
            text = f"token {token} after {last[consumer]}"
            yield Violation("S5", checkout["value"]["id"], text, (checkout,))
        last[consumer] = token
    for number, delivers in history.delivers.items() if history.traced else ():
        for deliver in delivers:
            if (number, *key_of(deliver)) not in handed:
                yield Violation("S5", number, "a delivery that no leader handed out", (deliver,))


def not_taken_early(history: SortedHistory) -> Iterator[Violation]:
    """S9: a message that its holder did not settle is taken from it after its lock only.

    What comes back uncounted was given back: by a client that never opened it. For a single active
    consumer see S10.
    """
    for number, found in history.hand_outs.items():
        asked = {key_of(one.asked): index_of(one.asked) for one in history.settles.get(number, ())}
        live = [one for one in found if not history.is_grave(one)]
        for before, after in pairwise(live):
            own = asked.get(key_of(before), NEVER)
            own = min(own, history.cancelled.get(key_of(before)[0], NEVER))
            grown = after["value"]["failures"] - before["value"]["failures"]
            if own < index_of(after) or grown != 1 or history.single_active(before):
                continue
            if _too_early(history, before, after):
                text = "taken before its lock ended"
                yield Violation("S9", number, text, (before, after))


def _too_early(history: SortedHistory, before: Event, after: Event) -> bool:
    first, second = before["value"], after["value"]
    if history.traced:
        return bool(second["at_ms"] < first["at_ms"] + first["lock_ms"])
    if first.get("transit_s") is None or second["attempt"] != first["attempt"] + 1:
        return False
    lock_s = first["lock_ms"] / 1000 * (1 - RATE_ERROR) - first["transit_s"]
    return bool(after["time"] < before["time"] + lock_s)
