"""The parts of a node that a term as leader uses and does not end with it.

Owns the list of them, so that a term's parts are given one thing. Must not know leadership.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from node.broker.alarms import Alarms
from node.broker.audit import AuditLog
from node.broker.clock import Clocks
from node.broker.counters import Counters
from node.broker.machine_host import MachineHost
from node.broker.members import Members
from node.broker.permissions import Rights
from node.broker.turns import Turns
from node.broker.upgrade import Upgrade
from node.config import LimitSettings
from node.raft import RaftNode


@dataclass(slots=True)
class Context:
    """The surroundings of every term of one node."""

    node: str
    raft: RaftNode
    host: MachineHost
    clocks: Clocks
    turns: Turns
    counters: Counters
    settings: LimitSettings
    alarms: Alarms
    entropy: Callable[[int], bytes]
    """So many bytes that no client can predict."""
    rights_of: Callable[[str], Rights | None]
    users: Callable[[], Sequence[Rights]]
    people: Callable[[], Sequence[Rights]]
    """All users, and those that tokens of an identity provider have brought."""
    connections_of: Callable[[str], int]
    """To this node, of the user with this name."""
    audit: Callable[[], AuditLog | None]
    """The audit log of this node."""
    upgrade: Upgrade
    members: Members
