"""Asking whether an election could be won, before standing in one (raft.md 3.8).

Owns one node's question and its answers; pure, no clock and no sending. A node that was cut off
must not depose a healthy leader with a raised term when it comes back.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PreVote:
    """The question of one node. `needed` counts the grants of others that make a majority."""

    needed: int
    number: int = 0
    asking: bool = False
    granted_by: set[str] = field(default_factory=set)

    def ask(self) -> int:
        """Open a new question and return its number; answers to older ones no longer count."""
        self.number += 1
        self.asking = True
        self.granted_by = set()
        return self.number

    def stop(self) -> None:
        """Give the question up: a leader was heard, or another node should stand."""
        self.asking = False

    def grant(self, voter: str, number: int) -> bool:
        """Count a grant once per voter. True when it completes a majority."""
        if not self.asking or number != self.number:
            return False
        self.granted_by.add(voter)
        if len(self.granted_by) < self.needed:
            return False
        self.asking = False
        return True


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Term and index of a log's last entry; the order is Raft's "more up to date"."""

    term: int
    index: int

    def reaches(self, other: LogEnd) -> bool:
        """Whether this log is at least as up to date as `other`."""
        return (self.term, self.index) >= (other.term, other.index)


def would_grant(
    candidate: LogEnd, own: LogEnd, *, asking: bool, candidate_name: str, own_name: str
) -> bool:
    """Whether to tell a node that it may stand.

    While asking itself, a node gives way only to a longer log, or to an equal one under the
    greater name: else two survivors would block each other for another timeout.
    """
    if not candidate.reaches(own):
        return False
    return not asking or candidate != own or candidate_name > own_name
