"""Every rule on hand-made histories: a good one passes all, and each bad one fails its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.sim import check_queue as rules
from tests.sim.history import Event, History

MAX_DELIVERIES = 3


class Story:
    """A history written by hand: one method per event, one second apart."""

    def __init__(self) -> None:
        self._now = 0.0
        self.history = History(self._tick)

    def _tick(self) -> float:
        self._now += 1.0
        return self._now

    @property
    def events(self) -> list[Event]:
        return self.history.events

    def publish(self, body: str = "p1-0", number: str = "1.1.1", outcome: str = "ok") -> None:
        self.history.add("invoke", "publish", "p1", body=body)
        self.history.add(outcome, "publish", "p1", body=body, id=number)

    def hand_out(
        self,
        consumer: int = 1,
        token: int = 1,
        *,
        number: str = "1.1.1",
        body: str = "p1-0",
        attempt: int = 1,
        failures: int = 0,
        queue: str = "work",
        lock_ms: int = 1_000,
        **told: Any,
    ) -> None:
        """The machine hands it out, and its client has it."""
        what = {
            "id": number, "queue": queue, "consumer": consumer, "token": token,
            "attempt": attempt, "failures": failures, "lock_ms": lock_ms,
            "at_ms": int(self._now) * 1000,
        }  # fmt: skip
        self.history.add("ok", "checkout", "n1", **what)
        what = {"body": body, "intact": True, "reason": None, **what, **told}
        self.history.add("ok", "deliver", f"c{consumer}", **what)

    def hold(self, consumer: int = 1, token: int = 1) -> None:
        self.history.add(
            "ok", "holds", f"c{consumer}", id="1.1.1", consumer=consumer, token=token
        )  # fmt: skip

    def settle(
        self,
        verb: str = "ack",
        consumer: int = 1,
        token: int = 1,
        *,
        status: str = "ok",
        late: bool = False,
        outcome: str = "ok",
        delay_s: float | None = None,
    ) -> None:
        what = {
            "id": "1.1.1", "consumer": consumer, "token": token, "verb": verb, "delay_s": delay_s,
        }  # fmt: skip
        self.history.add("invoke", "settle", f"c{consumer}", **what)
        self.history.add(outcome, "settle", f"c{consumer}", **what, status=status, late=late)

    def call(self, seconds: float) -> None:
        self.history.add("ok", "call", "p1", what="publish", seconds=seconds, limit_s=8.0)


Scene = Callable[[Story], None]
Rule = Callable[[rules.Told], None]


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
    what = {"id": "1.1.1", "consumer": 1, "token": 1, "verb": "ack", "delay_s": None}
    story.history.add("invoke", "settle", "c1", **what)


def unknown_and_delivered(story: Story) -> None:
    story.publish(outcome="info")
    story.hand_out()
    story.settle()


def refused_and_gone(story: Story) -> None:
    story.publish(outcome="fail")


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
    story.hand_out(2, 1, attempt=2, failures=1)
    story.settle(status="lock_lost")
    story.settle(consumer=2)


def buried(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("terminate")
    story.hand_out(3, 1, queue="dead", reason="terminated")
    story.settle(consumer=3)


def exhausted(story: Story) -> None:
    story.publish()
    for token in (1, 2, 3):
        story.hand_out(1, token, attempt=token, failures=token - 1)
        story.settle("nack", token=token, status="ok" if token < 3 else "dead_lettered")
    story.hand_out(3, 1, queue="dead", reason="max_deliveries")
    story.settle(consumer=3)


# --- bad ------------------------------------------------------------------------------------------


def lost(story: Story) -> None:
    story.publish()


def lost_after_a_refused_ack(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle(status="lock_lost")


def never_published(story: Story) -> None:
    story.publish()
    story.hand_out(body="p9-9")


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


def two_holders(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hand_out(2, 1, attempt=2, failures=1)
    story.hold()
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


def token_used_again(story: Story) -> None:
    story.publish()
    story.hand_out(1, 2)
    story.settle("release", token=2)
    story.hand_out(1, 1, attempt=2)
    story.settle()


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
    story.hand_out()
    story.hand_out(3, 1, queue="dead", reason="max_deliveries")
    story.hand_out(1, 2, attempt=2, failures=1)
    story.settle(token=2)


def acked_and_dead(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hand_out(3, 1, queue="dead", reason="max_deliveries")
    story.settle()
    story.settle(consumer=3, status="already_settled")


def terminated_and_nowhere(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("terminate")
    story.settle("ack", outcome="info")


def buried_too_early(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.hand_out(3, 1, queue="dead", reason="max_deliveries")
    story.settle(consumer=3)


def back_too_soon(story: Story) -> None:
    story.publish()
    story.hand_out()
    story.settle("nack", delay_s=60.0)
    story.hand_out(1, 2, attempt=2, failures=1)
    story.settle(token=2)


def taken_early(story: Story) -> None:
    story.publish()
    story.hand_out(lock_ms=30_000)
    story.hand_out(2, 1, attempt=2, failures=1)
    story.settle(consumer=2)


def call_without_end(story: Story) -> None:
    story.call(9.5)


GOOD: tuple[Scene, ...] = (
    acked,
    acked_unheard,
    killed_while_it_acks,
    unknown_and_delivered,
    refused_and_gone,
    nacked_then_acked,
    released_then_acked,
    late_ack,
    lost_then_acked_by_another,
    buried,
    exhausted,
)

BAD: tuple[tuple[Rule, Scene], ...] = (
    (rules.no_loss, lost),
    (rules.no_loss, lost_after_a_refused_ack),
    (rules.no_phantom, never_published),
    (rules.no_phantom, damaged),
    (rules.no_phantom, refused_and_delivered),
    (rules.one_copy, stored_twice),
    (rules.one_copy, two_under_one_id),
    (rules.no_resurrection, back_after_its_ack),
    (rules.one_holder, two_holders),
    (rules.fenced, old_token_acks),
    (rules.fenced, old_token_acks_late),
    (rules.fenced, late_nack),
    (rules.fenced, token_used_again),
    (rules.counted, attempt_forgotten),
    (rules.counted, failure_not_counted),
    (rules.counted, release_counted),
    (rules.counted, delivered_at_the_limit),
    (rules.counted, client_told_otherwise),
    (rules.buried_once, live_and_dead),
    (rules.buried_once, acked_and_dead),
    (rules.buried_once, terminated_and_nowhere),
    (rules.buried_once, buried_too_early),
    (rules.waited, back_too_soon),
    (rules.not_taken_early, taken_early),
    (rules.ended_in_time, call_without_end),
)


@pytest.mark.parametrize("scene", GOOD, ids=lambda scene: scene.__name__)
def test_a_good_history_breaks_no_rule(scene: Scene) -> None:
    story = Story()
    scene(story)
    rules.check(story.events, MAX_DELIVERIES)


@pytest.mark.parametrize(("rule", "scene"), BAD, ids=lambda one: one.__name__)
def test_a_bad_history_breaks_its_rule(rule: Rule, scene: Scene) -> None:
    story = Story()
    scene(story)
    with pytest.raises(AssertionError, match=rf"^{(rule.__doc__ or '').split(':')[0]}: "):
        rule(rules.Told(story.events, MAX_DELIVERIES))


def test_a_single_active_consumer_may_have_to_give_back_what_it_still_holds() -> None:
    story = Story()
    story.publish()
    story.hand_out()
    story.hand_out(2, 1, attempt=2, failures=1)
    story.hold()
    story.settle(consumer=2)
    rules.check(story.events, MAX_DELIVERIES, single_active=True)
    with pytest.raises(AssertionError, match=r"^S4: "):
        rules.check(story.events, MAX_DELIVERIES)


def test_every_rule_has_a_bad_history() -> None:
    assert {rule for rule, _ in BAD} == set(rules.RULES)


def test_a_history_is_told_as_json_lines() -> None:
    story = Story()
    story.publish()
    first = json.loads(next(story.history.lines()))
    assert first == {
        "type": "invoke",
        "f": "publish",
        "value": {"body": "p1-0"},
        "process": "p1",
        "time": 1.0,
        "index": 0,
    }
