"""Checks before a node starts, so that it fails early and with a clear error.

Owns the checks of ports and data folders. Must not look into a data folder: the journal checks
that it belongs to this cluster.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

from node.cli.errors import CliError

if TYPE_CHECKING:
    from pathlib import Path

    from node.config import Address, NodeConfig


def check_ports(node: NodeConfig, remedy: str) -> None:
    """Raise CliError for a port in use; the line names port, use and node."""
    for use, address in (("client", node.client), ("peer", node.peer), ("http", node.http)):
        try:
            problem = _bind_problem(address)
        except OSError as error:
            raise CliError(
                f"{use} address {address} of {node.name} cannot be used: {error.strerror};"
                " configure an address of this machine"
            ) from None
        if problem is not None:
            raise CliError(f"port {address.port} ({use} port of {node.name}) {problem}; {remedy}")


def check_data_dir(node: NodeConfig) -> None:
    """Create the data folder; raise CliError where it cannot be created or written."""
    place = f"data folder {node.data_dir} of {node.name}"
    try:
        node.data_dir.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise CliError(f"{place} is a file, not a folder; choose another data_dir") from None
    except OSError as error:
        raise CliError(
            f"{place} cannot be created: {error.strerror}; choose another data_dir"
        ) from None
    if not writable(node.data_dir):
        raise CliError(f"{place} cannot be written: change its owner, or remount a read-only disk")


def writable(folder: Path) -> bool:
    """Whether this process may create files in the folder; asks the kernel and writes nothing."""
    return os.access(folder, os.W_OK | os.X_OK)


def _bind_problem(address: Address) -> str | None:
    """The reason why the port cannot be bound, or None; OSError for an unusable address."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, place = found[0]
    with socket.socket(family, kind, protocol) as probe:
        # As the node does: a connection of an earlier run in TIME_WAIT is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
            probe.listen(1)
        except PermissionError:
            return "may not be bound by this user"
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return "is already in use"
    return None
