"""The read side of the machine: one named query for everything that others ask of its state.

Owns the answers that the broker, the metrics, the benchmarks and the tests may rely on. A query
changes nothing, returns plain values or immutable records, and costs no more than what it returns,
except where its docstring says otherwise. Must not know commands, verbs or snapshots.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fifo.machine import consumers, limits, queries, search
from fifo.machine.effects import Run
from fifo.machine.queries import Held, Plain
from fifo.machine.search import Steps, Wanted
from fifo.machine.state import locks
from fifo.machine.state.records import RUNNING, Queue, RedriveState, State
from fifo.machine.types import Range
from fifo.machine.user_form import UserRecord


class QueueFigures(NamedTuple):
    """Depths of a queue in messages and bytes, and its counters, which only grow.

    `oldest_ready_ms`: when the oldest was published of those that stand first in line; None where
    none is ready. `full`: a publish would be refused; `dead_letter`: the queue of its dead letters;
    `redrive`: the status of its redrive, None where there was none.
    """

    name: str
    ready: int
    locked: int
    delayed: int
    bytes: int
    oldest_ready_ms: int | None
    counters: Mapping[str, int]
    paused: bool
    full: bool
    dead_letter: str | None
    redrive: str | None


class ConsumerFigures(NamedTuple):
    """A consumer's queue and its states: `up`, or `disconnected` or `detached`, and `suspected`.

    `oldest_lock_ms`: when the message was handed out that it has held for longest; None for none.
    """

    queue: str
    states: tuple[str, ...]
    oldest_lock_ms: int | None


class DurableView(NamedTuple):
    """A durable consumer: all tokens below `resolved_below` are settled, `next_token` is unused."""

    number: int
    resolved_below: int
    next_token: int


class ReadSide:
    """The queries of a machine. Times are cluster time in milliseconds."""

    state: State

    @property
    def cluster_time_ms(self) -> int:
        """The replicated time: milliseconds that never run backwards."""
        return self.state.cluster_time_ms

    @property
    def version(self) -> int:
        """The version of the rules by which entries are applied."""
        return self.state.version

    @property
    def running_hash(self) -> int:
        """The hash of what every entry so far did, see `running_hash.py`."""
        return self.state.running_hash

    def first_deadline_ms(self, consumer: int) -> int | None:
        """When the first lock of the consumer ends by the state's word, floors included."""
        return queries.first_deadline_ms(self.state, consumer)

    def expired(
        self, consumer: int, now_ms: int, most: int = limits.STEP_MESSAGES
    ) -> tuple[list[Range], int | None]:
        """(token ranges that ended by `now_ms`, no later than the next deadline among the rest)."""
        return queries.expired(self.state, consumer, now_ms, most)

    def lock_consumers(self) -> Iterator[tuple[int, int]]:
        """(lower bound of its first deadline, consumer), in the order of the bounds."""
        return queries.lock_consumers(self.state)

    def held(
        self, consumer: int, ranges: Sequence[Range], renewed_ms: int | None = None
    ) -> Held | None:
        """The named tokens that the consumer holds, as a renewal at that time needs them."""
        return queries.held(self.state, consumer, ranges, renewed_ms)

    def handed_out(self, consumer: int, ranges: Sequence[Range]) -> list[Range]:
        """The named tokens that this state knows to have been given to the consumer, held or not:
        of all others it cannot say that they are lost."""
        return queries.handed_out(self.state, consumer, ranges)

    @property
    def next_queue(self) -> int:
        """The number of the queue that is declared next: all that exist have lower ones."""
        return self.state.next_queue

    def queues(self) -> list[str]:
        """The names of all queues, in the order of their creation."""
        return list(self.state.queue_names)

    def queue_overview(self, name: str, *, brief: bool = False) -> Plain | None:
        """Counts, spec and counters of a queue, as plain data; `brief`: only the counts."""
        return queries.queue_overview(self.state, name, brief=brief)

    def consumers_of(
        self,
        name: str,
        limit: int | None = None,
        only: int | None = None,
        after: int | None = None,
    ) -> list[Plain]:
        """The consumers of a queue, or the first so many, with status, flags, credit and held;
        those `after` a number in their order."""
        return queries.consumers_of(self.state, name, limit, only, after)

    def producers_of(self, name: str, limit: int, after: int | None = None) -> list[Plain]:
        """Up to `limit` named producers that have published to a queue; those `after` a number in
        their order."""
        return queries.producers_of(self.state, name, limit, after)

    def queues_of_producer(self, name: str) -> list[str]:
        """The queues that a named producer has published to."""
        return queries.queues_of_producer(self.state, name)

    def opener_of_producer(self, name: str) -> str | None:
        """The user who opened a named producer first; None without such a producer."""
        return queries.opener_of_producer(self.state, name)

    def locks_of(self, name: str, limit: int, after: tuple[int, int] | None = None) -> list[Plain]:
        """Up to `limit` locked messages of a queue, with their holders; those behind a consumer and
        its token in their order."""
        return queries.locks_of(self.state, name, limit, after)

    def delayed_of(
        self, name: str, limit: int, after: tuple[int, int] | None = None
    ) -> list[Plain]:
        """Up to `limit` delayed messages of a queue, the first to be due first; those behind a due
        time and position."""
        return queries.delayed_of(self.state, name, limit, after)

    def peek(self, name: str, count: int) -> tuple[Run, ...]:
        """The next ready messages, without locking them."""
        return queries.peek(self.state, name, count)

    def redrive_of(self, name: str) -> Plain | None:
        """The progress of a queue's redrive, or the end of the last one."""
        return queries.redrive_of(self.state, name)

    def redrive_candidates(self, name: str, most: int) -> tuple[list[tuple[int, Run]], int]:
        """The next messages for a redrive's filter: ((position, run of one)..., until)."""
        return queries.redrive_candidates(self.state, name, most)

    def session_of(self, session_id: bytes) -> int | None:
        """The number of the session with this id."""
        return self.state.session_ids.get(session_id)

    def session_summary(self, session: int) -> Plain | None:
        """A session in a line; `ends_ms` is the cluster time at which it ends, None if it stays."""
        return queries.session_summary(self.state, session)

    def sessions_like(self, begin: str) -> list[tuple[int, str]]:
        """(number, user) of the sessions whose id begins with these hexadecimal digits. Looks at
        every session."""
        found = []
        for session_id, number in self.state.session_ids.items():
            if session_id.hex().startswith(begin):
                found.append((number, self.state.sessions[number].user))
        return found

    def session_view(self, session: int) -> Plain | None:
        """Epochs, flags and consumers of a session, as plain data."""
        return queries.session_view(self.state, session)

    # --- queues -----------------------------------------------------------------------------------

    def has_queue(self, name: str) -> bool:
        """Whether the queue exists."""
        return name in self.state.queue_names

    def queue_count(self) -> int:
        """The number of queues."""
        return len(self.state.queue_names)

    def queue_numbers(self) -> list[int]:
        """The numbers of all queues, in the order of their creation."""
        return list(self.state.queue_names.values())

    def backlog(self, number: int) -> tuple[int, int] | None:
        """(messages that are ready, messages acked so far) of a queue; None if it is gone."""
        queue = self.state.queue(number)
        return None if queue is None else (queue.ready, queue.counters["acked"])

    def queue_figures(self, number: int) -> QueueFigures | None:
        """Depths and counters of a queue; None if it is gone."""
        queue = self.state.queue(number)
        if queue is None:
            return None
        return QueueFigures(
            queue.name,
            queue.ready,
            queue.locked,
            len(queue.delayed),
            queue.bytes,
            queries.oldest_ready_ms(queue),
            dict(queue.counters),
            queue.paused,
            not _takes_more(queue),
            queue.spec.dead_letter,
            None if queue.redrive is None else queue.redrive.status,
        )

    def queue_pulse(self, number: int) -> tuple[object, ...] | None:
        """Values that are equal only while `queue_figures` is, at a tenth of its cost; None if the
        queue is gone."""
        queue = self.state.queue(number)
        if queue is None:
            return None
        redrive = queue.redrive
        return (
            queue.spec,
            queue.paused,
            queue.ready,
            queue.locked,
            len(queue.delayed),
            queue.bytes,
            None if redrive is None else redrive.status,
            *queue.counters.values(),
        )

    def users(self) -> Mapping[str, UserRecord]:
        """The users of the log by name; the mapping never changes."""
        return self.state.users

    def gone_counters(self) -> Mapping[str, int]:
        """The counters of all queues that were deleted, together."""
        return dict(self.state.gone_counters)

    def ready(self, name: str) -> int:
        """Messages that could be handed out; 0 without such a queue."""
        queue = self._queue(name)
        return 0 if queue is None else queue.ready

    def ready_for_get(self, name: str) -> int:
        """`ready` without those that a get does not find: all of a paused queue, and messages that
        wait for their key. Messages that avoid one consumer are counted."""
        queue = self._queue(name)
        return 0 if queue is None or queue.paused else queue.ready - queue.in_line.count

    def takes_more(self, name: str) -> bool:
        """Whether a publish of one message would not be refused as `queue_full`."""
        queue = self._queue(name)
        return queue is not None and _takes_more(queue)

    def drops_oldest(self, name: str) -> bool:
        """Whether a publish to this queue may drop older messages."""
        queue = self._queue(name)
        return queue is not None and queue.spec.overflow == "drop_oldest"

    def purged(self, name: str) -> int:
        """Messages that purges have removed from the queue since it was created."""
        queue = self._queue(name)
        return 0 if queue is None else queue.counters["purged"]

    def is_purging(self, name: str) -> bool:
        """Whether a purge of the queue has not finished; ticks carry it on."""
        queue = self._queue(name)
        return queue is not None and queue.purge_below is not None

    # --- redrives ---------------------------------------------------------------------------------

    def redrive(self, name: str) -> RedriveState | None:
        """The queue's last redrive, running or ended."""
        queue = self._queue(name)
        return None if queue is None else queue.redrive

    def running_redrive(self, name: str) -> RedriveState | None:
        """The queue's redrive if it has not ended: running or paused."""
        found = self.redrive(name)
        return found if found is not None and found.status in RUNNING else None

    def running_redrives(self) -> list[str]:
        """The queues with a redrive that has not ended. Looks at every queue."""
        return [name for name in self.queues() if self.running_redrive(name) is not None]

    def ends(self, name: str) -> tuple[int, ...] | None:
        """The positions, one per lane, behind everything that is in the queue now."""
        queue = self._queue(name)
        return None if queue is None else tuple(queue.tails)

    def standing(
        self, name: str, cursor: int, ends: Sequence[int], most: int
    ) -> tuple[list[tuple[int, Run]], int]:
        """Up to `most` ready or delayed messages from `cursor` on and before `ends`, each as
        (position, run of one), and the position from which to continue."""
        return queries.standing(self.state, name, cursor, ends, most)

    def search(self, name: str, wanted: Wanted, after: int, most: int) -> Steps:
        """Look for messages from position `after` on, in bounded steps."""
        return search.search(self.state, name, wanted, after, most)

    # --- consumers --------------------------------------------------------------------------------

    def consumer_count(self) -> int:
        """The number of consumers."""
        return len(self.state.consumers)

    def consumer_numbers(self) -> list[int]:
        """The numbers of all consumers."""
        return list(self.state.consumers)

    def consumer_figures(self, number: int) -> ConsumerFigures | None:
        """A consumer's queue and states; None if the consumer or its queue is gone."""
        consumer = self.state.consumer(number)
        if consumer is None:
            return None
        queue = self.state.queues[consumer.queue]
        return ConsumerFigures(
            queue.name,
            tuple(queries.flags_of(self.state, consumer)) or ("up",),
            locks.oldest_checkout_ms(consumer),
        )

    def is_drained(self, number: int) -> bool:
        """Whether no message is ready in the consumer's queue, so that no ack lets one be handed
        out; not for a durable consumer, nor without such a consumer."""
        consumer = self.state.consumer(number)
        if consumer is None or consumer.durable:
            return False
        return not self.state.queues[consumer.queue].ready

    def keys_are_out(self, number: int) -> bool:
        """Whether all that is ready in the consumer's queue waits for its key, while places of its
        prefetch are free; not without such a consumer."""
        consumer = self.state.consumer(number)
        if consumer is None:
            return False
        queue = self.state.queues[consumer.queue]
        waiting: int = queue.in_line.count
        return waiting > 0 and waiting == queue.ready and consumer.held < consumer.prefetch

    def max_lock_ms(self, consumer: int) -> int:
        """The longest total lock of the consumer, renewals included; 0 without such a consumer."""
        found = self.state.consumer(consumer)
        return 0 if found is None else found.max_lock_ms

    def pulls(self, consumer: int) -> bool:
        """Whether the consumer has explicit credit; not without such a consumer."""
        found = self.state.consumer(consumer)
        return found is not None and found.explicit_credit

    def held_count(self, consumer: int) -> int:
        """Messages that the consumer holds; 0 without such a consumer."""
        found = self.state.consumer(consumer)
        return 0 if found is None else found.held

    def returned_by_expiry(self, consumer: int, tokens: int) -> int:
        """Messages that go back when so many locks of a consumer end: on a single-active queue all
        that it holds."""
        held = self.held_count(consumer)
        return held if self.locks_end_together(consumer) else min(tokens, held)

    def locks_end_together(self, consumer: int) -> bool:
        """Whether the first lock of the consumer that ends takes all others along."""
        return queries.locks_end_together(self.state, consumer)

    def same_user(self, session: int, other: int) -> bool:
        """Whether two sessions are of one user; not where either is gone."""
        one, two = self.state.sessions.get(session), self.state.sessions.get(other)
        return one is not None and two is not None and one.user == two.user

    def are_handles(self, consumer: int, ranges: Sequence[Range], handles: Sequence[bytes]) -> bool:
        """Whether these are the handles of the consumer's tokens, one for each, in their order."""
        return queries.are_handles(self.state, consumer, ranges, handles)

    def durable(self, queue: str, name: str) -> DurableView | None:
        """A queue's durable consumer."""
        found = self._queue(queue)
        number = None if found is None else found.durables.get(name)
        consumer = None if number is None else self.state.consumers.get(number)
        if consumer is None:
            return None
        return DurableView(consumer.number, consumer.resolved_below, consumer.next_token)

    # --- users -----------------------------------------------------------------------------------

    def owned(self, kind: str, user: str) -> int:
        """Items of a user: of kind session, consumer, queue or (named) producer."""
        return self.state.owned.get((kind, user), 0)

    def owner_of(self, queue: str) -> str | None:
        """The user to whom a queue belongs; None without such a queue."""
        found = self._queue(queue)
        return None if found is None else found.user

    def subscribes_anew(self, session: int, queue: str, tag: str) -> bool:
        """Whether a subscription makes a new consumer."""
        found, number = self.state.sessions.get(session), self.state.queue_names.get(queue)
        return found is None or number is None or (number, tag) not in found.tags

    def gets_anew(self, session: int, queue: str) -> bool:
        """Whether a get makes a new consumer: a session has one for each queue that it gets of."""
        found, number = self.state.sessions.get(session), self.state.queue_names.get(queue)
        return found is None or number is None or number not in found.gets

    def owners(self) -> list[str]:
        """The users who own anything, sorted."""
        return sorted(dict.fromkeys(user for _, user in self.state.owned))

    def producer_count(self) -> int:
        """The number of named producers."""
        return len(self.state.producer_names)

    def stored_bytes(self) -> dict[str, int]:
        """Bytes in the queues of each user who owns one. Looks at every queue."""
        found: dict[str, int] = {}
        for queue in self.state.queues.values():
            if not queue.deleted:
                found[queue.user] = found.get(queue.user, 0) + queue.bytes
        return found

    # --- sessions ---------------------------------------------------------------------------------

    def session_count(self) -> int:
        """The number of sessions, connected or not."""
        return len(self.state.sessions)

    def session_numbers(self) -> list[int]:
        """The numbers of all sessions."""
        return list(self.state.sessions)

    def session_status(self, number: int) -> str | None:
        """`connected`, `detached` or `disconnected`; None without such a session."""
        session = self.state.sessions.get(number)
        if session is None:
            return None
        if session.disconnected:
            return "disconnected"
        return "connected" if consumers.is_present(self.state, session) else "detached"

    def burden(self, session: int) -> tuple[int, int]:
        """The number of consumers of a session, and of messages that they hold."""
        found = self.state.sessions.get(session)
        if found is None:
            return 0, 0
        held = [self.state.consumers[number].held for number in found.consumers]
        return len(held), sum(held)

    def epochs_and_consumers(self, session: int) -> tuple[tuple[int, int], tuple[int, ...]] | None:
        """The epochs of a session's data and control roles, and the numbers of its consumers."""
        found = self.state.sessions.get(session)
        if found is None:
            return None
        return (found.epochs[0], found.epochs[1]), tuple(found.consumers)

    def _queue(self, name: str) -> Queue | None:
        number = self.state.queue_names.get(name)
        return None if number is None else self.state.queues[number]


def _takes_more(queue: Queue) -> bool:
    spec = queue.spec
    if spec.overflow != "reject":
        return True
    full = spec.max_length is not None and queue.total >= spec.max_length
    return not full and (spec.max_bytes is None or queue.bytes < spec.max_bytes)
