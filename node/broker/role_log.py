"""The last changes of a node's role, with their cause, for operators.

Owns the list, bounded in number. Must not know how a role changes: the caller says why.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from node.broker import limits


class RoleLog:
    """The newest changes of the role or term of this node since its start."""

    def __init__(self) -> None:
        self._changes: deque[dict[str, Any]] = deque(maxlen=limits.ROLE_CHANGES_MAX)

    def note(self, at_ms: int, role: str, term: int, cause: str) -> None:
        """Add a change; `at_ms` is wall time."""
        self._changes.append({"at_ms": at_ms, "role": role, "term": term, "cause": cause})

    def listed(self) -> list[dict[str, Any]]:
        """All of them, the oldest first."""
        return list(self._changes)
