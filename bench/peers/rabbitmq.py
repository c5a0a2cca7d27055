"""RabbitMQ: three nodes of Debian's `rabbitmq-server`, as any user, in a folder of their own.

Owns their settings: names, ports, cookie, the cluster by a list of nodes. Their port mapper (epmd)
gets a port of its own too, so that a RabbitMQ that runs here already is not touched. Update with
it: PROGRAMS, where distributions put the scripts that do not ask for a certain user.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from bench.loopback import LOOPBACK, NODES, ClusterFailed, check_running, free_ports, until
from bench.peers.servers import answer_of
from bench.processes import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peers.servers import Running
    from bench.processes import Child, Household

PROGRAMS = ("/usr/lib/rabbitmq/bin", "/opt/homebrew/sbin", "/usr/local/sbin")

START_LIMIT_S = 120.0
LOOK_S = 0.1
CTL_LIMIT_S = 60.0

SYNCS = ("datasync", "sync")
STRATEGIES = ("default", "o_sync")
"""With which the log of quorum queues is on disk before an entry counts."""

CONFIG = """\
listeners.tcp.1 = {loopback}:{port}
cluster_formation.peer_discovery_backend = classic_config
{nodes}
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.relative = 0.4
log.console = true
log.console.level = warning
log.file = false
"""

VIRTUAL_MACHINE = "+sbwt none +sbwtdcpu none +sbwtdio none"
"""Idle schedulers of three nodes do not spin: on a small machine they would take it from others."""


class RabbitMQ:
    """Quorum queues."""

    name = "rabbitmq"

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: where the programs are, if not those that are installed."""
        self._folder = folder

    def missing(self) -> str | None:
        """See `servers.System`."""
        if program("rabbitmq-server", self._folder) is None:
            return (
                "rabbitmq-server is not installed (Debian: apt-get install rabbitmq-server; of"
                " another release of Debian: python -m bench.peers.debian)"
            )
        return None

    def version(self) -> str:
        """See `servers.System`."""
        command = program("rabbitmqctl", self._folder)
        said = answer_of(command, "version") if command else ""
        return next(reversed(said.split()), "unknown")

    async def start(self, household: Household, folder: Path) -> Running:
        """See `servers.System`."""
        _set_cookie(folder)
        ports = free_ports(2 * NODES + 1)
        epmd, clients, distribution = ports[0], ports[1 : NODES + 1], ports[NODES + 1 :]
        names = [f"bench{epmd}n{number}@localhost" for number in range(1, NODES + 1)]
        running = _RunningRabbitMQ(names, clients, self._folder)
        seeds = "\n".join(
            f"cluster_formation.classic_config.nodes.{place} = {name}"
            for place, name in enumerate(names, 1)
        )
        children = []
        for name, port, peer in zip(names, clients, distribution, strict=True):
            home = folder / name
            _configure(home, CONFIG.format(loopback=LOOPBACK, port=port, nodes=seeds))
            running.env = _environment(folder, home, name, epmd, peer)
            command = program("rabbitmq-server", self._folder)
            assert command is not None, "missing() says so before"
            children.append(household.start(name, command, env=running.env))
        # All at once: since 4.0 the first waits until it has seen the others before it goes on.
        for name, child in zip(names, children, strict=True):
            await _started(running, name, child)
        together = set(running.ctl("cluster_status").split()) & set(names)
        if len(together) < NODES:
            raise ClusterFailed("the RabbitMQ nodes did not form a cluster")
        running.durability = durability(running.evaluated("ra_system:fetch(quorum_queues)."))
        return running


async def _started(running: _RunningRabbitMQ, name: str, child: Child) -> None:
    async def runs() -> bool:
        check_running([child])
        answer = await asyncio.to_thread(running.evaluated, "rabbit:is_running().", name)
        return "true" in answer

    await until(runs, START_LIMIT_S, f"{name} did not start", LOOK_S)


class _RunningRabbitMQ:
    durability = ""
    env: dict[str, str]
    """For `rabbitmqctl`: where the cookie and the port mapper are."""

    def __init__(self, names: Sequence[str], clients: Sequence[int], folder: Path | None) -> None:
        self._names = names
        self._folder = folder
        self.url = ",".join(
            f"amqp://guest:guest@{LOOPBACK}:{port}/%2F?heartbeat=60" for port in clients
        )

    async def kill_leader(self, queue: str) -> None:
        """See `servers.Running`: each queue has a leader of its own."""
        listed = await asyncio.to_thread(
            self.ctl, "--quiet", "--formatter", "json", "list_queues", "name", "leader"
        )
        leader = leader_of(listed, queue)
        pid = await asyncio.to_thread(self.evaluated, "os:getpid().", leader)
        if leader not in self._names or not pid.strip('"').isdecimal():
            raise ClusterFailed(f"RabbitMQ does not say who leads the queue {queue}")
        os.kill(int(pid.strip('"')), signal.SIGKILL)

    def evaluated(self, expression: str, name: str = "") -> str:
        """Evaluate an expression on a node, by default the first; empty where it fails."""
        return self.ctl("eval", expression, name=name)

    def ctl(self, *arguments: str, name: str = "") -> str:
        """Output of `rabbitmqctl`; empty where it fails."""
        command = program("rabbitmqctl", self._folder)
        assert command is not None, "missing() says so of the server before"
        done = subprocess.run(
            [command, "--node", name or self._names[0], *arguments],
            env=environment(self.env),
            capture_output=True,
            text=True,
            timeout=CTL_LIMIT_S,
            check=False,
        )
        return done.stdout.strip()


def leader_of(listed: str, queue: str) -> str:
    """Leader of a queue, from the list of all as JSON; empty where it names none."""
    try:
        queues = json.loads(listed)
    except ValueError:
        return ""
    return next((str(one["leader"]) for one in queues if one["name"] == queue), "")


def durability(settings: str) -> str:
    """In words, from the settings of the log that all quorum queues of a node share."""
    told = dict(re.findall(r"(wal_sync_method|wal_write_strategy) => (\w+)", settings))
    method, strategy = told.get("wal_sync_method"), told.get("wal_write_strategy")
    asked = f"wal_sync_method {method or 'unknown'}, wal_write_strategy {strategy or 'unknown'}"
    synced = method in SYNCS and strategy in STRATEGIES
    words = "fsync on a majority before every confirm"
    return f"quorum queue, {words if synced else 'NOT known to sync before a confirm'} ({asked})"


def program(name: str, folder: Path | None) -> str | None:
    """Where a script of RabbitMQ is, in this folder alone or where it is installed; None where it
    is not."""
    if folder is not None:
        return str(folder / name) if (folder / name).exists() else None
    found = (Path(place) / name for place in PROGRAMS)
    return next((str(path) for path in found if path.exists()), None) or shutil.which(name)


def _set_cookie(folder: Path) -> None:
    folder.mkdir(parents=True)
    cookie = folder / ".erlang.cookie"
    cookie.write_text(f"BENCH{folder.name.upper()}")
    cookie.chmod(0o400)


def _configure(home: Path, config: str) -> None:
    home.mkdir()
    (home / "rabbitmq.conf").write_text(config)
    (home / "enabled_plugins").write_text("[].")


def _environment(
    folder: Path, home: Path, name: str, epmd: int, distribution: int
) -> dict[str, str]:
    return {
        "HOME": str(folder),  # Where the cookie is.
        "ERL_EPMD_PORT": str(epmd),
        "ERL_EPMD_ADDRESS": LOOPBACK,
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            f"{VIRTUAL_MACHINE} -kernel inet_dist_use_interface {{127,0,0,1}}"
        ),
    }
