"""Mutations of what is stored, delivered, held and settled: rules S1 to S5.

Owns these changes. Each is written from docs/history.md alone.
"""

from __future__ import annotations

from tests.jepsen.history import Event
from tests.jepsen.score.mutation import (
    STRAY,
    Registry,
    acked_once,
    alive,
    dead,
    last_alive,
    message,
    need,
    neighbours,
    ordering,
    returned,
    unsettled_neighbours,
)
from tests.jepsen.score.tape import STRANGER, Life, NotHere, Tape

DELIVERING: Registry = {}


def _drops(tape: Tape, life: Life) -> bool:
    """Whether some of its queue were dropped, so that a loss may be explained."""
    queue = life.confirm["value"]["queue"]
    return any(one["f"] == "drop" and one["value"]["queue"] == queue for one in tape.good.events)


# --- S1: lost -------------------------------------------------------------------------------------


@message(DELIVERING, "S1")
def never_delivered(tape: Tape, life: Life) -> None:
    """A confirmed message was never handed out."""
    acked_once(tape, life)
    need(not _drops(tape, life))
    tape.drop(*life.handling)


@message(DELIVERING, "S1")
def ack_refused(tape: Tape, life: Life) -> None:
    """Its only ack was answered `lock_lost`, and it never came again."""
    _, ack = acked_once(tape, life)
    need(not _drops(tape, life))
    tape.set(ack.events[1], status="lock_lost")


@message(DELIVERING, "S1")
def ack_failed(tape: Tape, life: Life) -> None:
    """Its only ack failed, and it never came again."""
    _, ack = acked_once(tape, life)
    need(not _drops(tape, life))
    tape.answer(ack.events[1], "fail", status=None)


@message(DELIVERING, "S1")
def released_for_ever(tape: Tape, life: Life) -> None:
    """A message was released instead of acked, and never came again."""
    _, ack = acked_once(tape, life)
    need(not _drops(tape, life))
    tape.set(*ack.events, verb="release")


@message(DELIVERING, "S1")
def nacked_for_ever(tape: Tape, life: Life) -> None:
    """A message was nacked, and neither came again nor was dead-lettered."""
    first, _, _ = returned(tape, life, "nack")
    need(life.confirm, not life.strays, not _drops(tape, life))
    for hand in life.hands:
        if hand is not first:
            tape.drop(*hand.events)


@message(DELIVERING, "S1")
def unexplained_by_drops(tape: Tape, life: Life) -> None:
    """A queue that drops lost one message more than its counters say."""
    acked_once(tape, life)
    queue = life.confirm["value"]["queue"]
    counts = [one for one in tape.good.of("drop") if one["value"]["queue"] == queue]
    need(counts)
    gone = sum(_is_gone(one, queue) for one in tape.good.lives)
    tape.drop(*life.handling)
    tape.set(counts[0], count=gone)
    tape.drop(*counts[1:])


def _is_gone(life: Life, queue: str) -> bool:
    """Whether it was confirmed in this queue, and never acked."""
    try:
        confirm = life.confirm
    except NotHere:
        return False
    acks = [one for hand in life.hands for one in hand.settlings if one.verb == "ack"]
    known = [one.answer for one in acks if one.answer is not None]
    ended = len(known) < len(acks) or any(
        one["type"] != "fail"
        and one["value"].get("status") not in ("lock_lost", "unknown_consumer")
        for one in known
    )
    return confirm["value"]["queue"] == queue and not ended


# --- S2, S2b: phantoms, copies --------------------------------------------------------------------


@message(DELIVERING, "S2")
def published_by_none(tape: Tape, life: Life) -> None:
    """A message was delivered that no client published."""
    acked_once(tape, life)
    tape.drop(*life.publishing)


@message(DELIVERING, "S2")
def refused_yet_delivered(tape: Tape, life: Life) -> None:
    """A publish was refused, and its message delivered."""
    acked_once(tape, life)
    tape.answer(life.confirm, "fail", id=None, error="QueueFull()")


@message(DELIVERING, "S2")
def damaged(tape: Tape, life: Life) -> None:
    """Content or headers are not what was published."""
    hand, _ = acked_once(tape, life)
    tape.set(hand.deliver, intact=False)


@message(DELIVERING, "S2")
def of_another_body(tape: Tape, life: Life) -> None:
    """A message was delivered with a body that no client has sent."""
    hand, _ = acked_once(tape, life)
    tape.set(hand.deliver, body="never-sent")


@message(DELIVERING, "S2b")
def confirmed_under_another_id(tape: Tape, life: Life) -> None:
    """The id of the confirm is not that of the delivery."""
    acked_once(tape, life)
    tape.set(life.confirm, id="0.0.0")


@message(DELIVERING, "S2b")
def stored_twice(tape: Tape, life: Life) -> None:
    """A publish became two messages, and both were delivered and acked."""
    hand, ack = acked_once(tape, life)
    copy = tape.hand_out(ack.events[1], hand, id="0.0.0")
    tape.settle(copy.deliver, copy, "ack")


@message(DELIVERING, "S2b")
def one_id_for_two(tape: Tape, life: Life) -> None:
    """Another publish was confirmed with its id."""
    acked_once(tape, life)
    other = life.confirm
    for one in tape.good.lives:
        if one is not life and one.answer is not None and one.answer["value"].get("id"):
            other = one.answer
    need(other is not life.confirm)
    tape.set(other, id=life.id)


@message(DELIVERING, "S2b")
def delivered_as_another(tape: Tape, life: Life) -> None:
    """A message was delivered with the body of another message."""
    hand, _ = acked_once(tape, life)
    others = [one for one in tape.good.lives if one is not life and one.hands and one.asked]
    need(others)
    tape.set(hand.deliver, body=others[0].body)


# --- S3: back again -------------------------------------------------------------------------------


@message(DELIVERING, "S3")
def back_after_its_ack(tape: Tape, life: Life) -> None:
    """A message was handed out again after an ack that was answered `ok`."""
    hand, ack = acked_once(tape, life)
    tape.hand_out(ack.events[1], hand, attempt=2)


@message(DELIVERING, "S3")
def back_while_it_is_acked(tape: Tape, life: Life) -> None:
    """A message was handed out again between the ack and its answer, which is `ok`."""
    hand, ack = acked_once(tape, life)
    tape.hand_out(ack.asked, hand, attempt=2)


@message(DELIVERING, "S3")
def back_after_its_termination(tape: Tape, life: Life) -> None:
    """A message was terminated, and handed out again in the same queue."""
    need(not tape.good.redriven)
    hand = last_alive(tape, life)
    end = hand.settled("terminate")
    known = hand.deliver["value"]
    tape.hand_out(end.events[1], hand, attempt=known["attempt"] + 1, failures=known["failures"])


@message(DELIVERING, "S3")
def dead_letter_back_after_its_ack(tape: Tape, life: Life) -> None:
    """A dead letter was acked, and handed out in its queue again."""
    hand = dead(tape, life)[-1]
    ack = hand.settled("ack")
    reason = hand.deliver["value"]["reason"]
    tape.hand_out(ack.events[1], hand, attempt=hand.deliver["value"]["attempt"] + 1, reason=reason)


# --- S4: two holders ------------------------------------------------------------------------------


@message(DELIVERING, "S4")
def both_are_sure(tape: Tape, life: Life) -> None:
    """A client is sure of its lock after another one was handed the message."""
    first, second = neighbours(tape, life)
    consumer, token = first.key
    process = first.deliver["process"]
    tape.add(second.counted[0], "ok", "holds", process, id=life.id, consumer=consumer, token=token)


@message(DELIVERING, "S4")
def sure_after_a_stranger_has_it(tape: Tape, life: Life) -> None:
    """A message was handed to another consumer while its holder is sure of its lock."""
    hand, _ = acked_once(tape, life)
    need(ordering(tape, hand) != "single_active")
    sure = [one for one in hand.others if one["f"] == "holds"]
    need(len(sure) > 1)
    tape.hand_out(sure[0], hand, attempt=2, failures=0)


@message(DELIVERING, "S4")
def renewed_after_its_loss(tape: Tape, life: Life) -> None:
    """A lock was renewed after another consumer was handed the message."""
    first, second = neighbours(tape, life)
    consumer, token = first.key
    what: Event = {"id": life.id, "consumer": consumer, "token": token}
    process = first.deliver["process"]
    asked = tape.add(second.counted[-1], "invoke", "renew", process, **what)
    tape.add(asked, "ok", "renew", process, remaining_s=1.0, **what)


@message(DELIVERING, "S4")
def two_confirmed_holds(tape: Tape, life: Life) -> None:
    """A message was nacked with `ok` by its old holder, after another consumer had it."""
    _, nack, second = returned(tape, life, "nack")
    second.settled("ack", "nack", "release", "terminate")
    tape.move(nack.events, second.deliver)


# --- S5: tokens -----------------------------------------------------------------------------------


@message(DELIVERING, "S5")
def old_token_acks(tape: Tape, life: Life) -> None:
    """An old token acked the message that another consumer has."""
    first, second = unsettled_neighbours(tape, life)
    tape.settle(second.deliver, first, "ack")


@message(DELIVERING, "S5")
def old_token_acks_late(tape: Tape, life: Life) -> None:
    """The same, answered `late`."""
    first, second = unsettled_neighbours(tape, life)
    tape.settle(second.deliver, first, "ack", late=True)


@message(DELIVERING, "S5")
def late_nack(tape: Tape, life: Life) -> None:
    """A nack was carried out though its lock was lost."""
    _, nack, _ = returned(tape, life, "nack")
    tape.set(nack.events[1], late=True)


@message(DELIVERING, "S5")
def late_release(tape: Tape, life: Life) -> None:
    """A release was carried out though its lock was lost."""
    _, release, _ = returned(tape, life, "release")
    tape.set(release.events[1], late=True)


@message(DELIVERING, "S5")
def acked_under_two_tokens(tape: Tape, life: Life) -> None:
    """Two holders acked it, and both were answered `ok`."""
    first, second = unsettled_neighbours(tape, life)
    second.settled("ack")
    tape.settle(first.deliver, first, "ack")


@message(DELIVERING, "S5")
def token_used_again(tape: Tape, life: Life) -> None:
    """A consumer got the same token for two messages."""
    hand, _ = acked_once(tape, life)
    need(hand.checkout)
    consumer, token = hand.key
    before = [
        one["value"]["token"]
        for one in tape.good.of("checkout")
        if one["value"]["consumer"] == consumer and one["value"]["token"] < token
    ]
    need(before)
    tape.set(*hand.events, token=max(before))


@message(DELIVERING, "S5")
def delivery_without_its_checkout(tape: Tape, life: Life) -> None:
    """A client received what no leader handed out."""
    hand, _ = acked_once(tape, life)
    need(hand.checkout)
    tape.drop(*hand.counted[:1])


@message(DELIVERING, "S5")
def settled_by_a_token_never_delivered(tape: Tape, life: Life) -> None:
    """An ack by a token that was never delivered to any client was answered `ok`."""
    _, ack = acked_once(tape, life)
    tape.set(*ack.events, token=ack.asked["value"]["token"] + STRAY)


@message(DELIVERING, "S5")
def settled_by_another_consumers_token(tape: Tape, life: Life) -> None:
    """An ack in the name of another consumer was answered `ok`."""
    _, ack = acked_once(tape, life)
    tape.set(*ack.events, consumer=STRANGER)


@message(DELIVERING, "S5")
def nacked_by_a_token_never_delivered(tape: Tape, life: Life) -> None:
    """A nack by a token that was never delivered was answered `ok`."""
    _, nack, _ = returned(tape, life, "nack")
    tape.set(*nack.events, token=nack.asked["value"]["token"] + STRAY)


@message(DELIVERING, "S5")
def delivery_that_is_missing(tape: Tape, life: Life) -> None:
    """A settlement was answered `ok`, and its delivery is not in the history."""
    hand, _ = acked_once(tape, life)
    tape.drop(hand.deliver)


@message(DELIVERING, "S5")
def settled_before_its_delivery(tape: Tape, life: Life) -> None:
    """An ack was asked for, and answered `ok`, before the message was delivered."""
    _, ack = acked_once(tape, life)
    tape.move(ack.events, life.publishing[0])


@message(DELIVERING, "S5")
def dead_letter_acked_by_its_source_token(tape: Tape, life: Life) -> None:
    """A dead letter was acked by the old token of its source queue."""
    source, letter = alive(tape, life), dead(tape, life)
    need(source)
    consumer, token = source[-1].key
    tape.set(*letter[-1].settled("ack").events, consumer=consumer, token=token)


@message(DELIVERING, "S5")
def dead_letter_acked_in_its_source(tape: Tape, life: Life) -> None:
    """A dead letter was acked by its old token, in its source queue."""
    source, letter = alive(tape, life), dead(tape, life)
    need(source)
    need(not any(one.verb == "ack" for one in source[-1].settlings))
    letter[-1].settled("ack")
    tape.settle(letter[-1].deliver, source[-1], "ack")


@message(DELIVERING, "S5")
def settled_in_another_queue(tape: Tape, life: Life) -> None:
    """An ack named another queue than its delivery, and was answered `ok`."""
    hand, ack = acked_once(tape, life)
    others = [queue for queue in tape.good.specs if queue != hand.queue]
    tape.set(*ack.events, queue=others[0])
