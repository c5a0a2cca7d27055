"""Verdicts for operators, in a word: may I publish, may I restart this node, and why not.

Owns these verdicts, made from what the nodes answer about themselves. Must not know how they were
asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

NodeView: TypeAlias = Mapping[str, Any]
"""The status of a node; one that is silent has `error` and no `role`, and that of the node which
was asked `hears`: whether it is connected to the leader."""

LAG_ENTRIES_MAX = 1_000
"""A node with more entries to come is not counted on: it would have to catch up first."""


def leader_in(nodes: Sequence[NodeView]) -> NodeView | None:
    """The node that leads in the latest term, by its own word."""
    leaders = [node for node in nodes if node.get("role") == "leader"]
    return max(leaders, key=lambda node: int(node["term"]), default=None)


def refusal(nodes: Sequence[NodeView]) -> dict[str, Any] | None:
    """Why publishing is refused, by which node, and for how long; None where it is not."""
    leader = leader_in(nodes)
    if leader is None:
        heard = any(node.get("hears") for node in nodes)
        return None if heard else _leaderless(nodes)
    for alarm in leader["alarms"]:
        if alarm["refuses"]:
            return {
                "kind": alarm["alarm"],
                "nodes": [alarm["node"]],
                "bytes": alarm["bytes"],
                "threshold_bytes": alarm["threshold_bytes"],
                "for_ms": _longest_ms(nodes, alarm["alarm"], alarm["node"]),
            }
    return None


def _leaderless(nodes: Sequence[NodeView]) -> dict[str, Any]:
    silent = [node["name"] for node in nodes if "role" not in node]
    needed = len(nodes) // 2 + 1
    short = len(nodes) - len(silent) < needed
    return {
        "kind": "no_majority" if short else "no_leader",
        "nodes": silent,
        "needed": needed,
        "of": len(nodes),
        "for_ms": None,
    }


def _longest_ms(nodes: Sequence[NodeView], alarm: str, node: str) -> int:
    """The time since an alarm began, as known by the node that has seen it for longest."""
    known = [
        one["active_ms"]
        for view in nodes
        for one in view.get("alarms", ())
        if (one["alarm"], one["node"]) == (alarm, node)
    ]
    return max(known, default=0)


def restart(nodes: Sequence[NodeView], name: str) -> dict[str, Any]:
    """Whether the node `name` may be restarted now: `safe`, `lead` (hand over first) or `wait`,
    and why not."""
    leader = leader_in(nodes)
    if leader is None:
        return {"word": "wait", "why": ["no node leads"]}
    why = [
        text
        for node in nodes
        if node["name"] != name and (text := _not_counted_on(node, leader)) is not None
    ]
    others = len(nodes) - 1 - len(why)
    needed = len(nodes) // 2 + 1
    if others < needed:
        if len(nodes) < 3:
            why.append(f"a cluster of {len(nodes)} stops without any of its nodes")
        return {"word": "wait", "why": why}
    if leader["name"] == name:
        return {"word": "lead", "why": why}
    return {"word": "safe", "why": why}


def _not_counted_on(node: NodeView, leader: NodeView) -> str | None:
    """Why a node would not serve for another one, or None."""
    name = node["name"]
    if "role" not in node:
        return f"{name} does not answer"
    if node["recovering"]:
        return f"{name} gets back a journal that it lost"
    if name == leader["name"]:
        return None
    peer = next((one for one in leader["peers"] if one["name"] == name), None)
    if peer is None or not peer["connected"]:
        return f"{name} has no connection to the leader {leader['name']}"
    if peer.get("learner"):
        return f"{name} is a learner, and does not count yet"
    if not peer["counted"]:
        return f"{name} does not count towards a majority yet"
    if peer["lag"] > LAG_ENTRIES_MAX:
        return f"{name} is {peer['lag']} entries behind"
    return None
