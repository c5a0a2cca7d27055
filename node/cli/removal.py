"""Delete a stopped local cluster: the files that its ``cluster.json`` lists, and no others.

Owns the decision which files are the cluster's. Must not know processes: whether a node runs is
read from the locks of the data folders, which every node holds, however it was started.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from node.cli.errors import CliError
from node.journal.audit import is_audit_file
from node.journal.errors import JournalLocked
from node.journal.io.storage import AUDIT_FOLDER, LOCK_NAME, OsStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from node.cli.state import ClusterFolder, ClusterState, NodeState

    Ours: TypeAlias = Callable[[str], bool]


@dataclass(slots=True)
class Removal:
    """Paths that were deleted, and paths beside them that are not the cluster's and stay."""

    deleted: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)


def remove_cluster(folder: ClusterFolder) -> Removal:
    """Delete the cluster of a folder; nothing where none was started in it.

    Raises CliError while a process uses a data folder, before anything is deleted, and where a
    file cannot be deleted; ``cluster.json`` goes last, so that a second attempt continues.
    """
    removal = Removal()
    with folder.locked_if_present():
        state = folder.load()
        if state is None:
            return removal
        with contextlib.ExitStack() as locks:
            for node in state.nodes:
                _lock(node, folder, locks)
            try:
                _remove(folder, state, removal)
            except OSError as error:
                raise CliError(
                    f"{error.filename} cannot be deleted: {error.strerror};"
                    f" correct that and run again: fifo cluster clean{folder.flag}"
                ) from None
    return removal


def _lock(node: NodeState, folder: ClusterFolder, locks: contextlib.ExitStack) -> None:
    """Hold the lock of a node's data folder, as the node itself would."""
    if not Path(node.data_dir).is_dir():
        return
    storage = OsStorage(node.data_dir)
    try:
        storage.lock()
    except JournalLocked as error:
        raise CliError(
            f"{node.name} is running: {str(error).partition(';')[0]}; nothing was deleted;"
            f" stop it, then run again: fifo cluster clean{folder.flag}"
        ) from None
    except OSError as error:
        raise CliError(
            f"data folder {node.data_dir} of {node.name} cannot be locked: {error.strerror};"
            " nothing was deleted; change its owner, or delete it as the user who started it"
        ) from None
    locks.callback(storage.unlock)


def _remove(folder: ClusterFolder, state: ClusterState, removal: Removal) -> None:
    places: dict[Path, list[Ours]] = {}
    for node in state.nodes:
        places.setdefault(Path(node.data_dir), []).append(_is_data)
        places.setdefault(Path(node.data_dir) / AUDIT_FOLDER, []).append(is_audit_file)
        places.setdefault(folder.node_path(node.name), []).append(folder.is_node_file)
    for place in sorted(places, key=lambda path: len(path.parts), reverse=True):
        _empty(place, places, removal)
    for path in folder.own_files():
        path.unlink(missing_ok=True)
        removal.deleted.append(path)
    with contextlib.suppress(OSError):  # Something of a neighbour's is in it.
        folder.path.rmdir()


def _is_data(name: str) -> bool:
    from node.journal.recovery.recovery import is_journal_file

    return name == LOCK_NAME or is_journal_file(name)


def _empty(place: Path, places: Mapping[Path, list[Ours]], removal: Removal) -> None:
    """Delete the cluster's files in a folder, then the folder where nothing else is in it."""
    if not place.is_dir():
        return
    for path in sorted(place.iterdir()):
        if not path.is_dir() and any(ours(path.name) for ours in places[place]):
            path.unlink()
        elif path not in places:  # else what it holds was reported
            removal.kept.append(path)
    if not any(place.iterdir()):
        _remove_folder(place)
        removal.deleted.append(place)


def _remove_folder(place: Path) -> None:
    """Delete an empty folder, or the link that stands for it."""
    if place.is_symlink():
        place.unlink()
    else:
        place.rmdir()
