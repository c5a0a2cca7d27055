"""The records of the model: one message in one list, with a word for its place.

Owns no rule. Everything that can be computed from these records is computed anew each time it is
asked for (`world.py`): how many a consumer holds, who may be given what, what a queue contains.
"""

from dataclasses import dataclass, field
from typing import Any

READY = "ready"
LOCKED = "locked"
DELAYED = "delayed"


@dataclass
class Dead:
    """Why a message is a dead letter, as far as the model follows it."""

    reason: str
    source: str
    attempts: int  # what it had when it died
    failures: int
    history: list[tuple[int, str, int]]
    detail: str | None = None
    description: str | None = None
    exception_type: str | None = None
    exception_text: str | None = None
    stack: str | None = None


@dataclass
class Redriving:
    """A redrive of a queue, as it goes on or as it ended."""

    target: str | None
    limit: int | None
    rate_per_s: int | None
    reset_counts: bool
    about: list[tuple["Message", int]]  # with the place that it had when the redrive began
    next_ms: int
    status: str = "running"
    moved: int = 0
    skipped: int = 0


@dataclass(eq=False)
class Message:
    """A message; `where` is its only place."""

    message_id: tuple[int, int, int]
    body: bytes
    key: bytes
    headers: bytes
    priority: int
    queue: str
    order: int  # publish order within the queue
    published_wall_ms: int
    expires_ms: int | None = None
    expires_slack_ms: int = 0  # how much later than that it may really be
    where: str = READY
    attempts: int = 0
    failures: int = 0
    due_ms: int = 0  # while delayed
    returned: bool = False  # while delayed: it came back (else it was published with a delay)
    blocks: bool = False  # while delayed: by the queue's word when it came back
    cause: str = "published"
    avoid: int = 0  # the consumer that released it
    avoid_until_ms: int = 0
    avoid_sure: bool = True  # false: the time is over, but no tick has come since
    consumer: int = 0  # the holder, or the last one
    token: int = 0
    checkout_ms: int = 0
    lock_ms: int = 0
    run: int = 0  # while locked: the consumer that may get what follows of its key
    late_ok: bool = False  # taken from its last holder, with no other holder since
    history: list[tuple[int, str, int]] = field(default_factory=list)
    dead: Dead | None = None
    published_at: int = 0  # the entry that published it
    died_at: int = 0  # the entry that dead-lettered it, where the order of such moves is open


@dataclass
class Queue:
    """A queue: its spec is the machine's validated one, the rest is here."""

    name: str
    number: int
    spec: Any
    user: str = ""
    paused: bool = False
    active: int | None = None
    ordered: int = 0  # the last publish order given out
    # id -> remembered until, and the id of the message that it was
    dedup: dict[bytes, tuple[int, tuple[int, int, int]]] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    unused_since_ms: int = 0
    redrive: Redriving | None = None


@dataclass
class Consumer:
    """A consumer: base status by `cancelled` and the queue's `active`, flags beside it."""

    number: int
    session: int
    queue: str
    tag: str
    implicit: bool  # of gets, or durable: no checkout serves it, and it is never suspected
    prefetch: int
    lock_ms: int
    max_lock_ms: int
    priority: int
    explicit: bool
    credit: int
    drains: bool
    nack_backoff: str | None
    timeout_backoff: str | None
    label: str = ""
    generation: int = 0  # of a durable consumer, whose session is 0
    used_ms: int = 0
    cancelled: bool = False
    suspicion: str = "none"
    running: int = 0  # handlers of lost messages, as the program last said when it asked
    next_token: int = 1
    renewals: int = 0  # by the leader, while its session is connected
    floor_ms: int = 0  # what the last leader granted before a disconnect
    floor_last: int = 0
    lead_ms: int = 0  # when the last term began that found it connected
    lead_last: int = 0
    grace_held_ms: int = 0  # its grace was over before a former leader's lease, which ends then
    resolved_below: int = 0
    taken: dict[int, str] = field(default_factory=dict)  # token -> returned | dead
    user: str = ""


@dataclass
class Session:
    """A session with its two roles."""

    number: int
    session_id: bytes
    incarnation: bytes
    user: str
    producer: int
    handle_key: bytes
    epochs: list[int] = field(default_factory=lambda: [0, 0])
    attached: list[bool] = field(default_factory=lambda: [False, False])
    disconnected: bool = False
    disconnected_ms: int = 0
    resume_by_ms: int | None = None  # after a change of leader
    use: str = "none"  # or writing, or consuming
    notices: dict[int, tuple[int, set[int]]] = field(default_factory=dict)
    last_notice: int = 0


@dataclass
class Producer:
    """A producer: the last number stored in each queue."""

    number: int
    name: str | None
    used_ms: int
    user: str = ""
    last: dict[str, int] = field(default_factory=dict)
