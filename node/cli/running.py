"""Members that run while the log of another is read: refused, or asked where their logs end.

Owns the look for them, the questions over the network, and whose word counts. Must not know who has
most, or what could still be elected; `node.backup.remains` does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from node.cli import output
from node.cli.errors import CliError
from node.cli.observe import observe_all
from node.cli.restore import listens
from node.cli.session import node_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fifo.client.connection.options import Options
    from node.backup.remains import End
    from node.cli.observe import View
    from node.config import ClusterConfig, NodeConfig


def refuse_running(nodes: Iterable[NodeConfig]) -> None:
    """Raise CliError where one answers: it has to stand still while logs are compared."""
    looked_at = list(nodes)

    async def look() -> list[NodeConfig]:
        seen = await asyncio.gather(*(listens(node.peer) for node in looked_at))
        return [node for node, there in zip(looked_at, seen, strict=True) if there]

    running = asyncio.run(look())
    if running:
        names = ", ".join(f"{node.name} ({node.peer})" for node in running)
        raise CliError(
            f"{names} runs: stop every node first; one that has only lost its disk gets everything"
            " back by an ordinary start, while a majority is up"
        )


def refuse_running_source(node: NodeConfig) -> None:
    """Raise CliError where the node to go on from runs: its log is read while it stands still."""
    if asyncio.run(listens(node.peer)):
        raise CliError(
            f"{node.name} ({node.peer}) runs: stop it first (by its unit: systemctl stop"
            f" fifo@{node.name}) and leave it stopped; the others may run, and are asked for the"
            " ends of their logs"
        )


def ends_of(cluster: ClusterConfig, nodes: Sequence[NodeConfig], url: str | None) -> dict[str, End]:
    """The ends of the logs of those of these nodes that run, and have their journal.

    `url`: credentials and TLS for all of them. Raises CliError where one knows a leader, or says
    nothing that counts.
    """
    options = node_options(url or cluster.url)
    views = asyncio.run(_ask(nodes, options))
    found = {}
    for node, view in zip(nodes, views, strict=True):
        end = None if view is None else end_said(cluster, node, view)
        if end is not None:
            output.note(f"{node.name} runs, and ends with {end} (term:index)")
            found[node.name] = end
    return found


async def _ask(nodes: Sequence[NodeConfig], options: Options) -> list[View | None]:
    """The status of each node; None where none runs there."""

    async def ask(node: NodeConfig) -> View | None:
        if not await listens(node.peer):
            return None
        return (await observe_all([str(node.client)], options=options))[0]

    return await asyncio.gather(*map(ask, nodes))


def end_said(cluster: ClusterConfig, node: NodeConfig, view: View) -> End | None:
    """The end that a node that runs tells; None where its log does not count."""
    from node.backup.remains import End

    who = f"{node.name} ({node.client}) runs"
    if view["role"] == "down":
        raise CliError(
            f"{who}, and does not say where its log ends: {view['error']}; give credentials with"
            " `monitor` or `operate` by --url, or stop it"
        )
    if "durable_end" not in view:
        raise CliError(f"{who} an older release, which does not say where its log ends: stop it")
    if (view["node"], view["cluster"]) != (node.name, cluster.cluster_id.hex()):
        raise CliError(f"{who} as {view['node']} of another cluster: stop it, or correct the file")
    if view["role"] == "leader" or view["leader"] is not None:
        raise CliError(
            f"{who} and knows a leader, {view['leader'] or node.name}: while a majority is up"
            " nothing is lost, and a node without its disk gets everything back by an ordinary"
            " start; if the leader has just gone, repeat this"
        )
    if view["recovering"] is not None or view["differs_index"]:
        output.note(
            f"{node.name} runs, and does not count: "
            + (
                f"it has lost its journal, and waits for {view['recovering']}"
                if view["recovering"] is not None
                else "its state was found to differ from that of the others"
            )
        )
        return None
    if view["durable_end"] is None:
        raise CliError(f"{who} and its disk does not have the end of its log yet: repeat this")
    return End(*view["durable_end"])
