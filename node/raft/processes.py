"""Processes of the members: which one of each is connected here, and which one elsewhere.

Owns the rule that of two living processes of one member, connected to different members, the later
one does not count: each member says whom it is connected to, and takes no other process while that
one is connected. Where both were taken before the members heard of each other, the member with the
least name keeps its own. Pure: no clock, no connections; `admission.py` acts on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Processes:
    """The processes that count, by the ids of their opens."""

    def __init__(self, name: str) -> None:
        """`name`: of the member that judges."""
        self._name = name
        self._elsewhere: dict[str, dict[str, bytes]] = {}
        self.here: dict[str, bytes] = {}
        """The process of each member that counts here."""

    def said(self, member: str, connected: Mapping[str, bytes]) -> bool:
        """Take what a member says of its connections. True where that is news."""
        before = self._elsewhere.get(member, {})
        self._elsewhere[member] = dict(connected)
        return before != connected

    def gone(self, member: str) -> None:
        """The connection to a member ended: it is not here, and nothing is known through it."""
        self.here.pop(member, None)
        self._elsewhere.pop(member, None)

    def judge(self, member: str, open_id: bytes) -> str | None:
        """Return the member that is connected to another process than this one, which is connected
        here and does not count therefore; None: it counts."""
        taken = self.here.get(member) == open_id
        for other, connected in sorted(self._elsewhere.items()):
            if connected.get(member, open_id) == open_id or (taken and self._name < other):
                continue
            self.here.pop(member, None)
            return other
        self.here[member] = open_id
        return None
