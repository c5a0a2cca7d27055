"""A bounded number of places for what stays open: streams of events, gets that wait.

Owns the count, and the share of one user. Must not know what takes a place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from fifo.wire import Code
from node.http.api.problems import Problem


class Places:
    """Places of a node; `share` of them for one user, where there are users."""

    def __init__(self, most: int, share: int, what: str) -> None:
        self._most = most
        self._share = share
        self._what = what
        self._taken: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._taken.total()

    @contextmanager
    def taken(self, user: str | None) -> Iterator[None]:
        """Take a place for as long as the block lasts. Raises Problem where there is none."""
        name = user or ""
        share = self._most if user is None else self._share
        if len(self) >= self._most or self._taken[name] >= share:
            text = (
                f"this node has its maximum of {self._most} {self._what} ({share} for one user):"
                " end one, or ask another node"
            )
            raise Problem(Code.OVERLOADED, text)
        self._taken[name] += 1
        try:
            yield
        finally:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]
