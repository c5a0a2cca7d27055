"""``fifo cluster init`` and ``adopt``: what a node may take its data folder for.

Owns the two commands, each of which leaves an order in the folder of a node that is stopped; its
next start follows it. Must not know how members judge each other's journals.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli import output
from node.cli.checks import check_data_dir
from node.cli.errors import CliError, one_line
from node.config import load_config
from node.journal import passport
from node.journal.errors import JournalError
from node.journal.io.storage import OsStorage
from node.journal.recovery.open import holds_nothing

if TYPE_CHECKING:
    from node.config import NodeConfig

Config = Annotated[
    Path, typer.Option("--config", help="Configuration of the cluster.", metavar="FILE")
]
Names = Annotated[
    list[str] | None,
    typer.Option("--node", help="Only this node; repeatable (default: all).", metavar="N"),
]


def init(config: Config, node: Names = None) -> None:
    """Begin a new cluster in empty folders.

    For the first start of a cluster of one node, or of a larger one whose nodes cannot all be
    reached. Never for a node that has lost its disk: it gets everything back by an ordinary start.
    """
    for member in _members(config, node):
        check_data_dir(member)
        order(member, passport.INIT_ORDER, empty=True)
        output.say(f"{member.name}: {member.data_dir} begins a new cluster with its next start")


def adopt(config: Config, node: Names = None) -> None:
    """Take a copied folder for the journal itself.

    For a folder that was copied while its node was stopped, and whose original is never started
    again. Without it the node gives the copy up and gets everything from the others.
    """
    for member in _members(config, node):
        order(member, passport.ADOPT_ORDER, empty=False)
        output.say(f"{member.name}: {member.data_dir} is its journal from the next start on")


def _members(config: Path, names: list[str] | None) -> list[NodeConfig]:
    cluster = load_config(config)
    return [cluster.node(name) for name in names] if names else list(cluster.nodes)


def order(member: NodeConfig, name: str, *, empty: bool) -> None:
    """Leave an order in the folder of a node, which has to be `empty` or not. Raises CliError."""
    folder = member.data_dir
    if not folder.is_dir():
        raise CliError(f"{member.name} has no folder {folder}: correct its data_dir")
    storage = OsStorage(folder)
    try:
        storage.lock()
        try:
            if holds_nothing(storage) != empty:
                raise CliError(_wrong(member, empty=empty))
            if name not in storage.listdir():
                storage.create(name).close()
                storage.sync_folder()
        finally:
            storage.unlock()
    except (JournalError, OSError) as error:
        raise CliError(f"{member.name}: {one_line(error)}") from error


def _wrong(member: NodeConfig, *, empty: bool) -> str:
    folder = member.data_dir
    if empty:
        return f"{folder} of {member.name} is not empty: start the node, or move its files away"
    return f"{folder} of {member.name} holds no journal: copy it first, while its node is stopped"
