"""The messages of operators: one message by its id, users of the log, the audit log.

Owns their part of the catalogue (`messages`). Must not know how a queue is looked through, or what
an action does.
When a message changes, change `docs/protocol.md` in the same commit; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fifo.wire import limits
from fifo.wire.fields import integer, list_of, mapping, maybe, octets, record, text
from fifo.wire.messages import (
    Columns,
    MaybeDuration,
    MaybeId,
    MaybeText,
    Message,
    Name,
    Number,
    on_wire,
)

_NAME = text(limits.QUEUE_NAME_BYTES_MAX, 1)
_TEXT = text(limits.TEXT_BYTES_MAX)

# --- one message --------------------------------------------------------------------------------


@on_wire(53)
@dataclass(frozen=True, slots=True)
class Find(Message):
    """Look for messages by id, by key, or page by page; answered by `Peeked` with `places`.

    From `exception_type` on: conditions, which a node of 0.1.0 ignores.
    """

    queue: Name
    id: MaybeId = None
    key: Annotated[bytes | None, maybe(octets(limits.KEY_BYTES_MAX, 1))] = None
    place: Annotated[str | None, maybe(text(32, 1))] = None
    after: Number = 0
    limit: Annotated[int, integer(1, limits.FIND_MESSAGES_MAX)] = 10
    exception_type: MaybeText = None
    stack_line: MaybeText = None
    headers: Annotated[
        tuple[tuple[str, str], ...], list_of(record(_TEXT, _TEXT), limits.PAGE_HEADERS_MAX)
    ] = ()
    published_by_ms: Number = 0


@on_wire(54)
@dataclass(frozen=True, slots=True)
class MessageAction(Message):
    """Retry, unlock, delay, cancel, delete, terminate, move or resend one message by its id.

    `version`: only if it still stands as it was found. `columns`: of what a resend gives it instead
    of its own body, key and headers (semantics.md 14).
    """

    queue: Name
    id: Annotated[str, text(limits.MESSAGE_ID_BYTES_MAX, 5)]
    action: Annotated[str, text(32, 1)]
    version: Annotated[str | None, maybe(text(limits.VERSION_BYTES_MAX, 1))] = None
    target: Annotated[str | None, maybe(_NAME)] = None
    delay_ms: MaybeDuration = None
    reason: MaybeText = None
    description: MaybeText = None
    columns: Columns = ()


# --- users --------------------------------------------------------------------------------------


@on_wire(55)
@dataclass(frozen=True, slots=True)
class ManageUser(Message):
    """List, import, add, change or remove users of the log, and their tokens; `Ok` answers."""

    action: Annotated[str, text(32, 1)]
    user: Annotated[str | None, maybe(_NAME)] = None
    values: Annotated[dict[str, Any] | None, maybe(mapping)] = None


@on_wire(56)
@dataclass(frozen=True, slots=True)
class Audit(Message):
    """Read the audit log, the newest lines first; answered by `Ok`.

    `before`: the id of the last line of the page before.
    """

    queue: Annotated[str | None, maybe(_NAME)] = None
    user: MaybeText = None
    since_ms: Number = 0
    before: Annotated[str | None, maybe(text(64, 3))] = None
    limit: Annotated[int, integer(1, limits.ITEMS_MAX)] = 100
