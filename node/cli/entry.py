"""``fifo entry``: an entry of the log that ends every node, and the way past it.

Owns the two commands, for nodes that are stopped. Must not know whether an entry may be skipped;
`node.backup.skipping` does.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import socket
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from node.cli import output
from node.cli.confirmation import Yes, confirm
from node.cli.errors import CliError, UsageProblem, one_line
from node.cli.folders import Config, Names
from node.cli.running import refuse_running
from node.cli.session import Json
from node.config import load_config
from node.journal.errors import JournalError
from node.journal.io.storage import OsStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from node.backup.skipping import Seen
    from node.config import ClusterConfig, NodeConfig
    from node.journal.journal import Journal

app = typer.Typer(no_args_is_help=True, help="Look at an entry that ends every node, and skip it.")

_BY_BYTES: Final = 64
"""Longest author of an order, as the members tell it one another (protocol-peer.md)."""

_CHECKSUM_DIGITS: Final = 8

Index = Annotated[int, typer.Argument(min=1, help="Index of the entry.", metavar="INDEX")]


@app.command(epilog="Example: fifo entry show 1204 --config cluster.toml --node n1")
def show(
    config: Config,
    index: Annotated[
        int | None,
        typer.Argument(
            min=1,
            help="Index of the entry (default: the first that cannot be applied).",
            metavar="[INDEX]",
        ),
    ] = None,
    node: Names = None,
    as_json: Json = False,
) -> None:
    """Look at an entry that cannot be applied, on nodes that are stopped.

    Applies the log of each node whose folder is on this machine to a copy of its state in memory.
    """
    from node.backup.skipping import look

    cluster = load_config(config)
    members = [cluster.node(name) for name in node] if node else _here(cluster)
    found: list[Seen] = []
    with _opened(cluster, members) as journals:
        for name, journal in journals.items():
            seen = look(journal, name, index)
            if seen is not None:
                found.append(seen)
            elif not as_json:
                last = journal.log.last_index
                output.note(f"{name} can apply all of its log, up to entry {last}")
    if as_json:
        output.print_json([_plain(one) for one in found])
        return
    for one in found:
        _print(one)


@app.command(epilog="Example: fifo entry skip 1204 ab12cd34 --config cluster.toml")
def skip(
    index: Index,
    checksum: Annotated[
        str, typer.Argument(help="Its checksum, as `fifo entry show` says it.", metavar="CHECKSUM")
    ],
    config: Config,
    seen: Annotated[
        list[str] | None,
        typer.Option(
            "--seen",
            help="What `fifo entry show` says of a node on another machine; repeatable.",
            metavar="NODE=WORD",
        ),
    ] = None,
    lost: Annotated[
        list[str] | None,
        typer.Option(
            "--lost", help="A node whose disk is gone for good; repeatable.", metavar="NODE"
        ),
    ] = None,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Skip an entry that no node can apply, from their next start on.

    Run it on each machine, while all nodes are stopped. Refused where a node has applied the entry,
    or can, and where the cause is the machine's own.
    """
    from node.backup.skipping import check, look, order
    from node.journal.skips import Skip

    cluster = load_config(config)
    number = _checksum(checksum)
    gone = [cluster.node(name).name for name in lost or ()]
    words = _given(cluster, seen or ())
    refuse_running(cluster.nodes)
    members = [one for one in _here(cluster) if one.name not in gone]
    with _opened(cluster, members) as journals:
        found = [look(journal, name, index) for name, journal in journals.items()]
        words |= {one.node: one.word for one in found if one is not None}
        check([one.name for one in cluster.nodes], index, number, words, gone)
        if not yes:
            confirm(
                f"what entry {index} asked for is never done, on no node; who sent it may have no "
                "answer, and send it again",
                f"Skip it on {', '.join(journals)}?",
            )
        for journal in journals.values():
            order(journal, Skip(index, number, _by()))
    if as_json:
        output.print_json({"index": index, "checksum": checksum, "nodes": list(journals)})
        return
    for name in journals:
        output.say(f"{name} skips entry {index} from its next start on")
    away = [one.name for one in cluster.nodes if one.name not in journals]
    if away:
        output.note(f"run this for {', '.join(away)} too, where they are, before any node starts")


def _here(cluster: ClusterConfig) -> list[NodeConfig]:
    """The members whose folder is on this machine. Raises CliError where there is none."""
    found = [one for one in cluster.nodes if one.data_dir.is_dir()]
    if not found:
        raise CliError(f"no node of {cluster.path} has its folder on this machine")
    return found


@contextlib.contextmanager
def _opened(cluster: ClusterConfig, members: Sequence[NodeConfig]) -> Iterator[dict[str, Journal]]:
    """Their journals, locked together. Raises CliError, also for what is found out of them."""
    from node.backup.errors import BackupError
    from node.backup.remains import remains

    logging.getLogger("node").addHandler(logging.NullHandler())
    try:
        with ExitStack() as stack:
            yield {
                one.name: stack.enter_context(remains(OsStorage(one.data_dir), cluster, one.name))
                for one in members
            }
    except (BackupError, JournalError, OSError) as error:
        raise CliError(one_line(error)) from error
    except MemoryError as error:
        raise CliError(
            "this machine has too little memory for the state of a node: the cause may be the "
            "same there"
        ) from error


def _checksum(text: str) -> int:
    """The checksum on the command line. Raises UsageProblem."""
    with contextlib.suppress(ValueError):
        if len(text) == _CHECKSUM_DIGITS:
            return int(text, 16)
    raise UsageProblem(f"{text} is no checksum: eight hexadecimal digits, from fifo entry show")


def _given(cluster: ClusterConfig, words: Sequence[str]) -> dict[str, str]:
    """Words of the command line for members elsewhere. Raises UsageProblem."""
    from node.backup.skipping import LACKS

    found = {}
    for given in words:
        name, found_equals, word = given.partition("=")
        if not found_equals:
            raise UsageProblem(f"--seen {given}: write it as n2=ab12cd34, or n2={LACKS}")
        found[cluster.node(name).name] = word if word == LACKS else f"{_checksum(word):08x}"
    return found


def _by() -> str:
    said = f"{getpass.getuser()} on {socket.gethostname()}"
    return said.encode()[:_BY_BYTES].decode(errors="ignore")


def _plain(one: Seen) -> dict[str, object]:
    return {**asdict(one), "checksum": one.word, "time": _time(one.wall_ms)}


def _time(wall_ms: int) -> str | None:
    if not wall_ms:
        return None
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="seconds")


def _print(one: Seen) -> None:
    if one.checksum is None:
        output.say(f"{one.node}={one.word}: its log ends before entry {one.index}")
        return
    output.print_pairs(
        (
            ("node", one.node),
            ("entry", f"{one.index} of term {one.term}"),
            ("checksum", one.word),
            ("written", _time(one.wall_ms) or "unknown"),
            ("commands", one.commands),
            ("bytes", one.size),
            ("raises", one.error or "nothing: it is skipped already"),
            ("for --seen", f"{one.node}={one.word}"),
        )
    )
