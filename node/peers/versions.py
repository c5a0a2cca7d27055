"""The versions that members say they can speak, behind the handshake, and the one in use.

Owns what was said last, also by members that are gone now, and the protocol that is in use between
members. Must not know what a part is, nor who decides what is used: that is the owner's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from node.peers.frames import PROTOCOL_NEWEST, PROTOCOL_OLDEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from node.peers.message import Message

PEER: Final = "peer"
"""The part that is the protocol between members."""


class Said(NamedTuple):
    """A member's description of itself: its release, and the lowest and highest version by part."""

    release: str
    ranges: Mapping[str, tuple[int, int]]


class PeerVersions:
    """The last description of each member, and the protocol in use."""

    def __init__(self) -> None:
        self.own = Said("", {PEER: (PROTOCOL_OLDEST, PROTOCOL_NEWEST)})
        self.silent = Said("", {PEER: (PROTOCOL_OLDEST, PROTOCOL_OLDEST)})
        """The description of a member that gives none."""
        self.used = PROTOCOL_OLDEST
        """The protocol that the cluster uses, as far as this member knows; it only rises."""
        self.known: dict[str, Said] = {}
        self.heard: set[str] = set()
        """The members that said it on a connection that there is now."""
        self._changed: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<PeerVersions used {self.used}, {len(self.known)} known>"

    def begin(
        self,
        own: Said,
        silent: Said,
        known: Mapping[str, Said],
        changed: Callable[[], None],
    ) -> None:
        """Set what this member says, what it remembers of the others, and what is called when a
        member says something else than before. Call before the transport is started."""
        self.own, self.silent, self._changed = own, silent, changed
        self.known = dict(known)

    @property
    def frame(self) -> Message:
        """The message in which this member says what it can."""
        ranges = [[part, *bounds] for part, bounds in self.own.ranges.items()]
        return {"type": "versions", "release": self.own.release, "ranges": ranges}

    def said(self, name: str, message: Message | None) -> None:
        """Take what the member `name` says; None: it is one that does not."""
        said = self.silent
        if message is not None:
            ranges = {part: (low, high) for part, low, high in message["ranges"]}
            said = Said(message["release"], ranges)
        self.heard.add(name)
        if self.known.get(name) != said:
            self.known[name] = said
            self._changed()

    def may_stay(self, name: str) -> bool:
        """Whether the member `name` speaks the protocol in use, by what it said last."""
        low, high = self.known.get(name, self.silent).ranges.get(PEER, (0, 0))
        return low <= self.used <= high
