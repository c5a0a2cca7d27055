"""S10 and S11: one active consumer, and the order that a queue promises.

Owns these rules of docs/history.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.jepsen.checkers.sorting import Hold, SortedHistory, Violation, index_of
from tests.jepsen.history import Event


def one_active(history: SortedHistory) -> Iterator[Violation]:
    """S10: on a queue with one active consumer, two never hold messages at once."""
    holds: dict[str, list[Hold]] = defaultdict(list)
    for found in history.holds().values():
        for hold in found:
            if history.single_active(hold.deliver):
                holds[hold.queue].append(hold)
    for queue, some in holds.items():
        some.sort(key=lambda hold: index_of(hold.deliver))
        last: Hold | None = None
        for hold in some:
            if last is not None and hold.key[0] != last.key[0] and hold.overlaps(last):
                shown = last.deliver, hold.deliver, last.asked, hold.asked
                yield Violation("S10", queue, "two consumers held messages at once", shown)
                break
            if last is None or index_of(hold.asked) > index_of(last.asked):
                last = hold


def in_order(history: SortedHistory) -> Iterator[Violation]:
    """S11: messages are first handed out in the order of publishing, per key or per publisher.

    Not where something was redriven: what expired and came back may be handed out first then.
    """
    if history.redriven:
        return
    for queue, spec in history.specs.items():
        if queue in history.graves:
            continue
        confirms = [one for one in history.confirmed.values() if one["value"].get("queue") == queue]
        confirms.sort(key=lambda confirm: index_of(history.invoked[confirm["value"]["body"]]))
        if spec.get("ordering") == "key":
            yield from _by_key(history, confirms)
            continue
        publishers = {
            one["process"]
            for one in history.by_kind["publish"]
            if one["type"] in ("invoke", "ok") and one["value"].get("queue") == queue
        }
        if spec.get("ordering") == "single_active" or len(publishers) == 1:
            yield from _by_publisher(history, confirms)


def _plain(history: SortedHistory, confirm: Event) -> bool:
    """Whether nothing but its place decides when this message comes."""
    value = history.invoked[confirm["value"]["body"]]["value"]
    return not value.get("delay_s") and value.get("priority") is None


def _by_publisher(history: SortedHistory, confirms: list[Event]) -> Iterator[Violation]:
    """First deliveries to one consumer have tokens in the order of publishing."""
    last: dict[tuple[str, int], Event] = {}
    for confirm in confirms:
        number = confirm["value"]["id"]
        first = history.hand_outs.get(number, [])[:1]
        if not first or not _plain(history, confirm) or history.is_grave(first[0]):
            continue
        value = first[0]["value"]
        if value["attempt"] != 1:
            continue
        lane = confirm["process"], value["consumer"]
        before = last.get(lane)
        if before is not None and value["token"] < before["value"]["token"]:
            yield Violation("S11", number, "handed out before its elder", (before, first[0]))
        else:
            last[lane] = first[0]


def _by_key(history: SortedHistory, confirms: list[Event]) -> Iterator[Violation]:
    """Nothing is handed out while what stands before it in its key is unfinished."""
    latest: dict[tuple[str, str], tuple[int, Event]] = {}
    for confirm in confirms:
        asked = history.invoked[confirm["value"]["body"]]
        key, number = asked["value"].get("key"), confirm["value"]["id"]
        if key is None or not _plain(history, confirm):
            continue
        lane = confirm["process"], key
        seen = [one for one in history.hand_outs.get(number, ()) if not history.is_grave(one)]
        elder = latest.get(lane)
        if elder is not None and seen and min(map(index_of, seen)) < elder[0]:
            yield Violation("S11", number, "its elder was unfinished", (elder[1], seen[0]))
        done = _finished(history, number)
        if done is not None and (elder is None or done > elder[0]):
            latest[lane] = done, confirm


def _finished(history: SortedHistory, number: str) -> int | None:
    """When it was finished, as the index of what asked for it; None where that is not known."""
    settles = history.settles.get(number, ())
    if any(history.is_grave(one) for one in history.hand_outs.get(number, ())):
        return None
    ends = [one for one in settles if one.verb in ("ack", "terminate")]
    if any(one.answer["type"] == "info" for one in ends):
        return None
    return min((index_of(one.asked) for one in ends if one.done), default=None)
