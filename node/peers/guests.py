"""Guests: nodes that know the secret and are no members, as those that join.

Owns what each of them says of itself while it is connected, and how many may be. Must not know why
one is here, nor who is a member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from node.peers import limits

if TYPE_CHECKING:
    from node.peers.message import Message


class Link(Protocol):
    """A connection to a proven node."""

    @property
    def peer(self) -> str: ...
    def close(self) -> None: ...


class Guest(NamedTuple):
    """A node that could be added: its name, the id of its journal, and its three addresses."""

    name: str
    journal: bytes
    peer: str
    client: str
    http: str


class Guests:
    """The proven nodes and what they say of themselves, by their connections."""

    def __init__(self) -> None:
        self._journals: dict[Link, bytes] = {}
        self._abouts: dict[Link, Message] = {}
        self._here: dict[Link, None] = {}

    def __repr__(self) -> str:
        return f"<Guests {[link.peer for link in self._here]}>"

    def came(self, link: Link) -> None:
        """Take in one that is no member; where there are too many, the first one has to go."""
        self._here[link] = None
        if len(self._here) > limits.GUESTS_MAX:
            next(iter(self._here)).close()

    def said(self, link: Link, message: Message) -> None:
        """A node, member or not, says which journal or which addresses it has."""
        if message["type"] == "journal":
            self._journals[link] = message["journal"]
        else:
            self._abouts[link] = message

    def gone(self, link: Link) -> None:
        """A connection has ended."""
        self._here.pop(link, None)
        self._journals.pop(link, None)
        self._abouts.pop(link, None)

    def waiting(self) -> dict[str, Guest]:
        """The guests that have said all that it takes to add them, by name."""
        found = {}
        for link in self._here:
            about = self._abouts.get(link)
            if about is not None and link in self._journals:
                found[link.peer] = Guest(
                    link.peer, self._journals[link], about["peer"], about["client"], about["http"]
                )
        return found

    def now_member(self, name: str) -> None:
        """A guest has become a member."""
        for link in [link for link in self._here if link.peer == name]:
            del self._here[link]
