"""The machine's refusals as error codes of the protocol.

Owns the table from `fifo.machine.types.Code` to `fifo.wire.errors.Code`: the machine has words for
what a client cannot act on by itself, and the protocol has fewer. Change it with either of them.
"""

from __future__ import annotations

from typing import Any, Final

from fifo.machine.replies import Refused
from fifo.machine.types import Code as Inner
from fifo.wire.errors import RETRYABLE, Code

_TABLE: Final[dict[str, Code]] = {
    Inner.INVALID: Code.INVALID_ARGUMENT,
    Inner.TOO_LARGE: Code.TOO_LARGE,
    Inner.LIMIT: Code.LIMIT,
    Inner.QUEUE_NOT_FOUND: Code.QUEUE_NOT_FOUND,
    Inner.QUEUE_EXISTS: Code.QUEUE_EXISTS,
    Inner.QUEUE_FULL: Code.QUEUE_FULL,
    Inner.IN_USE: Code.IN_USE,
    Inner.CYCLE: Code.INVALID_ARGUMENT,
    Inner.NO_DEAD_LETTER_QUEUE: Code.NO_DEAD_LETTER_QUEUE,
    Inner.UNKNOWN_SESSION: Code.SESSION_ENDED,
    Inner.UNKNOWN_CONSUMER: Code.UNKNOWN_CONSUMER,
    Inner.UNKNOWN_PRODUCER: Code.UNKNOWN_PRODUCER,
    Inner.GAP: Code.GAP,
    Inner.FENCED: Code.MOVED,
    Inner.SESSION_CONNECTED: Code.INVALID_ARGUMENT,
    Inner.FORBIDDEN: Code.PERMISSION_DENIED,
    Inner.SUBSCRIBED: Code.IN_USE,
    Inner.DEDUP_FULL: Code.DEDUP_FULL,
    Inner.STALE: Code.INVALID_ARGUMENT,
    Inner.REDRIVE_RUNNING: Code.IN_USE,
    Inner.OLD_GENERATION: Code.SESSION_TAKEN,
}


def wire_code(refused: Refused) -> str:
    """The protocol's code for a refusal."""
    return _TABLE[refused.code]


def error_item(refused: Refused) -> tuple[str, str, bool, object]:
    """A refusal as it stands in a confirm: code, text, retryable, detail."""
    code = wire_code(refused)
    return (code, refused.text, code in RETRYABLE, detail_of(refused))


def detail_of(refused: Refused) -> object:
    """A refusal's detail for programs, as plain lists and maps."""
    return None if refused.detail is None else plain(refused.detail)


def plain(value: Any) -> Any:
    """A value of the machine as the wire carries it: tuples as lists, keys as text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
