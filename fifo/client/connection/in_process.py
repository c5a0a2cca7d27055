"""Clusters in this process (`fifo.testing`), by the hosts of their URLs.

Owns the list of those that are open, and which client gets what from them: one on the cluster's own
loop and a blocking one its environment, any other a connection. Must not know what a cluster is
made of.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Final, Protocol

from fifo.client.connection.environment import Environment, over_tcp
from fifo.client.errors import InvalidArgument

SUFFIX: Final = ".fifo.test"
"""The end of hosts that are in a process; no name server knows any of them (RFC 6761)."""


class Home(Protocol):
    """A cluster in this process."""

    loop: asyncio.AbstractEventLoop

    def environment(self) -> Environment:
        """Make the environment of one client more, on its loop or for threads."""

    def paced(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Pass time as for people while it is open: threads of a program wait in their own ways.

        `stop` is called on the loop where the cluster is to close before.
        """

    async def reach(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> None:
        """Connect what runs on another loop, by that loop's own clock. Raises OSError."""


_homes: dict[str, tuple[int, Home]] = {}
"""The cluster of each name, and the process that it runs in."""


def enter(name: str, home: Home) -> None:
    """Show clients a cluster at the hosts `<node>.<name>.fifo.test`."""
    _homes[name] = (os.getpid(), home)


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
            process, home = _homes.get(host.removesuffix(SUFFIX).rpartition(".")[2], (0, None))
            if home is None or process != os.getpid():
                raise InvalidArgument(
                    f"url: {host} is in no cluster of this process: it was closed, or belongs to"
                    " another process (one that forks, as Celery's prefork pool, makes others):"
                    " those need `fifo serve --dev`"
                )
            return home
    return None


def environment_of(addresses: Iterable[str]) -> Environment:
    """The environment of a client of these addresses on the running loop."""
    home = home_of(addresses)
    if home is None:
        return Environment()
    if home.loop is asyncio.get_running_loop():
        return home.environment()
    return visiting(Environment(), home)


def environment_of_thread(addresses: Iterable[str]) -> Environment:
    """The environment of a blocking client of these addresses."""
    home = home_of(addresses)
    if home is None:
        return Environment()
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is home.loop:
        raise InvalidArgument(
            "url: a blocking client would stop the event loop that its cluster runs on: use it in"
            " a thread (`await asyncio.to_thread(...)`), or in a test without an event loop (`with"
            " fifo.testing.cluster() as cluster:`)"
        )
    return home.environment()


def visiting(environment: Environment, home: Home) -> Environment:
    """The environment of a client on another loop than its cluster's: only its connections go."""

    async def dial(
        factory: Callable[[], asyncio.Protocol], host: str, port: int, _: ssl.SSLContext | None
    ) -> None:
        await home.reach(factory, host, port)

    return replace(environment, dial=dial)


def arriving(environment: Environment, addresses: Iterable[str]) -> Environment:
    """The environment of a client that brought its own: it too finds clusters of this process."""
    home = home_of(addresses) if environment.dial is over_tcp else None
    return environment if home is None else visiting(environment, home)
