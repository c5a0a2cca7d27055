"""NATS JetStream: three `nats-server` processes with a replicated file store.

Owns their settings, in two variants: with the server's own default, which confirms first and syncs
some time later, and with a sync before every confirm (2.10 and newer). Which of them really holds
is asked of the running servers, where they tell.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import urllib.request
from typing import TYPE_CHECKING, Any

from bench.loopback import LOOPBACK, NODES, ClusterFailed, check_running, free_ports, until
from bench.peers.servers import Running, answer_of

if TYPE_CHECKING:
    from pathlib import Path

    from bench.processes import Child, Household

PROGRAM = "nats-server"
ALWAYS_SINCE = (2, 10)
START_LIMIT_S = 30.0
LOOK_S = 0.1
LOOK_TIMEOUT_S = 5.0

CONFIG = """\
server_name: {name}
listen: {loopback}:{client}
http: {loopback}:{http}
jetstream {{ store_dir: "{store}"{sync} }}
cluster {{ name: bench, listen: {loopback}:{peer}, routes: [{routes}] }}
"""


class Nats:
    """A variant of the comparison."""

    def __init__(self, *, always: bool) -> None:
        self._always = always
        self.name = "nats, sync always" if always else "nats, sync default"

    def missing(self) -> str | None:
        """See `servers.System`."""
        if shutil.which(PROGRAM) is None:
            return (
                f"{PROGRAM} is not installed"
                f" (Debian: apt-get install {PROGRAM}, newer: pip install {PROGRAM}-bin)"
            )
        if self._always and _numbers(self.version()) < ALWAYS_SINCE:
            return (
                f"sync_interval: always needs {PROGRAM} 2.10 or newer, the first on the PATH is"
                f" {self.version()} (newer: pip install {PROGRAM}-bin)"
            )
        return None

    def version(self) -> str:
        """See `servers.System`."""
        return answer_of(PROGRAM, "--version").rpartition("v")[2]

    async def start(self, household: Household, folder: Path) -> Running:
        """See `servers.System`."""
        running = self._launch(household, folder)
        await until(running.has_leader, START_LIMIT_S, "no NATS leader for JetStream", LOOK_S)
        running.durability = durability(running.settings())
        return running

    def _launch(self, household: Household, folder: Path) -> _RunningNats:
        folder.mkdir(parents=True)
        ports = free_ports(3 * NODES)
        clients, peers, monitors = ports[:NODES], ports[NODES : 2 * NODES], ports[2 * NODES :]
        routes = ", ".join(f"nats://{LOOPBACK}:{port}" for port in peers)
        servers = {}
        for number, (client, peer, http) in enumerate(
            zip(clients, peers, monitors, strict=True), 1
        ):
            config = folder / f"n{number}.conf"
            config.write_text(
                CONFIG.format(
                    name=f"n{number}",
                    loopback=LOOPBACK,
                    client=client,
                    http=http,
                    peer=peer,
                    store=folder / f"n{number}",
                    sync=", sync_interval: always" if self._always else "",
                    routes=routes,
                )
            )
            servers[f"n{number}"] = household.start(
                f"{folder.name}-n{number}", PROGRAM, "--config", str(config)
            )
        return _RunningNats(servers, clients, monitors)


class _RunningNats:
    durability = ""

    def __init__(self, servers: dict[str, Child], clients: list[int], monitors: list[int]) -> None:
        self._servers = servers
        self._monitors = monitors
        self.url = ",".join(f"nats://{LOOPBACK}:{port}" for port in clients)

    async def has_leader(self) -> bool:
        """Whether every server knows who leads JetStream's own group. Raises ClusterFailed."""
        check_running(self._servers.values())
        seen = await asyncio.gather(*(asyncio.to_thread(_seen, port) for port in self._monitors))
        return all(one.get("meta_cluster", {}).get("leader") for one in seen)

    def settings(self) -> dict[str, Any]:
        """JetStream status of a server."""
        return dict(_seen(self._monitors[0]).get("config", {}))

    async def kill_leader(self, queue: str) -> None:
        """See `servers.Running`: each stream has a leader of its own."""
        seen = await asyncio.to_thread(_seen, self._monitors[0], "?accounts=1&streams=1")
        leader = leader_of(seen, queue)
        if leader not in self._servers:
            raise ClusterFailed(f"NATS does not say who leads the stream {queue}")
        self._servers[leader].signal(signal.SIGKILL)


def leader_of(seen: dict[str, Any], stream: str) -> str:
    """Leader of a stream, from a server's list; empty where it names none."""
    for account in seen.get("account_details", ()):
        for one in account.get("stream_detail", ()):
            if one.get("name") == stream:
                return str(one.get("cluster", {}).get("leader", ""))
    return ""


def durability(settings: dict[str, Any]) -> str:
    """In words, from what a server says of its JetStream (nanoseconds)."""
    store = "JetStream, file store, 3 replicas"
    if settings.get("sync_always"):
        return f"{store}, sync_interval: always, a sync before every confirm"
    interval = settings.get("sync_interval")
    every = f"{interval / 1e9:g} s" if interval else "2 minutes (fixed in this version)"
    return (
        f"{store}, NOTHING synced before a confirm, only every {every}: a power cut takes what was"
        " confirmed since"
    )


def _seen(monitor: int, query: str = "") -> dict[str, Any]:
    """JetStream status of a server; empty where it does not answer."""
    url = f"http://{LOOPBACK}:{monitor}/jsz{query}"
    try:
        with urllib.request.urlopen(url, timeout=LOOK_TIMEOUT_S) as answer:
            return dict(json.load(answer))
    except (OSError, ValueError):
        return {}


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
