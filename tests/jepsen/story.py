"""The pen of the histories that are written by hand: one method per event.

Owns the queues of a story and how its events look. Knows no scene.
"""

from __future__ import annotations

from typing import Any

from tests.jepsen.history import Event, History

MAX_DELIVERIES = 3

SPECS: dict[str, dict[str, Any]] = {
    "dead": {},
    "work": {"dead_letter": "dead", "max_deliveries": MAX_DELIVERIES},
    "keyed": {"ordering": "key"},
    "single": {"ordering": "single_active"},
    "plain": {},
}


class Story:
    """A history written by hand: one method per event, one second apart."""

    def __init__(self, *, traced: bool = True) -> None:
        self.now = 0.0
        self.traced = traced
        self.history = History(self._tick)
        for queue, spec in SPECS.items():
            self.add("ok", "declare", "d1", queue=queue, spec=spec)

    def _tick(self) -> float:
        self.now += 1.0
        return self.now

    def add(self, kind: str, f: str, process: str, **value: Any) -> None:
        self.history.add(kind, f, process, **value)

    @property
    def events(self) -> list[Event]:
        return self.history.events

    def publish(
        self,
        body: str = "p1-0",
        number: str = "1.1.1",
        outcome: str = "ok",
        *,
        queue: str = "work",
        process: str = "p1",
        **more: Any,
    ) -> None:
        self.add("invoke", "publish", process, queue=queue, body=body, **more)
        end = {"id": number} if outcome == "ok" else {"error": "it failed"}
        self.add(outcome, "publish", process, queue=queue, body=body, **end)

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
        **more: Any,
    ) -> None:
        """The machine hands it out, and its client has it."""
        what = {
            "id": number, "queue": queue, "consumer": consumer, "token": token,
            "attempt": attempt, "failures": failures, "lock_ms": lock_ms,
        }  # fmt: skip
        if self.traced:
            self.add("ok", "checkout", "n1", **what, at_ms=int(self.now) * 1000)
        what = {"body": body, "intact": True, "reason": None, "transit_s": 0.1, **what, **more}
        self.add("ok", "deliver", f"c{consumer}", **what)

    def subscribe(self, consumer: int = 1, *, renews: bool = False) -> None:
        what = {"queue": "work", "consumer": consumer, "prefetch": 1, "lock_s": 1.0}
        self.add("ok", "subscribe", f"c{consumer}", **what, renews=renews)

    def serve_a_younger_one(self) -> None:
        """Publish long after, and hand that to another consumer."""
        self.now += 5.0
        self.publish("p1-1", "1.1.2")
        self.hand_out(3, 1, number="1.1.2", body="p1-1", waited_s=0.0)
        self.settle(number="1.1.2", consumer=3)

    def serve_it_again(self) -> None:
        """Hand the message out again, after it was held once."""
        self.hand_out(2, 1, attempt=2, failures=1, waited_s=0.0)
        self.settle(consumer=2)

    def hold(self, consumer: int = 1, token: int = 1) -> None:
        self.add("ok", "holds", f"c{consumer}", id="1.1.1", consumer=consumer, token=token)

    def renew(self, consumer: int = 1, token: int = 1) -> None:
        what = {"id": "1.1.1", "consumer": consumer, "token": token}
        self.add("invoke", "renew", f"c{consumer}", **what)
        self.add("ok", "renew", f"c{consumer}", **what, remaining_s=1.0)

    def settle(
        self,
        verb: str = "ack",
        consumer: int = 1,
        token: int = 1,
        *,
        number: str = "1.1.1",
        queue: str = "work",
        status: str = "ok",
        late: bool = False,
        outcome: str = "ok",
        delay_s: float | None = None,
        **more: Any,
    ) -> None:
        what = {
            "id": number, "queue": queue, "consumer": consumer, "token": token, "verb": verb,
            "delay_s": delay_s, **more,
        }  # fmt: skip
        self.add("invoke", "settle", f"c{consumer}", **what)
        end: dict[str, Any] = {"status": status, "late": late} if outcome == "ok" else {}
        self.add(outcome, "settle", f"c{consumer}", **what, **end)

    def call(self, seconds: float) -> None:
        self.add("ok", "call", "p1", what="publish", seconds=seconds, limit_s=8.0)

    def state(self, node: str, applied: int = 7, digest: str = "aa", messages: int = 0) -> None:
        counters = {"published": 3, "acked": 2, "moved_out": 1}
        queue = {
            "messages": messages, "ready": 0, "locked": 0, "delayed": 0, "counters": counters,
        }  # fmt: skip
        what = {"applied": applied, "hash": digest, "queues": {"work": queue}}
        self.add("ok", "state", node, node=node, **what)
