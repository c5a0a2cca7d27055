"""Dead letters in groups that are alike, for people to look through.

Owns the groups of one count, bounded in number: what does not fit is one group of others. Must not
know how the messages of a queue are walked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from fifo.machine.contract import Reason, Run
from node.broker import limits
from node.broker.deliveries import ReadArea, line_of

Group: TypeAlias = tuple[str, str, str, str]
"""Reason, source, exception type and the line of the stack; a reason of "" is no dead letter."""

_NO_LETTER: Final[Group] = ("", "", "", "")
_OTHERS: Final[Group] = ("others", "", "", "")
_NAMES: Final = ("reason", "source", "exception_type", "stack_line")


@dataclass(slots=True)
class _Count:
    """The messages of a group: when they died, and the id of the first that was seen."""

    id: str
    first_ms: int
    last_ms: int
    messages: int = 0


class Groups:
    """The groups that were counted so far."""

    def __init__(self, read: ReadArea) -> None:
        self._read = read
        self._counts: dict[Group, _Count] = {}

    def add(self, run: Run) -> None:
        """Count a message (a run of one). Raises `NotCached` before anything is counted."""
        group = self._group_of(run)
        if group not in self._counts and len(self._counts) >= limits.DEAD_LETTER_GROUPS_MAX:
            group = _OTHERS
        letter = run.dead_letter
        died_ms = run.published_wall_ms if letter is None else letter.died_wall_ms
        count = self._counts.get(group)
        if count is None:
            shown = f"{run.queue_number}.{run.producer}.{run.number}"
            count = self._counts[group] = _Count(shown, died_ms, died_ms)
        count.messages += 1
        count.first_ms, count.last_ms = min(count.first_ms, died_ms), max(count.last_ms, died_ms)

    def _group_of(self, run: Run) -> Group:
        letter = run.dead_letter
        if letter is None:
            return _NO_LETTER
        reason = Reason(letter.reason).name.lower()
        return reason, letter.source, letter.exception_type or "", line_of(letter, self._read)

    def listed(self) -> list[dict[str, Any]]:
        """All of them as plain maps, the largest first."""
        ordered = sorted(self._counts.items(), key=lambda item: -item[1].messages)
        return [
            {
                **dict(zip(_NAMES, group, strict=True)),
                "messages": count.messages,
                "first_died_ms": count.first_ms,
                "last_died_ms": count.last_ms,
                "id": count.id,
            }
            for group, count in ordered
        ]
