"""Clusters in this process (`fifo.testing`), by the hosts of their URLs.

Owns the list of those that are open. Must not know what a cluster is made of: it gives a loop, and
an environment to each client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from fifo.client.connection.environment import Environment
from fifo.client.errors import InvalidArgument

SUFFIX: Final = ".fifo.test"
"""The end of hosts that are in a process; no name server knows any of them (RFC 6761)."""


class Home(Protocol):
    """A cluster in this process."""

    loop: asyncio.AbstractEventLoop

    def environment(self) -> Environment:
        """Make the environment of one client more."""


_homes: dict[str, Home] = {}


def enter(name: str, home: Home) -> None:
    """Show clients a cluster at the hosts `<node>.<name>.fifo.test`."""
    _homes[name] = home


def leave(name: str) -> None:
    """Hide it from clients."""
    _homes.pop(name, None)


def home_of(addresses: Iterable[str]) -> Home | None:
    """The cluster at these addresses; None where they are on the network.

    Raises InvalidArgument for a cluster that this process does not have, or no longer.
    """
    for address in addresses:
        host = address.rpartition(":")[0]
        if host.endswith(SUFFIX):
            home = _homes.get(host.removesuffix(SUFFIX).rpartition(".")[2])
            if home is None:
                raise InvalidArgument(
                    f"url: {host} is in no cluster of this process: it was closed, or belongs to"
                    " another process, which needs `fifo serve --dev`"
                )
            return home
    return None


def environment_of(addresses: Iterable[str]) -> Environment:
    """The environment of a client of these addresses on the running loop."""
    home = home_of(addresses)
    if home is None:
        return Environment()
    if home.loop is not asyncio.get_running_loop():
        raise InvalidArgument(
            "url: the cluster runs on another event loop: connect on that one; for a blocking"
            " client or another thread, start a node with `fifo serve --dev`"
        )
    return home.environment()
