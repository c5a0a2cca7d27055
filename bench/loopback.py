"""Clusters on the loopback address, whatever system they run: ports, waits, children that end.

Owns what every launcher needs (this project's nodes, the members of `bench.raft`, the peers of
`bench.peers`): where to listen, how to wait with a limit, and the one error of a cluster that does
not do what it should. Must not know which system runs.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from itertools import count
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from bench.processes import Child

T = TypeVar("T")

LOOPBACK = "127.0.0.1"
NODES = 3

BASE_PORTS = range(10_000, 32_600, 100)
"""Below the range that kernels give to outgoing connections: another program's dialing would else
take the port of a node while that node is down. Away from the default of 7100."""

SHARE_ENV = "FIFO_BENCH_PORTS"
"""Environment variable: `1/2` for the second half of the bases. Programs that start nodes side by
side have one each, since a port is free too while the node that is to listen there is down."""

LOOK_S = 0.02
"""Interval of looks at a condition, and so the precision of the time that it took."""


class ClusterFailed(Exception):
    """The cluster did not do what was asked of it; the text says what, and quotes its log."""


_turns = count(random.randrange(len(BASE_PORTS)))


def free_base(offsets: Iterable[int]) -> int:
    """A base whose ports at these offsets (below 100) are free now: of this program's share the one
    that it was given longest ago."""
    wanted = list(offsets)
    bases = _own_bases()
    for _ in bases:
        base = bases[next(_turns) % len(bases)]
        if all(is_free(base + offset) for offset in wanted):
            return base
    raise ClusterFailed(
        f"no {len(wanted)} free ports on {LOOPBACK} from {BASE_PORTS.start} to {BASE_PORTS.stop};"
        " end other clusters of this machine"
    )


def _own_bases() -> range:
    """This program's share. Raises ClusterFailed where that is none."""
    said = os.environ.get(SHARE_ENV, "0/1")
    share, _, shares = said.partition("/")
    if not (share.isdecimal() and shares.isdecimal() and int(share) < int(shares)):
        raise ClusterFailed(f"{SHARE_ENV} is {said!r}: name a share like 1/2, from 0/2 on")
    return BASE_PORTS[int(share) :: int(shares)]


def free_ports(wanted: int) -> list[int]:
    """So many neighbouring ports that are free now."""
    base = free_base(range(wanted))
    return list(range(base, base + wanted))


def is_free(port: int) -> bool:
    """Whether a server can listen there; connections that have just ended do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


async def until(
    look: Callable[[], Awaitable[T | None]], limit_s: float, failure: str, every_s: float = LOOK_S
) -> T:
    """Look until the answer is true, and return it. Raises ClusterFailed, with `failure` and the
    limit, when the time is over."""
    deadline = time.monotonic() + limit_s
    while True:
        if found := await look():
            return found
        if time.monotonic() > deadline:
            raise ClusterFailed(f"{failure} within {limit_s:.0f} s")
        await asyncio.sleep(every_s)


def check_running(children: Iterable[Child]) -> None:
    """Raise ClusterFailed, with the end of its log, where one of them has ended."""
    for child in children:
        if (code := child.exit_code()) is not None:
            raise ClusterFailed(f"{child.name} ended with code {code}: {child.last_lines()}")


async def ended(child: Child, limit_s: float) -> None:
    """Wait until a child has ended well. Raises ClusterFailed where it fails or takes longer."""

    async def look() -> bool:
        return child.exit_code() is not None

    await until(look, limit_s, f"{child.name} did not end")
    if code := child.exit_code():
        raise ClusterFailed(f"{child.name} ended with code {code}: {child.last_lines()}")
