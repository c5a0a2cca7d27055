"""The labels of a task that say how it is published.

Owns their names and their values. Must not know what publishing is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import fifo

_PRIORITY = 4
_PRIORITY_MAX = 9


class Publication(NamedTuple):
    """The arguments with which a task is published."""

    queue: str
    delay_s: float | None
    priority: int
    key: str | None
    dedup_id: str | None
    ttl_s: float | None


def publication(labels: Mapping[str, Any], queue: str) -> Publication:
    """The publication of a task with these labels; `queue` is for one that names none.

    Raises InvalidArgument for a value that is no finite number.
    """
    priority = _number(labels, "priority")
    return Publication(
        queue=str(labels.get("queue_name") or queue),
        delay_s=_number(labels, "delay"),
        priority=_PRIORITY if priority is None else min(max(int(priority), 0), _PRIORITY_MAX),
        key=_text(labels, "key"),
        dedup_id=_text(labels, "dedup_id"),
        ttl_s=_number(labels, "ttl"),
    )


def _number(labels: Mapping[str, Any], name: str) -> float | None:
    value = labels.get(name)
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise fifo.InvalidArgument(f"label {name}: must be a number, not {value!r:.80}")
    return number


def _text(labels: Mapping[str, Any], name: str) -> str | None:
    value = labels.get(name)
    return None if value is None else str(value)
