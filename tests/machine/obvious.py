"""A slow, obvious queue to compare the machine with: lists, loops, one object per message.

Written from semantics.md alone. It predicts statuses, counts, delays and deaths; who of several
consumers is served it does not predict, but checks that each delivery was allowed, in order, and
that nothing which could be handed out was left. Messages that moved in one command are in no order
that the model knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RELEASE_AVOID_MS = 1_000
SESSION_TIMEOUT_MS = 300_000
RESUME_MS = 10_000


@dataclass
class Lock:
    """One delivery that is not settled."""

    consumer: int
    token: int
    checkout_ms: int
    lock_ms: int


@dataclass(eq=False)
class Note:
    """One message, wherever it is."""

    body: bytes
    lane: int
    born: int  # command in which it came to this queue
    place: int  # among those of one publish
    key: bytes = b""
    priority: int = 4
    attempts: int = 0
    failures: int = 0
    due_ms: int | None = None
    returned_delay: bool = False
    expires_ms: int | None = None
    avoid: tuple[int, int] | None = None
    lock: Lock | None = None
    last: tuple[int, int] | None = None
    dead: str | None = None

    @property
    def order(self) -> tuple[int, int, int]:
        """Where it stands: by priority, then by arrival."""
        return (self.lane, self.born, self.place)


@dataclass
class ModelConsumer:
    """What the model knows of a consumer."""

    number: int
    session: int
    queue: str
    prefetch: int
    lock_ms: int
    max_lock_ms: int
    implicit: bool = False
    cancelled: bool = False
    suspected: bool = False
    suspected_away: bool = False
    last_token: int = 0
    floor: tuple[int, int] = (0, 0)  # (no lock ends before, up to this token)
    taken: dict[int, str] = field(default_factory=dict)
    gone: bool = False


@dataclass
class ModelSession:
    """What the model knows of a session."""

    number: int
    data: bool = True
    control: bool = False
    disconnected_ms: int | None = None
    behind: bool = False  # a change of leader, and not resumed since
    ended: bool = False


@dataclass
class ModelQueue:
    """A queue as a list of notes."""

    name: str
    ordering: str = "none"
    dead_letter: str | None = None
    max_deliveries: int | None = None
    count_timeouts: bool = True
    nack_ms: int = 1_000
    timeout_ms: int = 0
    ttl_ms: int | None = None
    on_delay: str = "block"
    max_length: int | None = None
    paused: bool = False
    notes: list[Note] = field(default_factory=list)


class Model:
    """All queues, sessions and consumers, and the present time."""

    def __init__(self) -> None:
        self.now = 0
        self.command = 0
        self.queues: dict[str, ModelQueue] = {}
        self.sessions: dict[int, ModelSession] = {}
        self.consumers: dict[int, ModelConsumer] = {}
        self.resume_by_ms: int | None = None

    # -- reading --

    def held(self, consumer: int) -> list[Note]:
        """What a consumer holds, by token."""
        found = [
            note
            for queue in self.queues.values()
            for note in queue.notes
            if note.lock is not None and note.lock.consumer == consumer
        ]
        found.sort(key=lambda note: note.lock.token if note.lock else 0)
        return found

    def ready(self, queue: ModelQueue) -> list[Note]:
        """What is ready, in order."""
        found = [note for note in queue.notes if note.lock is None and note.due_ms is None]
        found.sort(key=lambda note: note.order)
        return found

    def counts(self, name: str) -> tuple[int, int, int]:
        """(ready, locked, delayed)."""
        queue = self.queues[name]
        locked = sum(note.lock is not None for note in queue.notes)
        delayed = sum(note.due_ms is not None for note in queue.notes)
        return len(queue.notes) - locked - delayed, locked, delayed

    def present(self, number: int) -> bool:
        """Whether a session can be sent something."""
        session = self.sessions[number]
        away = session.disconnected_ms is not None or session.behind
        return session.data and not away and not session.ended

    def eligible(self, consumer: ModelConsumer) -> bool:
        """Whether a consumer may be handed something, room aside."""
        barred = consumer.cancelled or consumer.suspected or consumer.implicit or consumer.gone
        return not barred and self.present(consumer.session)

    def available(self, consumer: ModelConsumer) -> list[Note]:
        """What the consumer could be handed next, in order; the first one must be handed first."""
        queue = self.queues[consumer.queue]
        if queue.paused:
            return []
        found: list[Note] = []
        seen_keys = {
            note.key
            for note in queue.notes
            if queue.ordering == "key" and note.key and self._has_key(queue, note)
        }
        wall = self._wall(queue, consumer)
        for note in self.ready(queue):
            avoided = note.avoid is not None and note.avoid[0] == consumer.number
            if avoided or (wall is not None and note.order >= wall):
                seen_keys.add(note.key)
                continue
            if note.key and queue.ordering == "key":
                if note.key in seen_keys:
                    continue
                seen_keys.add(note.key)
            found.append(note)
        return found

    def _has_key(self, queue: ModelQueue, note: Note) -> bool:
        blocks = note.due_ms is not None and note.returned_delay and queue.on_delay == "block"
        return note.lock is not None or blocks

    def _wall(self, queue: ModelQueue, consumer: ModelConsumer) -> tuple[int, int, int] | None:
        if queue.ordering != "single_active":
            return None
        walls = [
            note.order
            for note in queue.notes
            if (note.due_ms is not None and note.returned_delay and queue.on_delay == "block")
            or (note.lock is None and note.avoid is not None and note.avoid[0] == consumer.number)
        ]
        return min(walls, default=None)

    # -- what commands do --

    def publish(self, name: str, items: list[dict[str, Any]]) -> int:
        """Store what fits; how many."""
        queue = self.queues[name]
        stored = 0
        for place, item in enumerate(items):
            if queue.max_length is not None and len(queue.notes) >= queue.max_length:
                break
            lane = 9 - item["priority"] if queue.ordering == "none" else 5
            note = Note(item["body"], lane, self.command, place, item["key"], item["priority"])
            ttls = [ttl for ttl in (item["ttl"], queue.ttl_ms) if ttl]
            note.expires_ms = self.now + min(ttls) if ttls else None
            note.due_ms = self.now + item["delay"] if item["delay"] else None
            queue.notes.append(note)
            stored += 1
        return stored

    def deliver(self, consumer_number: int, token: int, body: bytes, lock_ms: int) -> Note:
        """Check one delivery against what is allowed, and make it."""
        consumer = self.consumers[consumer_number]
        queue = self.queues[consumer.queue]
        assert consumer.implicit or self.eligible(consumer), "served, but not eligible"
        assert len(self.held(consumer_number)) < consumer.prefetch, "served above its prefetch"
        assert token == consumer.last_token + 1, "a token out of turn"
        if queue.ordering == "single_active":
            holders = {note.lock.consumer for note in queue.notes if note.lock is not None}
            assert holders <= {consumer_number}, "two hold messages of a single-active queue"
        choices = self.available(consumer)
        assert choices, f"nothing was there to be handed out, but {body!r} was"
        note = next((n for n in choices if n.body == body), None)
        assert note is not None, f"{body!r} was not available"
        first = choices[0]
        ties = first.born == note.born and first.place == note.place == -1
        assert note is first or ties, f"{body!r} was handed out before {first.body!r}"
        note.attempts += 1
        note.avoid = None
        note.last = None
        note.lock = Lock(consumer_number, token, self.now, lock_ms)
        consumer.last_token = token
        return note

    def settle(self, number: int, token: int, verb: str, delay_ms: int | None) -> str:
        """Settle one token; the status."""
        consumer = self.consumers.get(number)
        if consumer is None or consumer.gone:
            return "unknown_consumer"
        note = next((n for n in self.held(number) if n.lock and n.lock.token == token), None)
        queue = self.queues[consumer.queue]
        if note is not None:
            return self._settle_held(consumer, queue, note, verb, delay_ms)
        late = [n for n in queue.notes if n.last == (number, token) and n.lock is None]
        if token in consumer.taken:
            status = consumer.taken[token]
            if status == "lock_lost" and verb in ("ack", "terminate") and late:
                del consumer.taken[token]
                if verb == "ack":
                    queue.notes.remove(late[0])
                else:
                    self._bury(queue, late[0], "terminated")
                return "ok+late"
            return status
        return "already_settled" if token <= consumer.last_token else "lock_lost"

    def _settle_held(
        self,
        consumer: ModelConsumer,
        queue: ModelQueue,
        note: Note,
        verb: str,
        delay_ms: int | None,
    ) -> str:
        assert note.lock is not None
        token = note.lock.token
        if verb == "ack":
            queue.notes.remove(note)
        elif verb == "terminate":
            self._bury(queue, note, "terminated")
        elif self.give_back(queue, note, verb, own=True, delay_ms=delay_ms) == "dead":
            consumer.taken[token] = "dead_lettered"
            return "dead_lettered"
        return "ok"

    def spoke(self, number: int) -> None:
        """A command from the program of this consumer."""
        consumer = self.consumers.get(number)
        if consumer is not None:
            consumer.suspected = consumer.suspected_away = False

    def give_back(
        self, queue: ModelQueue, note: Note, cause: str, *, own: bool, delay_ms: int | None = None
    ) -> str:
        """Return a locked message; "dead" where it is a dead letter now, else "back" or "gone"."""
        assert note.lock is not None
        consumer, token = self.consumers[note.lock.consumer], note.lock.token
        note.lock = None
        counts = cause in ("nack", "disconnect") or (cause == "timeout" and queue.count_timeouts)
        note.failures += counts
        fate = "back"
        if counts and queue.max_deliveries is not None and note.failures >= queue.max_deliveries:
            self._bury(queue, note, "max_deliveries")
            fate = "dead" if queue.dead_letter else "gone"
        elif note.expires_ms is not None and note.expires_ms <= self.now:
            self._bury(queue, note, "expired")
            fate = "dead" if queue.dead_letter else "gone"
        if not own:
            consumer.taken[token] = "dead_lettered" if fate == "dead" else "lock_lost"
        if fate != "back":
            return fate
        note.last = None if own else (consumer.number, token)
        delay = delay_ms
        if delay is None:
            delay = {"nack": queue.nack_ms, "timeout": queue.timeout_ms}.get(cause, 0)
        if delay:
            note.due_ms, note.returned_delay = self.now + delay, True
        elif own and cause == "release" and not consumer.cancelled:
            note.avoid = (consumer.number, self.now + RELEASE_AVOID_MS)
        return "back"

    def _bury(self, queue: ModelQueue, note: Note, reason: str) -> None:
        queue.notes.remove(note)
        if queue.dead_letter is None:
            return
        target = self.queues[queue.dead_letter]
        lane = 9 - note.priority if target.ordering == "none" else 5
        dead = Note(note.body, lane, self.command, -1, note.key, note.priority, dead=reason)
        target.notes.append(dead)

    # -- time --

    def expired_tokens(self) -> set[tuple[int, int]]:
        """(consumer, token) of every lock that has ended."""
        return {
            (note.lock.consumer, note.lock.token)
            for queue in self.queues.values()
            for note in queue.notes
            if note.lock is not None and self.ends_ms(note.lock) <= self.now
        }

    def tick(self, named: list[tuple[int, int]]) -> None:
        """Everything that time does."""
        assert set(named) == self.expired_tokens(), "the leader looks for other locks"
        lost: dict[int, list[int]] = {}
        for number, token in named:
            lost.setdefault(number, []).append(token)
        for number, tokens in lost.items():
            self._time_out(self.consumers[number], tokens)
        if self.resume_by_ms is not None and self.resume_by_ms <= self.now:
            self.resume_by_ms = None
            for session in self.sessions.values():
                if session.behind and session.disconnected_ms is None and not session.ended:
                    self.set_disconnected(session)
        for queue in self.queues.values():
            self._time_in_queue(queue)
        for session in self.sessions.values():
            since = session.disconnected_ms
            if since is not None and not session.ended and since + SESSION_TIMEOUT_MS <= self.now:
                self.end(session, "disconnect")

    def _time_out(self, consumer: ModelConsumer, tokens: list[int]) -> None:
        away = self.sessions[consumer.session].disconnected_ms is not None
        queue = self.queues[consumer.queue]
        for note in self.held(consumer.number):
            assert note.lock is not None
            if note.lock.token in tokens:
                self.give_back(queue, note, "disconnect" if away else "timeout", own=False)
            elif queue.ordering == "single_active":
                self.give_back(queue, note, "disconnect" if away else "released", own=False)
        if not consumer.implicit:
            consumer.suspected_away = away and not (
                consumer.suspected and not consumer.suspected_away
            )
            consumer.suspected = True
        if consumer.cancelled and away and not self.held(consumer.number):
            consumer.gone = True

    def _time_in_queue(self, queue: ModelQueue) -> None:
        for note in list(queue.notes):
            if note.lock is None and note.expires_ms is not None and note.expires_ms <= self.now:
                self._bury(queue, note, "expired")
                continue
            if note.due_ms is not None and note.due_ms <= self.now:
                note.due_ms, note.returned_delay = None, False
            if note.avoid is not None and note.avoid[1] <= self.now:
                note.avoid = None

    def lead(self) -> None:
        """A new leader: floors, and everybody is detached."""
        for consumer in self.consumers.values():
            held = [note.lock.lock_ms for note in self.held(consumer.number) if note.lock]
            if held and self.sessions[consumer.session].disconnected_ms is None:
                self.grant(consumer, self.now + max(held))
        for session in self.sessions.values():
            session.behind = True
        self.resume_by_ms = self.now + RESUME_MS

    def grant(self, consumer: ModelConsumer, until_ms: int) -> None:
        """No lock that the consumer has now ends before; nor before an older floor that stands."""
        tokens = [note.lock.token for note in self.held(consumer.number) if note.lock]
        stands = any(token <= consumer.floor[1] for token in tokens)
        older_ms = consumer.floor[0] if stands else 0
        consumer.floor = (max(older_ms, until_ms), consumer.last_token)

    def ends_ms(self, lock: Lock) -> int:
        """When a lock ends: at its deadline, or at its consumer's floor within the longest lock."""
        consumer = self.consumers[lock.consumer]
        ends = lock.checkout_ms + lock.lock_ms
        if lock.token <= consumer.floor[1]:
            ends = max(ends, min(consumer.floor[0], lock.checkout_ms + consumer.max_lock_ms))
        return ends

    def attach(self, number: int, role: int, *, taken: bool) -> None:
        """A session is opened or resumed."""
        session = self.sessions.setdefault(number, ModelSession(number, data=False))
        if session.behind or session.disconnected_ms is not None:
            session.data = session.control = False
        if taken:
            session.data = session.control = False
        session.behind = False
        if role == 0:
            session.data = True
        else:
            session.control = True
        session.disconnected_ms = None
        for consumer in self.consumers.values():
            if consumer.session == number and consumer.suspected_away:
                consumer.suspected = consumer.suspected_away = False

    def set_disconnected(self, session: ModelSession) -> None:
        """Nothing new, and the locks stay; cancelled consumers are emptied and gone."""
        session.data = session.control = session.behind = False
        if session.disconnected_ms is not None:
            return
        session.disconnected_ms = self.now
        for consumer in self.consumers.values():
            if consumer.session == session.number and consumer.cancelled and not consumer.gone:
                self.empty(consumer, "disconnect")

    def empty(self, consumer: ModelConsumer, cause: str) -> None:
        """Everything goes back and the consumer is gone."""
        queue = self.queues[consumer.queue]
        for note in self.held(consumer.number):
            self.give_back(queue, note, cause, own=False)
        consumer.gone = True

    def end(self, session: ModelSession, cause: str) -> None:
        """The session is over."""
        session.ended = True
        for consumer in self.consumers.values():
            if consumer.session == session.number and not consumer.gone:
                self.empty(consumer, cause)
