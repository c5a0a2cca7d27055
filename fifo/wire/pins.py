"""The messages about pinned views: the state of a node at one index, read page by page or whole.

Owns their part of the catalogue (`messages`). Must not know what a view costs, or when it ends.
When a message changes, change `docs/protocol.md` in the same commit; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fifo.wire import limits
from fifo.wire.fields import (
    U16_MAX,
    U63_MAX,
    integer,
    list_of,
    mapping,
    maybe,
    octets,
    record,
    text,
)
from fifo.wire.messages import Columns, Flag, MaybeText, Message, Name, Number, on_wire

_NAME = text(limits.QUEUE_NAME_BYTES_MAX, 1)
_TEXT = text(limits.TEXT_BYTES_MAX)

PinName = Annotated[bytes, octets(limits.PIN_BYTES, limits.PIN_BYTES)]


@on_wire(60)
@dataclass(frozen=True, slots=True)
class Pin(Message):
    """Pin the state of this node, leader or not, once it has applied `at_least`; `exactly` there,
    or not at all. `Ok` answers a map. The pin ends when it was not used for `lease_ms`.
    """

    at_least: Number = 0
    lease_ms: Annotated[int, integer(limits.PIN_LEASE_MS_MIN, limits.PIN_LEASE_MS_MAX)] = (
        limits.PIN_LEASE_MS
    )
    exactly: Flag = False


@on_wire(61)
@dataclass(frozen=True, slots=True)
class Unpin(Message):
    """End a pin; answered by `Ok`, also where it has ended already."""

    pin: PinName


@on_wire(62)
@dataclass(frozen=True, slots=True)
class PinQuery(Message):
    """Ask a pinned view: queues; of a queue consumers, or ranges of positions; renew for none."""

    pin: PinName
    query: Annotated[str, text(32, 1)]
    queue: Annotated[str | None, maybe(_NAME)] = None
    after: Number = 0
    limit: Annotated[int, integer(1, limits.ITEMS_MAX)] = 1000


@on_wire(63)
@dataclass(frozen=True, slots=True)
class Page(Message):
    """A page of a queue in a pinned view, in the order of positions; answered by `Paged`.

    From position `after` on and before `before`. Without `bodies` each message is empty.
    """

    pin: PinName
    queue: Name
    after: Number = 0
    before: Number = U63_MAX
    limit: Annotated[int, integer(1, limits.PAGE_MESSAGES_MAX)] = 1000
    state: Annotated[str | None, maybe(text(32, 1))] = None
    key: Annotated[bytes | None, maybe(octets(limits.KEY_BYTES_MAX, 1))] = None
    headers: Annotated[
        tuple[tuple[str, str], ...], list_of(record(_TEXT, _TEXT), limits.PAGE_HEADERS_MAX)
    ] = ()
    reason: MaybeText = None
    exception_type: MaybeText = None
    bodies: Flag = True
    stack_line: MaybeText = None
    published_by_ms: Number = 0


@on_wire(64)
@dataclass(frozen=True, slots=True)
class Paged(Message):
    """Messages as in a delivery, and where they stand; `after`: where to look for more, or 0.

    `spots`: messages, position of the first, place (0 ready, 1 locked, 2 delayed), consumer, token
    of the first, since and until when in cluster time, cause.
    """

    queue: Name
    count: Annotated[int, integer(0, limits.PAGE_MESSAGES_MAX)]
    columns: Columns = ()
    runs: Annotated[
        tuple[tuple[int, int, int, int, int], ...],
        list_of(record(integer(1), integer(), integer(), integer(), integer()), U16_MAX),
    ] = ()
    dead_letters: Annotated[
        tuple[tuple[int, dict[str, Any]], ...],
        list_of(record(integer(), mapping), U16_MAX),
    ] = ()
    spots: Annotated[
        tuple[tuple[int, int, int, int, int, int, int, str], ...],
        list_of(
            record(integer(1), integer(), integer(0, 2), *[integer()] * 4, text(32)),
            limits.ITEMS_MAX,
        ),
    ] = ()
    after: Number = 0


@on_wire(65)
@dataclass(frozen=True, slots=True)
class PinRead(Message):
    """Read a pinned view as a whole, piece by piece: `state`, its canonical bytes from `at` on, or
    `entries`, those of the log with an index above `at` that it points to. Answered by `PinPiece`.

    Without `content` the state is hashed and not sent.
    """

    pin: PinName
    part: Annotated[str, text(32, 1)]
    at: Number = 0
    content: Flag = True


@on_wire(66)
@dataclass(frozen=True, slots=True)
class PinPiece(Message):
    """A piece of a pinned view, in the raw part. The next one begins at `after`, unless this is the
    `last`, which has the digest of a whole state.

    `entries`: the index and size of each.
    """

    after: Number
    last: Flag = False
    digest: Annotated[bytes, octets(limits.DIGEST_BYTES)] = b""
    entries: Annotated[
        tuple[tuple[int, int], ...],
        list_of(record(integer(1), integer(0)), limits.PIECE_ENTRIES_MAX),
    ] = ()
