"""What is checked before a node starts, so that it fails with a sentence and not in the middle.

Owns the checks of ports and data folders. Whether a folder belongs to another cluster is checked
by the journal itself, which alone can tell.
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
    """Refuse a port that something else listens on; the line names port, use and node."""
    for use, address in (("client", node.client), ("peer", node.peer), ("http", node.http)):
        try:
            problem = _bind_problem(address)
        except OSError as error:
            raise CliError(
                f"{use} address {address} of {node.name} cannot be used: {error.strerror};"
                " it has to be an address of this machine"
            ) from None
        if problem is not None:
            raise CliError(f"port {address.port} ({use} port of {node.name}) {problem}; {remedy}")


def check_data_dir(node: NodeConfig) -> None:
    """Make the data folder, and refuse one that cannot be written."""
    place = f"data folder {node.data_dir} of {node.name}"
    try:
        node.data_dir.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise CliError(f"{place}: a file stands in its way; choose another data_dir") from None
    except OSError as error:
        raise CliError(f"{place} cannot be made: {error.strerror}; choose another") from None
    if not writable(node.data_dir):
        raise CliError(f"{place} cannot be written: is its disk read-only? else change its owner")


def writable(folder: Path) -> bool:
    """Whether this process may make files there; asked of the kernel, nothing is written."""
    return os.access(folder, os.W_OK | os.X_OK)


def _bind_problem(address: Address) -> str | None:
    """Why the port cannot be had; raises OSError where the address cannot."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, place = found[0]
    with socket.socket(family, kind, protocol) as probe:
        # As the node itself will: a connection of an earlier run in TIME_WAIT is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
            probe.listen(1)
        except PermissionError:
            return "may not be used by this user"
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return "is already in use"
    return None
