"""Mutations of what is around messages: nodes, leaders, queues at the end, calls (S12, V1 to V4).

Owns these changes, and the harmless ones: what a good history may hold as well, so that a checker
that complains of it is wrong. Each is written from docs/history.md alone.
"""

from __future__ import annotations

from typing import Any

from tests.jepsen.score.mutation import (
    HARMLESS,
    STRAY,
    Registry,
    acked_once,
    alive,
    dead,
    history,
    message,
    need,
    neighbours,
    ordering,
    returned,
)
from tests.jepsen.score.tape import Life, Tape

AROUND: Registry = {}
HARMLESS_ONES: Registry = {}


# --- S12, V1: nodes -------------------------------------------------------------------------------


def _queues(tape: Tape) -> dict[str, dict[str, Any]]:
    """The queues of the last node at rest, to be changed."""
    queues: dict[str, dict[str, Any]] = tape.good.of("state")[-1]["value"]["queues"]
    return {name: dict(queue) for name, queue in queues.items()}


@history(AROUND, "S12")
def nodes_differ(tape: Tape) -> None:
    """Two nodes have another state at the same index."""
    tape.set(tape.good.of("state")[-1], hash="0")


@history(AROUND, "S12")
def counter_forgotten(tape: Tape) -> None:
    """A queue's counter of acks is one short."""
    queues = _queues(tape)
    name = next(iter(queues))
    counters = dict(queues[name]["counters"])
    counters["acked"] -= 1
    queues[name] = {**queues[name], "counters": counters}
    tape.set(tape.good.of("state")[-1], queues=queues)


@history(AROUND, "S12")
def message_in_no_place(tape: Tape) -> None:
    """A queue has one message more than stands ready, locked or delayed."""
    queues = _queues(tape)
    name = next(iter(queues))
    queues[name] = {**queues[name], "messages": queues[name]["messages"] + 1}
    tape.set(tape.good.of("state")[-1], queues=queues)


@history(AROUND, "V1")
def node_left_behind(tape: Tape) -> None:
    """In the end a node has applied one entry less."""
    last = tape.good.of("state")[-1]
    tape.set(last, applied=last["value"]["applied"] - 1)


def _after_healing(tape: Tape) -> list[dict[str, Any]]:
    """Leaders that were seen after all was healed."""
    heals = [
        one for one in tape.good.of("nemesis", "ok") if one["value"]["fault"] == "heal"
    ]  # fmt: skip
    need(heals)
    found = [one for one in tape.good.of("leader") if one["index"] > heals[-1]["index"]]
    need(found)
    return found


@history(AROUND, "V1")
def no_leader(tape: Tape) -> None:
    """After healing no node leads."""
    tape.drop(*_after_healing(tape))


@history(AROUND, "V1")
def leader_after_long(tape: Tape) -> None:
    """After healing no node leads for longer than ten seconds."""
    leaders = _after_healing(tape)
    tape.move(leaders, leaders[0], 11.0)


# --- V2 to V4: service ----------------------------------------------------------------------------


@history(AROUND, "V2")
def stood_still(tape: Tape) -> None:
    """While a minority was sick for good no publish was answered."""
    begun = [one for one in tape.good.of("nemesis", "invoke") if one["value"].get("lasting")]
    need(begun)
    for one in tape.good.of("publish", "ok"):
        if one["index"] > begun[0]["index"]:
            tape.answer(one, "info", id=None, error="Timeout()")


@history(AROUND, "V2")
def served_slowly(tape: Tape) -> None:
    """While a minority was sick for good every publish took six seconds longer."""
    begun = [one for one in tape.good.of("nemesis", "invoke") if one["value"].get("lasting")]
    need(begun)
    for one in tape.good.of("publish", "ok"):
        if one["index"] > begun[0]["index"]:
            tape.move([one], one, 6.0)


@history(AROUND, "V3")
def queue_not_drained(tape: Tape) -> None:
    """In the end a message is left in a queue."""
    left = tape.good.of("left")[-1]
    queues = left["value"]["queues"]
    tape.set(left, queues={**queues, next(iter(queues)): 1})


@history(AROUND, "V4")
def call_without_end(tape: Tape) -> None:
    """A call took twice as long as its timeout."""
    call = tape.good.of("call")[0]
    tape.set(call, seconds=2 * call["value"]["limit_s"])


# --- harmless -------------------------------------------------------------------------------------


@message(HARMLESS_ONES, HARMLESS)
def publish_without_an_answer(tape: Tape, life: Life) -> None:
    """The answer to a publish was lost."""
    acked_once(tape, life)
    tape.drop(life.confirm)


@message(HARMLESS_ONES, HARMLESS)
def publish_of_unknown_outcome(tape: Tape, life: Life) -> None:
    """A publish ended unknown, and its message was stored."""
    acked_once(tape, life)
    tape.answer(life.confirm, "info", id=None, error="Timeout()")


@history(HARMLESS_ONES, HARMLESS)
def publish_refused(tape: Tape) -> None:
    """A publish was refused, and its message never seen."""
    one = tape.good.of("publish", "invoke")[0]
    what = {"queue": one["value"]["queue"], "body": "refused"}
    asked = tape.add(one, "invoke", "publish", one["process"], **what)
    tape.add(asked, "fail", "publish", one["process"], error="Overloaded()", **what)


@message(HARMLESS_ONES, HARMLESS)
def ack_without_an_answer(tape: Tape, life: Life) -> None:
    """The answer to an ack was lost."""
    _, ack = acked_once(tape, life)
    tape.drop(ack.events[1])


@message(HARMLESS_ONES, HARMLESS)
def late_ack(tape: Tape, life: Life) -> None:
    """An ack came after its lock, and no other consumer had the message."""
    _, ack = acked_once(tape, life)
    tape.set(ack.events[1], late=True)


@message(HARMLESS_ONES, HARMLESS)
def second_ack(tape: Tape, life: Life) -> None:
    """An ack was asked for again, and answered `already_settled`."""
    hand, ack = acked_once(tape, life)
    tape.settle(ack.events[1], hand, "ack", status="already_settled")


@message(HARMLESS_ONES, HARMLESS)
def stray_token_refused(tape: Tape, life: Life) -> None:
    """An ack by a token that was never handed out was answered `lock_lost`."""
    hand, ack = acked_once(tape, life)
    stray = hand.key[1] + STRAY
    tape.settle(ack.events[1], hand, "ack", status="lock_lost", token=stray)


@message(HARMLESS_ONES, HARMLESS)
def old_token_refused(tape: Tape, life: Life) -> None:
    """The old holder's ack of a dead letter was answered `lock_lost`."""
    source, letter = alive(tape, life), dead(tape, life)
    need(source)
    tape.settle(letter[-1].deliver, source[-1], "ack", status="lock_lost")


@message(HARMLESS_ONES, HARMLESS)
def delivered_again_under_its_token(tape: Tape, life: Life) -> None:
    """A delivery was repeated, as a resume or a fetch repeats it."""
    hand, _ = acked_once(tape, life)
    tape.add(hand.deliver, "ok", "deliver", hand.deliver["process"], **hand.deliver["value"])


@message(HARMLESS_ONES, HARMLESS)
def died_unsettled(tape: Tape, life: Life) -> None:
    """A client died before it wrote down what it got: no delivery, no answer to its nack."""
    first, nack, _ = returned(tape, life, "nack")
    need(not tape.good.traced)
    if nack.answer is not None:
        tape.drop(*first.events)


@message(HARMLESS_ONES, HARMLESS)
def received_late(tape: Tape, life: Life) -> None:
    """A client that was paused had a delivery after the next holder had acked."""
    need(not tape.good.traced)
    first, second = neighbours(tape, life, single=True)
    need(not first.settlings, not first.others)
    behind = second.settled("ack").events[1]
    redrives = [one["index"] for one in tape.good.events if one["f"] == "redrive"]
    need(not redrives or behind["index"] < min(redrives))
    tape.move([first.deliver], behind)
    tape.set(first.deliver, transit_s=None)


@message(HARMLESS_ONES, HARMLESS)
def back_late(tape: Tape, life: Life) -> None:
    """A nacked message came back at the very end, in a queue that promises no time for it."""
    _, _, second = returned(tape, life, "nack")
    need(second is life.hands[-1], len(second.settlings) == 1, not tape.good.traced)
    need(ordering(tape, second) == "single_active")
    tape.move(second.events, tape.good.events[-1], 0.001)


@message(HARMLESS_ONES, HARMLESS)
def dropped_with_its_count(tape: Tape, life: Life) -> None:
    """A queue dropped one message more, and its counters say so."""
    acked_once(tape, life)
    queue = life.confirm["value"]["queue"]
    drops = [one for one in tape.good.of("drop") if one["value"]["queue"] == queue]
    need(drops)
    tape.drop(*life.handling)
    tape.set(drops[0], count=drops[0]["value"]["count"] + 1)


@history(HARMLESS_ONES, HARMLESS)
def unknown_fields_and_events(tape: Tape) -> None:
    """Fields and events that this page does not know, and `null` for what is absent."""
    for one in tape.good.of("deliver")[:20]:
        tape.set(one, colour="blue", key=None)
    first = tape.good.events[0]
    tape.add(first, "ok", "heartbeat", "n1", node="n1")


@history(HARMLESS_ONES, HARMLESS)
def another_clock(tape: Tape) -> None:
    """The clock of the history began somewhere else."""
    for one in tape.good.events:
        tape.shift(one, 1_000.0)


@history(HARMLESS_ONES, HARMLESS)
def other_consumer_numbers(tape: Tape) -> None:
    """All consumers have other numbers."""
    for one in tape.good.events:
        if one["value"].get("consumer") is not None:
            tape.set(one, consumer=one["value"]["consumer"] + STRAY)
