"""The members of a cluster that stands still: those of the newest configuration in a log.

Owns which they are, and the file of the cluster that begins anew with them, at other addresses
where they have moved. Must not know commands, or which log to go on from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from node.backup.errors import RebuildRefused
from node.broker.members import nodes_of
from node.config import ClusterConfig, NodeConfig, cluster_id_of
from node.raft import ConfigurationDamaged, decode
from node.roster import NOWHERE, Roster

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from node.journal.journal import Journal
    from node.raft import Configuration

ANEW: Final = "-rebuilt"
"""Behind the name of a cluster, that of the one that goes on from its remains."""

NAME_MAX: Final = 64
"""Characters of a name (`node/table.py`)."""


def configuration_in(journal: Journal) -> Configuration | None:
    """The newest configuration of a log, committed or not; None where members never changed.
    Raises `RebuildRefused` where it cannot be read."""
    meta, noted = journal.snapshot, journal.noted
    newest = noted[max(noted)] if noted else b"" if meta is None else meta.members
    try:
        return decode(newest) if newest else None
    except ConfigurationDamaged as damaged:
        raise RebuildRefused(f"the members of the log cannot be read: {damaged}") from damaged


def by_log(config: ClusterConfig, journal: Journal) -> ClusterConfig:
    """The same configuration with the voters of the log, at the addresses of the log; that of the
    file where members never changed."""
    found = configuration_in(journal)
    if found is None:
        return config
    voters = replace(found, learners=())
    return replace(config, nodes=nodes_of(voters, Roster(config.nodes)), join=())


def anew(
    config: ClusterConfig, source: NodeConfig, moved: Mapping[str, NodeConfig], path: Path
) -> ClusterConfig:
    """The configuration of the cluster that goes on, in the file `path`: under another name, with
    those that have moved where they are now. A member that is not in the file of `source` has its
    folder beside that one's."""
    folder = source.data_dir
    nodes = []
    for node in config.nodes:
        now = moved.get(node.name, node)
        if now.data_dir == NOWHERE / node.name:
            now = replace(now, data_dir=folder.with_name(f"{folder.name}-{node.name}"))
        nodes.append(now)
    name = f"{config.name.removesuffix(ANEW)[: NAME_MAX - 2 * len(ANEW)]}{ANEW}"
    if name == config.name:
        name += ANEW
    return replace(
        config, name=name, cluster_id=cluster_id_of(name), nodes=tuple(nodes), join=(), path=path
    )
