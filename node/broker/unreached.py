"""Clients that reach a follower and not the leader: what they say, and when the leader moves.

Owns both ends (semantics.md 4.23): a follower remembers which sessions have said of late that they
cannot reach its leader, and tells that one; a leader compares them with the sessions that it
serves, and hands over where another node serves more. Must not know how a client says it, nor how
leadership moves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from node.broker import limits

SESSION_BYTES = 16


@dataclass(slots=True)
class _Said:
    """When a session said it first and last."""

    first: float
    last: float


class Complaints:
    """The sessions that have said to this follower that they cannot reach its leader."""

    def __init__(
        self, leads: Callable[[], tuple[str, int] | None], now: Callable[[], float]
    ) -> None:
        """`leads`: name and term of another node that leads now, or None; `now`: seconds."""
        self._leads = leads
        self._now = now
        self._about: tuple[str, int] | None = None
        self._said: dict[bytes, _Said] = {}
        """By session, the one that was heard last in the end."""
        self._reported_at = now()

    def __len__(self) -> int:
        return len(self._said)

    def wanted(self, session: bytes, leader: str) -> bool:
        """Whether it is news that this session cannot reach `leader`, and worth a proof of who says
        so: that one leads, and the session has not said it just now."""
        about = self._leads()
        if about is None or about[0] != leader:
            return False
        self._forget(about)
        said = self._said.get(session)
        if said is None:
            return len(self._said) < limits.UNREACHED_SESSIONS_MAX
        return self._now() - said.last >= limits.UNREACHED_NEWS_SECONDS

    def note(self, session: bytes, leader: str) -> None:
        """Take it from a client that is known to be one."""
        if self.wanted(session, leader):
            now = self._now()
            said = self._said.pop(session, None)
            self._said[session] = _Said(now if said is None else said.first, now)

    def due(self) -> bytes | None:
        """The note for the leader, once in a while: the sessions that have said it for longer than
        an election or a slow connection takes. None where there are none."""
        now = self._now()
        if not self._said or now - self._reported_at < limits.UNREACHED_TELL_SECONDS:
            return None
        self._reported_at = now
        self._forget(self._leads())
        last = now - limits.UNREACHED_AFTER_SECONDS
        return b"".join([one for one, said in self._said.items() if said.first <= last]) or None

    def _forget(self, about: tuple[str, int] | None) -> None:
        """Drop what was said of another leader or term, and what was not said again."""
        if about != self._about:
            self._about = about
            self._said.clear()
        oldest = self._now() - limits.UNREACHED_SECONDS
        while self._said and next(iter(self._said.values())).last < oldest:
            del self._said[next(iter(self._said))]


def sessions_in(note: bytes) -> frozenset[bytes]:
    """The sessions that a follower's note names."""
    places = range(0, len(note), SESSION_BYTES)
    return frozenset(note[place : place + SESSION_BYTES] for place in places)


def better_node(served: Collection[bytes], notes: Mapping[str, bytes]) -> tuple[str, int] | None:
    """The node that serves more clients than this leader, and how many reach it and not this one.

    `served` are the sessions that are connected here. One that says elsewhere that it is not served
    is not, though its words arrive here: the way back may be cut.
    """
    named = {node: sessions_in(note) for node, note in notes.items()}
    unserved = frozenset[bytes]().union(*named.values())
    left = len(frozenset(served) - unserved)
    count, node = max([(len(sessions), node) for node, sessions in named.items()], default=(0, ""))
    return (node, count) if count > left else None


class Moves:
    """When a leader moves for its clients: not soon after it was elected, nor soon after it tried,
    so that clients that lie cost an orderly hand-over now and then, and nothing else."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since = now()

    def begin(self) -> None:
        """This node was elected, or hands over: no move for a while."""
        self._since = self._now()

    def may(self) -> bool:
        """Whether the leader may move now."""
        return self._now() - self._since >= limits.LEADER_MOVE_SECONDS
