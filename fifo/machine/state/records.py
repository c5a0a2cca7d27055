"""The replicated state: every record and table of the machine, and nothing that acts on them.

Owns what is kept. Rule 1: all that affects a reply or an effect of a later command lives here.
Rule 2: the indexes (`lock_index`, `timers`, `Queue.service`, `Queue.delays`, `Queue.expiries`) say
nothing that the records do not say, and are built again by a restore; so are `Queue.in_line`,
`Queue.ranks`, `Queue.subscribed`, `dead_letter_users`, `owned`, and what is only a lower bound:
`Queue.front_lane`, `HoldLane.bound_ms`.

Every change of a session, consumer, producer or queue begins with `State.touch` on it, so that a
frozen view keeps what it was. Update with a new field: `snapshot_layout.py` (its form, and the
version of snapshots), `invariants.py` and, where users see it, `queries.py`.
"""

from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from sortedcontainers import SortedList

from fifo.machine.effects import Effect
from fifo.machine.limits import BATCH_CHECKOUT_MESSAGES, BLOCK_BITS
from fifo.machine.spec import QueueSpec
from fifo.machine.state.blocks import Block
from fifo.machine.state.positions import PositionMap, Positions
from fifo.machine.state.tables import Line, Table
from fifo.machine.types import Attempt, Base, DeadLetter, Suspicion
from fifo.machine.user_form import UserRecord
from fifo.words import versions
from fifo.words.bounds import PRIORITY_DEFAULT

LANES = 10
LANE_SHIFT = 48
"""A position says where a message stands in its queue: its lane (9 - priority) in the bits from
this one on, the order of publishing below. So ascending positions are the order of delivery."""

VERSION = versions.NEWEST
"""The highest machine version that this code knows; a new state begins with `versions.FIRST`."""

QUEUE_COUNTERS = (
    "published",
    "duplicates",
    "refused",
    "delivered",
    "acked",
    "late_acks",
    "redelivered_nack",
    "redelivered_timeout",
    "redelivered_disconnect",
    "redelivered_released",
    "redelivered_taken_back",
    "dead_lettered_terminated",
    "dead_lettered_max_deliveries",
    "dead_lettered_expired",
    "dead_lettered_overflow",
    "exhausted_dropped",
    "expired",
    "overflow_dropped",
    "purged",
    "lock_timeouts",
    "terms",
    "moved_in",
    "moved_out",
    "deleted",
)
"""Counters of a queue, all of messages and all growing; `docs/machine.md` says what each counts.

What `redelivered_*` counts is returns by cause, those that a return then dead-letters included.
"""

RUNNING = ("running", "paused")
"""The statuses of a redrive that has not ended."""

T = TypeVar("T")


class Record(NamedTuple):
    """The record of a message that is not plain: it came back, is delayed, or is a dead letter.

    `attempts` are the deliveries so far. `consumer` and `token` name the last holder that it was
    taken from, for a late ack; 0 where there is none.
    """

    attempts: int
    failures: int
    consumer: int
    token: int
    history: tuple[Attempt, ...]
    dead_letter: DeadLetter | None


class Remembered(NamedTuple):
    """A dedup id: until when it is remembered, and the producer and number of its message."""

    until_ms: int
    producer: int
    number: int


class Hold(NamedTuple):
    """Locked messages with consecutive tokens and positions, checked out at one time."""

    first: int  # token
    count: int  # type: ignore[assignment]  # hides tuple.count, which a hold has no use for
    position: int
    checkout_ms: int


class RedriveState(NamedTuple):
    """A redrive of a dead-letter queue, running or as it ended (semantics.md section 9).

    `ends` is per lane where the queue ended when it began: later arrivals are not part of it.
    """

    target: str | None  # None: each message's own source queue
    filter: tuple[tuple[str, Any], ...]
    limit: int | None
    rate_per_s: int | None
    reset_counts: bool
    ends: tuple[int, ...]
    cursor: int  # the position from which on nothing was looked at yet
    moved: int
    next_ms: int  # no step before this
    status: str  # "running", "paused", "done", "cancelled"
    reason: str  # why it is paused
    skipped: int = 0  # chosen messages that are no dead letters, where each goes to its source


class HoldLane:
    """The holds of a consumer under one lock duration, in token order and so in deadline order.

    `bound_ms` is the key of its one entry in the lock index: at or before its first deadline.
    """

    __slots__ = ("bound_ms", "holds", "lock_ms")

    def __init__(self, lock_ms: int) -> None:
        self.lock_ms = lock_ms
        self.bound_ms = 0
        self.holds: list[Hold] = []

    def copy(self) -> "HoldLane":
        """A lane with a list of its own."""
        twin = HoldLane(self.lock_ms)
        twin.bound_ms, twin.holds = self.bound_ms, self.holds[:]
        return twin


class Notice(NamedTuple):
    """A notice to a client that is kept until it is acknowledged."""

    kind: str
    consumer: int
    ranges: tuple[tuple[int, int], ...]
    label: str


class Session:
    """A client, over all its connections. Lists by role: [data, control]."""

    __slots__ = (
        "address",
        "attached",
        "client",
        "consumers",
        "disconnected",
        "disconnected_ms",
        "end_cause",
        "epochs",
        "generation",
        "gets",
        "handle_key",
        "incarnation",
        "lead_epoch",
        "leaving",
        "next_notice",
        "notices",
        "number",
        "producer",
        "resend",
        "session_id",
        "tags",
        "timer_ms",
        "use",
        "user",
    )
    kind = "session"

    def __init__(self, number: int, session_id: bytes, user: str, producer: int) -> None:
        self.number = number
        self.generation = 0
        self.session_id = session_id
        self.user = user
        self.client = ""  # its name, for people
        self.address = ""
        self.incarnation = b""
        self.handle_key = b""  # its secret: the handles of its messages are derived from it
        self.epochs = [0, 0]
        self.attached = [False, False]
        self.disconnected = False
        self.disconnected_ms = 0
        self.lead_epoch = 0
        self.producer = producer
        self.consumers: dict[int, None] = {}
        self.leaving = 0  # those of them that are being emptied and removed
        self.tags: dict[tuple[int, str], int] = {}
        self.gets: dict[int, int] = {}
        self.notices: dict[int, Notice] = {}
        self.next_notice = 1
        self.use = 0  # `Use`
        self.end_cause: int | None = None  # set while its consumers are still being emptied
        # (consumer, token) from which on what is held is still to be sent again, after a resume
        self.resend: tuple[int, int] | None = None
        self.timer_ms: int | None = None  # when it ends, while disconnected

    def clone(self) -> "Session":
        """Copy what a frozen view keeps."""
        return _copy_of_session(self)

    def __repr__(self) -> str:
        words = [role for role, on in zip(("data", "control"), self.attached, strict=True) if on]
        words += ["disconnected"] if self.disconnected else []
        return f"<session {self.number} {'+'.join(words) or 'detached'} {len(self.consumers)}c>"


class Consumer:
    """A subscription, the implicit consumer of a session's gets, or a durable consumer."""

    __slots__ = (
        "arrival",
        "base",
        "credit",
        "durable",
        "explicit_credit",
        "floor_ms",
        "floor_token",
        "generation",
        "held",
        "implicit",
        "label",
        "lanes",
        "late",
        "leaving",
        "lock_ms",
        "lost_running",
        "max_lock_ms",
        "nack_backoff",
        "next_token",
        "number",
        "prefetch",
        "priority",
        "queue",
        "renewable",
        "renewals",
        "resolved_below",
        "service_key",
        "session",
        "suspicion",
        "tag",
        "taken",
        "timeout_backoff",
        "timer_ms",
        "turn",
        "used_ms",
        "user",
    )
    kind = "consumer"

    def __init__(self, number: int, session: int, queue: int, tag: str, user: str) -> None:
        self.number = number
        self.user = user  # the session's, or of a durable one the first to open it
        self.generation = 0
        self.session = session  # 0 for a durable consumer
        self.queue = queue
        self.tag = tag
        self.label = ""  # its client's own text, which deliveries and notices carry
        self.implicit = False
        self.durable = 0  # the generation of a durable consumer, which starts at 1
        self.used_ms = 0  # a durable consumer's last command
        self.lock_ms = 0
        self.max_lock_ms = 0
        self.prefetch = 0
        self.priority = 0
        self.renewable = True
        self.renewals = 0  # locks' time for which the leader renews, while its session is connected
        self.nack_backoff: str | None = None
        self.timeout_backoff: str | None = None
        self.explicit_credit = False
        self.credit = 0
        self.base = int(Base.ACTIVE)
        self.suspicion = int(Suspicion.NONE)
        self.lost_running = 0  # lost messages whose handlers still run: each takes a place
        self.arrival = 0
        self.turn = 0  # the queue's turn in which it was last served: the least is next
        self.next_token = 1
        self.held = 0
        self.lanes: dict[int, HoldLane] = {}
        self.taken: list[tuple[int, int, bool]] = []  # (first, last, dead-lettered), ascending
        self.late: Table[int, int] = Table()  # taken token -> position, while an ack may be late
        self.resolved_below = 0
        self.floor_ms = 0  # no lock up to floor_token ends before this
        self.floor_token = 0
        self.leaving: int | None = None  # the cause with which it is being emptied and removed
        self.service_key: tuple[int, int, int] | None = None
        # until when its locks outlive a disconnect, where that is bounded; a durable one's end
        self.timer_ms: int | None = None

    def clone(self) -> "Consumer":
        """Copy what a frozen view keeps."""
        twin = _copy_of_consumer(self)
        twin.lanes = {lock_ms: lane.copy() for lock_ms, lane in self.lanes.items()}
        return twin

    def __repr__(self) -> str:
        words = [Base(self.base).name.lower()] + (["suspected"] if self.suspicion else [])
        return f"<consumer {self.number} {'+'.join(words)} held {self.held}/{self.prefetch}>"


class Producer:
    """A producer, which numbers messages: a session's own, or a named one."""

    __slots__ = ("generation", "name", "number", "queues", "timer_ms", "used_ms", "user")
    kind = "producer"

    def __init__(self, number: int, name: str | None, user: str = "") -> None:
        self.number = number
        self.generation = 0
        self.name = name
        self.user = user  # the first to open it
        self.queues: dict[int, None] = {}
        self.used_ms = 0
        self.timer_ms: int | None = None  # when disuse of a named one is looked at

    def clone(self) -> "Producer":
        """Copy what a frozen view keeps."""
        return _copy_of_producer(self)


class Queue:
    """A queue: its messages, and where each of them stands.

    A message is in exactly one place: in a lane's fresh range [head, tail) and not in a hole, in
    `returned`, in `avoided`, in `waiting` for its key, in `delayed`, or in a consumer's hold. What
    has a record is never served from a fresh range, so that those need no look-ups.
    """

    __slots__ = (
        "active",
        "avoid_ms",
        "avoid_until",
        "avoided",
        "blocking",
        "blocks",
        "busy_keys",
        "bytes",
        "consumers",
        "counters",
        "dedup",
        "dedup_order",
        "delayed",
        "delays",
        "deleted",
        "durables",
        "expiries",
        "expiry_of",
        "front_lane",
        "generation",
        "handover",
        "has_priorities",
        "heads",
        "holes",
        "in_line",
        "last_numbers",
        "live",
        "locked",
        "name",
        "number",
        "paused",
        "purge_below",
        "ranks",
        "ready",
        "records",
        "redrive",
        "returned",
        "runners",
        "runs",
        "service",
        "spec",
        "subscribed",
        "tails",
        "timer_ms",
        "turns",
        "used_ms",
        "user",
        "waiting",
    )
    kind = "queue"

    def __init__(self, number: int, name: str, spec: QueueSpec, user: str) -> None:
        self.number = number
        self.generation = 0
        self.name = name
        self.user = user  # by whose declare or update it was created
        self.spec = spec
        self.has_priorities = spec.has_priorities  # that part of a spec never changes
        self.paused = False
        self.deleted = False  # it has no name any more, and goes when its last consumer has gone
        self.blocks: dict[int, Block] = {}
        self.live: dict[int, int] = {}  # block -> messages in it that are still in the queue
        self.heads = [lane << LANE_SHIFT for lane in range(LANES)]
        self.tails = self.heads[:]
        self.front_lane = 0  # nothing is fresh in the lanes before it
        self.holes = Positions()  # in the fresh ranges, but not ready there
        self.returned = Positions()  # ready, outside the fresh ranges
        self.records: Table[int, Record] = Table()
        self.delayed: PositionMap[tuple[int, int]] = PositionMap()  # position -> (due, cause)
        self.delays: SortedList[tuple[int, int]] = SortedList()  # (due_ms, position)
        self.blocking = Positions()  # delayed, and nothing behind may pass
        self.avoided: dict[int, Positions] = {}  # ready for all but this consumer
        self.avoid_until: Line[tuple[int, int, int]] = Line()  # (until_ms, position, consumer)
        # position -> until when its releaser does not get it back, while it is avoided or delayed
        self.avoid_ms: Table[int, int] = Table()
        self.busy_keys: Table[int, int] = Table()  # key hash -> position that has the key
        self.runs: Table[int, Positions] = Table()  # key hash -> positions that have it as well
        self.runners: Table[int, int] = Table()  # key hash -> consumer that may have more of it
        self.waiting: Table[int, Positions] = Table()  # key hash -> positions behind it
        self.in_line = Positions()  # all positions in `waiting`
        self.expiries: SortedList[tuple[int, int]] = SortedList()  # (lower bound, block)
        self.expiry_of: dict[int, int] = {}  # block -> its entry in expiries
        self.ready = 0
        self.locked = 0
        self.bytes = 0
        self.consumers: dict[int, None] = {}
        self.subscribed = 0  # consumers that are not of a get
        self.ranks: dict[int, int] = {}  # priority -> consumers that have it
        self.service: list[tuple[int, int, int]] = []  # (-priority, turn, consumer) in order
        self.turns = 0
        self.active: int | None = None
        self.handover = False
        self.durables: dict[str, int] = {}
        self.last_numbers: dict[int, int] = {}
        self.dedup: Table[bytes, Remembered] = Table()
        self.dedup_order: Line[tuple[int, bytes]] = Line()
        self.counters = dict.fromkeys(QUEUE_COUNTERS, 0)
        self.redrive: RedriveState | None = None
        self.purge_below: list[int] | None = None  # per lane: a purge goes on up to here
        self.used_ms = 0
        self.timer_ms: int | None = None

    @property
    def total(self) -> int:
        """All messages in the queue: ready, locked and delayed."""
        return self.ready + self.locked + len(self.delayed)

    def priority_of(self, position: int) -> int:
        """The priority that a message carries (which orders only where the spec says so)."""
        if self.has_priorities:
            return LANES - 1 - (position >> LANE_SHIFT)
        block = self.blocks[position >> BLOCK_BITS]
        if block.priorities is None:
            return PRIORITY_DEFAULT
        return block.priorities[position & ((1 << BLOCK_BITS) - 1)]

    def note_rank(self, priority: int, change: int) -> None:
        """So many consumers more have this priority."""
        self.ranks[priority] = self.ranks.get(priority, 0) + change
        if not self.ranks[priority]:
            del self.ranks[priority]

    def clone(self) -> "Queue":
        """Copy what a frozen view keeps: its own lists of blocks and pages, which are shared, and
        copied before they change."""
        return _copy_of_queue(self)

    def own(self, sets: "dict[int, Positions] | Table[int, Positions]", key: int) -> Positions:
        """The set of positions under a key of `avoided` or `waiting`, to be put into or taken from:
        made where there is none, copied where a frozen view may hold it."""
        positions = sets.get(key)
        if positions is None:
            positions = sets[key] = Positions(self.generation)
        elif positions.generation != self.generation:
            positions = sets[key] = positions.copy(self.generation)
        return positions

    def __repr__(self) -> str:
        return (
            f"<queue {self.name!r} ready {self.ready} locked {self.locked} "
            f"delayed {len(self.delayed)} consumers {len(self.consumers)}>"
        )


Item = Session | Consumer | Producer | Queue

QUEUE_DERIVED = (
    *("service", "subscribed", "ranks", "delays", "expiries"),
    *("front_lane", "has_priorities", "in_line"),
)
"""Fields of a queue that a restore builds again from the others."""


def _copies_of(prototype: T, without: tuple[str, ...] = ()) -> Callable[[T], T]:
    """The function that copies records of this kind: what never changes in place is shared, as the
    prototype shows by its types, and of the rest each finds by its own what it takes."""
    kind = type(prototype)
    slots = [slot for slot in kind.__slots__ if slot not in without]  # type: ignore[attr-defined]
    shared = [slot for slot in slots if isinstance(getattr(prototype, slot), (int, str, bytes))]
    others = [slot for slot in slots if slot not in shared]
    read_shared, read_others = attrgetter(*shared), attrgetter(*others)
    set_shared = [getattr(kind, slot).__set__ for slot in shared]
    set_others = [getattr(kind, slot).__set__ for slot in others]
    find = _VIEWS.get

    def copy(item: T) -> T:
        twin = object.__new__(kind)
        for put, value in zip(set_shared, read_shared(item), strict=True):
            put(twin, value)
        for put, value in zip(set_others, read_others(item), strict=True):
            view = find(type(value))
            put(twin, value if view is None else view(value))
        return twin

    return copy


_VIEWS: dict[type[Any], Callable[[Any], Any]] = {
    Table: Table.view,
    Line: Line.view,
    Positions: Positions.view,
    PositionMap: PositionMap.view,
    list: list.copy,
    dict: dict.copy,
    deque: deque.copy,
}
"""The copy for a frozen view of what may change, by its type; all else is shared."""


def _copied(value: Any) -> Any:
    view = _VIEWS.get(type(value))
    return value if view is None else view(value)


_copy_of_session = _copies_of(Session(0, b"", "", 0))
_copy_of_consumer = _copies_of(Consumer(0, 0, 0, "", ""))
_copy_of_producer = _copies_of(Producer(0, None))
_copy_of_queue = _copies_of(Queue(0, "", QueueSpec(), ""), without=QUEUE_DERIVED)


class Frozen:
    """The state as it was at `State.freeze`, while the machine goes on.

    Holds what has been changed since, as it was; the rest is read from the live state.
    """

    __slots__ = ("_saved", "_state", "scalars")

    def __init__(self, state: "State") -> None:
        self._state = state
        self._saved: dict[str, dict[int, Item]] = {kind: {} for kind in KINDS}
        self.scalars = {name: _copied(getattr(state, name)) for name in SCALARS}

    def keep(self, item: Item) -> Any:
        """Remember an item as it is now, before its first change; what is remembered of it.

        Its cost is an entry for each block of messages and each page of a table, not for what is
        in them. Views that have not remembered it share one copy, for none of them saw it change.
        """
        kept = self._saved[item.kind].get(item.number)
        if kept is None and item.number >= self.scalars["next_" + item.kind]:
            return item  # it is younger than the view
        if kept is None:
            kept = item.clone()
            self.take(item, kept)
            for other in self._state.frozen:
                other.take(item, kept)
        return kept

    def numbers(self, kind: str) -> list[int]:
        """Of all sessions, consumers, producers or queues of then, ascending."""
        bound = self.scalars["next_" + kind]
        live, saved = getattr(self._state, KINDS[kind]), self._saved[kind]
        return sorted([*saved, *(n for n in live if n < bound and n not in saved)])

    def item(self, kind: str, number: int) -> Any:
        """The item of this number as it was. It may change after the caller's step: see `keep`."""
        kept = self._saved[kind].get(number)
        return getattr(self._state, KINDS[kind])[number] if kept is None else kept

    def take(self, item: Item, kept: Item) -> None:
        """Remember of an item what never changes again: a copy, or itself where it has left."""
        if item.number < self.scalars["next_" + item.kind]:
            self._saved[item.kind].setdefault(item.number, kept)

    def kept(self, kind: str) -> list[Any]:
        """The items of a kind that were remembered so far: the memory that the view costs."""
        return list(self._saved[kind].values())

    def blocks_alone(self) -> int:
        """Blocks of messages that were changed, or have left, since the view was made: all others
        are those of the live state, and cost it nothing."""
        live, found = self._state.queues, 0
        for kept in self.kept("queue"):
            queue = live.get(kept.number)
            now = {} if queue is None else queue.blocks
            found += sum([now.get(at) is not block for at, block in kept.blocks.items()])
        return found

    def release(self) -> None:
        """Stop keeping: the view must not be read any more."""
        if self in self._state.frozen:
            self._state.frozen.remove(self)


KINDS = {
    "session": "sessions",
    "consumer": "consumers",
    "producer": "producers",
    "queue": "queues",
}

SCALARS = (
    "version",
    "cluster_time_ms",
    "term",
    "lead_epoch",
    "lead_ms",
    "resumes",
    "unresumed",
    "next_queue",
    "next_session",
    "next_consumer",
    "next_producer",
    "chores",
    "pending",
    "gone_counters",
    "users_revision",
    "users",
    "running_hash",
)
"""The state beside its four tables; small, so that freezing copies it at once."""


class State:
    """Everything that is replicated."""

    def __init__(self) -> None:
        self.version = versions.FIRST
        self.cluster_time_ms = 0
        self.term = 0
        self.lead_epoch = 0  # grows with every lead(term); who has another one is detached
        self.lead_ms = 0
        # (lead epoch, until when its sessions may resume), of changes of leader, the oldest first
        self.resumes: list[tuple[int, int]] = []
        self.unresumed: list[int] = []  # sessions still to be disconnected, last one first
        self.next_queue = self.next_session = self.next_consumer = self.next_producer = 1
        self.queues: dict[int, Queue] = {}
        self.queue_names: dict[str, int] = {}
        self.dead_letter_users: dict[str, int] = {}  # name -> queues that have it as theirs
        self.sessions: dict[int, Session] = {}
        self.session_ids: dict[bytes, int] = {}
        self.consumers: dict[int, Consumer] = {}
        self.producers: dict[int, Producer] = {}
        self.producer_names: dict[str, int] = {}
        # (kind, user) -> items of a user: sessions, consumers, queues, and named producers
        self.owned: dict[tuple[str, str], int] = {}
        self.lock_index: SortedList[tuple[int, int, int]] = SortedList()
        self.timers: SortedList[tuple[int, str, int]] = SortedList()  # (due_ms, kind, number)
        self.chores: deque[tuple[str, int, int]] = deque()  # (kind, number, cursor), to go on with
        self.pending: dict[int, None] = {}  # queues with something left to hand out
        self.gone_counters: dict[str, int] = {}  # of all queues that were deleted, together
        self.users_revision = 0  # grows with every change of users; 0: the log keeps none
        self.users: dict[str, UserRecord] = {}  # replaced at each change, never changed in place
        self.running_hash = 0  # of all entries so far, see `running_hash.py`
        self.generation = 1
        self.frozen: list[Frozen] = []  # the views that are kept up
        self.remains: list[Any] = []  # of deleted queues, see `garbage.py`; replicas may differ

    def touch(self, item: Item) -> None:
        """Must be called before `item` is changed: a frozen view keeps what it was."""
        if item.generation != self.generation:
            for view in self.frozen:
                view.keep(item)
            item.generation = self.generation

    def leave(self, item: Item) -> None:
        """In the place of `touch`, for an item that leaves its table as it is: none changes it."""
        if item.generation != self.generation:
            for view in self.frozen:
                view.take(item, item)

    def consumer(self, number: int) -> Consumer | None:
        """The consumer of this number; None too where its queue is deleted: it is on its way."""
        consumer = self.consumers.get(number)
        return None if consumer is None or self.queues[consumer.queue].deleted else consumer

    def queue(self, number: int) -> Queue | None:
        """The queue of this number; None too where it is deleted, and waits for its consumers."""
        queue = self.queues.get(number)
        return None if queue is None or queue.deleted else queue

    def note_owned(self, item: Item, change: int) -> None:
        """Count an item to its user, or no longer; a session's own producer is no item."""
        if isinstance(item, Producer) and item.name is None:
            return
        key = item.kind, item.user
        owned = self.owned
        owned[key] = owned.get(key, 0) + change
        if not owned[key]:
            del owned[key]

    def note_dead_letter(self, name: str | None, change: int) -> None:
        """So many queues more have the one of this name as their dead-letter queue."""
        if name is not None:
            users = self.dead_letter_users
            users[name] = users.get(name, 0) + change
            if not users[name]:
                del users[name]

    def freeze(self) -> Frozen:
        """A view of the state as it is now, at a cost that does not depend on its size.

        It is kept up, beside those before it, until it is released.
        """
        self.generation += 1
        view = Frozen(self)
        self.frozen.append(view)
        return view


class Step:
    """An entry that is being applied: its input, and its effects so far."""

    __slots__ = (
        "area",
        "budget",
        "checkouts",
        "effects",
        "index",
        "now",
        "state",
        "touched",
        "wall",
    )

    def __init__(self, state: State, index: int, wall: int, area: memoryview) -> None:
        self.state = state
        self.index = index
        self.now = state.cluster_time_ms
        self.wall = wall
        self.area = area
        self.effects: list[Effect] = []
        self.touched: dict[int, Queue] = {}
        self.budget = 0  # messages that the current command may still touch
        self.checkouts = BATCH_CHECKOUT_MESSAGES

    def open_queue(self, number: int) -> Queue:
        """A queue that is about to be changed; checkout looks at it after the batch."""
        queue = self.state.queues[number]
        if queue.generation != self.state.generation:
            self.state.touch(queue)
        self.touched[number] = queue
        return queue

    def open_consumer(self, number: int) -> Consumer:
        """A consumer that is about to be changed."""
        consumer = self.state.consumers[number]
        if consumer.generation != self.state.generation:
            self.state.touch(consumer)
        return consumer

    def open_session(self, number: int) -> Session:
        """A session that is about to be changed."""
        session = self.state.sessions[number]
        if session.generation != self.state.generation:
            self.state.touch(session)
        return session

    def arm(self, item: Item, due_ms: int | None) -> None:
        """Set the item's one entry in the index of times; None is no entry."""
        if item.timer_ms == due_ms:
            return
        self.state.touch(item)
        if item.timer_ms is not None:
            self.state.timers.remove((item.timer_ms, item.kind, item.number))
        if due_ms is not None:
            self.state.timers.add((due_ms, item.kind, item.number))
        item.timer_ms = due_ms
