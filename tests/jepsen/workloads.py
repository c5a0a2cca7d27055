"""Workloads of a run: queues, publishers and consumers, as data.

Owns the workloads of the suite, and their JSON form, which configures a program. Knows
neither programs nor faults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Publishing:
    """A publisher, a process of its own."""

    queue: str = "work"
    pause_s: float = 0.03
    """Between two calls, on average."""
    batch: int = 4
    """Maximum number of messages in a call."""
    keys: int = 0
    delay_s: float = 0.0
    """Maximum delay of a message; 0: none waits."""
    ttl_s: float = 0.0
    """The longest ttl of a message; half of them have none. 0: none has."""
    dedup: bool = False
    """Publish again under the same id until the answer is known."""
    poison: float = 0.0
    """Probability that a message kills the process that handles it."""


@dataclass(frozen=True, slots=True)
class Consuming:
    """A consuming process, and its ways of handling. Shares of verbs are of all messages."""

    queue: str = "work"
    by: str = "consume"
    """consume, get, or durable (which settles by acks alone)."""
    prefetch: int = 5
    workers: int = 2
    lock_s: float = 1.5
    auto_renew: bool = True
    slow: float = 0.1
    """Probability that a handler takes between half a lock and two and a half."""
    nack: float = 0.08
    release: float = 0.05
    terminate: float = 0.0
    forget: float = 0.02
    renew: float = 0.0
    """Probability that a handler itself renews while it works."""
    leave: float = 0.02
    """Probability that a worker stops after a message; after all, another consumer begins."""
    nack_delays: tuple[float | None, ...] = (None, 0.0, 0.05, 0.5)
    policy_s: float = 0.3
    policy_max_s: float = 0.3
    """The least and the longest delay of the queue's own policy, where a nack names none."""


@dataclass(frozen=True, slots=True)
class Workload:
    """All of a run's programs."""

    name: str
    queues: dict[str, dict[str, Any]]
    publishers: tuple[Publishing, ...]
    consumers: tuple[Consuming, ...]
    redrives: bool = False
    """Send dead letters back once, when all is healed."""


_WITH_DEAD: dict[str, dict[str, Any]] = {
    "dead": {},
    "work": {"dead_letter": "dead", "max_deliveries": 20, "nack_backoff": "fixed:300ms"},
}


def _work(**spec: Any) -> dict[str, dict[str, Any]]:
    """The usual two queues, the first with something else about it."""
    return {"dead": {}, "work": {**_WITH_DEAD["work"], **spec}}


WORKLOADS = {
    one.name: one
    for one in (
        Workload(
            "queue", _WITH_DEAD, (Publishing(), Publishing(batch=1)), (Consuming(), Consuming())
        ),
        Workload(
            "lock",
            _work(),
            (Publishing(pause_s=0.1, batch=2),),
            (
                Consuming(lock_s=1.0, slow=0.5, prefetch=3, workers=3, renew=0.3),
                Consuming(
                    lock_s=1.5,
                    slow=0.5,
                    prefetch=4,
                    workers=4,
                    auto_renew=False,
                    renew=0.5,
                    forget=0.1,
                ),
            ),
        ),
        Workload(
            "long",
            _work(),
            (Publishing(pause_s=0.2, batch=2),),
            (
                Consuming(lock_s=5.0, slow=1.0, prefetch=4, workers=4, forget=0.0),
                Consuming(lock_s=5.0, slow=1.0, prefetch=4, workers=4, forget=0.0),
                Consuming(slow=0.0, prefetch=1, workers=1),
            ),
        ),
        Workload(
            "single_active",
            _work(ordering="single_active"),
            (Publishing(pause_s=0.06, batch=2),),
            (
                Consuming(prefetch=1, workers=1, slow=0.05),
                Consuming(prefetch=4, workers=1, slow=0.02),
            ),
        ),
        Workload(
            "key",
            _work(ordering="key"),
            (Publishing(keys=8), Publishing(keys=8, batch=1)),
            (Consuming(slow=0.03), Consuming(slow=0.03)),
        ),
        Workload(
            "delay",
            _work(nack_backoff="exponential:200ms..2s*2"),
            (Publishing(pause_s=0.06, delay_s=2.0),),
            (
                Consuming(nack=0.3, nack_delays=(0.1, 0.7, None), policy_s=0.2, policy_max_s=2.0),
                Consuming(nack=0.3, nack_delays=(0.3, 1.0)),
            ),
        ),
        Workload(
            "dead_letter",
            _work(max_deliveries=3),
            (Publishing(),),
            (Consuming(nack=0.2, terminate=0.1), Consuming(nack=0.2, terminate=0.1, slow=0.2)),
            redrives=True,
        ),
        Workload(
            "poison",
            _work(max_deliveries=3),
            (Publishing(pause_s=0.1, poison=0.02),),
            (Consuming(lock_s=1.0, prefetch=2), Consuming(lock_s=1.0, prefetch=2)),
        ),
        Workload(
            "dedup",
            _work(dedup_window=600),
            (Publishing(dedup=True, batch=1), Publishing(dedup=True, batch=1)),
            (Consuming(), Consuming()),
        ),
        Workload(
            "get",
            _work(),
            (Publishing(), Publishing(batch=1)),
            (
                Consuming(by="get", auto_renew=False, prefetch=3),
                # What is renewed and never settled would be held for ever.
                Consuming(by="get", prefetch=8, slow=0.3, forget=0.0),
                Consuming(by="get", auto_renew=False, lock_s=1.0, slow=0.3),
            ),
        ),
        Workload(
            "durable",
            _work(),
            (Publishing(), Publishing(batch=1)),
            (Consuming(by="durable"), Consuming(by="durable"), Consuming(prefetch=2)),
        ),
        Workload(
            "expiry",
            _work(dead_letter_expired=True),
            (Publishing(ttl_s=2.0), Publishing(ttl_s=0.3)),
            (Consuming(slow=0.3), Consuming(slow=0.3, by="get", auto_renew=False)),
            redrives=True,
        ),
        Workload(
            "overflow",
            _work(
                max_length=30,
                overflow="drop_oldest",
                dead_letter_overflow=False,
                dead_letter_expired=False,
            ),
            (Publishing(), Publishing(ttl_s=1.0)),
            (Consuming(slow=0.3), Consuming(slow=0.3)),
        ),
        Workload(
            "full",
            _work(max_length=30, overflow="reject"),
            (Publishing(batch=1), Publishing(batch=1)),
            (Consuming(slow=0.3), Consuming(slow=0.3)),
        ),
    )
}

_NACKING = Consuming(
    lock_s=1.0, slow=0.15, prefetch=2, auto_renew=False, renew=0.3,
    nack=0.35, terminate=0.1, forget=0.08, nack_delays=(None, 0.05, 0.5),
)  # fmt: skip

EVERY = Workload(
    "every",
    {
        "dead": {},
        "work": {"dead_letter": "dead", "max_deliveries": 3, "nack_backoff": "fixed:300ms"},
        "keyed": {"ordering": "key"},
        "single": {"ordering": "single_active"},
        "line": {"dedup_window": 600, "max_length": 12, "overflow": "drop_oldest"},
    },
    (
        Publishing(pause_s=0.4, batch=2, delay_s=1.0),
        Publishing(queue="keyed", pause_s=0.9, batch=2, keys=2),
        Publishing(queue="single", pause_s=0.9, batch=2),
        Publishing(queue="line", pause_s=0.4, batch=1, dedup=True),
    ),
    (
        _NACKING,
        Consuming(lock_s=1.0, slow=0.05, prefetch=2, nack=0.3, terminate=0.1),
        Consuming(by="get", auto_renew=False, prefetch=2, lock_s=1.0, slow=0.05),
        Consuming(by="durable", slow=0.0),
        Consuming(queue="keyed", lock_s=1.0, prefetch=3, slow=0.0),
        Consuming(queue="keyed", lock_s=1.0, prefetch=3, slow=0.05),
        Consuming(queue="single", lock_s=1.0, prefetch=3, slow=0.03),
        Consuming(queue="single", lock_s=1.0, prefetch=1, workers=1, slow=0.0),
        Consuming(queue="line", lock_s=1.0, prefetch=1, workers=1, slow=0.3),
    ),
)
"""All queues and verbs in one run of few messages: what the mutations of `score` are made of."""

REDRIVEN = Workload(
    "redriven",
    {name: EVERY.queues[name] for name in ("dead", "work")},
    (Publishing(pause_s=0.4, batch=2),),
    (_NACKING, Consuming(lock_s=1.0, slow=0.05, prefetch=2, nack=0.3, terminate=0.1)),
    redrives=True,
)
"""The same where dead letters go back, for some rules are other ones then."""

KNOWN = {**WORKLOADS, EVERY.name: EVERY, REDRIVEN.name: REDRIVEN}
"""Those of the suite, and those that are run by name alone."""
