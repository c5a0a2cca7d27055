"""Histories written by hand, as stories: good ones, and for each rule those that break it.

Owns the scenes. `python -m tests.jepsen.stories` writes them into `histories/`, where the checkers
of other rooms read them; a test holds the files to the scenes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.jepsen.history import Event
from tests.jepsen.story import MAX_DELIVERIES, Story

FOLDER = Path(__file__).parent / "histories"

Scene = Callable[[Story], None]


# --- good -----------------------------------------------------------------------------------------


def acked(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hold()
    story.settle()
    story.call(8.2)


def acked_unheard(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle(outcome="info")


def killed_while_it_acks(story: Story) -> None:
    story.publish()
    story.hand_out()
    what = {"id": "1.1.1", "queue": "work", "consumer": 1, "token": 1, "verb": "ack"}
    story.add("invoke", "settle", "c1", **what, delay_s=None)


def unknown_and_delivered(story: Story) -> None:
    story.publish(outcome="info")
    story.hand_out()
    story.settle()


def refused_and_gone(story: Story) -> None:
    story.publish(outcome="fail")
    story.hand_out(number="1.1.2", body="p1-1")
    story.events[-1]["value"]["body"] = "p1-1"
    story.publish("p1-1", "1.1.2")
    story.settle(number="1.1.2")


def nacked_then_acked(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("nack", delay_s=1.0)
    story.hand_out(2, 1, attempt=2, failures=1)
    story.settle(consumer=2)


def released_then_acked(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("release")
    story.hand_out(2, 1, attempt=2)
    story.settle(consumer=2)


def late_ack(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle(late=True)


def lost_then_acked_by_another(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hold()
    story.renew()
    story.hand_out(2, 1, attempt=2, failures=1)
    story.settle(status="lock_lost")
    story.settle(consumer=2)


def buried(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("terminate")
    story.hand_out(3, 1, queue="dead", reason="terminated")
    story.settle(consumer=3, queue="dead")
    story.add("ok", "left", "d2", queues={"work": 0, "dead": 0})


def exhausted(story: Story) -> None:
    story.publish()
    for token in (1, 2, 3):
        story.hand_out(1, token, attempt=token, failures=token - 1)
        story.settle("nack", token=token, status="ok" if token < 3 else "dead_lettered")
    story.hand_out(3, 1, queue="dead", reason="max_deliveries")
    story.settle(consumer=3, queue="dead")


def redriven(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("terminate")
    story.add("ok", "redrive", "d2", queue="dead", moved=1)
    story.hand_out(2, 1)
    story.settle(consumer=2)


def expired_while_it_waited_and_redriven(story: Story) -> None:
    """Its delay ended with its time to live, and it begins anew; no client heard how many moved."""
    story.publish()
    story.hand_out()
    story.settle("nack", delay_s=60.0)
    story.add("invoke", "redrive", "d2", queue="dead")
    story.hand_out(2, 1)
    story.settle(consumer=2)


def expired(story: Story) -> None:
    story.publish()
    story.add("ok", "drop", "d2", queue="work", reason="expired", count=1)


def gave_up_what_it_never_received(story: Story) -> None:
    """An attempt that no client wrote down: it died with its client."""
    story.publish()
    story.hand_out()
    story.hand_out(3, 1, attempt=3, failures=2)
    story.settle(consumer=3)


def stored_by_the_first_attempt(story: Story) -> None:
    """A dedup id: the first answer was lost, and the second confirm names no message."""
    story.add("invoke", "publish", "p1", queue="work", body="p1-0", dedup_id="p1-0")
    story.add("ok", "publish", "p1", queue="work", body="p1-0")
    story.hand_out()
    story.settle()


def in_key_order(story: Story) -> None:
    story.publish(queue="keyed", key="red")
    story.publish("p1-1", "1.1.2", queue="keyed", key="red")
    story.publish("p1-2", "1.1.3", queue="keyed", key="green")
    story.hand_out(queue="keyed")
    story.hand_out(2, 1, number="1.1.3", body="p1-2", queue="keyed")
    story.settle(queue="keyed")
    story.hand_out(1, 2, number="1.1.2", body="p1-1", queue="keyed")
    story.settle(number="1.1.2", token=2, queue="keyed")
    story.settle(number="1.1.3", consumer=2, queue="keyed")


def handed_over(story: Story) -> None:
    """The active consumer settles, then another is active."""
    story.publish(queue="single")
    story.publish("p1-1", "1.1.2", queue="single")
    story.hand_out(queue="single")
    story.settle(queue="single")
    story.hand_out(2, 1, number="1.1.2", body="p1-1", queue="single")
    story.settle(number="1.1.2", consumer=2, queue="single")


def gave_back_all(story: Story) -> None:
    """A single active consumer loses what it is sure of with the first lock that expires."""
    story.publish(queue="single")
    story.hand_out(queue="single")
    story.hand_out(2, 1, queue="single", attempt=2, failures=1)
    story.hold()
    story.settle(consumer=2, queue="single")


def equal_nodes(story: Story) -> None:
    story.add("ok", "nemesis", "nemesis", fault="heal", nodes=[])
    story.add("ok", "leader", "n1", node="n1", term=3)
    for node in ("n1", "n2", "n3"):
        story.state(node)


def served_by_two(story: Story) -> None:
    story.add("invoke", "nemesis", "nemesis", fault="kill", nodes=["n3"], lasting=True)
    story.now += 2.0
    acked(story)


def full_while_one_is_down(story: Story) -> None:
    """An answer that the queue is full is service."""
    story.add("invoke", "nemesis", "nemesis", fault="kill", nodes=["n3"], lasting=True)
    _failed_publish(story, "QueueFull(\"queue 'q' is at its limit\")")


def _failed_publish(story: Story, error: str) -> None:
    story.now += 2.5
    story.add("invoke", "publish", "p1", queue="work", body="p1-0")
    story.now += 0.1
    story.add("fail", "publish", "p1", queue="work", body="p1-0", error=error)


def came_late_when_nobody_was_served(story: Story) -> None:
    story.subscribe()
    story.publish()
    story.hand_out()
    story.now += 30.0
    story.serve_it_again()
    story.serve_a_younger_one()


def renewed_by_its_client(story: Story) -> None:
    story.subscribe(renews=True)
    story.publish()
    story.hand_out()
    story.serve_a_younger_one()
    story.serve_it_again()


def renewed_by_hand(story: Story) -> None:
    story.subscribe()
    story.publish()
    story.hand_out()
    story.renew()
    story.serve_a_younger_one()
    story.serve_it_again()


def kept_by_a_new_leader(story: Story) -> None:
    """A change of leader makes its lock last longer, and what was behind it is served."""
    story.subscribe()
    story.publish()
    story.hand_out()
    story.publish("p1-1", "1.1.2")
    story.add("invoke", "nemesis", "nemesis", fault="kill", nodes=["n1"])
    story.now += 5.0
    story.add("ok", "nemesis", "nemesis", fault="kill", nodes=["n1"])
    story.add("ok", "leader", "n2", node="n2", term=2)
    story.hand_out(3, 1, number="1.1.2", body="p1-1", waited_s=0.0)
    story.serve_it_again()
    story.settle(number="1.1.2", consumer=3)


def lay_with_its_client(story: Story) -> None:
    """A message that its program got late was handed out long before that."""
    story.subscribe()
    story.publish()
    story.hand_out()
    story.publish("p1-1", "1.1.2")
    story.now += 5.0
    story.hand_out(3, 1, number="1.1.2", body="p1-1", waited_s=5.0)
    story.serve_it_again()
    story.settle(number="1.1.2", consumer=3)


def backed_off_for_long(story: Story) -> None:
    """The maximum delay of the queue's policy is not in the history."""
    story.publish()
    story.hand_out()
    story.settle("nack", delay_s=1.0)
    story.serve_a_younger_one()
    story.serve_it_again()


# --- bad ------------------------------------------------------------------------------------------


def lost(story: Story) -> None:
    story.publish()


def lost_after_a_refused_ack(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle(status="lock_lost")


def more_lost_than_dropped(story: Story) -> None:
    expired(story)
    story.publish("p1-1", "1.1.2")


def never_published(story: Story) -> None:
    story.hand_out(body="p9-9")
    story.settle()


def damaged(story: Story) -> None:
    story.publish()
    story.hand_out(intact=False)
    story.settle()


def refused_and_delivered(story: Story) -> None:
    story.publish(outcome="fail")
    story.hand_out()
    story.settle()


def stored_twice(story: Story) -> None:
    acked(story)
    story.hand_out(number="1.1.2", token=2)


def two_under_one_id(story: Story) -> None:
    acked(story)
    story.publish("p1-1", "1.1.1")


def back_after_its_ack(story: Story) -> None:
    acked(story)
    story.hand_out(2, 1, attempt=2)


def back_after_its_termination(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("terminate")
    story.hand_out(2, 1, attempt=2)
    story.settle(consumer=2, status="lock_lost", outcome="info")


def two_holders(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hand_out(2, 1, attempt=2, failures=1)
    story.hold()
    story.settle(consumer=2)


def renewed_what_another_has(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hand_out(2, 1, attempt=2, failures=1)
    story.renew()
    story.settle(consumer=2)


def both_held_it(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hand_out(2, 1, attempt=2, failures=1)
    story.settle("nack")
    story.settle(consumer=2)


def old_token_acks(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hand_out(2, 1, attempt=2, failures=1)
    story.settle()


def old_token_acks_late(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hand_out(2, 1, attempt=2, failures=1)
    story.settle(late=True)


def late_nack(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("nack", late=True)
    story.settle("ack")


def acked_twice(story: Story) -> None:
    story.publish()
    story.hand_out(2, 1, attempt=2, failures=1)
    story.settle(consumer=2, outcome="info")
    story.settle(consumer=2)
    story.hand_out()
    story.settle()


def token_used_again(story: Story) -> None:
    story.publish()
    story.hand_out(1, 2)
    story.settle("release", token=2)
    story.hand_out(1, 1, attempt=2)
    story.settle()


def settled_by_no_holder(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle(token=9)


def settled_before_its_delivery(story: Story) -> None:
    story.publish()
    story.settle()
    story.hand_out()


def settled_in_another_queue(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle(queue="plain")


def dead_letter_by_its_old_token(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("terminate")
    story.hand_out(3, 1, queue="dead", reason="terminated")
    story.settle(queue="dead")


def attempt_forgotten(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("release")
    story.hand_out(1, 2, attempt=1)
    story.settle(token=2)


def failure_not_counted(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("nack")
    story.hand_out(1, 2, attempt=2, failures=0)
    story.settle(token=2)


def release_counted(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("release")
    story.hand_out(1, 2, attempt=2, failures=1)
    story.settle(token=2)


def failed_before_its_first_attempt(story: Story) -> None:
    story.publish()
    story.hand_out(failures=1)
    story.settle()


def delivered_at_the_limit(story: Story) -> None:
    story.publish()
    story.hand_out(failures=MAX_DELIVERIES)
    story.settle()


def client_told_otherwise(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.events[-1]["value"]["attempt"] = 2
    story.settle()


def live_and_dead(story: Story) -> None:
    story.publish()
    for attempt in (1, 2, 3):
        story.hand_out(attempt=attempt, token=attempt, failures=attempt - 1)
    story.hand_out(3, 1, queue="dead", reason="max_deliveries")
    story.hand_out(1, 4, attempt=4, failures=2)
    story.settle(token=4, outcome="info")


def _heard_of_after_its_burial(
    story: Story, transit_s: float | None, waited_s: float = 0.0
) -> None:
    """The last delivery arrives one second after the dead letter did: S7 goes by how long it can
    have been on its way, and lay in its client."""
    story.publish()
    for attempt in (1, 2):
        story.hand_out(attempt=attempt, token=attempt, failures=attempt - 1)
    story.hand_out(3, 1, queue="dead", reason="max_deliveries")
    story.hand_out(1, 3, attempt=3, failures=2, transit_s=transit_s, waited_s=waited_s)
    story.settle(token=3, outcome="info")
    story.settle(consumer=3, queue="dead")


def long_on_its_way(story: Story) -> None:
    _heard_of_after_its_burial(story, 1.0)


def long_in_its_client(story: Story) -> None:
    _heard_of_after_its_burial(story, 0.1, 0.9)


def on_its_way_for_who_knows_how_long(story: Story) -> None:
    _heard_of_after_its_burial(story, None)


def handed_out_after_its_burial(story: Story) -> None:
    _heard_of_after_its_burial(story, 0.99)


def acked_and_dead(story: Story) -> None:
    story.publish()
    for attempt in (1, 2):
        story.hand_out(attempt=attempt, token=attempt, failures=attempt - 1)
    story.hand_out(token=3, attempt=3, failures=2)
    story.settle(token=3)
    story.hand_out(3, 1, queue="dead", reason="max_deliveries")
    story.settle(consumer=3, queue="dead", status="already_settled")


def terminated_and_nowhere(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("terminate")
    story.settle("ack", outcome="info")
    story.add("ok", "left", "d2", queues={"work": 0, "dead": 0})


def buried_too_early(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hand_out(3, 1, queue="dead", reason="max_deliveries")
    story.settle(consumer=3, queue="dead")


def buried_without_a_reason(story: Story) -> None:
    story.publish()
    story.hand_out(3, 1, queue="dead", reason="expired")
    story.settle(consumer=3, queue="dead")


def buried_for_nothing(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("nack")
    story.hand_out(3, 1, queue="dead")
    story.settle(consumer=3, queue="dead")


def back_too_soon(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("nack", delay_s=60.0)
    story.hand_out(1, 2, attempt=2, failures=1)
    story.settle(token=2)


def before_its_time(story: Story) -> None:
    story.publish(delay_s=60.0)
    story.hand_out()
    story.settle()


def overtaken_after_its_nack(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("nack", delay_s=1.0, delay_max_s=1.0)
    story.serve_a_younger_one()
    story.serve_it_again()


def overtaken_after_its_first_delay(story: Story) -> None:
    story.publish(delay_s=1.0)
    story.serve_a_younger_one()
    story.hand_out(2, 1, waited_s=0.0)
    story.settle(consumer=2)


def overtaken_after_its_lock(story: Story) -> None:
    story.subscribe()
    story.publish()
    story.hand_out()
    story.serve_a_younger_one()
    story.serve_it_again()


def taken_early(story: Story) -> None:
    story.publish()
    story.hand_out(lock_ms=30_000)
    story.hand_out(2, 1, attempt=2, failures=1)
    story.settle(consumer=2)


def two_active(story: Story) -> None:
    story.publish(queue="single")
    story.publish("p1-1", "1.1.2", queue="single")
    story.hand_out(queue="single")
    story.hand_out(2, 1, number="1.1.2", body="p1-1", queue="single")
    story.settle(queue="single")
    story.settle(number="1.1.2", consumer=2, queue="single")


def overtaken_in_its_key(story: Story) -> None:
    story.publish(queue="keyed", key="red")
    story.publish("p1-1", "1.1.2", queue="keyed", key="red")
    story.hand_out(queue="keyed")
    story.hand_out(2, 1, number="1.1.2", body="p1-1", queue="keyed")
    story.settle(queue="keyed")
    story.settle(number="1.1.2", consumer=2, queue="keyed")


def out_of_order(story: Story) -> None:
    story.publish(queue="plain")
    story.publish("p1-1", "1.1.2", queue="plain")
    story.hand_out(number="1.1.2", body="p1-1", queue="plain")
    story.hand_out(token=2, queue="plain")
    story.settle(number="1.1.2", queue="plain")
    story.settle(token=2, queue="plain")


def states_differ(story: Story) -> None:
    story.state("n1")
    story.state("n2", digest="bb")


def counters_do_not_add_up(story: Story) -> None:
    story.state("n1", messages=1)


def no_leader(story: Story) -> None:
    story.add("ok", "nemesis", "nemesis", fault="heal", nodes=[])
    story.now += 15.0
    story.add("ok", "leader", "n1", node="n1", term=3)


def left_behind(story: Story) -> None:
    story.state("n1")
    story.state("n2", applied=6)


def stood_still(story: Story) -> None:
    story.add("invoke", "nemesis", "nemesis", fault="kill", nodes=["n3"], lasting=True)
    story.now += 2.0
    story.add("invoke", "publish", "p1", queue="work", body="p1-0")
    story.now += 9.0
    story.add("ok", "publish", "p1", queue="work", body="p1-0", id="1.1.1")
    story.hand_out()
    story.settle()


def nobody_there_to_refuse(story: Story) -> None:
    story.add("invoke", "nemesis", "nemesis", fault="kill", nodes=["n3"], lasting=True)
    _failed_publish(story, "Timeout('publish: not sent within 10 s')")


def not_drained(story: Story) -> None:
    acked(story)
    story.add("ok", "left", "d2", queues={"work": 1, "dead": 0})


def call_without_end(story: Story) -> None:
    story.call(9.5)


GOOD: tuple[Scene, ...] = (
    acked, acked_unheard, killed_while_it_acks, unknown_and_delivered, refused_and_gone,
    nacked_then_acked, released_then_acked, late_ack, lost_then_acked_by_another, buried, exhausted,
    redriven, expired, expired_while_it_waited_and_redriven, in_key_order, handed_over,
    gave_back_all, equal_nodes, served_by_two, full_while_one_is_down,
    came_late_when_nobody_was_served, renewed_by_its_client, renewed_by_hand, kept_by_a_new_leader,
    backed_off_for_long,
)  # fmt: skip

GOOD_WITHOUT_TRACE: tuple[Scene, ...] = (
    nacked_then_acked, late_ack, lost_then_acked_by_another, buried, exhausted,
    gave_up_what_it_never_received, stored_by_the_first_attempt, in_key_order, handed_over,
    came_late_when_nobody_was_served, renewed_by_its_client, kept_by_a_new_leader,
    lay_with_its_client, backed_off_for_long,
    long_on_its_way, long_in_its_client, on_its_way_for_who_knows_how_long,
)  # fmt: skip

BAD: tuple[tuple[str, Scene], ...] = (
    ("S1", lost), ("S1", lost_after_a_refused_ack), ("S1", more_lost_than_dropped),
    ("S2", never_published), ("S2", damaged), ("S2", refused_and_delivered),
    ("S2b", stored_twice), ("S2b", two_under_one_id),
    ("S3", back_after_its_ack), ("S3", back_after_its_termination),
    ("S4", two_holders), ("S4", renewed_what_another_has), ("S4", both_held_it),
    ("S5", old_token_acks), ("S5", old_token_acks_late), ("S5", late_nack),
    ("S5", token_used_again),
    ("S5", settled_by_no_holder), ("S5", settled_before_its_delivery),
    ("S5", settled_in_another_queue), ("S5", dead_letter_by_its_old_token),
    ("S6", attempt_forgotten), ("S6", failure_not_counted), ("S6", release_counted),
    ("S6", delivered_at_the_limit), ("S6", client_told_otherwise),
    ("S6", failed_before_its_first_attempt), ("S7", buried_for_nothing),
    ("S7", live_and_dead), ("S7", acked_and_dead), ("S7", terminated_and_nowhere),
    ("S7", buried_too_early), ("S7", buried_without_a_reason),
    ("S8", back_too_soon), ("S8", before_its_time),
    ("S8", overtaken_after_its_nack), ("S8", overtaken_after_its_first_delay),
    ("S9", taken_early), ("S9", overtaken_after_its_lock), ("S10", two_active),
    ("S11", overtaken_in_its_key), ("S11", out_of_order),
    ("S12", states_differ), ("S12", counters_do_not_add_up),
    ("V1", no_leader), ("V1", left_behind), ("V2", stood_still),
    ("V2", nobody_there_to_refuse), ("V3", not_drained),
    ("V4", call_without_end),
)  # fmt: skip

BAD_WITHOUT_TRACE: tuple[tuple[str, Scene], ...] = (
    ("S3", back_after_its_ack), ("S4", two_holders), ("S4", both_held_it), ("S5", old_token_acks),
    ("S5", acked_twice), ("S5", settled_by_no_holder), ("S5", settled_before_its_delivery),
    ("S5", settled_in_another_queue), ("S5", dead_letter_by_its_old_token),
    ("S6", failed_before_its_first_attempt), ("S6", attempt_forgotten), ("S6", failure_not_counted),
    ("S6", release_counted), ("S7", live_and_dead), ("S7", handed_out_after_its_burial),
    ("S8", back_too_soon), ("S9", taken_early),
    ("S8", overtaken_after_its_nack), ("S8", overtaken_after_its_first_delay),
    ("S9", overtaken_after_its_lock),
    ("S10", two_active), ("S11", overtaken_in_its_key), ("S11", out_of_order),
)  # fmt: skip


def history_of(scene: Scene, *, traced: bool) -> list[Event]:
    """The history of a scene."""
    story = Story(traced=traced)
    scene(story)
    return story.events


def files() -> dict[str, str]:
    """Every shared history, by the name of its file."""
    found = {}
    for traced, good, bad in (
        (True, GOOD, BAD),
        (False, GOOD_WITHOUT_TRACE, BAD_WITHOUT_TRACE),
    ):
        end = "" if traced else "-clients-only"
        named = [("good", scene) for scene in good] + [(f"bad-{rule}", one) for rule, one in bad]
        for start, scene in named:
            name = f"{start}-{scene.__name__.replace('_', '-')}{end}.jsonl"
            events = history_of(scene, traced=traced)
            found[name] = "".join(json.dumps(event) + "\n" for event in events)
    return found


def main() -> None:
    """Write the files anew."""
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.jsonl"):
        path.unlink()
    for name, text in files().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
