"""What must hold of a history (faults.md 2: S1 to S9, V4). Each check is a function of events.

Owns the rules; a violation is an AssertionError that names the rule and the message. Knows only
`history.py`'s form of an event, so that a hand-made history, or one of real processes, can be
judged by the same code. An event's place in the list is its place in time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise

from tests.sim.history import Event

QUEUE, DEAD = "work", "dead"

RATE_ERROR = 0.05
"""Clocks of two machines differ by this part at most, and a little."""

CALL_SLACK_SECONDS = 0.5
"""A call may outlive its timeout by this: what it has to tidy up."""

Key = tuple[int, int]
"""A delivery: consumer and token."""


class Told:
    """A history, sorted by what it is about."""

    def __init__(
        self, events: Iterable[Event], max_deliveries: int, *, single_active: bool = False
    ) -> None:
        self.max_deliveries = max_deliveries
        self.single_active = single_active
        self.published: dict[str, Event] = {}
        self.tried: dict[str, None] = {}
        self.refused: dict[str, None] = {}
        self.checkouts: dict[str, list[Event]] = defaultdict(list)
        self.delivers: dict[str, list[Event]] = defaultdict(list)
        self.settles: dict[str, list[tuple[Event, Event]]] = defaultdict(list)
        self.holds: list[Event] = []
        self.calls: list[Event] = []
        self.cancelled: dict[int, int] = {}
        invoked: dict[tuple[str, str, Key], Event] = {}
        for event in events:
            value = event["value"]
            match event["f"], event["type"]:
                case "publish", "invoke":
                    self.tried[value["body"]] = None
                case "publish", "ok":
                    self.published[value["body"]] = event
                case "publish", "fail":
                    self.refused[value["body"]] = None
                case "checkout", _:
                    self.checkouts[value["id"]].append(event)
                case "deliver", _:
                    self.delivers[value["id"]].append(event)
                case "holds", _:
                    self.holds.append(event)
                case "settle", "invoke":
                    invoked[(event["process"], value["id"], key_of(event))] = event
                case "settle", _:
                    asked = invoked.pop((event["process"], value["id"], key_of(event)))
                    self.settles[value["id"]].append((asked, event))
                case "cancel", _:
                    self.cancelled[value["consumer"]] = event["index"]
                case "call", _:
                    self.calls.append(event)
        for asked in invoked.values():  # Killed before it was answered, or the run was over.
            never = {**asked, "type": "info", "index": 1 << 62}
            self.settles[asked["value"]["id"]].append((asked, never))

    def newer(self, event: Event, before: int) -> Event | None:
        """A hand-out of the same message after this delivery's own, and before some index."""
        mine = key_of(event)
        seen = False
        for checkout in self.checkouts[event["value"]["id"]]:
            if key_of(checkout) == mine:
                seen = True
            elif seen and checkout["index"] < before:
                return checkout
        return None


def key_of(event: Event) -> Key:
    """Consumer and token of an event."""
    return event["value"]["consumer"], event["value"]["token"]


def done(settled: Event) -> bool:
    """Whether the node said that this settlement was carried out."""
    return bool(settled["type"] == "ok" and settled["value"]["status"] == "ok")


def fail(rule: str, what: str, *events: Event | None) -> None:
    """A rule is broken."""
    shown = "".join(f"\n  {event}" for event in events)
    raise AssertionError(f"{rule}: {what}{shown}")


# --- the rules ------------------------------------------------------------------------------------


def no_loss(told: Told) -> None:
    """S1: what was confirmed is acked (perhaps by an ack of unknown outcome), or was drained."""
    for body, confirm in told.published.items():
        settles = told.settles[confirm["value"]["id"]]
        if not any(
            asked["value"]["verb"] == "ack"
            and (answer["type"] == "info" or answer["value"].get("status") != "lock_lost")
            and answer["type"] != "fail"
            for asked, answer in settles
        ):
            fail("S1", f"{body} was confirmed, and is gone", confirm)


def no_phantom(told: Told) -> None:
    """S2: what is delivered was published, and is what was published."""
    for delivers in told.delivers.values():
        for deliver in delivers:
            body = deliver["value"]["body"]
            if body not in told.tried or not deliver["value"]["intact"]:
                fail("S2", "nobody published this", deliver)
            if body in told.refused:
                fail("S2", f"{body} was refused, and is delivered", deliver)


def one_copy(told: Told) -> None:
    """S2b: a message has one id, however often it was sent, and an id has one message."""
    ids: dict[str, str] = {body: event["value"]["id"] for body, event in told.published.items()}
    bodies = {number: body for body, number in ids.items()}
    if len(bodies) != len(ids):
        fail("S2b", "two messages were confirmed under one id")
    for delivers in told.delivers.values():
        for deliver in delivers:
            body, number = deliver["value"]["body"], deliver["value"]["id"]
            if ids.setdefault(body, number) != number or bodies.setdefault(number, body) != body:
                fail("S2b", f"{body} is {ids[body]} and {number}", deliver)


def no_resurrection(told: Told) -> None:
    """S3: what was acked, as a client was told, is not handed out again."""
    for number, settles in told.settles.items():
        for asked, answer in settles:
            if not done(answer) or asked["value"]["verb"] not in ("ack", "terminate"):
                continue
            for checkout in told.checkouts[number]:
                again = asked["value"]["verb"] == "ack" or checkout["value"]["queue"] == QUEUE
                if checkout["index"] > answer["index"] and again:
                    fail("S3", f"{number} came back after it was settled", answer, checkout)


def one_holder(told: Told) -> None:
    """S4: while a client is sure of its lock, nobody else was handed the message.

    Not where one consumer is active: with its first expired lock it loses all that it holds.
    """
    for hold in () if told.single_active else told.holds:
        other = told.newer(hold, hold["index"])
        if other is not None:
            fail("S4", "a lock is held, and somebody else has the message", hold, other)


def fenced(told: Told) -> None:
    """S5: an old token settles nothing, tokens grow, and one token alone is told ok."""
    for number, settles in told.settles.items():
        acked: dict[Key, None] = {}
        for asked, answer in settles:
            if not done(answer):
                continue
            other = told.newer(asked, asked["index"])
            if other is not None:
                fail("S5", "an old token settled a message", asked, answer, other)
            if answer["value"]["late"] and asked["value"]["verb"] in ("nack", "release"):
                fail("S5", "a late return was carried out", asked, answer)
            if asked["value"]["verb"] == "ack":
                acked[key_of(asked)] = None
        queues = {checkout["value"]["queue"] for checkout in told.checkouts[number]}
        if len(acked) > len(queues):
            fail("S5", f"{number} was acked under {list(acked)}")
    last: dict[int, int] = {}
    everything = [event for events in told.checkouts.values() for event in events]
    for checkout in sorted(everything, key=lambda event: event["index"]):
        consumer, token = key_of(checkout)
        if token <= last.get(consumer, 0):
            fail("S5", f"token {token} after {last[consumer]}", checkout)
        last[consumer] = token


def counted(told: Told) -> None:
    """S6: attempts grow by one, failures by what counted, and never to the limit."""
    for number, checkouts in told.checkouts.items():
        answers = {key_of(asked): answer for asked, answer in told.settles[number]}
        for queue in (QUEUE, DEAD):
            stay = [one for one in checkouts if one["value"]["queue"] == queue]
            for place, checkout in enumerate(stay):
                value = checkout["value"]
                if value["attempt"] != place + 1:
                    fail("S6", f"attempt {value['attempt']} is the number {place + 1}", checkout)
                if queue == QUEUE and value["failures"] >= told.max_deliveries:
                    fail("S6", f"delivered at the limit of {told.max_deliveries}", checkout)
                if place:
                    _grown(stay[place - 1], checkout, answers)
        by_key = {key_of(checkout): checkout["value"] for checkout in checkouts}
        for deliver in told.delivers[number]:
            known = by_key.get(key_of(deliver))
            value = deliver["value"]
            if known is None or any(known[of] != value[of] for of in ("attempt", "failures")):
                fail("S6", "the client was told something else than was handed out", deliver)


def _grown(before: Event, after: Event, answers: dict[Key, Event]) -> None:
    grown = after["value"]["failures"] - before["value"]["failures"]
    answer = answers.get(key_of(before))
    verb = answer["value"]["verb"] if answer is not None and done(answer) else None
    allowed = {"nack": (1,), "release": (0,)}.get(verb or "", (0, 1))
    if grown not in allowed:
        fail("S6", f"failures grew by {grown}", before, answer, after)


def buried_once(told: Told) -> None:
    """S7: a dead letter is gone from its source, has its reason, and was not acked there."""
    for number, checkouts in told.checkouts.items():
        dead = [one for one in checkouts if one["value"]["queue"] == DEAD]
        acked = [
            (asked, answer)
            for asked, answer in told.settles[number]
            if done(answer) and asked["value"]["verb"] in ("ack", "terminate")
        ]
        if not dead:
            for asked, answer in acked:
                if asked["value"]["verb"] == "terminate":
                    fail("S7", "terminated, and no dead letter", answer)
            continue
        live = [one for one in checkouts if one["value"]["queue"] == QUEUE]
        keys = {key_of(one) for one in live}
        if any(one["index"] > dead[0]["index"] for one in live):
            fail("S7", "live and dead", dead[0], live[-1])
        for asked, answer in acked:
            if asked["value"]["verb"] == "ack" and key_of(asked) in keys:
                fail("S7", "acked, and a dead letter", answer, dead[0])
        for deliver in told.delivers[number]:
            if deliver["value"]["queue"] == DEAD:
                _reason(told, deliver, live, acked)


def _reason(
    told: Told, deliver: Event, live: list[Event], acked: list[tuple[Event, Event]]
) -> None:
    reason = deliver["value"]["reason"]
    terminated = any(asked["value"]["verb"] == "terminate" for asked, _ in acked)
    if reason not in ("terminated", "max_deliveries") or (terminated and reason != "terminated"):
        fail("S7", f"a dead letter because of {reason}", deliver)
    if reason == "max_deliveries" and (
        not live or live[-1]["value"]["failures"] + 1 != told.max_deliveries
    ):
        fail("S7", "dead-lettered before its limit", live[-1] if live else None, deliver)


def waited(told: Told) -> None:
    """S8: a returned message is not handed out before its delay is over."""
    for number, settles in told.settles.items():
        for asked, answer in settles:
            delay_s = asked["value"].get("delay_s")
            if not delay_s or not done(answer):
                continue
            later = told.newer(asked, 1 << 62)
            least = asked["time"] + delay_s * (1 - RATE_ERROR) - 0.005
            if later is not None and later["value"]["queue"] == QUEUE and later["time"] < least:
                fail("S8", f"{number} came back too soon", asked, answer, later)


def not_taken_early(told: Told) -> None:
    """S9: a message that its holder did not settle is taken from it after its lock only.

    What comes back uncounted was given back: by a client that never opened it. For a single active
    consumer see S4.
    """
    if told.single_active:
        return
    for number, checkouts in told.checkouts.items():
        asked = {key_of(asked): asked["index"] for asked, _ in told.settles[number]}
        live = [one for one in checkouts if one["value"]["queue"] == QUEUE]
        for before, after in pairwise(live):
            own = asked.get(key_of(before), 1 << 62)
            own = min(own, told.cancelled.get(key_of(before)[0], 1 << 62))
            if own < after["index"] or after["value"]["failures"] == before["value"]["failures"]:
                continue
            if after["value"]["at_ms"] < before["value"]["at_ms"] + before["value"]["lock_ms"]:
                fail("S9", f"{number} was taken before its lock ended", before, after)


def ended_in_time(told: Told) -> None:
    """V4: no call outlives its timeout."""
    for call in told.calls:
        limit_s = call["value"]["limit_s"] * (1 + RATE_ERROR) + CALL_SLACK_SECONDS
        if call["value"]["seconds"] > limit_s:
            fail("V4", "a call outlived its timeout", call)


RULES: tuple[Callable[[Told], None], ...] = (
    no_loss,
    no_phantom,
    one_copy,
    no_resurrection,
    one_holder,
    fenced,
    counted,
    buried_once,
    waited,
    not_taken_early,
    ended_in_time,
)
"""Every rule, in the order of faults.md."""


def check(
    events: Iterable[Event],
    max_deliveries: int,
    *,
    single_active: bool = False,
    seed: int | None = None,
) -> None:
    """Judge a history by every rule. Raises AssertionError at the first that is broken."""
    told = Told(events, max_deliveries, single_active=single_active)
    for rule in RULES:
        try:
            rule(told)
        except AssertionError as error:
            where = "" if seed is None else f"seed {seed}: "
            raise AssertionError(f"{where}{error}") from None
