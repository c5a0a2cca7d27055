"""Members by the log, for commands that have a file and data folders, or the answers of nodes.

Owns the newest configuration that the notebooks of stopped nodes have, and how a file differs from
the members. Changes nothing. Must not know commands, or how members change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from node.broker.members import nodes_of, remembered
from node.cli.findings import Finding, advice, warning
from node.journal import notebook
from node.journal.io.storage import OsStorage
from node.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from node.config import ClusterConfig, NodeConfig
    from node.raft import Configuration

Addresses = dict[str, str]
"""The peer, client and http address of a member."""


def noted_in(nodes: Iterable[NodeConfig]) -> Configuration | None:
    """The newest configuration that these nodes, on this machine, have noted; None where members
    never changed, or no folder is here."""
    found = [remembered(notebook.read(OsStorage(node.data_dir))) for node in nodes]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: one.number, default=None)


def members_noted(nodes: Iterable[NodeConfig]) -> dict[str, Addresses]:
    """The members by those notes; empty where there are none."""
    found = noted_in(nodes)
    members = () if found is None else nodes_of(found, Roster(()))
    return {one.name: _addresses(one) for one in members}


def members_said(up: Sequence[Mapping[str, Any]]) -> dict[str, Addresses]:
    """The members by the newest configuration that nodes answer; empty where they never changed."""
    views = [node["membership"] for node in up if (node.get("membership") or {}).get("number")]
    newest = max(views, key=lambda one: int(one["number"]), default=None)
    kinds = ("peer", "client", "http")
    listed = [] if newest is None else newest["members"]
    return {one["name"]: {kind: one[kind] for kind in kinds} for one in listed}


def compared(
    path: Path, settings: ClusterConfig, members: Mapping[str, Addresses]
) -> Iterator[Finding]:
    """Where a file has other members than the log, or other addresses. The file of a node that
    joined is about itself alone."""
    if not members:
        return
    place, file = str(path), {node.name: _addresses(node) for node in settings.nodes}
    in_line = "the log holds: bring the file in line with `fifo member list`"
    for name, addresses in file.items():
        if name not in members:
            fact = f"{name} is in this file, and is no member by the log"
            yield warning("members", place, fact, f"{in_line}; its folder is of no use any more")
            continue
        for kind, own in addresses.items():
            there = members[name][kind]
            if own != there:
                fact = f"{name} has the {kind} address {own} in this file, and {there} in the log"
                fix = f"{in_line}, or the log with the file: fifo member move {name}"
                yield warning("members", place, fact, fix)
    if settings.join:
        return
    for name in sorted(members.keys() - file.keys()):
        fact = f"{name} ({members[name]['peer']}) is a member by the log, and not in this file"
        yield advice("members", place, fact, in_line)


def _addresses(node: NodeConfig) -> Addresses:
    return {"peer": str(node.peer), "client": str(node.client), "http": str(node.http)}
