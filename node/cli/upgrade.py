"""``fifo upgrade``: which releases the nodes run, what the cluster uses, and the end of an upgrade.

Owns the commands and how the view is shown. The decision is the leader's
(`node/broker/upgrade.py`). Must not know what a version turns on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import typer

import fifo
from fifo.words import versions
from node.cli import output
from node.cli.errors import CliError
from node.cli.observe import observe_all
from node.cli.session import Json, Url, choose_url, node_options, run
from node.cli.status import leader_name, merged
from node.cli.tables import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fifo.client.connection.options import Options

app = typer.Typer(
    no_args_is_help=True,
    help="Upgrade the nodes one by one, then finish.",
    epilog="Example: fifo upgrade status",
)


@app.command(epilog="Example: fifo upgrade status --json")
def status(url: Url = None, as_json: Json = False) -> None:
    """Show the releases, and what finishing turns on."""
    found = asyncio.run(_fetch(node_options(choose_url(url))))
    if as_json:
        output.print_json(found)
    else:
        _draw(found)


@app.command(epilog="Example: fifo upgrade finish")
def finish(url: Url = None) -> None:
    """Use what all nodes can. Older releases cannot open the data from then on.

    Refused, with their names, while nodes are down or run an older release. Needs the permission
    `operate`.
    """

    async def work(client: fifo.Client) -> tuple[str, int | None]:
        try:
            return "", await client.finish_upgrade()
        except fifo.Unsupported:
            leader = await client.status()
            return f"{leader.node} runs {leader.version or 'an older release'}", None

    why, version = run(url, work)
    if version is None:
        raise CliError(f"the upgrade cannot be finished: the leader {why}; upgrade it first")
    output.say(f"version {version} is in use")


async def _fetch(options: Options) -> dict[str, Any]:
    """Ask every node. Raises CliError where none answers."""
    seen = merged(options.addresses, await observe_all(options.addresses, options=options))
    up = [node for node in seen if node["role"] != "down"]
    if not up:
        raise CliError(f"no node answers at {options.shown}: {seen[0]['error']}")
    leader = leader_name(seen)
    return {"leader": leader, **_knowing(up, leader), "nodes": [_row(node, up) for node in seen]}


def _knowing(up: Sequence[dict[str, Any]], leader: str | None) -> dict[str, Any]:
    """The view of the node that knows best: the leader, or the one that uses the newest version;
    where all are of 0.1.0 there is none, and the first version is used."""
    told = [node for node in up if "versions" in node]
    if not told:
        first = versions.VERSIONS[0]
        return {"used": first.number, "uses": dict(first.uses), "finish": None}
    best = max(told, key=lambda node: (node["node"] == leader, node["versions"]["used"]))
    view = best["versions"]
    return {"used": view["used"], "uses": view["uses"], "finish": view["finish"]}


def _row(node: dict[str, Any], up: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A node by its own word, or, where it is down, by what another remembers of it."""
    view = node.get("versions")
    if view is not None:
        return _known(node, node.get("version"), view["can"])
    if node["role"] != "down":
        return _known(node, node.get("version"), versions.SILENT)
    for other in up:
        member = other.get("versions", {}).get("members", {}).get(node.get("node"))
        if member is not None and member["known"]:
            return _known(node, member["release"], member["can"])
    return _known(node, None, None)


def _known(
    node: dict[str, Any], release: str | None, can: Mapping[str, Sequence[int]] | None
) -> dict[str, Any]:
    return {
        "node": node.get("node"),
        "address": node["address"],
        "role": node["role"],
        "release": release or None,
        "can": None if can is None else {part: list(bounds) for part, bounds in can.items()},
    }


_COLUMNS: Final = (
    Column("node"),
    Column("role"),
    Column("release"),
    Column("versions"),
    Column("peer protocol", 2),
)


def _draw(found: dict[str, Any]) -> None:
    uses = ", ".join(f"{part} {used}" for part, used in found["uses"].items() if part != "machine")
    output.say(f"version {found['used']} is in use ({uses})")
    output.say("")
    rows = (
        (
            node["node"] or node["address"],
            node["role"],
            node["release"],
            _bounds(node["can"], "machine"),
            _bounds(node["can"], "peer"),
        )
        for node in found["nodes"]
    )
    output.print_table(_COLUMNS, rows)
    finish = found["finish"]
    if finish is None:
        output.note("no node of a later release than 0.1.0 answers: there is nothing to finish")
        return
    if finish["version"] > found["used"]:
        output.say("")
        output.say(f"`fifo upgrade finish` raises it to {finish['version']}:")
        for text in finish["turns_on"]:
            output.say(f"  {text}")
    for obstacle in finish["obstacles"]:
        output.note(f"not yet: {obstacle}")


def _bounds(can: Mapping[str, Sequence[int]] | None, part: str) -> str | None:
    if can is None or part not in can:
        return None
    low, high = can[part]
    return f"{low}" if low == high else f"{low} to {high}"
