"""The options of a redrive, in their form for the wire.

Owns the checks of a redrive's filter and bounds. Must not know connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fifo.client import checks
from fifo.client.durations import Duration, milliseconds
from fifo.client.errors import InvalidArgument
from fifo.words.settlement import REASONS

_MOST: Final = 2**63 - 1


def options(
    *,
    reason: str | None,
    source: str | None,
    headers: Mapping[str, str] | None,
    older_than: Duration | None,
    min_attempts: int | None,
    limit: int | None,
    rate: int | None,
    reset_counts: bool,
    dry_run: bool,
) -> dict[str, Any]:
    """The options of a `Redrive` frame; raises InvalidArgument with the name of what is wrong."""
    chosen: dict[str, Any] = {}
    if reason is not None:
        chosen["reason"] = checks.one_of(reason, "reason", *REASONS)
    if source is not None:
        chosen["source"] = checks.name(source, "source")
    if headers is not None:
        if not isinstance(headers, Mapping):
            raise InvalidArgument(f"headers: must be a mapping, not {type(headers).__name__}")
        checks.headers(headers)
        chosen["headers"] = dict(headers)
    if older_than is not None:
        chosen["older_than_ms"] = milliseconds(older_than, "older_than")
    if min_attempts is not None:
        chosen["min_attempts"] = checks.integer(min_attempts, "min_attempts", 0, _MOST)
    found: dict[str, Any] = {"filter": chosen} if chosen else {}
    if limit is not None:
        found["limit"] = checks.integer(limit, "limit", 1, _MOST)
    if rate is not None:
        found["rate_per_s"] = checks.integer(rate, "rate", 1, _MOST)
    if not checks.flag(reset_counts, "reset_counts"):
        found["reset_counts"] = False
    if checks.flag(dry_run, "dry_run"):
        found["dry_run"] = True
    return found
