"""RabbitMQ: three nodes of Debian's `rabbitmq-server`, as any user, in a folder of their own.

Owns their settings: names, ports, cookie, the cluster by a list of nodes. Their port mapper (epmd)
gets a port of its own too, so that a RabbitMQ that runs here already is not touched. Update with
it: PROGRAMS, where distributions put the scripts that do not ask for a certain user.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.servers import LOOPBACK, NODES, SystemFailed, free_ports, until
from bench.processes import environment

if TYPE_CHECKING:
    from bench.processes import Household

PROGRAMS = ("/usr/lib/rabbitmq/bin", "/opt/homebrew/sbin", "/usr/local/sbin")

START_LIMIT_S = 120.0
CTL_LIMIT_S = 60.0

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
    """Quorum queues, which sync before they confirm: there is no setting for less."""

    name = "rabbitmq"
    durability = "quorum queue: fsync on a majority before every confirm (no setting)"

    def missing(self) -> str | None:
        """See `servers.System`."""
        if self._program("rabbitmq-server") is None:
            return "rabbitmq-server is not installed (Debian: apt-get install rabbitmq-server)"
        return None

    def version(self) -> str:
        """See `servers.System`."""
        folders = Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
        return next((folder.name.rpartition("-")[2] for folder in folders), "unknown")

    def _program(self, name: str) -> str | None:
        found = (Path(folder) / name for folder in PROGRAMS)
        return next((str(path) for path in found if path.exists()), None) or shutil.which(name)

    async def start(self, household: Household, folder: Path) -> str:
        """See `servers.System`."""
        _set_cookie(folder)
        ports = free_ports(2 * NODES + 1)
        epmd, clients, distribution = ports[0], ports[1 : NODES + 1], ports[NODES + 1 :]
        names = [f"bench{epmd}n{number}@localhost" for number in range(1, NODES + 1)]
        seeds = "\n".join(
            f"cluster_formation.classic_config.nodes.{place} = {name}"
            for place, name in enumerate(names, 1)
        )
        env = {}
        for name, port, peer in zip(names, clients, distribution, strict=True):
            home = folder / name
            _configure(home, CONFIG.format(loopback=LOOPBACK, port=port, nodes=seeds))
            env = _environment(folder, home, name, epmd, peer)
            program = self._program("rabbitmq-server")
            assert program is not None, "missing() says so before"
            child = household.start(name, program, env=env)
            # One after the other: the first makes the cluster, the others join it.
            await until(
                lambda name=name, env=env: self._runs(name, env),  # type: ignore[misc]
                START_LIMIT_S,
                f"{name} did not start:\n{child.last_lines()}",
            )
        if len(set(self._ctl(names[0], env, "cluster_status").split()) & set(names)) < NODES:
            raise SystemFailed("the RabbitMQ nodes did not form a cluster")
        return f"amqp://guest:guest@{LOOPBACK}:{clients[0]}/%2F?heartbeat=60"

    def _runs(self, name: str, env: dict[str, str]) -> bool:
        return "true" in self._ctl(name, env, "eval", "rabbit:is_running().")

    def _ctl(self, name: str, env: dict[str, str], *arguments: str) -> str:
        program = self._program("rabbitmqctl")
        assert program is not None
        done = subprocess.run(
            [program, "--node", name, *arguments],
            env=environment(env),
            capture_output=True,
            text=True,
            timeout=CTL_LIMIT_S,
            check=False,
        )
        return done.stdout


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
