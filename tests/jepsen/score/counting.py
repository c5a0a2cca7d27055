"""Mutations of counts, dead letters, delays, ends of locks and orders: rules S6 to S11.

Owns these changes. Each is written from docs/history.md alone.
"""

from __future__ import annotations

from itertools import pairwise

from tests.jepsen.score.mutation import (
    UNSEEN,
    Registry,
    acked_once,
    alive,
    dead,
    dead_of,
    last_alive,
    message,
    need,
    neighbours,
    ordering,
    returned,
)
from tests.jepsen.score.tape import STRANGER, Hand, Life, Settling, Tape

COUNTING: Registry = {}

MINUTE_S = 60.0
LONG_LOCK_MS = 300_000


# --- S6: counts -----------------------------------------------------------------------------------


@message(COUNTING, "S6")
def attempt_repeated(tape: Tape, life: Life) -> None:
    """Two hand-outs of a message have the same attempt."""
    need(not tape.good.redriven)  # Attempts start again where dead letters go back.
    first, second = neighbours(tape, life, single=True)
    tape.set(*second.counted, attempt=first.deliver["value"]["attempt"])


@message(COUNTING, "S6")
def attempt_skipped(tape: Tape, life: Life) -> None:
    """The attempt is one too high."""
    need(tape.good.traced)
    _, second = neighbours(tape, life, single=True)
    tape.set(*second.counted, attempt=second.deliver["value"]["attempt"] + 1)


@message(COUNTING, "S6")
def attempts_from_nought(tape: Tape, life: Life) -> None:
    """The first attempt is number 0."""
    hand, _ = acked_once(tape, life)
    tape.set(*hand.counted, attempt=0)


@message(COUNTING, "S6")
def nack_not_counted(tape: Tape, life: Life) -> None:
    """A nack was answered `ok`, and is no failure."""
    first, _, second = returned(tape, life, "nack")
    tape.set(*second.counted, failures=first.deliver["value"]["failures"])


@message(COUNTING, "S6")
def release_counted(tape: Tape, life: Life) -> None:
    """A release was answered `ok`, and is a failure."""
    first, _, second = returned(tape, life, "release")
    tape.set(*second.counted, failures=first.deliver["value"]["failures"] + 1)


@message(COUNTING, "S6")
def failures_counted_twice(tape: Tape, life: Life) -> None:
    """Failures grew by two over one hand-out."""
    first, second = neighbours(tape, life, single=True)
    tape.set(*second.counted, failures=first.deliver["value"]["failures"] + 2)


@message(COUNTING, "S6")
def failures_forgotten(tape: Tape, life: Life) -> None:
    """Failures fell from one hand-out to the next."""
    first, second = neighbours(tape, life, single=True)
    need(first.deliver["value"]["failures"])
    tape.set(*second.counted, failures=first.deliver["value"]["failures"] - 1)


@message(COUNTING, "S6")
def failure_before_the_first_attempt(tape: Tape, life: Life) -> None:
    """The first hand-out has a failure already."""
    hand, _ = acked_once(tape, life)
    tape.set(*hand.counted, failures=1)


@message(COUNTING, "S6")
def as_many_failures_as_attempts(tape: Tape, life: Life) -> None:
    """All hand-outs of a message have one failure too many: it is buried one attempt early."""
    limit = tape.good.specs.get(alive(tape, life)[0].queue, {}) if alive(tape, life) else {}
    need(len(alive(tape, life)) > 1, not dead_of(tape, life))
    for hand in alive(tape, life):
        failures = hand.deliver["value"]["failures"] + 1
        need(failures < limit.get("max_deliveries", failures + 1))
        tape.set(*hand.counted, failures=failures)
    need(any(_over(hand) for hand in alive(tape, life)))


def _over(hand: Hand) -> bool:
    value = hand.deliver["value"]
    return bool(value["failures"] + 1 >= value["attempt"])


@message(COUNTING, "S6")
def handed_out_at_the_limit(tape: Tape, life: Life) -> None:
    """A message with as many failures as `max_deliveries` was handed out, and not buried."""
    hand, _ = acked_once(tape, life)
    limit = tape.good.specs.get(hand.queue, {}).get("max_deliveries")
    need(limit)
    tape.set(*hand.counted, failures=limit)


@message(COUNTING, "S6")
def another_attempt_received(tape: Tape, life: Life) -> None:
    """The client received another attempt than the machine counted."""
    hand, _ = acked_once(tape, life)
    need(hand.checkout)
    tape.set(hand.deliver, attempt=2)


@message(COUNTING, "S6")
def other_failures_received(tape: Tape, life: Life) -> None:
    """The client received other failures than the machine counted."""
    _, second = neighbours(tape, life, single=True)
    need(second.checkout, second.deliver["value"]["failures"])
    tape.set(second.deliver, failures=0)


# --- S7: dead letters -----------------------------------------------------------------------------


@message(COUNTING, "S7")
def alive_after_its_burial(tape: Tape, life: Life) -> None:
    """A message was handed out in its source queue after it was in the dead-letter queue."""
    need(not tape.good.redriven)
    source, letter = alive(tape, life), dead(tape, life)
    need(source)
    known = source[-1].deliver["value"]
    tape.hand_out(
        letter[0].deliver, source[-1], 0.001,
        attempt=known["attempt"] + 1, failures=known["failures"],
    )  # fmt: skip


@message(COUNTING, "S7")
def acked_and_dead(tape: Tape, life: Life) -> None:
    """A message was acked in its source queue, and is a dead letter."""
    need(not tape.good.redriven, dead(tape, life))
    end = last_alive(tape, life).settled("terminate")
    tape.set(*end.events, verb="ack")


@message(COUNTING, "S7")
def terminated_and_nowhere(tape: Tape, life: Life) -> None:
    """A message was terminated with `ok`, and is no dead letter though the queue was drained."""
    need(not tape.good.redriven, tape.good.of("left"))
    last_alive(tape, life).settled("terminate")
    for hand in dead(tape, life):
        tape.drop(*hand.events)


@message(COUNTING, "S7")
def dead_for_an_unknown_reason(tape: Tape, life: Life) -> None:
    """A dead letter's reason is none of the queue's."""
    tape.set(dead(tape, life)[0].deliver, reason="bored")


@message(COUNTING, "S7")
def dead_for_no_reason(tape: Tape, life: Life) -> None:
    """A dead letter has no reason."""
    tape.set(dead(tape, life)[0].deliver, reason=None)


@message(COUNTING, "S7")
def dead_by_expiry_where_none_is_buried(tape: Tape, life: Life) -> None:
    """A dead letter had expired, in a queue that does not say that it buries such."""
    letter = dead(tape, life)[0]
    need(not tape.good.specs[tape.good.graves[letter.queue]].get("dead_letter_expired"))
    tape.set(letter.deliver, reason="expired")


@message(COUNTING, "S7")
def terminated_and_dead_otherwise(tape: Tape, life: Life) -> None:
    """A message was terminated with `ok`, and is dead because of `max_deliveries`."""
    need(not tape.good.redriven)
    last_alive(tape, life).settled("terminate")
    tape.set(dead(tape, life)[0].deliver, reason="max_deliveries")


def _one_failure_early(tape: Tape, life: Life) -> None:
    letter = dead(tape, life)[0]
    source = alive(tape, life)
    need(letter.deliver["value"]["reason"] == "max_deliveries", len(source) > 1)
    tape.drop(*source[-1].events)


@message(COUNTING, "S7")
def buried_early(tape: Tape, life: Life) -> None:
    """A message was buried one failure before the limit, as the machine handed it out."""
    need(tape.good.traced, not life.strays)
    _one_failure_early(tape, life)


# --- S8: delays -----------------------------------------------------------------------------------


@message(COUNTING, "S8")
def back_too_soon(tape: Tape, life: Life) -> None:
    """A message was nacked for a minute, and handed out again before."""
    _, nack, _ = returned(tape, life, "nack")
    tape.set(*nack.events, delay_s=MINUTE_S)


@message(COUNTING, "S8")
def released_and_back_too_soon(tape: Tape, life: Life) -> None:
    """A message was released for a minute, and handed out again before."""
    _, release, _ = returned(tape, life, "release")
    tape.set(*release.events, delay_s=MINUTE_S)


@message(COUNTING, "S8")
def before_its_time(tape: Tape, life: Life) -> None:
    """A message was published with a delay of a minute, and handed out before."""
    acked_once(tape, life)
    need(life.asked)
    tape.set(*life.publishing[:1], delay_s=MINUTE_S)


def _to_the_end(tape: Tape, life: Life, late: Hand) -> None:
    """Have all from one hand-out on happen when no more first deliveries come."""
    hands = [hand for hand in life.hands if hand.deliver["index"] >= late.deliver["index"]]
    last = max(tape.good.of("deliver"), key=lambda one: int(one["index"]))
    for hand in hands:
        tape.move(hand.events, last, 2.0)


@message(COUNTING, "S8")
def overtaken_after_its_nack(tape: Tape, life: Life) -> None:
    """Its delay was over, and younger ones were handed out before it for seconds."""
    need(life.confirm, not tape.good.redriven)
    _, nack, second = returned(tape, life, "nack")
    need(nack.asked["value"].get("delay_max_s") is not None, _surely_overtaken(tape, nack, second))
    _to_the_end(tape, life, second)


@message(COUNTING, "S8")
def overtaken_after_its_first_delay(tape: Tape, life: Life) -> None:
    """The delay of its publish was over, and younger ones were handed out before it for seconds."""
    hand, ack = acked_once(tape, life)
    need(life.asked, life.publishing[0]["value"].get("delay_s"), not tape.good.redriven)
    need(_surely_overtaken(tape, ack, hand))
    _to_the_end(tape, life, hand)


@message(COUNTING, "S9")
def overtaken_after_its_lock(tape: Tape, life: Life) -> None:
    """Its lock was over, and younger ones were handed out before it for seconds."""
    need(life.confirm, not tape.good.redriven)
    first, second = neighbours(tape, life)
    need(not first.settlings, all(one["f"] != "renew" for one in first.others))
    consumers = {
        one["value"]["consumer"]
        for one in tape.good.of("subscribe")
        if one["value"].get("renews") is False
    }
    need(first.key[0] in consumers)
    need(first.deliver["value"].get("lock_ms") is not None)
    need(_surely_overtaken(tape, Settling(first.deliver, first.deliver), second))
    _to_the_end(tape, life, second)


CALM_S = 4.0
"""Long enough for every lock, delay and grace of these histories to be over, and two seconds."""


def _surely_overtaken(tape: Tape, before: Settling, late: Hand) -> bool:
    """Whether, long after it was due and all faults were over, a message that was published later
    is the last one of its queue to be delivered first."""
    if tape.good.traced or ordering(tape, late) != "none":
        return False
    ends = [one["time"] for one in tape.good.of("nemesis", "ok")]
    ends += [one["time"] for one in tape.good.of("leader")]
    calm = max(*ends, before.events[-1]["time"]) + CALM_S
    firsts = [
        (one, hand.deliver)
        for one in tape.good.lives
        for hand in one.hands
        if hand.queue == late.queue and hand.deliver["value"]["attempt"] == 1 and hand is not late
        if one.answer is not None and one.answer["value"].get("id")
        if hand.deliver["value"].get("transit_s") is not None
    ]
    if not firsts:
        return False
    younger, deliver = max(firsts, key=lambda one: int(one[1]["index"]))
    on_its_way = deliver["value"]["transit_s"] + (deliver["value"].get("waited_s") or 0.0)
    asked = younger.publishing[0]
    return bool(
        late.deliver["value"].get("transit_s") is not None
        and asked["type"] == "invoke"
        and asked["index"] > before.events[-1]["index"]
        and deliver["time"] - on_its_way > calm
    )


# --- S9: locks that end early ---------------------------------------------------------------------


@message(COUNTING, "S9")
def taken_early(tape: Tape, life: Life) -> None:
    """A lock of five minutes, unsettled, and another consumer has the message after seconds."""
    first, second = neighbours(tape, life)
    one, other = first.deliver["value"], second.deliver["value"]
    need(other["failures"] == one["failures"] + 1)
    need(not first.settlings, tape.good.traced or one.get("transit_s") is not None)
    for event in tape.good.events:
        cancels = event["f"] == "cancel" and event["value"]["consumer"] == first.key[0]
        need(not cancels or event["index"] > second.deliver["index"])
    tape.set(*first.counted, lock_ms=LONG_LOCK_MS)


# --- S10, S11: one active consumer, orders --------------------------------------------------------


@message(COUNTING, "S10")
def two_active_consumers(tape: Tape, life: Life) -> None:
    """On a `single_active` queue two consumers held messages at once."""
    hand, ack = acked_once(tape, life)
    need(ordering(tape, hand) == "single_active")
    later = [
        one
        for other in tape.good.lives
        for one in other.hands
        if one.queue == hand.queue and one.deliver["index"] > hand.deliver["index"]
        if any(end.done and not end.events[1]["value"].get("late") for end in one.settlings)
    ]
    need(later)
    other = min(later, key=lambda one: int(one.deliver["index"]))
    tape.set(*other.events, consumer=STRANGER)
    if ack.asked["index"] < other.deliver["index"]:
        tape.move(ack.events, other.deliver)


@message(COUNTING, "S11")
def elder_of_its_key_unfinished(tape: Tape, life: Life) -> None:
    """On a `key` queue it was handed out before the one in front of it was acked."""
    hand, ack = acked_once(tape, life)
    need(ordering(tape, hand) == "key", _in_line(life))
    need(not tape.good.redriven, _lane(life)[1] is not None)
    for other in tape.good.lives:
        if (
            _in_line(other)
            and _lane(other) == _lane(life)
            and other.publishing[0]["index"] > life.publishing[0]["index"]
            and len(other.hands) == 1
        ):
            tape.move(ack.events, other.hands[0].deliver)
            return
    need(False)


def _lane(life: Life) -> tuple[str, str | None]:
    asked = life.publishing[0]
    return asked["process"], asked["value"].get("key")


def _in_line(life: Life) -> bool:
    """Whether nothing but its place decides when it comes."""
    if life.answer is None or life.answer["type"] != "ok" or life.asked is None or not life.hands:
        return False
    value = life.asked["value"]
    return not value.get("delay_s") and value.get("priority") is None


@message(COUNTING, "S11")
def handed_out_before_its_elder(tape: Tape, life: Life) -> None:
    """Of two messages of one publisher the younger was handed to a consumer first."""
    hand, _ = acked_once(tape, life)
    kind = ordering(tape, hand)
    need(not tape.good.redriven, kind != "key", _in_line(life))
    publishers = {
        one["process"] for one in tape.good.of("publish") if one["value"]["queue"] == hand.queue
    }
    need(kind == "single_active" or len(publishers) == 1)
    for one, other in pairwise(_line_of(tape, hand)):
        if one[0] is life and len(other[0].hands) == 1:
            _swap(tape, one, other)
            return
    need(False)


def _line_of(tape: Tape, hand: Hand) -> list[tuple[Life, Hand]]:
    """First hand-outs to the same consumer of messages of the same publisher, in order."""
    found = [
        (life, life.hands[0])
        for life in tape.good.lives
        if _in_line(life) and life.hands[0].queue == hand.queue
        if life.hands[0].key[0] == hand.key[0] and life.hands[0].deliver["value"]["attempt"] == 1
    ]
    found.sort(key=lambda one: int(one[1].deliver["index"]))
    return found


def _swap(tape: Tape, one: tuple[Life, Hand], other: tuple[Life, Hand]) -> None:
    """Have each message in the place of the other, to its end."""
    need(_lane(one[0])[0] == _lane(other[0])[0])
    for (_, hand), (life, _) in ((one, other), (other, one)):
        number = life.id
        tape.set(*hand.events, id=number)
        tape.set(hand.deliver, body=life.body)


# --- what no history can show ---------------------------------------------------------------------


@message(COUNTING, UNSEEN)
def attempt_skipped_as_clients_see_it(tape: Tape, life: Life) -> None:
    """The attempt is one too high: a client that died may have had the one between."""
    need(not tape.good.traced, not dead_of(tape, life))
    _, second = neighbours(tape, life, single=True)
    need(second is last_alive(tape, life))
    tape.set(*second.counted, attempt=second.deliver["value"]["attempt"] + 1)


@message(COUNTING, UNSEEN)
def buried_early_as_clients_see_it(tape: Tape, life: Life) -> None:
    """A message was buried one failure early: a client that died may have had the last attempt."""
    need(not tape.good.traced)
    _one_failure_early(tape, life)


@message(COUNTING, UNSEEN)
def lost_after_an_ack_without_an_answer(tape: Tape, life: Life) -> None:
    """A message was lost while its ack was on its way, whose outcome no client knows."""
    _, ack = acked_once(tape, life)
    tape.answer(ack.events[1], "info", status="sent", late=False)


@message(COUNTING, UNSEEN)
def lost_before_its_confirm(tape: Tape, life: Life) -> None:
    """A message was lost with the answer to its publish, so that nothing was promised."""
    acked_once(tape, life)
    tape.answer(life.confirm, "info", id=None, error="Timeout()")
    tape.drop(*life.handling)
