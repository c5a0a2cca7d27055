"""The members of one group, by the newest configuration, and the arithmetic of its majority.

Owns who takes part, who of them votes, how many others complete a majority, and the refusal of the
library's own changes. Must not know terms, logs or connections, nor how one configuration follows
another: that is for `configuration.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, TypeVar

from node.peers.message import PeerNode
from node.raft.errors import RaftStopped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


Number = TypeVar("Number", int, float)


class Membership:
    """This member and the others, in the order of their names."""

    def __init__(self, name: str, peers: Iterable[str], *, votes: bool = True) -> None:
        """`peers` are voters; so is this member, where it `votes`."""
        self.own = PeerNode(name)
        self.follow({name, *peers} if votes else set(peers), ())

    def follow(self, voters: Collection[str], learners: Collection[str]) -> None:
        """Go by another configuration from now on."""
        own = self.own.id
        self.votes = own in voters
        """Whether this member is a voter: a learner, and one that is removed, never leads."""
        self.voters = [PeerNode(name) for name in sorted(voters) if name != own]
        """The other members that vote and count."""
        self.peers = [PeerNode(name) for name in sorted({*voters, *learners}) if name != own]
        """All other members, learners among them."""
        self.peers_needed = (len(self.voters) + 1) // 2
        """Other voters that complete a majority together with this one; 0 for one alone."""
        self.alone = self.votes and not self.voters
        """Whether this member is a majority."""

    def reached_with_self(self, values: Iterable[Number]) -> Number | None:
        """Return the highest of the other voters' `values` that a majority including this member
        has reached; None where this member is a majority alone."""
        if self.peers_needed == 0:
            return None
        return sorted(values, reverse=True)[self.peers_needed - 1]

    def reached_without_self(self, values: Iterable[Number]) -> Number | None:
        """Return the highest of the other voters' `values` that a majority of them alone has
        reached; None where they are no majority."""
        if self.peers_needed >= len(self.voters):
            return None
        return sorted(values, reverse=True)[self.peers_needed]

    def refuse_change(self, request: object) -> NoReturn:
        """Raise `RaftStopped`: the library changes no members (b11); `changing.py` does."""
        raise RaftStopped(
            f"raft: the library's own change of members {request!r} is rejected; "
            "members change by `RaftNode.change_members`"
        )
