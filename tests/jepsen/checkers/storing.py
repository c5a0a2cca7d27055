"""S1, S2 and S2b: what was confirmed is there, once, and nothing else is.

Owns these rules of docs/history.md. Each yields the violations it finds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.jepsen.checkers.sorting import SortedHistory, Violation
from tests.jepsen.history import Event


def no_loss(history: SortedHistory) -> Iterator[Violation]:
    """S1: what was confirmed was acked (perhaps by an ack of unknown outcome), or is explained."""
    gone: dict[str, list[Event]] = defaultdict(list)
    for confirm in history.confirmed.values():
        settles = history.settles.get(confirm["value"]["id"], ())
        if not any(settle.may_have_acked for settle in settles):
            gone[confirm["value"].get("queue", "")].append(confirm)
    explained = _explained(history)
    for queue, confirms in gone.items():
        if len(confirms) <= explained[queue]:
            continue
        for confirm in confirms:
            shape = _shape(history, confirm, confirms)
            yield Violation(
                "S1", confirm["value"]["body"], f"confirmed, and gone ({shape})", (confirm,)
            )


def _explained(history: SortedHistory) -> Counter[str]:
    """Number of messages dropped with a reason, by queue."""
    found: Counter[str] = Counter()
    for event in history.by_kind["drop"]:
        found[event["value"]["queue"]] += event["value"]["count"]
    return found


def _shape(history: SortedHistory, confirm: Event, gone: list[Event]) -> str:
    """Where in its publisher's work it is missing: all before (a reset), all after, or a hole."""
    process = confirm["process"]
    lost = {event["index"] for event in gone}
    own = [one["index"] for one in history.confirmed.values() if one["process"] == process]
    kept = [index for index in own if index not in lost]
    if not kept or confirm["index"] < min(kept):
        return f"prefix of {process}"
    return f"postfix of {process}" if confirm["index"] > max(kept) else f"middle of {process}"


def no_phantom(history: SortedHistory) -> Iterator[Violation]:
    """S2: what is delivered was published, and is what was published."""
    for delivers in history.delivers.values():
        for deliver in delivers:
            body = deliver["value"]["body"]
            if body not in history.invoked:
                yield Violation("S2", body, "no producer published this", (deliver,))
            elif body in history.refused:
                yield Violation(
                    "S2", body, "refused, and delivered", (history.refused[body], deliver)
                )
            elif not deliver["value"]["intact"]:
                yield Violation("S2", body, "not what was published", (deliver,))


def one_copy(history: SortedHistory) -> Iterator[Violation]:
    """S2b: a message has one id, however often it was sent, and an id has one message."""
    ids: dict[str, str] = {}
    bodies: dict[str, str] = {}
    found: dict[str, Violation] = {}
    seen = [
        *history.confirmed.values(),
        *(one for some in history.delivers.values() for one in some),
    ]
    for event in seen:
        body, number = event["value"]["body"], event["value"]["id"]
        other = bodies.setdefault(number, body)
        if ids.setdefault(body, number) != number:
            found[body] = Violation("S2b", body, f"is {ids[body]} and {number}", (event,))
        elif other != body:
            found[body] = Violation("S2b", body, f"has the id of {other}", (event,))
    yield from found.values()
