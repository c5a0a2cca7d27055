"""``fifo restore``: the data folders of a new cluster, made from a backup.

Owns the command, and the look for members that run. Must not know the format of the file, or what
a folder holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.backup.errors import BackupError
from node.cli import output
from node.cli.backup import open_backup
from node.cli.errors import CliError, one_line
from node.cli.limits import OBSERVE_TIMEOUT_S
from node.cli.session import Json
from node.cli.text import bytes_text, messages
from node.config import Address, ClusterConfig, NodeConfig, load_config
from node.journal.errors import JournalError
from node.journal.io.storage import OsStorage

if TYPE_CHECKING:
    from node.backup.file import Backup
    from node.backup.restoring import Restore


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    config: Annotated[
        Path, typer.Option("--config", help="Configuration of the new cluster.", metavar="FILE")
    ],
    node: Annotated[
        list[str] | None,
        typer.Option(help="Only the folder of this node; repeatable (default: all).", metavar="N"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a new cluster from a backup.

    Makes the data folders of its nodes. The configuration has to give the cluster another name
    than it had, and its nodes empty folders.
    Where nodes have machines of their own: the same command on each, with --node. Then start them.
    """
    from node.backup.restoring import Restore, check

    cluster = load_config(config)
    nodes = [cluster.node(name) for name in node] if node else list(cluster.nodes)
    # What opening a journal says about its folder is for the log of a node.
    logging.getLogger("node").addHandler(logging.NullHandler())
    try:
        found = open_backup(file)
        check(found, cluster, nodes, OsStorage)
        _refuse_running(cluster)
        made = Restore(found)
        _make(made, cluster, nodes)
    except BackupError as error:
        raise CliError(str(error)) from error
    _say(found, made, cluster, nodes, as_json=as_json)


def _refuse_running(cluster: ClusterConfig) -> None:
    """Raise CliError where a member answers: it went on, or has begun already."""
    addresses = [(node, address) for node in cluster.nodes for address in (node.client, node.peer)]

    async def look() -> list[bool]:
        return await asyncio.gather(*(listens(address) for _, address in addresses))

    for (node, address), answers in zip(addresses, asyncio.run(look()), strict=True):
        if answers:
            raise CliError(
                f"{node.name} runs at {address}: a restore makes every node of a cluster anew; stop"
                " it first (or, where this cluster was restored already and only a folder is"
                " missing, start that node with an empty one: it takes all from the others)"
            )


async def listens(address: Address) -> bool:
    """Whether anything listens there."""
    try:
        async with asyncio.timeout(OBSERVE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


def _make(made: Restore, cluster: ClusterConfig, nodes: Sequence[NodeConfig]) -> None:
    """Make the folders. Raises CliError, which says what is left to do."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for at, one in enumerate(nodes):
        output.note(f"{one.name}: {one.data_dir}")
        try:
            made.make(cluster, one, OsStorage(one.data_dir), stamp)
        except (JournalError, OSError) as error:
            rest = " ".join(f"--node {left.name}" for left in nodes[at:])
            raise CliError(
                f"the folder {one.data_dir} of {one.name} was not made: {one_line(error)}; remove"
                f" what is in it, then go on with: {rest}"
            ) from error


def _say(
    found: Backup,
    made: Restore,
    cluster: ClusterConfig,
    nodes: Sequence[NodeConfig],
    *,
    as_json: bool,
) -> None:
    about, lost = found.about, made.lost
    taken = datetime.fromtimestamp(about.wall_ms / 1000, UTC).isoformat(timespec="seconds")
    if as_json:
        output.print_json(
            {
                "cluster": cluster.name,
                "from": about.cluster,
                "index": made.meta.index,
                "taken_at": taken,
                "nodes": [one.name for one in nodes],
                "queues": made.queues,
                "messages": made.messages,
                "sessions_ended": lost.sessions,
                "locks_ended": lost.locked,
            }
        )
        return
    output.say(
        f"cluster {cluster.name} begins with {about.cluster} as of {taken} (index {found.index}):"
        f" {made.queues} queues, {messages(made.messages)},"
        f" {bytes_text(found.size)} in the backup"
    )
    output.note(
        f"what was published and settled since is not in it; {lost.sessions} sessions and"
        f" {lost.locked} locks of then have ended; delays, ttls and windows of deduplication go on"
        " with what was left of them"
    )
    output.note(f"start every node: fifo serve --config {cluster.path} --node {nodes[0].name}, ...")
