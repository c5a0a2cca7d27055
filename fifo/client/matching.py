"""Conditions on messages that are found: looked at here, for no node knows them.

Owns the conditions and their checks. Must not know how messages are found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from fifo.client import checks
from fifo.client.consuming.message import StoredMessage
from fifo.client.durations import Duration, milliseconds
from fifo.client.errors import InvalidArgument
from fifo.words.stacks import stack_line as line_of


class MatchKeywords(TypedDict, total=False):
    """The conditions of `client.find` and `client.move_found`; None is as good as not given."""

    exception_type: str | None
    stack_line: str | None
    headers: Mapping[str, str] | None
    older_than: Duration | None


@dataclass(frozen=True, slots=True)
class Match:
    """Conditions that a message meets, all of them. `older_than_ms`: since it was published."""

    exception_type: str | None = None
    stack_line: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    older_than_ms: int = 0

    def fits(self, message: StoredMessage, now: datetime) -> bool:
        """Whether the message is so."""
        return (
            message.published_at <= now - timedelta(milliseconds=self.older_than_ms)
            and self.headers.items() <= message.headers.items()
            and self._fits_letter(message)
        )

    def _fits_letter(self, message: StoredMessage) -> bool:
        if self.exception_type is None and self.stack_line is None:
            return True
        letter = message.dead_letter
        if letter is None:
            return False
        kind = letter.record.get("exception_type")
        return self.exception_type in (None, kind) and self.stack_line in (
            None,
            line_of(letter.stack),
        )


def match(given: Mapping[str, Any]) -> Match:
    """The conditions that were given; raises InvalidArgument with the name of what is wrong."""
    for name in ("exception_type", "stack_line"):
        if not isinstance(given.get(name), str | None):
            raise InvalidArgument(f"{name}: must be text, not {type(given[name]).__name__}")
    headers = given.get("headers")
    checks.headers(headers)
    older = given.get("older_than")
    return Match(
        given.get("exception_type"),
        given.get("stack_line"),
        dict(headers or {}),
        0 if older is None else milliseconds(older, "older_than"),
    )


def now(wall_s: float) -> datetime:
    """The time that a client's clock shows."""
    return datetime.fromtimestamp(wall_s, UTC)
