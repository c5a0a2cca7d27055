"""``fifo status``: the state of the cluster as reported by every node.

Owns the merge of the reports: lag is measured from the longest log that any node reports, so that a
silent or deposed leader cannot hide it. A node of another version may report fewer fields, as in a
rolling upgrade: a missing one is shown as "-".
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from node.cli import output
from node.cli.errors import CliError
from node.cli.listing import Watch, repeat
from node.cli.observe import observe_members, strangers
from node.cli.session import Json, Url, choose_url, node_options
from node.cli.tables import Column, number
from node.cli.text import alarm_text, bytes_text, seconds_text, undecided_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fifo.client.connection.options import Options


def status(watch: Watch = False, url: Url = None, as_json: Json = False) -> None:
    """Show the nodes: roles, logs, lag and disks.

    Asks all members that the nodes of the URL know.
    """
    options = node_options(choose_url(url))
    if watch:
        asyncio.run(repeat(partial(_fetch, options), _draw, plain=dict, as_json=as_json))
        return
    found = asyncio.run(_fetch(options))
    if as_json:
        output.print_json(found)
    else:
        _draw(found)


async def _fetch(options: Options) -> dict[str, Any]:
    """Ask every node. Raises CliError where none answers."""
    seen = await observe_members(options)
    nodes = merged(list(seen), list(seen.values()))
    if all(node["role"] == "down" for node in nodes):
        refusal = next((node["error"] for node in nodes if node.get("refused")), None)
        if refusal is not None:
            raise CliError(f"{refusal} (cluster at {options.shown})")
        why = nodes[0]["error"]
        raise CliError(
            f"no node answers at {options.shown}: {why}; start a cluster: fifo cluster start"
        )
    return {"url": options.shown, "leader": leader_name(nodes), "nodes": nodes}


def _draw(found: dict[str, Any]) -> None:
    nodes, leader = found["nodes"], found["leader"]
    output.print_table(_COLUMNS, map(_row, nodes))
    peers = [peer for node in nodes if node.get("node") == leader for peer in node.get("peers", ())]
    if peers:
        output.say("")
        output.say(f"peers, as seen by {leader}:")
        output.print_table(_PEER_COLUMNS, map(_peer_row, peers))
    for node in nodes:
        for alarm in node.get("alarms") or ():
            output.note(_refuses(node["node"], alarm))
        if waits_for := node.get("recovering"):
            output.note(f"{node['node']} does not count yet: it waits for {waits_for}")
    for name, node in strangers([node for node in nodes if node["role"] != "down"]).items():
        if not node.get("recovering"):
            output.note(f"{name} is no member any more: stop it, and remove its folder")
    stopped = undecided_text(nodes)
    if stopped is not None:
        output.note(stopped)
    for name, index in _differing(nodes) if stopped is None else ():
        output.note(
            f"the state of {name} is not that of the majority since entry {index}, and is replaced "
            "by it: look at its memory, its disk and its version"
        )
    if leader is None:
        output.note(_without_leader(nodes, found["url"]))


def _without_leader(nodes: Sequence[dict[str, Any]], url: str) -> str:
    """The reason why none of the nodes that were asked leads: maybe it cannot be reached."""
    named = url.partition("://")[2].rpartition("@")[2].split(",")
    for node in sorted(nodes, key=lambda node: node.get("term", 0), reverse=True):
        name = node.get("leader")
        address = (node.get("members") or {}).get(name)
        if address is not None and address not in named:
            return f"the leader is {name} at {address}, which does not answer here"
    return "no leader: publishing and consuming wait until a majority of nodes is running"


def _differing(nodes: Sequence[dict[str, Any]]) -> list[tuple[str, int]]:
    """Members whose state is not that of a majority, by their own word or a peer's."""
    found = {}
    for node in nodes:
        for one, name in ((node, "node"), *((peer, "name") for peer in node.get("peers") or ())):
            if one.get("differs_index"):
                found[one[name]] = one["differs_index"]
    return sorted(found.items())


def _refuses(node: str, alarm: dict[str, Any]) -> str:
    """Name who refuses publishes, and for whose resource."""
    whose = alarm.get("node") or node
    if whose == node:
        return f"{node} refuses publishes while it leads: {alarm_text(alarm)}"
    return f"{node} refuses publishes for {whose}: {alarm_text(alarm)}"


def merged(asked: Sequence[str], answers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge each address with its node's reply and the lag of its log."""
    last = max((answer["last"] for answer in answers if "last" in answer), default=None)
    nodes = []
    names = {
        address: name for answer in answers for name, address in answer.get("members", {}).items()
    }
    for address, answer in zip(asked, answers, strict=True):
        applied = answer.get("applied")
        lag = None if applied is None or last is None else last - applied
        # A node that does not answer is named by the others.
        name = {} if "node" in answer or address not in names else {"node": names[address]}
        nodes.append({"address": address, **name, **answer, "lag": lag})
    return nodes


def leader_name(nodes: Sequence[dict[str, Any]]) -> str | None:
    """Name of the leader of the highest term: a deposed leader may still claim the role."""
    leaders = [node for node in nodes if node["role"] == "leader"]
    return max(leaders, key=lambda node: int(node["term"]))["node"] if leaders else None


_COLUMNS: Final = (
    Column("node"),
    Column("address"),
    Column("role"),
    number("term", 4),
    number("commit", 5),
    number("applied", 5),
    number("lag", 1),
    number("journal", 3),
    number("disk free", 3),
    number("snapshots", 6),
    number("fsync p50/p99", 2),
    number("sessions", 4),
    number("queues", 5),
    number("up", 3),
)


_PEER_COLUMNS: Final = (
    Column("peer"),
    Column("state"),
    number("match", 2),
    number("lag", 1),
    number("in flight", 3),
    number("disk free", 4),
    number("sync", 4),
    Column("snapshot sent", 2),
)


def _peer_row(peer: dict[str, Any]) -> tuple[object, ...]:
    """Cells of a peer: its replication, and the progress of a snapshot sent to it."""
    return (
        peer.get("name"),
        _peer_word(peer),
        peer.get("match"),
        peer.get("lag"),
        _shown(bytes_text, peer.get("in_flight_bytes")),
        _shown(lambda room: bytes_text(room["free_bytes"]), peer.get("room")),
        _shown(lambda room: f"{room['sync_ms']} ms", peer.get("room")),
        _shown(_sent_text, peer.get("snapshot")),
    )


def _peer_word(peer: dict[str, Any]) -> str | None:
    if not peer.get("counted", True):
        return "recovering"
    if peer.get("differs_index"):
        return "differs"
    return _shown(lambda connected: "connected" if connected else "down", peer.get("connected"))


def _sent_text(sent: dict[str, Any]) -> str:
    state = f"{bytes_text(sent['sent_bytes'])} of {bytes_text(sent['state_bytes'])}"
    return f"{state}, {sent['sent_entries']} of {sent['entries']} entries"


def _row(node: dict[str, Any]) -> tuple[object, ...]:
    if node["role"] == "down":
        return (node.get("node"), node["address"], "down", *[None] * (len(_COLUMNS) - 3))
    return (
        node.get("node"),
        node["address"],
        "recovering" if node.get("recovering") else node["role"],
        node.get("term"),
        node.get("commit"),
        node.get("applied"),
        node["lag"],
        _shown(bytes_text, node.get("journal_bytes")),
        _shown(bytes_text, node.get("disk_free_bytes")),
        _shown(bytes_text, (node.get("snapshot") or {}).get("disk_bytes")),
        _shown(lambda ms: f"{ms['p50']:.2f}/{ms['p99']:.2f} ms", node.get("fsync_ms")),
        node.get("sessions"),
        node.get("queues"),
        _shown(seconds_text, node.get("uptime_s")),
    )


def _shown(text: Callable[[Any], str], value: object) -> str | None:
    """Format a reported value; None stays None."""
    return None if value is None else text(value)
