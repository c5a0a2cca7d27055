"""The effects of an entry, for the leader to carry out: deliver, notify, close.

Effects are computed by every node and carried out by the leader only, perhaps twice after a change
of leader: each carries what is needed to recognise a repeat (tokens, notice numbers, epochs). They
hold handles to bodies, never bodies.

| effect | executed on | a repeat is recognised by |
|--|--|--|
| Deliver | leader | consumer and token |
| Notify | leader | session and notice number |
| Activity | leader | carries the state itself |
| Resumed | leader | session and epoch |
| Fenced | leader | session, role and epoch |
| ConsumerRemoved | leader | consumer number, which never comes again |
| SessionEnded | leader | session number, which never comes again |
"""

from array import array
from typing import NamedTuple

from fifo.machine.record import value
from fifo.machine.types import DeadLetter, Range


class BlobColumn(NamedTuple):
    """Keys or headers of a run: `lengths` (array 'I') of pieces that lie end to end from `blob_at`.

    A length of 0 means that this message has none.
    """

    blob_at: int
    lengths: "array[int]"
    blob_bytes: int


class Run(NamedTuple):
    """Messages that lie one behind the other in one entry of the log, with consecutive tokens.

    A publish batch that is delivered whole is one run, also when it came back; a dead letter is a
    run of one. Offsets are relative to the body area of entry `index`.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which a run has no use for
    count: int  # type: ignore[assignment]  # hides tuple.count likewise
    bodies_at: int
    sizes: "array[int]"
    bodies_bytes: int
    keys: BlobColumn | None
    headers: BlobColumn | None
    producer: int
    number: int
    queue_number: int
    published_wall_ms: int
    priorities: bytes | None  # None: all have the default priority
    attempts: "array[int] | None"  # None: all are 1
    failures: "array[int] | None"  # None: all are 0
    dead_letter: DeadLetter | None  # only in runs of one


@value
class Deliver:
    """Send these messages to the session. `deadline_ms` is cluster time; tokens are consecutive.
    `label`, here and in notices: the consumer's, by its client.

    `repeat`: they were sent before under the same tokens and are still locked (a resume, a fetch).
    """

    session: int
    consumer: int
    queue: str
    first_token: int
    lock_ms: int
    deadline_ms: int
    runs: tuple[Run, ...]
    repeat: bool
    label: str


@value
class Notify:
    """Tell the client that `ranges` of tokens are lost; kept until `NoticeAck` or session end."""

    session: int
    notice: int
    kind: str  # "message_timeout", "taken_back"
    consumer: int
    ranges: tuple[Range, ...]
    label: str


@value
class Activity:
    """The consumer is the active one of its single-active queue now, or waits now."""

    session: int
    consumer: int
    active: bool
    label: str


@value
class Resumed:
    """All that the resumed session holds was sent again on its data connection `epoch`."""

    session: int
    epoch: int


@value
class Fenced:
    """Close connections of this role up to `epoch`; with `session_taken` where `taken`."""

    session: int
    role: int
    epoch: int
    taken: bool = False


@value
class ConsumerRemoved:
    """The consumer is gone without having asked: its queue was deleted."""

    session: int
    consumer: int
    cause: str  # "queue_deleted"
    label: str


@value
class SessionEnded:
    """The session is over: its tokens are void. `cause` is an `EndCause`."""

    session: int
    cause: int


Effect = Deliver | Notify | Activity | Resumed | Fenced | ConsumerRemoved | SessionEnded
