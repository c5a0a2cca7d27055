"""NATS JetStream: three `nats-server` processes with a replicated file store.

Owns their settings, in two variants: with the server's own default, which syncs every two minutes
and confirms before, and with a sync before every confirm (2.10 and newer).
"""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from typing import TYPE_CHECKING

from bench.peers.servers import LOOPBACK, NODES, answer_of, free_ports, until

if TYPE_CHECKING:
    from pathlib import Path

    from bench.processes import Household

PROGRAM = "nats-server"
ALWAYS_SINCE = (2, 10)
START_LIMIT_S = 30.0

CONFIG = """\
server_name: {name}
listen: {loopback}:{client}
http: {loopback}:{http}
jetstream {{ store_dir: "{store}"{sync} }}
cluster {{ name: bench, listen: {loopback}:{peer}, routes: [{routes}] }}
"""


class Nats:
    """One of the two variants."""

    def __init__(self, *, always: bool) -> None:
        self._always = always
        self.name = "nats, sync always" if always else "nats, sync default"
        self.durability = (
            "JetStream R3 file store, sync_interval: always (before every confirm)"
            if always
            else "JetStream R3 file store, sync_interval: 2m by default (NO fsync before a confirm)"
        )

    def missing(self) -> str | None:
        """See `servers.System`."""
        if shutil.which(PROGRAM) is None:
            return f"{PROGRAM} is not installed (Debian: apt-get install {PROGRAM})"
        if self._always and _numbers(self.version()) < ALWAYS_SINCE:
            return f"sync_interval: always needs {PROGRAM} 2.10 or newer, here is {self.version()}"
        return None

    def version(self) -> str:
        """See `servers.System`."""
        return answer_of(PROGRAM, "--version").rpartition("v")[2]

    async def start(self, household: Household, folder: Path) -> str:
        """See `servers.System`."""
        clients, monitors = self._launch(household, folder)
        await until(
            lambda: all(map(_has_leader, monitors)), START_LIMIT_S, "no NATS leader for JetStream"
        )
        return ",".join(f"nats://{LOOPBACK}:{port}" for port in clients)

    def _launch(self, household: Household, folder: Path) -> tuple[list[int], list[int]]:
        """Start the servers; gives the ports for clients, and for looking at them."""
        folder.mkdir(parents=True)
        ports = free_ports(3 * NODES)
        clients, peers, monitors = ports[:NODES], ports[NODES : 2 * NODES], ports[2 * NODES :]
        routes = ", ".join(f"nats://{LOOPBACK}:{port}" for port in peers)
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
            household.start(f"{folder.name}-n{number}", PROGRAM, "--config", str(config))
        return clients, monitors


def _has_leader(monitor: int) -> bool:
    """Whether this server knows who leads JetStream's own group."""
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{monitor}/jsz", timeout=1) as answer:
            return bool(json.load(answer).get("meta_cluster", {}).get("leader"))
    except (OSError, ValueError):
        return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
