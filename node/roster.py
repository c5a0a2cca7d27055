"""The members of a cluster with their addresses, as a node knows them now.

Owns the list that all rooms of a node read: that of `cluster.toml` until the log has a
configuration, and that of the newest configuration from then on. Must not know the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from node.config import NodeConfig

NOWHERE = Path()
"""Folder of the data of members elsewhere: this node has no use for it."""


class Roster:
    """The members, this node among them while it is one."""

    def __init__(self, nodes: Iterable[NodeConfig]) -> None:
        self.nodes = tuple(nodes)

    def __repr__(self) -> str:
        return f"<Roster {self.names}>"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the members."""
        return tuple(node.name for node in self.nodes)

    @property
    def clients(self) -> tuple[tuple[str, str], ...]:
        """Name and client address of each, as welcomes and redirects say them."""
        return tuple((node.name, str(node.client)) for node in self.nodes)

    def find(self, name: str) -> NodeConfig | None:
        """The member of that name."""
        return next((node for node in self.nodes if node.name == name), None)
