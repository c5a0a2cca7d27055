"""Handing leadership to another member (raft.md 3.8): what has to be so before each step.

Owns one transfer from its beginning to its end and the words of its refusals. The leader stops
appending, the target catches up, the lease is given up *before* the target is asked to stand, and
a leader that asked never takes a lease in that term again: the target may wake up late.
Must not know the library, and sends nothing; `elections.py` drives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from node.raft.errors import RaftError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from node.peers.message import PeerNode
    from node.raft.replication import PeerProgress


class TransferRefused(RaftError):
    """A transfer that cannot begin; the message says why, and nothing has changed."""


@dataclass(slots=True)
class Transfer:
    """A transfer. `deadline` ends the step that it is in; `failed` is called with the reason when
    it is given up while this node still leads, and not when it no longer does. `yields`: this node
    is not to lead again soon."""

    target: PeerNode
    term: int
    deadline: float
    failed: Callable[[str], None]
    yields: bool = False
    sent: bool = False


def find_target(
    name: str, *, own_name: str, peers: Mapping[PeerNode, PeerProgress], last_index: int
) -> PeerNode:
    """Return the member of that name, if it can lead. Raises `TransferRefused`."""
    if name == own_name:
        raise TransferRefused(f"{name} already leads")
    node = next((node for node in peers if node.id == name), None)
    if node is None:
        known = ", ".join(sorted([own_name, *(node.id for node in peers)]))
        raise TransferRefused(f"there is no node {name!r}; there are: {known}")
    progress = peers[node]
    if not progress.connected:
        raise TransferRefused(f"{name} is not connected to the leader {own_name}: is it running?")
    if not progress.counted:
        raise TransferRefused(f"{name} is recovering a lost journal: wait until it has finished")
    if progress.differs:
        raise TransferRefused(
            f"the state of {name} is not that of the majority: wait until it is replaced"
        )
    if not keeps_up(progress, last_index):
        behind = last_index - progress.match_index
        raise TransferRefused(f"{name} is {behind} entries behind: wait until it has caught up")
    return node


def keeps_up(progress: PeerProgress, last_index: int) -> bool:
    """Whether it can lead, and everything there is has been sent: at most a window is missing."""
    up_to_date = not progress.probing and progress.next_index > last_index
    able = progress.connected and progress.counted and not progress.differs
    return able and up_to_date


def best_target(peers: Mapping[PeerNode, PeerProgress], last_index: int) -> str | None:
    """Return the member closest to taking over, for a leader that stops; None where none can."""
    able = [
        (progress.match_index, node.id)
        for node, progress in peers.items()
        if keeps_up(progress, last_index)
    ]
    return max(able)[1] if able else None
