"""Conditions on messages that are found. A node looks at them; one of 0.1.0 does not, so they are
looked at here once more.

Owns the conditions and their checks. Must not know how messages are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypedDict

from fifo.client import checks
from fifo.client.consuming.message import StoredMessage
from fifo.client.durations import Duration, milliseconds
from fifo.client.errors import InvalidArgument
from fifo.wire.limits import PAGE_HEADERS_MAX
from fifo.words.stacks import stack_line as line_of


class MatchKeywords(TypedDict, total=False):
    """The conditions of `client.find` and `client.move_found`; None is as good as not given."""

    exception_type: str | None
    stack_line: str | None
    headers: Mapping[str, str] | None
    older_than: Duration | None


@dataclass(frozen=True, slots=True)
class Match:
    """Conditions that a message meets, all of them. `published_by_ms`: published then or before, in
    milliseconds since 1970; 0 is any time."""

    exception_type: str | None = None
    stack_line: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    published_by_ms: int = 0

    @property
    def named_headers(self) -> tuple[tuple[str, str], ...]:
        """The headers that a request has room for; those above are looked at here alone."""
        return tuple(self.headers.items())[:PAGE_HEADERS_MAX]

    def fits(self, message: StoredMessage) -> bool:
        """Whether the message is so."""
        return (
            self.is_old(message)
            and self.headers.items() <= message.headers.items()
            and self.fits_letter(message)
        )

    def is_old(self, message: StoredMessage) -> bool:
        """Whether it was published early enough."""
        return not self.published_by_ms or (
            message.published_at <= datetime.fromtimestamp(self.published_by_ms / 1000, UTC)
        )

    def fits_letter(self, message: StoredMessage) -> bool:
        """Whether it is such a dead letter, if that is wanted."""
        if self.exception_type is None and self.stack_line is None:
            return True
        letter = message.dead_letter
        if letter is None:
            return False
        kind = letter.record.get("exception_type") or ""
        return self.exception_type in (None, kind) and self.stack_line in (
            None,
            line_of(letter.stack),
        )


def match(given: Mapping[str, Any], wall_s: float) -> Match:
    """The conditions that were given, at this time of a client's clock; raises InvalidArgument with
    the name of what is wrong."""
    for name in ("exception_type", "stack_line"):
        if not isinstance(given.get(name), str | None):
            raise InvalidArgument(f"{name}: must be text, not {type(given[name]).__name__}")
    headers = given.get("headers")
    checks.headers(headers)
    older = given.get("older_than")
    older_ms = 0 if older is None else milliseconds(older, "older_than")
    return Match(
        given.get("exception_type"),
        given.get("stack_line"),
        dict(headers or {}),
        max(1, int(wall_s * 1000) - older_ms) if older_ms else 0,
    )
