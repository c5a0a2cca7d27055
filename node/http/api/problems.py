"""Errors as problem details (RFC 9457), with the codes of the protocol.

Owns the status of each code. Must not know requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fifo.client import ConnectionLost, FifoError, Timeout
from fifo.wire import Code
from fifo.wire.errors import RETRYABLE

CONTENT_TYPE: Final = "application/problem+json"

_STATUS: Final[Mapping[str, int]] = {
    Code.INVALID_ARGUMENT: 400,
    Code.UNSUPPORTED: 400,
    Code.AUTHENTICATION_FAILED: 401,
    Code.PERMISSION_DENIED: 403,
    Code.QUEUE_NOT_FOUND: 404,
    Code.MESSAGE_NOT_FOUND: 404,
    Code.PIN_GONE: 410,
    Code.QUEUE_EXISTS: 409,
    Code.QUEUE_FULL: 409,
    Code.IN_USE: 409,
    Code.LOCK_LOST: 409,
    Code.UNKNOWN_CONSUMER: 409,
    Code.NOT_RENEWABLE: 409,
    Code.DEDUP_FULL: 409,
    Code.QUEUE_REPLACED: 409,
    Code.UNKNOWN_PRODUCER: 404,
    Code.SESSION_ENDED: 503,
    Code.SESSION_TAKEN: 503,
    Code.NO_DEAD_LETTER_QUEUE: 409,
    Code.TOO_LARGE: 413,
    Code.LIMIT: 429,
    Code.OVERLOADED: 503,
    Code.NOT_NOW: 503,
    Code.NOT_LEADER: 503,
    Code.MOVED: 503,
    Code.SHUTTING_DOWN: 503,
    Code.UNKNOWN_OUTCOME: 504,
}
"""A code that is not here is a fault of the node: 500."""

_VERSIONS: Final = frozenset(("version", "revision"))
"""In the detail of an error: the version that there is, which is not the one that was seen."""


class Problem(Exception):
    """A refused request: a code of the protocol, and a text that says fact, value and fix."""

    def __init__(
        self, code: str, text: str, *, status: int | None = None, detail: Any = None
    ) -> None:
        super().__init__(text)
        self.code = str(code)
        self.status = _STATUS.get(code, 500) if status is None else status
        self.detail = detail

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return self.code in RETRYABLE

    def as_dict(self) -> dict[str, Any]:
        """The body of the answer."""
        found = {
            "type": f"urn:fifo:problem:{self.code}",
            "title": self.code.replace("_", " "),
            "status": self.status,
            "detail": str(self),
            "code": self.code,
            "retryable": self.retryable,
        }
        return found if self.detail is None else {**found, "info": self.detail}


def of_error(error: FifoError, *, conditional: bool) -> Problem:
    """The problem of what the client raised; `conditional`: the request had `If-Match`."""
    if error.unknown:
        code: str = Code.UNKNOWN_OUTCOME
    elif error.code is not None:
        code = error.code
    elif isinstance(error, ValueError):
        code = Code.INVALID_ARGUMENT
    elif isinstance(error, LookupError):
        code = Code.MESSAGE_NOT_FOUND
    elif isinstance(error, (ConnectionLost, Timeout)):
        code = Code.OVERLOADED
    else:
        code = Code.INTERNAL
    versioned = isinstance(error.detail, dict) and not _VERSIONS.isdisjoint(error.detail)
    status = 412 if conditional and versioned else None
    return Problem(code, str(error), status=status, detail=error.detail)
