"""The legend of the rules: what breaks each, for readers of a report who do not have the docs.

Owns copies of sentences of docs/history.md, which says what their words mean; a test holds both
together.
"""

from __future__ import annotations

from typing import Final

LEGEND: Final = {
    "S1": (
        "a confirmed body that was never acked (an ack of unknown outcome counts as one; one "
        "answered `lock_lost`, or failed, does not), and that is not covered by the queue's "
        "`drop` counts"
    ),
    "S2": (
        "a delivery whose body no client tried to publish, that was refused, or that is not intact"
    ),
    "S2b": ("two ids of one body, or two bodies under one id"),
    "S3": (
        "a hand-out newer than one that was acked with `done`, seen after the ack was asked "
        "for; after a `terminate`, in the same queue (where nothing was redriven)"
    ),
    "S4": (
        "a `holds` at a time when a newer hand-out was already seen (not on `single_active`: "
        "S10); two confirmed holds of one message that overlap; a renewal that was granted "
        "after a newer hand-out was seen"
    ),
    "S5": (
        "a `done` settlement asked for after a newer hand-out was seen; one by a (consumer, "
        "token) under which no client had received that message when it was asked for; one "
        "that names another queue than its delivery; a `done` nack or release with `late`; "
        "two deliveries acked with `done` in one queue; tokens of a consumer that do not grow"
        " (checkouts); a delivery without its checkout"
    ),
    "S6": (
        "attempts of one message in one queue that repeat, or (neighbours, with checkouts) do"
        " not grow by one; `failures` over `attempt` - 1, for each failure ended an attempt; "
        "failures that fall, that grow by other than 1 over a `done` nack, 0 over a `done` "
        "release, 0 or 1 else; failures at or over `max_deliveries` outside the dead-letter "
        "queue; a delivery that differs from its checkout"
    ),
    "S7": (
        "a hand-out in the source after one in the dead-letter queue (no redrive; without "
        "checkouts only by time - `transit_s` - `waited_s`, where that is known); acked in "
        "the source and dead; terminated with `done`, and never in the dead-letter queue "
        "though that was drained (nor handed out again, where something was redriven); a "
        "reason that is neither `terminated` nor `max_deliveries` (`expired`, `overflow` "
        "where the queue says so), `max_deliveries` before the limit (checkouts), not "
        "`terminated` after a `done` terminate"
    ),
    "S8": (
        "the next hand-out after a `done` nack or release before asked + `delay_s` x (1 - "
        "RATE) - 5 ms (no first attempt where something was redriven); a first one of a "
        "publish with `delay_s` before that; *overtaken* after such an answer + "
        "`delay_max_s`, or a first one after its confirm + `delay_s` (both x (1 + RATE))"
    ),
    "S9": (
        "a next hand-out with one failure more, of a message that its holder did not settle "
        "or cancel, before the lock's end: by `at_ms` + `lock_ms` with checkouts, else by "
        "time of the delivery + `lock_ms` x (1 - RATE) - `transit_s`, where that is known, "
        "for neighbours (not on `single_active`); *overtaken* after the hand-out + `lock_ms` "
        "x (1 + RATE), of a consumer with `renews` false and a queue without a timeout "
        "backoff, where the holder neither renewed nor settled it before"
    ),
    "S10": ("`single_active`: confirmed holds of two consumers of one queue that overlap"),
    "S11": (
        "order (where nothing was redriven): on a `key` queue, a delivery while an earlier "
        "confirmed publish of the same process and key was unfinished; else, of two first "
        "deliveries (attempt 1) to the same consumer, tokens against the order of publishing,"
        " where all publishes of the queue and their confirms are of one process or the queue"
        " is `single_active`"
    ),
    "S12": (
        "nodes with equal `applied` and different `hash`; counters of a node that do not add up"
    ),
    "V1": (
        "no `leader` within 10 s of `heal` (or at the start); `applied` of the nodes that "
        "differ at the end"
    ),
    "V2": (
        "publishes while a lasting fault is on whose p99 is over 5 s, until the confirm or "
        "the answer that the queue is full (`error` begins with `QueueFull`); any other end "
        "counts as none"
    ),
    "V3": ("`left` with a queue that is not empty"),
    "V4": ("a `call` longer than its limit x (1 + RATE) + 0.5 s"),
}
