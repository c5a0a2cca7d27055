"""Metrics of queues and sessions, from the replicated state.

Owns their names, which node exports what, and the pieces in which they are gathered and rendered:
ten thousand queues would block the event loop. Every node exports the counters of queues, so that
each series goes on as leaders change; depths and ages come from the leader alone. Must not change
anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from node.http.exposition import Family, Page, labels_of
from node.http.pieces import in_pieces

if TYPE_CHECKING:
    from fifo.machine.contract import Machine, QueueFigures

QUEUES_SHOWN_MAX: Final = 1_000
"""Queues with a label of their own, in the order of their creation; the rest is summed under one.
Each costs a monitoring system ten series or more."""

OTHERS: Final = "(others)"
"""The label of that rest."""

QUEUES_PIECE: Final = 50
"""Queues gathered and rendered in one turn of the event loop: about a millisecond."""

PIECE: Final = 500
"""Consumers, or sessions, looked at in one turn: about a millisecond."""

_REDELIVERED: Final = ("nack", "timeout", "disconnect", "released", "taken_back")
_DEAD_LETTERED: Final = ("terminated", "max_deliveries", "expired", "overflow")

_TOTALS: Final[tuple[tuple[str, str, str], ...]] = (
    ("fifo_messages_published_total", "published", "Messages stored."),
    ("fifo_messages_delivered_total", "delivered", "Messages handed out, again ones included."),
    ("fifo_messages_acked_total", "acked", "Messages acked."),
    ("fifo_messages_expired_total", "expired", "Messages whose ttl passed while they were ready."),
    ("fifo_consumer_terms_total", "terms", "Messages that a consumer terminated."),
    ("fifo_lock_timeouts_total", "lock_timeouts", "Locks that ran out."),
)

_OF_QUEUES: Final[tuple[tuple[str, str, str], ...]] = (
    ("fifo_queue_messages_published_total", "published", "Messages stored in the queue."),
    ("fifo_queue_messages_delivered_total", "delivered", "Messages handed out from the queue."),
    ("fifo_queue_messages_acked_total", "acked", "Messages of the queue that were acked."),
)

_DEPTHS: Final[tuple[tuple[str, str], ...]] = (
    ("fifo_queue_messages_ready", "Messages that could be handed out."),
    ("fifo_queue_messages_locked", "Messages that a consumer holds."),
    ("fifo_queue_messages_delayed", "Messages that wait for a time."),
    ("fifo_queue_bytes", "Bodies in the queue, in bytes."),
)


async def add_counters(page: Page, machine: Machine) -> None:
    """Add the counters of the first queues, and those of all that ever were, together."""
    families = [page.family(name, "counter", text) for name, _, text in _OF_QUEUES]
    totals: Counter[str] = Counter()
    seen: dict[int, Mapping[str, int]] = {}
    async for number in in_pieces(machine.queue_numbers(), QUEUES_PIECE):
        queue = machine.queue_figures(number)
        if queue is None:
            continue
        if len(seen) < QUEUES_SHOWN_MAX:
            labels = labels_of({"queue": queue.name})
            for family, (_, counter, _) in zip(families, _OF_QUEUES, strict=True):
                family.add(queue.counters[counter], labels)
        seen[number] = queue.counters
        totals.update(queue.counters)
    # A queue that was deleted while the page was made counts once, with those that are gone: a
    # total that fell by a queue would look like a restart, whose whole count is new.
    for number in seen.keys() - machine.queue_numbers():
        totals.subtract(seen[number])
    totals.update(machine.gone_counters())
    _add_totals(page, totals)


def _add_totals(page: Page, totals: Mapping[str, int]) -> None:
    for name, counter, text in _TOTALS:
        page.counter(name, text, totals.get(counter, 0))
    page.samples(
        "fifo_messages_redelivered_total",
        "counter",
        "Messages that came back from a consumer, by cause.",
        [({"cause": cause}, totals.get(f"redelivered_{cause}", 0)) for cause in _REDELIVERED],
    )
    page.samples(
        "fifo_messages_dead_lettered_total",
        "counter",
        "Messages that went to a dead-letter queue, by reason.",
        [
            ({"reason": reason}, totals.get(f"dead_lettered_{reason}", 0))
            for reason in _DEAD_LETTERED
        ],
    )


class _Consumers:
    """The consumers of the queues under one value of the label `queue`."""

    def __init__(self) -> None:
        self.states: Counter[str] = Counter()
        self.oldest_lock_ms: int | None = None

    def add(self, states: Sequence[str], oldest_lock_ms: int | None) -> None:
        """Add one consumer."""
        self.states.update(states)
        self.oldest_lock_ms = _earlier(self.oldest_lock_ms, oldest_lock_ms)


class Depths:
    """Depths and ages of the queues, as the leader knows them."""

    def __init__(self, page: Page, machine: Machine, now_ms: int) -> None:
        """`now_ms` is cluster time."""
        self._machine = machine
        self._now_ms = now_ms
        self._depths = [page.family(name, "gauge", text) for name, text in _DEPTHS]
        self._ready_age = page.family(
            "fifo_queue_oldest_ready_age_seconds",
            "gauge",
            "Since the publish of the oldest of the messages first in line; 0 where none is ready.",
        )
        self._lock_age = page.family(
            "fifo_queue_oldest_lock_age_seconds",
            "gauge",
            "Since the delivery of the message that was held for longest; 0 where none is.",
        )
        self._consumers = page.family(
            "fifo_queue_consumers",
            "gauge",
            "Consumers by state; one that is disconnected and suspected counts under both.",
        )
        self._by_queue: dict[str, _Consumers] = {}
        self._others: list[int] | None = None
        self._others_ready_ms: int | None = None

    async def add(self) -> None:
        """Gather and render them, in pieces."""
        async for number in in_pieces(self._machine.queue_numbers(), QUEUES_PIECE):
            queue = self._machine.queue_figures(number)
            if queue is not None:
                self._add_queue(queue)
        if self._others is not None:
            self._show(OTHERS, self._others, self._others_ready_ms)
        async for number in in_pieces(self._machine.consumer_numbers(), PIECE):
            consumer = self._machine.consumer_figures(number)
            if consumer is not None:
                found = self._by_queue.get(consumer.queue) or self._rest()
                found.add(consumer.states, consumer.oldest_lock_ms)
        async for name in in_pieces(list(self._by_queue), QUEUES_PIECE):
            consumers = self._by_queue[name]
            for state, count in sorted(consumers.states.items()):
                self._consumers.add(count, labels_of({"queue": name, "state": state}))
            self._add_age(self._lock_age, name, consumers.oldest_lock_ms)

    def _rest(self) -> _Consumers:
        return self._by_queue.setdefault(OTHERS, _Consumers())

    def _add_queue(self, queue: QueueFigures) -> None:
        depths = (queue.ready, queue.locked, queue.delayed, queue.bytes)
        if len(self._by_queue) < QUEUES_SHOWN_MAX:
            self._by_queue[queue.name] = _Consumers()
            self._show(queue.name, depths, queue.oldest_ready_ms)
            return
        others = self._others or (0,) * len(depths)
        self._others = [sum(pair) for pair in zip(others, depths, strict=True)]
        self._others_ready_ms = _earlier(self._others_ready_ms, queue.oldest_ready_ms)

    def _show(self, name: str, depths: Sequence[int], oldest_ready_ms: int | None) -> None:
        labels = labels_of({"queue": name})
        for family, depth in zip(self._depths, depths, strict=True):
            family.add(depth, labels)
        self._add_age(self._ready_age, name, oldest_ready_ms)

    def _add_age(self, family: Family, name: str, since_ms: int | None) -> None:
        age_ms = 0 if since_ms is None else max(0, self._now_ms - since_ms)
        family.add(age_ms / 1000, labels_of({"queue": name}))


async def add_sessions(page: Page, machine: Machine) -> None:
    """Add the sessions, by state."""
    counts = dict.fromkeys(("connected", "detached", "disconnected"), 0)
    async for number in in_pieces(machine.session_numbers(), PIECE):
        status = machine.session_status(number)
        if status is not None:
            counts[status] += 1
    page.samples(
        "fifo_sessions",
        "gauge",
        "Sessions: connected; between two connections; or silent, their locks running out.",
        [({"state": name}, count) for name, count in counts.items()],
    )


def _earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    if one_ms is None or other_ms is None:
        return one_ms if other_ms is None else other_ms
    return min(one_ms, other_ms)
