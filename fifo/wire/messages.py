"""Every message of the protocol: its type number, its fields, and what each may hold.

Owns the catalogue. A message is a frozen dataclass; its fields travel by position, so new ones are
only ever added at the end, with a default (trailing fields may be missing). Bodies and columns do
not stand here: they travel in a frame's raw part (`columns`). Must not know how frames are cut
from a stream (`frames`) or what anybody does with a message.
When a message changes, change `docs/protocol.md` in the same commit; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final, TypeVar, get_type_hints

from fifo.wire import limits
from fifo.wire.fields import (
    AT_ONCE,
    U8_MAX,
    U16_MAX,
    U32_MAX,
    U63_MAX,
    Check,
    FieldError,
    boolean,
    integer,
    list_of,
    mapping,
    maybe,
    octets,
    plain,
    ranges,
    record,
    text,
)
from fifo.words import settlement
from fifo.words.handles import HANDLE_BYTES, KEY_BYTES
from fifo.words.settlement import Verb

ROLE_DATA: Final = 0
"""The connection of the user's loop: requests, deliveries, settlements."""
ROLE_CONTROL: Final = 1
"""The connection of the client's own thread: heartbeats, renewals, notices."""
ROLE_OBSERVER: Final = 2
"""A connection without a session that asks one node for its status, leader or not."""

SESSION_NEW: Final = 0
SESSION_RESUMED: Final = 1

VERB_ACK: Final = int(Verb.ACK)
VERB_NACK: Final = int(Verb.NACK)
VERB_RELEASE: Final = int(Verb.RELEASE)
VERB_TERMINATE: Final = int(Verb.TERMINATE)

STATUS_OK: Final = int(settlement.Status.OK)
STATUS_ALREADY_SETTLED: Final = int(settlement.Status.ALREADY_SETTLED)
STATUS_LOCK_LOST: Final = int(settlement.Status.LOCK_LOST)
STATUS_DEAD_LETTERED: Final = int(settlement.Status.DEAD_LETTERED)
STATUS_UNKNOWN_CONSUMER: Final = int(settlement.Status.UNKNOWN_CONSUMER)

NOTICE_MESSAGE_TIMEOUT: Final = 0
NOTICE_ACTIVITY: Final = 1
NOTICE_SESSION_ENDED: Final = 2
NOTICE_CONSUMER_REMOVED: Final = 3
NOTICE_TAKEN_BACK: Final = 4

_NAME = text(limits.QUEUE_NAME_BYTES_MAX, 1)
_ADDRESS = text(limits.QUEUE_NAME_BYTES_MAX)
_TEXT = text(limits.TEXT_BYTES_MAX)
_DURATION = integer(0, limits.DURATION_MS_MAX)
_RANGES = ranges(limits.RANGES_MAX)
_NODES = list_of(record(_NAME, _ADDRESS), 64)
_COLUMNS = list_of(record(integer(0, U16_MAX), integer(0, limits.FRAME_BYTES_MAX)), 64)
_ERROR = record(_TEXT, _TEXT, boolean, maybe(plain), required=3)
_REPEATS = list_of(
    record(
        integer(0, limits.PUBLISH_MESSAGES_MAX),
        integer(1, limits.PUBLISH_MESSAGES_MAX),
        *[integer(1)] * 2,
    ),
    limits.PUBLISH_MESSAGES_MAX,
)
_CONSUMER = integer(1)
_TOKEN = integer(1)

Name = Annotated[str, _NAME]
MaybeText = Annotated[str | None, maybe(_TEXT)]
LetterText = Annotated[str | None, maybe(text(limits.LETTER_TEXT_BYTES_MAX))]
Label = Annotated[str, text(limits.QUEUE_NAME_BYTES_MAX)]
Number = Annotated[int, integer()]
Duration = Annotated[int, _DURATION]
MaybeDuration = Annotated[int | None, maybe(_DURATION)]
Flag = Annotated[bool, boolean]
Consumer = Annotated[int, _CONSUMER]
Token = Annotated[int, _TOKEN]
Ranges = Annotated[tuple[tuple[int, int], ...], _RANGES]
SettledRanges = Annotated[tuple[tuple[int, int], ...], ranges(limits.SETTLE_RANGES_MAX)]
Handles = Annotated[
    tuple[bytes, ...],
    list_of(octets(HANDLE_BYTES, HANDLE_BYTES), limits.SETTLE_MESSAGES_MAX),
]
Columns = Annotated[tuple[tuple[int, int], ...], _COLUMNS]
Nodes = Annotated[tuple[tuple[str, str], ...], _NODES]
Plain = Annotated[Any, plain]
MaybeId = Annotated[str | None, maybe(text(limits.MESSAGE_ID_BYTES_MAX, 5))]
Map = Annotated[dict[str, Any], mapping]


@dataclass(frozen=True, slots=True)
class Message:
    """The base of all messages: the type number, and the way to and from positional fields."""

    TYPE: ClassVar[int]
    _CHECKS: ClassVar[tuple[tuple[str, Check], ...]]
    _READ: ClassVar[Callable[[Any], tuple[Any, ...]] | None]
    """Reads all fields at once, where there are several: every frame that is sent needs it."""
    _MAKE: ClassVar[Callable[[list[Any]], Message] | None] = None
    """Makes a message of positional fields, each checked; None before the first one."""
    _DEFAULTS_BACKWARDS: ClassVar[tuple[Any, ...]]
    _REQUIRED: ClassVar[int]

    def to_fields(self) -> list[Any]:
        """The fields by position, trailing ones that hold their default cut off."""
        read = type(self)._READ
        values = (
            [getattr(self, name) for name, _ in self._CHECKS] if read is None else [*read(self)]
        )
        for default in self._DEFAULTS_BACKWARDS:
            if values[-1] != default:
                break
            values.pop()
        return values


_M = TypeVar("_M", bound=Message)

REGISTRY: dict[int, type[Message]] = {}
"""Type number to message class, of everything this version knows."""


def on_wire(number: int) -> Callable[[type[_M]], type[_M]]:
    """Give a dataclass its type number, and compile its annotations into checks."""

    def decorate(cls: type[_M]) -> type[_M]:
        hints = get_type_hints(cls, include_extras=True)
        declared = fields(cls)
        cls.TYPE = number
        cls._CHECKS = tuple((f.name, hints[f.name].__metadata__[0]) for f in declared)
        names = [f.name for f in declared]
        cls._READ = attrgetter(*names) if len(names) > 1 else None
        cls._DEFAULTS_BACKWARDS = tuple(
            f.default for f in reversed(declared) if f.default is not MISSING
        )
        cls._REQUIRED = len(declared) - len(cls._DEFAULTS_BACKWARDS)
        assert number not in REGISTRY, "two messages share a type number"
        REGISTRY[number] = cls
        return cls

    return decorate


def from_fields(cls: type[Message], values: list[Any]) -> Message:
    """Build a message from positional fields; raise FieldError naming the first bad one.

    Fields beyond those that this version knows are ignored: a newer peer may send them.
    """
    if len(values) < cls._REQUIRED:
        raise FieldError(f"{cls.__name__}.{cls._CHECKS[len(values)][0]}: is missing")
    make = cls._MAKE or _maker(cls)
    try:
        return make(values)
    except FieldError:
        raise _first_bad(cls, values) from None


def _maker(cls: type[Message]) -> Callable[[list[Any]], Message]:
    """Write the function that checks the fields of this class, as far as there are any, and makes a
    message of them: without a call for each field that is as it should be."""
    names: dict[str, Any] = {"cls": cls}
    lines = ["def make(values):", "    count = len(values)"]
    made = ""
    for at, (_, check) in enumerate(cls._CHECKS):
        if at >= cls._REQUIRED:
            lines.append(f"    if count == {at}: return cls({made})")
        names[f"check{at}"] = check
        lines.append(f"    field{at} = values[{at}]")
        fits = AT_ONCE.get(check, "False").format(f"field{at}")
        lines.append(f"    if not ({fits}): field{at} = check{at}(field{at})")
        made += f"field{at}, "
    lines.append(f"    return cls({made})")
    exec("\n".join(lines), names)  # of this module's own checks alone, as dataclass does
    make: Callable[[list[Any]], Message] = names["make"]
    cls._MAKE = staticmethod(make)
    return make


def _first_bad(cls: type[Message], values: list[Any]) -> FieldError:
    """The error of the first field that does not pass its check, with the field's name."""
    for (name, check), value in zip(cls._CHECKS, values, strict=False):
        try:
            check(value)
        except FieldError as error:
            return FieldError(f"{cls.__name__}.{name}: {error}")
    raise AssertionError("one field does not pass")


# --- opening, keeping and closing a connection -------------------------------------------------


@on_wire(1)
@dataclass(frozen=True, slots=True)
class Hello(Message):
    """First frame of a client: versions, who it is, which session it wants (semantics.md 4)."""

    version_min: Annotated[int, integer(1, U16_MAX)]
    version_max: Annotated[int, integer(1, U16_MAX)]
    role: Annotated[int, integer(0, 2)]
    session: Annotated[bytes, octets(16, 16)]
    incarnation: Annotated[bytes, octets(16, 16)]
    client: Annotated[str, text(255)] = ""
    features: Annotated[tuple[str, ...], list_of(text(64), 64)] = ()
    user: Annotated[str | None, maybe(text(255))] = None
    mechanism: Annotated[str | None, maybe(text(64))] = None
    heartbeat_ms: Annotated[int, integer(100, 600_000)] = limits.HEARTBEAT_MS
    resume: Flag = False
    after_term: Number = 0
    unreached: Annotated[str, text(255)] = ""


@on_wire(2)
@dataclass(frozen=True, slots=True)
class Welcome(Message):
    """The leader's answer to a hello: the session is attached, requests may follow."""

    version: Annotated[int, integer(1, U16_MAX)]
    node: Name
    cluster: Annotated[bytes, octets(16)]
    term: Number
    session_state: Annotated[int, integer(0, 1)] = SESSION_NEW
    epoch: Number = 0
    heartbeat_ms: Annotated[int, integer(100, 600_000)] = limits.HEARTBEAT_MS
    features: Annotated[tuple[str, ...], list_of(text(64), 64)] = ()
    nodes: Nodes = ()
    consumers: Annotated[
        tuple[tuple[int, str, str, int], ...],
        list_of(record(_CONSUMER, text(255), _NAME, _DURATION), limits.ITEMS_MAX),
    ] = ()
    limits: Annotated[tuple[tuple[str, int], ...], list_of(record(_NAME, integer()), 64)] = ()
    queue_below: Number = 0
    handle_key: Annotated[bytes, octets(KEY_BYTES)] = b""


@on_wire(3)
@dataclass(frozen=True, slots=True)
class Challenge(Message):
    """The node asks for proof of identity before it welcomes."""

    mechanism: Annotated[str, text(64, 1)]
    payload: Annotated[bytes, octets(limits.PROOF_BYTES_MAX)] = b""


@on_wire(4)
@dataclass(frozen=True, slots=True)
class Authenticate(Message):
    """The client's answer to a challenge."""

    mechanism: Annotated[str, text(64, 1)]
    payload: Annotated[bytes, octets(limits.PROOF_BYTES_MAX)] = b""


@on_wire(5)
@dataclass(frozen=True, slots=True)
class Redirect(Message):
    """This node does not lead (any more); the leader, where known, is at `address`."""

    leader: Annotated[str | None, maybe(_NAME)]
    address: Annotated[str | None, maybe(_ADDRESS)]
    retry_ms: Duration = 0
    nodes: Nodes = ()
    moved: Flag = False


@on_wire(6)
@dataclass(frozen=True, slots=True)
class Ping(Message):
    """Heartbeat; answered by a pong with the same correlation.

    `nodes`: the nodes as a welcome lists them, where they have changed; empty otherwise.
    """

    nodes: Nodes = ()


@on_wire(7)
@dataclass(frozen=True, slots=True)
class Pong(Message):
    """Answer to a ping."""


@on_wire(8)
@dataclass(frozen=True, slots=True)
class Error(Message):
    """A request failed; correlation 0: the connection did, and is closed after this frame."""

    code: Annotated[str, text(64, 1)]
    text: Annotated[str, text(limits.TEXT_BYTES_MAX)]
    retryable: Flag = False
    detail: Plain = None


@on_wire(9)
@dataclass(frozen=True, slots=True)
class Close(Message):
    """End this session cleanly: everything it holds returns, uncounted. Answered by `Ok`."""


@on_wire(10)
@dataclass(frozen=True, slots=True)
class Ok(Message):
    """A request was carried out; `result` is what it asked for."""

    result: Plain = None


@on_wire(11)
@dataclass(frozen=True, slots=True)
class Resumed(Message):
    """Behind the last delivery that a resume repeats: what did not come again is not held."""


# --- publishing --------------------------------------------------------------------------------


@on_wire(16)
@dataclass(frozen=True, slots=True)
class Publish(Message):
    """Messages for one queue, numbered per (producer, queue) (semantics.md 10); see `columns`.

    `queue_below`: of a frame that is sent again: it is for a queue whose number is below this.
    """

    queue: Name
    producer: Number
    previous: Number
    number: Annotated[int, integer(1)]
    count: Annotated[int, integer(1, limits.PUBLISH_MESSAGES_MAX)]
    columns: Columns
    queue_below: Number = 0


@on_wire(17)
@dataclass(frozen=True, slots=True)
class Confirms(Message):
    """Answers to publish frames: committed and on the disk of a majority.

    Each item: correlation, queue number, producer number, duplicates, stored, error or nil,
    repeats. The first duplicates + stored messages are confirmed; the rest were not stored, for
    that error.
    A repeat (place, count, producer, number): messages whose dedup ids were known are those of that
    producer, in the same queue, from that number on.
    """

    items: Annotated[
        tuple[tuple[Any, ...], ...],
        list_of(record(*[integer()] * 5, maybe(_ERROR), _REPEATS, required=5), limits.ITEMS_MAX),
    ]


@on_wire(18)
@dataclass(frozen=True, slots=True)
class OpenProducer(Message):
    """Open a named producer; `Ok` answers its number and the last number stored per queue."""

    name: Name


@on_wire(19)
@dataclass(frozen=True, slots=True)
class PublishAcross(Message):
    """Messages for several queues, as if each queue had a publish of its own; see `columns`.

    Each queue has a correlation of its own, under which an item of `Confirms` answers it.
    """

    producer: Number
    queues: Annotated[tuple[str, ...], list_of(_NAME, limits.PUBLISH_QUEUES_MAX)]
    count: Annotated[int, integer(1, limits.PUBLISH_ACROSS_MESSAGES_MAX)]
    columns: Columns


# --- consuming ---------------------------------------------------------------------------------


@on_wire(20)
@dataclass(frozen=True, slots=True)
class Subscribe(Message):
    """Become a consumer of a queue; the same tag in the same session keeps the number."""

    queue: Name
    tag: Annotated[str, text(limits.QUEUE_NAME_BYTES_MAX)]
    prefetch: Annotated[int, integer(1, limits.PREFETCH_MAX)]
    lock_ms: MaybeDuration = None
    max_lock_ms: MaybeDuration = None
    priority: Annotated[
        int, integer(-limits.CONSUMER_PRIORITY_MAX, limits.CONSUMER_PRIORITY_MAX)
    ] = 0
    renewable: Flag = True
    pull: Flag = False
    nack_backoff: MaybeText = None
    timeout_backoff: MaybeText = None
    handler_timeout_ms: MaybeDuration = None
    renewals: Annotated[int | None, maybe(integer(0, limits.RENEWALS_MAX))] = None
    label: Annotated[str | None, maybe(_NAME)] = None


@on_wire(21)
@dataclass(frozen=True, slots=True)
class Subscribed(Message):
    """The consumer's number (never used again), and the lock it really gets.

    `together`: on a single-active queue, where the first lock that ends takes all others along.
    """

    consumer: Consumer
    lock_ms: Duration
    max_lock_ms: Duration
    prefetch: Annotated[int, integer(1, limits.PREFETCH_MAX)]
    active: Flag = True
    together: Flag = False


@on_wire(22)
@dataclass(frozen=True, slots=True)
class Credit(Message):
    """Explicit credit of a pulling consumer; `drain` ends what is left of it. Of another consumer
    the prefetch.

    `automatic`: by the client library alone, so that it clears no suspicion (semantics.md 3).
    """

    consumer: Consumer
    credit: Annotated[int, integer(0, limits.CREDIT_MAX)]
    drain: Flag = False
    automatic: Flag = False


@on_wire(23)
@dataclass(frozen=True, slots=True)
class Cancel(Message):
    """No more messages; `unopened` return at once, uncounted, the others stay locked."""

    consumer: Consumer
    unopened: SettledRanges = ()


@on_wire(24)
@dataclass(frozen=True, slots=True)
class Get(Message):
    """Hand out up to `count` messages now to the session's implicit consumer of the queue."""

    queue: Name
    count: Annotated[int, integer(1, limits.GET_MESSAGES_MAX)]
    wait_ms: Duration = 0
    lock_ms: MaybeDuration = None
    renewable: Flag = False


@on_wire(25)
@dataclass(frozen=True, slots=True)
class Got(Message):
    """Answer to a get: the messages came in deliveries before it, tokens from `first_token`.

    `together`: as in `Subscribed`.
    """

    consumer: Number
    first_token: Number
    count: Number
    together: Flag = False


@on_wire(26)
@dataclass(frozen=True, slots=True)
class Deliver(Message):
    """Messages for a consumer, tokens consecutive from `first_token`; see `columns`.

    `runs`: count, queue number, producer, number of the first, wall time of publishing in ms; ids
    are (queue number, producer, number), numbers consecutive within a run. `dead_letters`: position
    in this frame and the dead letter's record. `repeat`: sent again after a resume. `keys_out`: all
    that is left waits for its key, and places of the consumer are free (semantics.md 11).
    """

    consumer: Consumer
    queue: Name
    first_token: Token
    count: Annotated[int, integer(1, U32_MAX)]
    remaining_ms: Duration
    columns: Columns
    runs: Annotated[
        tuple[tuple[int, int, int, int, int], ...],
        list_of(record(integer(1), integer(), integer(), integer(), integer()), U16_MAX),
    ]
    dead_letters: Annotated[
        tuple[tuple[int, dict[str, Any]], ...],
        list_of(record(integer(), mapping), U16_MAX),
    ] = ()
    repeat: Flag = False
    label: Label = ""
    keys_out: Flag = False


@on_wire(27)
@dataclass(frozen=True, slots=True)
class Settle(Message):
    """Ack, nack, release or terminate tokens of one consumer; answered by a receipt.

    `resolved_below`: the client never asks about a token below it again (semantics.md 8).
    `automatic`: by the client library alone, so that it clears no suspicion (semantics.md 3).
    `handles`: of each token in order, where the consumer is another session's (semantics.md 8).
    `generation`: of a durable consumer, which no session has (semantics.md 11).
    """

    consumer: Consumer
    verb: Annotated[int, integer(0, 3)]
    tokens: SettledRanges
    resolved_below: Number = 0
    delay_ms: MaybeDuration = None
    reason: LetterText = None
    description: LetterText = None
    exception_type: MaybeText = None
    exception_text: LetterText = None
    stack: LetterText = None
    automatic: Flag = False
    handles: Handles = ()
    generation: Number = 0


@on_wire(28)
@dataclass(frozen=True, slots=True)
class Receipt(Message):
    """The status of each settled token: first, last, status, late; committed by a majority."""

    consumer: Consumer
    results: Annotated[
        tuple[tuple[int, int, int, bool], ...],
        list_of(
            record(_TOKEN, _TOKEN, integer(0, U8_MAX), boolean, required=3), limits.RANGES_MAX * 4
        ),
    ]


@on_wire(29)
@dataclass(frozen=True, slots=True)
class Renew(Message):
    """Raise the deadlines of these tokens to now + lock; what is not named is not renewed.

    `explicit`: by the program, so that it clears a suspicion (semantics.md 3).
    `handles`: of each token in order, where the consumer is another session's (semantics.md 5).
    """

    items: Annotated[
        tuple[tuple[int, tuple[tuple[int, int], ...]], ...],
        list_of(record(_CONSUMER, _RANGES), limits.ITEMS_MAX),
    ]
    explicit: Flag = False
    handles: Handles = ()


@on_wire(30)
@dataclass(frozen=True, slots=True)
class Renewed(Message):
    """Answer to a renewal, per consumer: ranges renewed with the remaining ms, ranges lost."""

    items: Annotated[
        tuple[tuple[Any, ...], ...],
        list_of(
            record(
                _CONSUMER,
                list_of(record(_TOKEN, _TOKEN, _DURATION), limits.RANGES_MAX),
                _RANGES,
            ),
            limits.ITEMS_MAX,
        ),
    ]


@on_wire(31)
@dataclass(frozen=True, slots=True)
class Alive(Message):
    """The program behind this consumer speaks: clears suspicion (semantics.md 3).

    With `lost` it has only asked for the next message: so many lost ones are still handled.
    """

    consumer: Consumer
    lost: Annotated[int | None, maybe(integer(0, limits.PREFETCH_MAX))] = None


@on_wire(32)
@dataclass(frozen=True, slots=True)
class Notice(Message):
    """Something happened to a consumer; kept and sent again until acknowledged, unless numbered 0.

    Kinds: 0 message_timeout (tokens), 1 activity (active), 2 session_ended, 3 consumer_removed,
    4 taken_back (tokens).
    """

    notice: Number
    kind: Annotated[int, integer(0, U8_MAX)]
    consumer: Number = 0
    tokens: Ranges = ()
    active: Flag = True
    label: Label = ""


@on_wire(33)
@dataclass(frozen=True, slots=True)
class NoticeAck(Message):
    """The client has seen the notice, and all before it."""

    notice: Number


# --- queues ------------------------------------------------------------------------------------


@on_wire(40)
@dataclass(frozen=True, slots=True)
class Declare(Message):
    """Create a queue; the same again is fine, a different spec is answered with the difference."""

    queue: Name
    spec: Map


@on_wire(41)
@dataclass(frozen=True, slots=True)
class Update(Message):
    """Change what can be changed on a live queue.

    `version`: of the queue as it was seen; one that differs changes nothing.
    """

    queue: Name
    changes: Map
    version: MaybeText = None


@on_wire(42)
@dataclass(frozen=True, slots=True)
class QueueAction(Message):
    """The action: delete, purge, pause or resume."""

    queue: Name
    action: Annotated[str, text(32, 1)]


@on_wire(43)
@dataclass(frozen=True, slots=True)
class QueueQuery(Message):
    """A query: list, sessions, users or index (no queue), show, locks, delayed, consumers or
    producers."""

    queue: Annotated[str | None, maybe(_NAME)]
    query: Annotated[str, text(32, 1)]
    limit: Annotated[int, integer(1, limits.ITEMS_MAX)] = 1000
    consumer: Number = 0
    prefix: Annotated[str, text(limits.QUEUE_NAME_BYTES_MAX)] = ""


@on_wire(44)
@dataclass(frozen=True, slots=True)
class Peek(Message):
    """Look at the next messages without locking them; answered by `Peeked`."""

    queue: Name
    count: Annotated[int, integer(1, limits.PEEK_MESSAGES_MAX)] = 1


@on_wire(45)
@dataclass(frozen=True, slots=True)
class Peeked(Message):
    """Messages as in a delivery, without tokens; with `Find`, where each stands, and from where on
    to look for more (0: there are none)."""

    queue: Name
    count: Annotated[int, integer(0, limits.PEEK_MESSAGES_MAX)]
    columns: Columns = ()
    runs: Annotated[
        tuple[tuple[int, int, int, int, int], ...],
        list_of(record(integer(1), integer(), integer(), integer(), integer()), U16_MAX),
    ] = ()
    dead_letters: Annotated[
        tuple[tuple[int, dict[str, Any]], ...],
        list_of(record(integer(), mapping), U16_MAX),
    ] = ()

    places: Annotated[tuple[dict[str, Any], ...], list_of(mapping, limits.FIND_MESSAGES_MAX)] = ()
    after: Number = 0


@on_wire(46)
@dataclass(frozen=True, slots=True)
class Redrive(Message):
    """Move dead letters back: filter, limit, rate, dry run, cancel (semantics.md 9)."""

    queue: Name
    target: Annotated[str | None, maybe(_NAME)] = None
    options: Annotated[dict[str, Any] | None, maybe(mapping)] = None


@on_wire(47)
@dataclass(frozen=True, slots=True)
class Move(Message):
    """Move ready messages to another queue of the group."""

    queue: Name
    target: Name
    limit: Annotated[int, integer(1)] = U63_MAX


@on_wire(48)
@dataclass(frozen=True, slots=True)
class Durable(Message):
    """A durable consumer's verb: open, reserve, fetch, ack, renew, forget (semantics.md 11)."""

    queue: Name
    name: Name
    verb: Annotated[str, text(32, 1)]
    generation: Number = 0
    first: Number = 0
    last: Number = 0
    options: Annotated[dict[str, Any] | None, maybe(mapping)] = None
    consumer: Number = 0
    max_bytes: Number = 0
    bodies: Flag = True
    runs: Flag = False


@on_wire(49)
@dataclass(frozen=True, slots=True)
class Status(Message):
    """Ask this node (leader or not) how it is; `Ok` answers a map."""


@on_wire(50)
@dataclass(frozen=True, slots=True)
class TransferLeadership(Message):
    """Ask the leader to hand over to the named node."""

    node: Name


@on_wire(51)
@dataclass(frozen=True, slots=True)
class ForgetProducer(Message):
    """Forget a named producer with its numbers; answered by `Ok`."""

    name: Name


@on_wire(52)
@dataclass(frozen=True, slots=True)
class EndSession(Message):
    """End the session whose id, in hexadecimal digits, begins so; answered by `Ok`."""

    session: Annotated[str, text(32, 8)]
