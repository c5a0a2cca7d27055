"""``fifo cluster rebuild``: go on from one member where a majority has lost its disks.

Owns the command, and what is asked of its operator; `running.py` asks members that run. Must not
know what a log means; `node.backup.remains` does.
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from node.backup.errors import BackupError, RebuildRefused
from node.cli import output
from node.cli.confirmation import Yes, confirm
from node.cli.errors import CliError, UsageProblem, one_line
from node.cli.folders import Config
from node.cli.running import ends_of, refuse_running_source
from node.cli.session import Url
from node.config import load_config, parse_address, to_toml
from node.journal.errors import JournalError
from node.journal.io.storage import OsStorage

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from node.backup.remains import End, Losses
    from node.config import ClusterConfig, NodeConfig
    from node.journal.journal import Journal

PORTS: Final = ("client", "peer", "http")
"""The addresses of a node, in the order in which `--addresses` takes them."""

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
            help="End of the log of a node that is stopped on another machine, as this command says"
            " it there; repeatable.",
            metavar="NODE=TERM:INDEX",
        ),
    ] = None,
    addresses: Annotated[
        list[str] | None,
        typer.Option(
            "--addresses",
            help="Where a node is now that has moved while the cluster was down: a host, or its"
            " addresses for clients, nodes and HTTP; repeatable.",
            metavar="NODE=HOST|CLIENT,PEER,HTTP",
        ),
    ] = None,
    url: Url = None,
    yes: Yes = False,
) -> None:
    """Go on from one node where a majority is lost, or has moved.

    Makes a backup of the end of that node's log, and the file of a new cluster, which begins from
    both by `fifo restore`. The members are those of the log. That node has to be stopped; others
    that run are asked for the ends of their logs, with the credentials of --url.
    Refused where a majority is left, or where another node that is left has more.
    """
    from node.backup.remains import end_of, has_majority, remains

    cluster = load_config(config)
    member = cluster.node(source)
    path = to or Path(f"{source}.rebuilt")
    logging.getLogger("node").addHandler(logging.NullHandler())
    if source not in (word.partition("=")[0] for word in addresses or ()):
        refuse_running_source(member)
    try:
        with remains(OsStorage(member.data_dir), cluster, source) as journal:
            known = _by_log(cluster, journal, source)
            moved = _moved(known, addresses or ())
            refuse_running_source(moved.get(source, member))
            gone = [_named(known, "lost", name) for name in lost or ()]
            ends = _given(known, end or ())
            ends[source] = end_of(journal)
            output.note(f"{source} ends with {source}={ends[source]} (term:index)")
            # Its folder is locked: the source runs no more before the backup is written.
            others = [moved.get(node.name, node) for node in known.nodes if node.name != source]
            running = ends_of(known, others, url)
            ends |= _beside(cluster, {source, *gone, *running}) | running
            asked = _Asked(known, member, gone, list(running))
            losses = _go_on(journal, asked, ends, moved, path, yes=yes)
    except (BackupError, JournalError, OSError) as error:
        raise CliError(one_line(error)) from error
    _say(known, source, path, losses, all_kept=has_majority(known, ends))


class _Asked(NamedTuple):
    """The cluster by the log, the node to go on from, the names of the lost ones, and those of
    the ones that run with their journal."""

    cluster: ClusterConfig
    member: NodeConfig
    gone: list[str]
    running: list[str]


def _go_on(
    journal: Journal,
    asked: _Asked,
    ends: dict[str, End],
    moved: dict[str, NodeConfig],
    path: Path,
    *,
    yes: bool,
) -> Losses:
    """Write the backup, and the file of the cluster that begins with it."""
    from node.backup.members import anew
    from node.backup.remains import check, has_majority, write
    from node.broker.about import release

    cluster, member, gone, running = asked
    source = member.name
    if source in gone:
        raise UsageProblem(f"--from and --lost both name {source}")
    if kept := [name for name in gone if name in running]:
        raise UsageProblem(f"--lost {kept[0]}: it runs, and has its journal")
    check(cluster, source, ends, gone, moved, running)
    if not yes:
        away = [node.name for node in cluster.nodes if node.name not in ends]
        confirm(
            f"all sessions end; nothing else that was confirmed is lost up to entry"
            f" {ends[source].last}, for a majority of the members is known"
            if has_majority(cluster, ends)
            else f"what {', '.join(away)} confirmed without {source} is lost, and so is all that"
            f" was confirmed after entry {ends[source].last}; all sessions end",
            f"Go on from {source}?",
        )
    file = file_of(path)
    if file.exists():
        raise CliError(f"{file} exists already: name another backup by --to, or remove it")
    new = anew(cluster, member, moved, file)
    _, losses = write(journal, cluster, source, path, release(), int(time.time() * 1000))
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(to_toml(new))
    return losses


def file_of(path: Path) -> Path:
    """The file of the cluster that begins with this backup."""
    return path.with_name(f"{path.name}.toml")


def _by_log(cluster: ClusterConfig, journal: Journal, source: str) -> ClusterConfig:
    """The cluster with the members of the log; says where the file has others."""
    from node.backup.members import by_log

    known = by_log(cluster, journal)
    if all(node.name != source for node in known.nodes):
        raise CliError(
            f"{source} is no member by its own log, whose members are {_names(known)}: go on from"
            " one of them"
        )
    if set(known.nodes) != set(cluster.nodes):
        output.note(f"the members are those of the log of {source}: {_names(known)}")
    return known


def _names(cluster: ClusterConfig) -> str:
    return ", ".join(node.name for node in cluster.nodes)


def _named(cluster: ClusterConfig, option: str, name: str) -> str:
    """The name of a member. Raises UsageProblem where it is none."""
    if all(node.name != name for node in cluster.nodes):
        raise UsageProblem(f"--{option}: no member is named {name!r}; they are {_names(cluster)}")
    return name


def _given(cluster: ClusterConfig, words: Sequence[str]) -> dict[str, End]:
    """Ends that the command line tells. Raises UsageProblem."""
    from node.backup.remains import End

    found = {}
    for word in words:
        match = _END.fullmatch(word)
        if match is None:
            raise UsageProblem(f"--end {word}: write it as n2=7:1204, the term and the index")
        found[_named(cluster, "end", match[1])] = End(int(match[2]), int(match[3]))
    return found


def _moved(cluster: ClusterConfig, words: Sequence[str]) -> dict[str, NodeConfig]:
    """The nodes that have moved, where they are now. Raises UsageProblem."""
    found = {}
    for word in words:
        name, _, where = word.partition("=")
        node = cluster.node(_named(cluster, "addresses", name))
        try:
            found[name] = _moved_to(node, where)
        except ValueError as error:
            raise UsageProblem(
                f"--addresses {word}: {error}; write it as n2=10.0.0.9, or as"
                " n2=10.0.0.9:7101,10.0.0.9:7102,10.0.0.9:7103, for clients, nodes and HTTP"
            ) from None
    return found


def _moved_to(node: NodeConfig, where: str) -> NodeConfig:
    """The node at another host, or at three other addresses. Raises ValueError."""
    if not where:
        raise ValueError("no address is given")
    texts = where.split(",")
    if len(texts) == 1:
        ports = (node.client.port, node.peer.port, node.http.port)
        host = f"[{where}]" if ":" in where and not where.startswith("[") else where
        texts = [f"{host}:{port}" for port in ports]
    if len(texts) != len(PORTS):
        raise ValueError(f"{len(texts)} addresses are given")
    client, peer, http = map(parse_address, texts)
    if any(address.is_wildcard for address in (client, peer)):
        raise ValueError("others cannot dial the address of every machine")
    return replace(node, client=client, peer=peer, http=http)


def _beside(cluster: ClusterConfig, known: Container[str]) -> dict[str, End]:
    """Ends of the other logs that are on this machine. A folder without one says nothing."""
    from node.backup.remains import end_of, remains

    found = {}
    for node in cluster.nodes:
        if node.name in known or not node.data_dir.is_dir():
            continue
        try:
            with remains(OsStorage(node.data_dir), cluster, node.name) as journal:
                found[node.name] = end_of(journal)
        except (RebuildRefused, JournalError) as error:
            output.note(f"{node.name} does not count: {one_line(error)}")
    return found


def _say(
    cluster: ClusterConfig, source: str, path: Path, losses: Losses, *, all_kept: bool
) -> None:
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
        + (
            "a majority of the members is known, so nothing that was confirmed is missing"
            if all_kept
            else f"what was confirmed without {source} is not in it"
        )
    )
    output.note(
        f"the new cluster has another name, and its file is {file_of(path)}: look at it, and give"
        " it to every machine with the backup; stop every node that runs, move the old data"
        f" folders away, and then, on each machine: fifo restore {path} --config {file_of(path)}"
        f" --node {source}, ..."
    )
