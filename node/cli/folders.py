"""``fifo cluster init`` and ``adopt``: what a node may take its data folder for.

Owns the two commands, each of which leaves an order in the folder of a node that is stopped; its
next start follows it. Must not know how members judge each other's journals.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli import output
from node.cli.checks import check_data_dir
from node.cli.errors import CliError, one_line
from node.config import load_config
from node.journal.errors import JournalError
from node.journal.io.storage import OsStorage

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    A folder that holds a journal stays as it is.
    """
    for member in _members(config, node):
        check_data_dir(member)
        if begin(member):
            said = f"{member.data_dir} begins a new cluster with its next start"
        else:
            said = f"{member.data_dir} holds a journal already, nothing is to do: start the node"
        output.say(f"{member.name}: {said}")


def adopt(config: Config, node: Names = None) -> None:
    """Take a copied folder for the journal itself.

    For a folder that was copied while its node was stopped, and whose original is never started
    again. Without it the node gives the copy up and gets everything from the others.
    """
    from node.journal.passport import ADOPT_ORDER
    from node.journal.recovery.open import holds_nothing

    for member in _members(config, node):
        with _locked(member) as storage:
            if holds_nothing(storage):
                raise CliError(
                    f"{member.data_dir} of {member.name} holds no journal: copy it first, while its"
                    " node is stopped"
                )
            _leave(storage, ADOPT_ORDER)
        output.say(f"{member.name}: {member.data_dir} is its journal from the next start on")


def begin(member: NodeConfig) -> bool:
    """Have the next start of a node begin a new cluster; False where its folder holds a journal.
    Raises CliError where that cannot be, as where other files are in it."""
    from node.journal.passport import INIT_ORDER
    from node.journal.recovery.open import may_begin
    from node.journal.recovery.recovery import is_journal_file

    with _locked(member) as storage:
        if may_begin(storage):
            _leave(storage, INIT_ORDER)
            return True
        if any(map(is_journal_file, storage.listdir())):
            return False
        raise CliError(
            f"{member.data_dir} of {member.name} holds other files, and no journal: move them away,"
            " or correct its data_dir"
        )


def _members(config: Path, names: list[str] | None) -> list[NodeConfig]:
    cluster = load_config(config)
    return [cluster.node(name) for name in names] if names else list(cluster.nodes)


@contextlib.contextmanager
def _locked(member: NodeConfig) -> Iterator[OsStorage]:
    """The folder of a node that does not run. Raises CliError."""
    if not member.data_dir.is_dir():
        raise CliError(f"{member.name} has no folder {member.data_dir}: correct its data_dir")
    storage = OsStorage(member.data_dir)
    try:
        storage.lock()
        try:
            yield storage
        finally:
            storage.unlock()
    except (JournalError, OSError) as error:
        raise CliError(f"{member.name}: {one_line(error)}") from error


def _leave(storage: OsStorage, order: str) -> None:
    """Leave an order for the next start; returns when the disk has it."""
    if order not in storage.listdir():
        storage.create(order).close()
        storage.sync_folder()
