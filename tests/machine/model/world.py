"""The model's state and everything that is recomputed from it whenever it is asked for.

Owns the lists and the questions; the verbs are in `verbs.py`, handing out in `handing.py`. Slow on
purpose: each question is a loop over all messages.
"""

from collections import Counter
from dataclasses import dataclass, field

from fifo.words import bounds
from tests.machine.model.records import (
    DELAYED,
    LOCKED,
    READY,
    Consumer,
    Message,
    Producer,
    Queue,
    Session,
)

LEASE_MS = 600
"""A former leader may grant locks for this long after an election."""


@dataclass
class World:
    """Everything there is."""

    now_ms: int = 0
    wall_ms: int = 0
    entry: int = 0  # the number of the present one
    version: int = 1  # of the cluster
    term: int = 0
    lead_ms: int = 0  # when it began
    ticking: bool = False  # the present command is a tick
    messages: list[Message] = field(default_factory=list)
    queues: dict[str, Queue] = field(default_factory=dict)
    consumers: dict[int, Consumer] = field(default_factory=dict)
    sessions: dict[int, Session] = field(default_factory=dict)
    producers: dict[int, Producer] = field(default_factory=dict)
    last_number: dict[str, int] = field(default_factory=dict)
    queues_after: set[str] = field(default_factory=set)  # the machine's, after the present entry
    unused_at_first: set[str] = field(default_factory=set)  # when the entry began
    survivors: set[tuple[int, int, int]] = field(default_factory=set)  # ids seen after the entry
    handed: set[tuple[int, int, int]] = field(default_factory=set)  # ids delivered by the entry
    got: set[tuple[int, int]] = field(
        default_factory=set
    )  # (consumer, token), by gets of this entry
    effects: list[tuple[object, ...]] = field(default_factory=list)  # of the present entry

    # -- questions --

    def number(self, kind: str) -> int:
        """The next number of a kind: they grow and are never used again."""
        self.last_number[kind] = self.last_number.get(kind, 0) + 1
        return self.last_number[kind]

    def in_queue(self, queue: str, *where: str) -> list[Message]:
        """The messages of a queue, in the order of delivery."""
        found = [
            message
            for message in self.messages
            if message.queue == queue and (not where or message.where in where)
        ]
        return sorted(found, key=self.place)

    def place(self, message: Message) -> tuple[int, int]:
        """Where a message stands: strict priority, then publish order."""
        lane = 9 - message.priority if self.queues[message.queue].spec.has_priorities else 0
        return (lane, message.order)

    def held_by(self, consumer: Consumer) -> list[Message]:
        """The messages that a consumer holds, by token."""
        found = [m for m in self.messages if m.where == LOCKED and m.consumer == consumer.number]
        return sorted(found, key=lambda message: message.token)

    def holder_of(self, consumer: int, token: int) -> Message | None:
        """The message that is locked under this token."""
        for message in self.messages:
            if message.where == LOCKED and (message.consumer, message.token) == (consumer, token):
                return message
        return None

    def deadline_ms(self, message: Message) -> int:
        """When the lock ends: its own deadline or the floor, within checkout + max_lock."""
        consumer = self.consumers[message.consumer]
        own = message.checkout_ms + message.lock_ms
        latest = message.checkout_ms + consumer.max_lock_ms
        if self.is_renewed(consumer):
            return max(own, latest)
        floor_ms, last = self.floor_of(consumer)
        ends_ms = max(own, min(floor_ms, latest)) if message.token <= last else own
        # What the rules promise: whatever a former leader may have granted to this token.
        if message.token <= consumer.lead_last:
            granted_ms = min(consumer.lead_ms + LEASE_MS + message.lock_ms, latest)
            assert ends_ms >= granted_ms, f"a floor below what may have been granted: {message}"
        return ends_ms

    def is_renewed(self, consumer: Consumer) -> bool:
        """Whether the leader renews for it now (5.19)."""
        session = self.sessions.get(consumer.session)
        return consumer.renewals > 0 and session is not None and not session.disconnected

    def renew_last(self, consumer: Consumer) -> None:
        """The leader renews for it no more: what it holds now has one more lock."""
        held = self.held_by(consumer)
        if held and self.is_renewed(consumer):
            floor_ms = self.now_ms + max(message.lock_ms for message in held)
            consumer.floor_ms = max(self.standing_floor_ms(consumer), floor_ms)
            consumer.floor_last = consumer.next_token - 1

    def floor_of(self, consumer: Consumer) -> tuple[int, int]:
        """(floor, last token): one pair per consumer, so the longest lock held speaks for all;
        lengthening is allowed, shortening is not."""
        held = self.held_by(consumer)
        session = self.sessions.get(consumer.session)
        if session is not None and session.resume_by_ms is not None and held:
            floor_ms = consumer.lead_ms + LEASE_MS + max(message.lock_ms for message in held)
            return max(self.standing_floor_ms(consumer), floor_ms), consumer.next_token - 1
        return consumer.floor_ms, consumer.floor_last

    def standing_floor_ms(self, consumer: Consumer) -> int:
        """The floor as long as a lock is there that it was meant for."""
        held = self.held_by(consumer)
        stands = any(message.token <= consumer.floor_last for message in held)
        return consumer.floor_ms if stands else 0

    def keep_floors(self, session: Session) -> None:
        """Before a session that has not resumed since the last term changes its status."""
        for consumer in self.of_session(session):
            consumer.floor_ms, consumer.floor_last = self.floor_of(consumer)

    def consumers_of(self, queue: str) -> list[Consumer]:
        """The consumers of a queue by number."""
        return [c for _, c in sorted(self.consumers.items()) if c.queue == queue]

    def of_session(self, session: Session) -> list[Consumer]:
        """The consumers of a session by number."""
        return [c for _, c in sorted(self.consumers.items()) if c.session == session.number]

    def is_single_active(self, queue: Queue) -> bool:
        """Whether one consumer of the queue is fed at a time."""
        return bool(queue.spec.ordering == "single_active")

    def is_eligible(self, consumer: Consumer) -> bool:
        """Neither suspected, detached, disconnected nor cancelled (semantics.md section 6)."""
        if consumer.implicit or consumer.cancelled or consumer.suspicion != "none":
            return False
        session = self.sessions[consumer.session]
        return session.attached[0] and not session.disconnected

    def may_get_more(self, consumer: Consumer) -> bool:
        """Whether a checkout may hand this consumer one more message."""
        queue = self.queues[consumer.queue]
        if not self.is_eligible(consumer) or queue.paused:
            return False
        if len(self.held_by(consumer)) + consumer.running >= consumer.prefetch:
            return False
        if consumer.explicit and consumer.credit == 0:
            return False
        if self.is_single_active(queue):
            return queue.active == consumer.number and self.challenger(queue) is None
        return True

    def challenger(self, queue: Queue) -> Consumer | None:
        """An eligible consumer of higher priority than the active one."""
        if queue.active is None:
            return None
        active = self.consumers[queue.active]
        waiting = [
            c
            for c in self.consumers_of(queue.name)
            if self.is_eligible(c) and c.priority > active.priority
        ]
        return self.first_in_line(waiting)

    def first_in_line(self, waiting: list[Consumer]) -> Consumer | None:
        """By priority, then by arrival, which is when it subscribed."""
        return min(waiting, key=lambda c: (-c.priority, c.number), default=None)

    def is_avoided(self, message: Message, consumer: Consumer) -> bool:
        """Whether the consumer released it less than a second ago."""
        return message.avoid == consumer.number and self.now_ms < message.avoid_until_ms

    def may_be_avoided(self, message: Message, consumer: Consumer) -> bool:
        """As `is_avoided`, but the second may be over without a tick having said so."""
        return message.avoid == consumer.number and message.avoid_until_ms > 0

    def is_blocked(self, message: Message, runner: int = 0) -> bool:
        """Whether the queue's order holds a ready message back (semantics.md sections 6 and 11),
        also from a consumer that asks for runs."""
        queue = self.queues[message.queue]
        others = [m for m in self.in_queue(queue.name) if m is not message]
        if queue.spec.ordering == "key" and message.key:
            same = [m for m in others if m.key == message.key]
            return any(
                (m.where == LOCKED and (not runner or m.run != runner))
                or (m.where == DELAYED and m.returned and m.blocks)
                or (m.where == READY and self.place(m) < self.place(message))
                for m in same
            )
        if self.is_single_active(queue):
            ahead = [m for m in others if self.place(m) < self.place(message)]
            return any(
                m.where == READY or (m.where == DELAYED and m.returned and m.blocks) for m in ahead
            )
        return False

    def has_expired(self, message: Message) -> bool:
        """Whether its ttl has passed, exactly."""
        return message.expires_ms is not None and message.expires_ms <= self.now_ms

    def has_surely_expired(self, message: Message) -> bool:
        """Whether its ttl has passed even when rounded up."""
        expires_ms = message.expires_ms
        return expires_ms is not None and expires_ms + message.expires_slack_ms <= self.now_ms

    def size(self, message: Message) -> int:
        """The bytes that a message counts toward max_bytes."""
        return len(message.body)

    def count(self, queue: str, counter: str, by: int = 1) -> None:
        """Count something that happened to a queue."""
        counters = self.queues[queue].counters
        counters[counter] = counters.get(counter, 0) + by

    def used(self, queue: Queue) -> None:
        """Record a use of the queue now (a publish is no use)."""
        queue.unused_since_ms = self.now_ms

    def is_unused(self, queue: Queue) -> bool:
        """Whether the queue is unused for as long as its spec says."""
        after_ms = queue.spec.expires_unused_ms
        if after_ms is None or queue.unused_since_ms + after_ms > self.now_ms:
            return False
        there = self.consumers_of(queue.name)
        return all(c.implicit and not c.generation and not self.held_by(c) for c in there)

    def names_as_dead_letter(self, name: str) -> bool:
        """Whether another queue sends its dead letters here."""
        return any(q.spec.dead_letter == name for q in self.queues.values())

    def owned(self) -> Counter[tuple[str, str]]:
        """Items by kind and user, a session's own producer left out."""
        found = Counter(("session", one.user) for one in self.sessions.values())
        found.update(("consumer", one.user) for one in self.consumers.values())
        found.update(("queue", one.user) for one in self.queues.values())
        found.update(("producer", one.user) for one in self.producers.values() if one.name)
        return found

    def note_use(self, session: int, use: str) -> None:
        """The session has been used for this; what it did before is not undone by less."""
        found = self.sessions.get(session)
        if found is not None and found.use != "consuming":
            found.use = use

    def session_timeout_ms(self, session: Session) -> int:
        """A minute for one that only wrote; else five minutes, never less than its longest lock."""
        if session.use == "writing":
            return bounds.WRITING_SESSION_MS
        longest = [c.lock_ms for c in self.of_session(session)]
        return max([bounds.SESSION_TIMEOUT_MS, *longest])
