"""``fifo cluster rebuild``: go on from one member where a majority has lost its disks.

Owns the command: what is asked of its operator, and the look for members that run. Must not know
what a log means; `node.backup.remains` does.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from node.backup.errors import BackupError, RebuildRefused
from node.cli import output
from node.cli.confirmation import Yes, confirm
from node.cli.errors import CliError, UsageProblem, one_line
from node.cli.folders import Config
from node.cli.restore import listens
from node.config import load_config
from node.journal.errors import JournalError
from node.journal.io.storage import OsStorage

if TYPE_CHECKING:
    from node.backup.remains import End, Losses
    from node.config import ClusterConfig, NodeConfig

_END: Final = re.compile(r"([^=]+)=(\d{1,19}):(\d{1,19})")


def rebuild(
    config: Config,
    source: Annotated[
        str, typer.Option("--from", help="The node whose log to go on from.", metavar="NODE")
    ],
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Backup to write (default: NODE.rebuilt).", metavar="FILE"),
    ] = None,
    lost: Annotated[
        list[str] | None,
        typer.Option(
            "--lost", help="A node whose disk is gone for good; repeatable.", metavar="NODE"
        ),
    ] = None,
    end: Annotated[
        list[str] | None,
        typer.Option(
            "--end",
            help="End of the log of a node on another machine, as this command says it there;"
            " repeatable.",
            metavar="NODE=TERM:INDEX",
        ),
    ] = None,
    yes: Yes = False,
) -> None:
    """Go on from one node where a majority is lost.

    Makes a backup of the end of that node's log, from which a new cluster begins by `fifo restore`.
    Refused where a majority is left, or where another node that is left has more.
    """
    from node.backup.remains import check, end_of, remains, write
    from node.broker.about import release

    cluster = load_config(config)
    member = cluster.node(source)
    gone = [cluster.node(name).name for name in lost or ()]
    if source in gone:
        raise UsageProblem(f"--from and --lost both name {source}")
    ends = _given(cluster, end or ())
    path = to or Path(f"{source}.rebuilt")
    logging.getLogger("node").addHandler(logging.NullHandler())
    refuse_running(cluster)
    try:
        with remains(OsStorage(member.data_dir), cluster, source) as journal:
            ends[source] = end_of(journal)
            output.note(f"{source} ends with {source}={ends[source]} (term:index)")
            ends |= _beside(cluster, source, gone)
            check(cluster, source, ends, gone)
            away = [node.name for node in cluster.nodes if node.name not in ends]
            if not yes:
                confirm(
                    f"what {', '.join(away)} confirmed without {source} is lost, and so is all that"
                    f" was confirmed after entry {ends[source].last}; all sessions end",
                    f"Go on from {source}?",
                )
            found = write(journal, cluster, source, path, release(), int(time.time() * 1000))
    except (BackupError, JournalError, OSError) as error:
        raise CliError(one_line(error)) from error
    _say(cluster, source, path, found[1])


def _given(cluster: ClusterConfig, words: list[str] | tuple[()]) -> dict[str, End]:
    """Ends that the command line tells. Raises UsageProblem."""
    from node.backup.remains import End

    found = {}
    for word in words:
        match = _END.fullmatch(word)
        if match is None:
            raise UsageProblem(f"--end {word}: write it as n2=7:1204, the term and the index")
        found[cluster.node(match[1]).name] = End(int(match[2]), int(match[3]))
    return found


def _beside(cluster: ClusterConfig, source: str, gone: list[str]) -> dict[str, End]:
    """Ends of the other logs that are on this machine. A folder without one says nothing."""
    from node.backup.remains import end_of, remains

    found = {}
    for node in cluster.nodes:
        if node.name == source or node.name in gone or not node.data_dir.is_dir():
            continue
        try:
            with remains(OsStorage(node.data_dir), cluster, node.name) as journal:
                found[node.name] = end_of(journal)
        except (RebuildRefused, JournalError) as error:
            output.note(f"{node.name} does not count: {one_line(error)}")
    return found


def refuse_running(cluster: ClusterConfig) -> None:
    """Raise CliError where a member answers: it has to stand still while logs are compared."""

    async def look() -> list[NodeConfig]:
        seen = await asyncio.gather(*(listens(node.peer) for node in cluster.nodes))
        return [node for node, there in zip(cluster.nodes, seen, strict=True) if there]

    running = asyncio.run(look())
    if running:
        names = ", ".join(f"{node.name} ({node.peer})" for node in running)
        raise CliError(
            f"{names} runs: stop every node first; one that has only lost its disk gets everything"
            " back by an ordinary start, while a majority is up"
        )


def _say(cluster: ClusterConfig, source: str, path: Path, losses: Losses) -> None:
    end, confirmed = losses.end, losses.confirmed
    written = datetime.fromtimestamp(losses.wall_ms / 1000, UTC).isoformat(timespec="seconds")
    output.say(
        f"{path}: {cluster.name} as {source} has it, up to entry {end.last} of term {end.term},"
        f" written at {written}"
    )
    behind = end.last - confirmed
    output.note(
        f"all up to entry {confirmed} was confirmed, as {source} knew; "
        + (f"the {behind} behind it may never have been; " if behind else "")
        + f"what was confirmed without {source} is not in it"
    )
    output.note(
        "give the cluster another name in [cluster] of every node's file, move the old data folders"
        f" away, and then, on each machine: fifo restore {path} --config {cluster.path} --node"
        f" {source}, ..."
    )
