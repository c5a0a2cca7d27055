"""Every command that the log can hold, one record each, and their plain-list form.

`to_list` gives [code, field...] of msgpack-able plain values, trailing defaults cut; `from_list`
checks types and ranges and raises `ValueError`: the broker calls it before the log, so that what is
in the log is well formed. Whether a command makes sense in the state is decided by apply.

A code is never used again and fields are only added at the end, with a default: old logs are read
by new machines. Update with it: `docs/machine.md`, and `machine.py`, which has one case for each.

`fence` on what a connection causes is (role, epoch) of that connection: apply refuses an older
epoch of that role (semantics.md section 4). None is not checked.
"""

from dataclasses import MISSING, field, fields
from typing import Any

from fifo.machine import limits, user_form, validators
from fifo.machine.record import value
from fifo.machine.types import Column, Range
from fifo.machine.validators import (
    integer,
    label,
    name,
    natural,
    new_label,
    new_name,
    optional,
    positive,
    sequence,
)
from fifo.words import bounds, handles
from fifo.words.actions import Action

Fence = tuple[int, int]


@value
class Lead:
    """A new term: the first command of every leader. Floors for all locks, sessions detached."""

    term: int


@value
class Tick:
    """Everything that time does: expired locks as (consumer, first token, last token), and what is
    due by the state's own index. Bounded; the reply says whether more is due."""

    eval_consumer_timeouts: tuple[tuple[int, int, int], ...] = ()


@value
class SetVersion:
    """Raise the machine version: new behaviour starts by this command only."""

    version: int


@value
class Attach:
    """Open or resume a session in one role. `incarnation` tells one client object from another;
    `handle_key` is the secret of a new session, from which the handles of its messages are derived;
    `client` is the name it gives itself, for people to read. `resume`: it has had the session, and
    may have it back only if no other object has taken it since."""

    session_id: bytes
    role: int
    incarnation: bytes
    handle_key: bytes
    user: str = ""
    address: str = ""
    client: str = ""
    resume: bool = False


@value
class Detach:
    """A connection of this role and epoch is closed: without the data one, nothing new is sent."""

    session: int
    role: int
    epoch: int


@value
class Disconnect:
    """No connection is left, or none was heard. `floors`: (consumer, latest deadline granted)."""

    session: int
    data_epoch: int
    control_epoch: int
    floors: tuple[tuple[int, int], ...] = ()


@value
class EndSession:
    """End a session: 0 closed (all returned uncounted), 1 expired (still disconnected, and due),
    2 by an operator (all returned uncounted)."""

    session: int
    cause: int = 0
    fence: Fence | None = None


@value
class Declare:
    """Create a queue, or find it with the same spec. `user`: who declares it."""

    name: str
    spec: dict[str, Any] = field(default_factory=dict)
    user: str = ""


@value
class UpdateQueue:
    """Change what can be changed on a live queue; a value of None restores the default. `user`: who
    changes it, and owns a dead-letter queue that this creates."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    user: str = ""


@value
class DeleteQueue:
    """Remove a queue with all that is in it."""

    name: str


@value
class Purge:
    """Remove everything ready or delayed; locked messages stay and can still be settled."""

    name: str


@value
class PauseQueue:
    """Hand nothing out until resumed; publishing goes on."""

    name: str


@value
class ResumeQueue:
    """Hand out again."""

    name: str


@value
class OpenProducer:
    """Find or create a named producer, which outlives sessions. `user`: who opens it."""

    name: str
    user: str = ""


@value
class Publish:
    """Store a batch. Offsets are relative to the entry's area, columns packed little-endian:
    sizes and all lengths u32, priorities u8, delays and ttls u64 milliseconds (ttl 0: none),
    numbers u64. Numbers are number..number+count-1 unless `numbers_at`, whose first is `number`.
    `producer` 0 is the session's own; `session` may be 0 with a named producer. `queue_below`: it
    is for a queue whose number is below this; 0: whatever queue has the name."""

    session: int
    producer: int
    queue: str
    previous: int
    number: int
    count: int
    sizes_at: int
    bodies_at: int
    keys: Column | None = None
    headers: Column | None = None
    priorities_at: int | None = None
    delays_at: int | None = None
    ttls_at: int | None = None
    dedup: Column | None = None
    numbers_at: int | None = None
    queue_below: int = 0
    fence: Fence | None = None


@value
class PublishAcross:
    """Store messages of one producer in several queues, as so many publishes would, and answer each
    on its own. Of every queue in `queues` a place in the columns counts (u32), previous, numbers
    and below (u64; without that none is given), which are those of a `Publish`; the other columns
    are of all messages, those of the first queue first. A queue's numbers ascend by one."""

    session: int
    producer: int
    queues: tuple[str, ...]
    count: int
    counts_at: int
    previous_at: int
    numbers_at: int
    sizes_at: int
    bodies_at: int
    below_at: int | None = None
    keys: Column | None = None
    headers: Column | None = None
    priorities_at: int | None = None
    delays_at: int | None = None
    ttls_at: int | None = None
    dedup: Column | None = None
    fence: Fence | None = None


@value
class Subscribe:
    """Become a consumer of a queue. Again with the same tag on the same queue: the same number."""

    session: int
    tag: str
    queue: str
    options: dict[str, Any] = field(default_factory=dict)
    fence: Fence | None = None


@value
class Cancel:
    """Get nothing more. `unopened` tokens are released; the rest stays locked until settled."""

    session: int
    consumer: int
    unopened: tuple[Range, ...] = ()
    fence: Fence | None = None


@value
class Credit:
    """Set the credit of a consumer with explicit credit; `drain` takes back what is not used.
    Of another consumer it sets the prefetch.

    `automatic`: by the client library alone, so that it proves nothing about the program.
    """

    session: int
    consumer: int
    credit: int
    drain: bool = False
    automatic: bool = False
    fence: Fence | None = None


@value
class Get:
    """Hand out up to `count` messages now, to the session's implicit consumer on that queue."""

    session: int
    queue: str
    count: int = 1
    lock_ms: int | None = None
    fence: Fence | None = None


@value
class Alive:
    """The program, not its client library alone, shows that the consumer works.

    With `lost` it has only asked for the next message: so many lost ones are still handled.
    """

    session: int
    consumer: int
    lost: int | None = None
    fence: Fence | None = None


@value
class Settle:
    """Settle tokens with one verb; `resolved_below`: the client never asks about lower ones again.

    `texts_at` is, for reason, description, exception text and stack, (offset in the entry's area,
    bytes) of one that is too long for the state. `automatic`: as of a credit. `handles`: one for
    each token, where the consumer belongs to another session of the user. `generation`: of a
    durable consumer, which belongs to none.
    """

    session: int
    consumer: int
    verb: int
    ranges: tuple[Range, ...]
    delay_ms: int | None = None
    reason: str | None = None
    description: str | None = None
    exception_type: str | None = None
    exception_text: str | None = None
    stack: str | None = None
    resolved_below: int = 0
    texts_at: tuple[tuple[int, int] | None, ...] | None = None
    automatic: bool = False
    fence: Fence | None = None
    handles: tuple[bytes, ...] = ()
    generation: int = 0


@value
class NoticeAck:
    """The client's library has all notices up to this one: they need not be sent again."""

    session: int
    notice: int
    fence: Fence | None = None


@value
class Redrive:
    """Start moving dead letters back (to each one's source, or to `target`), those that match."""

    queue: str
    target: str | None = None
    filter: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None
    rate_per_s: int | None = None
    reset_counts: bool = True


@value
class RedriveStep:
    """The leader's next step: the `positions` from `cursor` on and before `until` that its filter
    chose. Another cursor than the state's is refused, what is not there any more is left out."""

    queue: str
    cursor: int
    until: int
    positions: tuple[int, ...]


@value
class RedriveStop:
    """Cancel a redrive."""

    queue: str


@value
class Move:
    """Move up to `limit` ready messages from the front to another queue, counts kept."""

    queue: str
    target: str
    limit: int = 1


@value
class MessageAction:
    """Do with one message what an operator says, if it stands where the leader has found it.

    `message` is its id, `position` its place in the queue, and (`consumer`, `token`) its lock, 0
    where it is not locked: all are checked again, so that an action applied late, or twice, does
    nothing. `content`: (offset in the entry's area, bytes) of the body, key and headers that a
    resend gives the message instead of its own.
    """

    queue: str
    action: int
    message: tuple[int, int, int]
    position: int
    consumer: int = 0
    token: int = 0
    target: str | None = None
    delay_ms: int | None = None
    reason: str | None = None
    description: str | None = None
    content: tuple[tuple[int, int], tuple[int, int], tuple[int, int]] | None = None


@value
class OpenDurable:
    """Find or create a durable consumer and take it over: its generation grows by one. `user`: who
    opens it."""

    queue: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    user: str = ""


@value
class Reserve:
    """Lock the next `count` messages for a durable consumer under its next tokens.

    `max_bytes`: only up to the message whose body makes it so many bytes; 0 for all. `runs`: of a
    key-ordered queue several of a key, where it has all of the key that is out (from version 2 on).
    """

    consumer: int
    generation: int
    count: int
    session: int = 0
    max_bytes: int = 0
    runs: bool = False


@value
class Fetch:
    """Send what of these tokens is still locked to the session, as often as asked; `max_bytes` as
    of a reserve."""

    consumer: int
    generation: int
    first: int
    last: int
    session: int = 0
    max_bytes: int = 0


@value
class AckUpto:
    """Ack every token from `first` up to `upto`; the receipt names what could not be.

    Again while its answer may be lost, until `answered_below` says that it came.
    """

    consumer: int
    generation: int
    upto: int
    first: int = 0
    answered_below: int = 0


@value
class RenewDurable:
    """Lock everything the durable consumer holds anew."""

    consumer: int
    generation: int


@value
class ForgetProducer:
    """Forget a named producer: who publishes as it is refused, and by this name begins anew."""

    name: str


@value
class Forget:
    """End a durable consumer: what it holds is returned, uncounted."""

    consumer: int
    generation: int


@value
class PutUser:
    """Create or replace a user of the log. `revision`: of the one that is replaced; 0 for none."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    revision: int = 0


@value
class RemoveUser:
    """Remove the user of this revision from the log."""

    name: str
    revision: int


@value
class ImportUsers:
    """Take over (name, fields) of a file as the users of the log, which has none yet."""

    users: tuple[tuple[str, dict[str, Any]], ...]


Command = (
    Lead
    | Tick
    | SetVersion
    | Attach
    | Detach
    | Disconnect
    | EndSession
    | Declare
    | UpdateQueue
    | DeleteQueue
    | Purge
    | PauseQueue
    | ResumeQueue
    | OpenProducer
    | ForgetProducer
    | Publish
    | PublishAcross
    | Subscribe
    | Cancel
    | Credit
    | Get
    | Alive
    | Settle
    | NoticeAck
    | Redrive
    | RedriveStep
    | RedriveStop
    | Move
    | MessageAction
    | OpenDurable
    | Reserve
    | Fetch
    | AckUpto
    | RenewDurable
    | Forget
    | PutUser
    | RemoveUser
    | ImportUsers
)

_role = integer(0, 1)
_queue = name
_area_offset = optional(validators.offset)
_options = validators.mapping(limits.SPEC_FIELDS)
_text = optional(validators.text(limits.INLINE_TEXT_BYTES))
_text_at = optional(validators.record(validators.offset, integer(0, bounds.LETTER_TEXT_BYTES_MAX)))
_texts_at = validators.record(*[_text_at] * 4)


_place = validators.record(validators.offset, validators.offset)
_lost = optional(integer(0, bounds.PREFETCH_MAX))
_milliseconds = optional(integer(0, bounds.DURATION_MS_MAX))

_FORMS: dict[int, tuple[type[Any], tuple[validators.Checker, ...]]] = {
    1: (Lead, (natural,)),
    2: (
        Tick,
        (sequence(validators.record(positive, positive, positive), limits.EVAL_RANGES),),
    ),
    3: (SetVersion, (positive,)),
    4: (
        Attach,
        (
            validators.raw(16),
            _role,
            validators.raw(16),
            validators.raw(handles.KEY_BYTES),
            new_label,
            label,
            new_label,
            validators.flag,
        ),
    ),
    5: (Detach, (positive, _role, positive)),
    6: (
        Disconnect,
        (
            positive,
            natural,
            natural,
            sequence(validators.record(positive, natural), limits.FLOORS),
        ),
    ),
    7: (EndSession, (positive, integer(0, 2), validators.fence)),
    8: (Declare, (new_name, _options, label)),
    9: (UpdateQueue, (_queue, _options, label)),
    10: (DeleteQueue, (_queue,)),
    11: (Purge, (_queue,)),
    12: (PauseQueue, (_queue,)),
    13: (ResumeQueue, (_queue,)),
    14: (OpenProducer, (new_name, label)),
    15: (
        Publish,
        (
            natural,
            natural,
            _queue,
            natural,
            positive,
            integer(1, bounds.PUBLISH_MESSAGES_MAX),
            validators.offset,
            validators.offset,
            validators.column,
            validators.column,
            _area_offset,
            _area_offset,
            _area_offset,
            validators.column,
            _area_offset,
            natural,
            validators.fence,
        ),
    ),
    16: (Subscribe, (positive, new_label, _queue, _options, validators.fence)),
    17: (
        Cancel,
        (positive, positive, validators.ranges(bounds.SETTLE_RANGES_MAX), validators.fence),
    ),
    18: (
        Credit,
        (
            positive,
            positive,
            integer(0, bounds.CREDIT_MAX),
            validators.flag,
            validators.flag,
            validators.fence,
        ),
    ),
    19: (
        Get,
        (
            positive,
            _queue,
            integer(1, bounds.GET_MESSAGES_MAX),
            optional(integer(bounds.LOCK_MS_MIN, bounds.LOCK_MS_MAX)),
            validators.fence,
        ),
    ),
    20: (Alive, (positive, positive, _lost, validators.fence)),
    21: (
        Settle,
        (
            positive,
            positive,
            integer(0, 3),
            validators.ranges(bounds.SETTLE_RANGES_MAX),
            _milliseconds,
            _text,
            _text,
            optional(validators.text(limits.EXCEPTION_TYPE_BYTES)),
            _text,
            _text,
            natural,
            optional(_texts_at),
            validators.flag,
            validators.fence,
            sequence(validators.raw(handles.HANDLE_BYTES), bounds.SETTLE_MESSAGES_MAX),
            natural,
        ),
    ),
    22: (NoticeAck, (positive, positive, validators.fence)),
    23: (
        Redrive,
        (
            _queue,
            optional(_queue),
            _options,
            optional(positive),
            optional(positive),
            validators.flag,
        ),
    ),
    24: (
        RedriveStep,
        (_queue, natural, natural, sequence(natural, limits.MOVE_MESSAGES)),
    ),
    25: (RedriveStop, (_queue,)),
    26: (Move, (_queue, _queue, integer(1, limits.MOVE_MESSAGES))),
    27: (
        OpenDurable,
        (_queue, new_name, _options, label),
    ),
    28: (
        Reserve,
        (
            positive,
            positive,
            integer(1, limits.STEP_MESSAGES),
            natural,
            natural,
            validators.flag,
        ),
    ),
    29: (Fetch, (positive, positive, positive, positive, natural, natural)),
    30: (AckUpto, (positive, positive, natural, natural, natural)),
    31: (RenewDurable, (positive, positive)),
    32: (Forget, (positive, positive)),
    33: (ForgetProducer, (name,)),
    34: (
        MessageAction,
        (
            _queue,
            integer(0, max(Action)),
            validators.record(positive, positive, positive),
            natural,
            natural,
            natural,
            optional(_queue),
            _milliseconds,
            _text,
            _text,
            optional(validators.record(_place, _place, _place)),
        ),
    ),
    35: (PutUser, (new_name, user_form.fields, natural)),
    36: (RemoveUser, (name, positive)),
    37: (ImportUsers, (user_form.everyone,)),
    38: (
        PublishAcross,
        (
            natural,
            natural,
            sequence(_queue, bounds.PUBLISH_QUEUES_MAX),
            integer(1, bounds.PUBLISH_ACROSS_MESSAGES_MAX),
            *[validators.offset] * 5,
            _area_offset,
            validators.column,
            validators.column,
            *[_area_offset] * 3,
            validators.column,
            validators.fence,
        ),
    ),
}

_CODES: dict[type[Any], int] = {form[0]: code for code, form in _FORMS.items()}


def code_of(kind: type[Command]) -> int:
    """The code that a kind of command has in the log."""
    return _CODES[kind]


def _defaults(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    found = []
    for item in fields(kind):
        default = item.default
        if item.default_factory is not MISSING:
            default = item.default_factory()
        found.append((item.name, default))
    return tuple(found)


_FIELDS: dict[type[Any], tuple[tuple[str, Any], ...]] = {kind: _defaults(kind) for kind in _CODES}


def to_list(command: Command) -> list[Any]:
    """The plain form of a command: [code, field...], fields that end it with a default left out."""
    kind = type(command)
    named = _FIELDS[kind]
    values = [getattr(command, field_name) for field_name, _ in named]
    while values and named[len(values) - 1][1] is not MISSING:
        if values[-1] != named[len(values) - 1][1]:
            break
        values.pop()
    return [_CODES[kind], *values]


def from_list(plain: list[Any]) -> Command:
    """The command that a plain form stands for.

    Raises `ValueError` on an unknown code, a missing or surplus field, a wrong type or range.
    """
    if not isinstance(plain, (list, tuple)) or not plain:
        raise ValueError("a command is a list that starts with its code")
    form = _FORMS.get(plain[0]) if type(plain[0]) is int else None
    if form is None:
        raise ValueError("unknown command code")
    kind, checks = form
    given = plain[1:]
    if len(given) > len(checks):
        raise ValueError(f"{kind.__name__} has at most {len(checks)} fields")
    named = _FIELDS[kind]
    if len(given) < len(named) and named[len(given)][1] is MISSING:
        raise ValueError(f"{kind.__name__} lacks its field {named[len(given)][0]}")
    values = []
    for (field_name, _), check, item in zip(named, checks, given, strict=False):
        try:
            values.append(check(item))
        except ValueError as error:
            raise ValueError(f"{kind.__name__}.{field_name}: {error}") from None
    command: Command = kind(*values)
    return command
