"""The members of one group: a list that is fixed at the start, and the arithmetic of its majority.

Owns who takes part, how many peers complete a majority, and the refusal of every change. Must not
know terms, logs or connections. Membership is static: a change is made by stopping the group and
starting it with another configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, TypeVar

from node.peers.message import PeerNode
from node.raft.errors import RaftStopped

if TYPE_CHECKING:
    from collections.abc import Iterable


Number = TypeVar("Number", int, float)


class Membership:
    """This member and its peers, in the order of their names."""

    def __init__(self, name: str, peers: Iterable[str]) -> None:
        self.own = PeerNode(name)
        self.peers = [PeerNode(peer) for peer in sorted(peers)]
        self.peers_needed = (len(self.peers) + 1) // 2
        """Peers that complete a majority together with this member; 0 for a member alone."""

    def reached_with_self(self, values: Iterable[Number]) -> Number | None:
        """Return the highest of the peers' `values` that a majority including this member has
        reached; None where this member is a majority alone."""
        if self.peers_needed == 0:
            return None
        return sorted(values, reverse=True)[self.peers_needed - 1]

    def reached_without_self(self, values: Iterable[Number]) -> Number | None:
        """Return the highest of the peers' `values` that a majority of peers alone has reached;
        None where the peers are no majority."""
        if self.peers_needed >= len(self.peers):
            return None
        return sorted(values, reverse=True)[self.peers_needed]

    def refuse_change(self, request: object) -> NoReturn:
        """Raise `RaftStopped`: the set of members never changes while a node runs (b11)."""
        raise RaftStopped(
            f"raft: membership is static: change {request!r} rejected; "
            "stop the group and start it with another list of members"
        )
