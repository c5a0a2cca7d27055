"""A cluster for a demo or a benchmark, used as any user would: through the command `fifo` and
`fifo.client.observe`.

Owns how it is started, whose leader is killed and how that is noticed. Knows no workload.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import fifo
import fifo.client
from bench.loopback import NODES, ClusterFailed, free_base, until
from bench.processes import environment
from node.cli.local import plan
from node.cli.state import ClusterFolder

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.processes import Child, Household

NODE_PORTS = tuple(10 * node + use for node in range(NODES) for use in (1, 2, 3))
"""`fifo cluster start` gives node i the ports base + 10 i + 1, 2 and 3."""

FIFO = (sys.executable, "-m", "node")

PORT_ATTEMPTS = 5
PORT_TAKEN = "already in use"
"""Between looking for free ports and using them somebody else may take one: another run, say."""

START_LIMIT_S = 40.0
ELECTION_LIMIT_S = 30.0
CATCH_UP_LIMIT_S = 60.0
OBSERVE_TIMEOUT_S = 0.5


@dataclass(frozen=True, slots=True)
class Node:
    """A node, as `fifo cluster status` shows it."""

    number: int
    name: str
    client: str


class BenchCluster:
    """Three nodes of this machine, in a folder of their own."""

    def __init__(
        self,
        household: Household,
        folder: Path,
        snapshot_bytes: int | None = None,
        program: Sequence[str] = FIFO,
    ) -> None:
        """`snapshot_bytes`: of journal between two snapshots, where not the default. `program`: the
        command `fifo` of the checkout whose nodes these are."""
        self._program = program
        self._household = household
        self._folder = folder
        self._snapshot_bytes = snapshot_bytes
        self._process: Child | None = None
        self.url = ""
        self.nodes: tuple[Node, ...] = ()

    async def start(self) -> None:
        """Start the nodes and wait for their leader."""
        if self._snapshot_bytes is not None:
            self._write_settings(self._snapshot_bytes)
        for attempt in range(PORT_ATTEMPTS):
            output = self._folder.with_suffix(f".{attempt}.json")
            process = self._process = self._household.start(
                f"cluster-{attempt}",
                *self._command("start", "--json"),
                *("--nodes", str(NODES), "--base-port", str(free_base(NODE_PORTS))),
                stdout=output,
            )
            view = await self._started(process, output)
            if view is not None:
                self.url = view["url"]
                self.nodes = tuple(
                    Node(number, node["name"], node["client"])
                    for number, node in enumerate(view["nodes"], 1)
                )
                return
        raise ClusterFailed(f"no cluster came up: {PORT_ATTEMPTS} times a port was taken")

    def _write_settings(self, snapshot_bytes: int) -> None:
        """A file that `fifo cluster start` goes by; the ports in it are chosen at the start."""
        folder = ClusterFolder(self._folder)
        folder.prepare()
        usual = plan(folder, NODES, None)
        raft = replace(usual.raft, snapshot_bytes=snapshot_bytes)
        folder.write_config(replace(usual, raft=raft))

    async def _started(self, process: Child, output: Path) -> dict[str, Any] | None:
        """Status of the started cluster; None where another program took its ports."""

        async def look() -> bool:
            return bool(_parsed(output)) or process.exit_code() is not None

        await until(look, START_LIMIT_S, f"no cluster came up ({process.log})")
        view = _parsed(output)
        if view is None and PORT_TAKEN not in process.last_lines():
            raise ClusterFailed(f"no cluster came up:\n{process.last_lines()}")
        return view

    @property
    def file(self) -> Path:
        """The configuration that the nodes were started with."""
        return ClusterFolder(self._folder).config_path

    @property
    def supervisor(self) -> Child:
        """The process that looks after the nodes; it runs as long as the cluster should."""
        assert self._process is not None, "start() comes first"
        return self._process

    async def leader(self, *, above_term: int = -1) -> tuple[Node, int]:
        """Wait for a node that leads in a term above this one: (node, term)."""

        async def look() -> tuple[Node, int] | None:
            views = await asyncio.gather(*map(observe, self.nodes))
            leading = [
                (node, int(view["term"]))
                for view, node in zip(views, self.nodes, strict=True)
                if view and view["role"] == "leader" and int(view["term"]) > above_term
            ]
            return max(leading, key=lambda found: found[1], default=None)

        return await until(look, ELECTION_LIMIT_S, "no leader")

    def views(self) -> list[dict[str, Any]]:
        """Every node as `fifo cluster status --json` prints it: its role, pid and addresses."""
        found: list[dict[str, Any]] = json.loads(self._fifo("status", "--json"))["nodes"]
        return found

    async def kill(self, *nodes: Node) -> None:
        """SIGKILL within microseconds, without a word, as a crash would; clients on this loop go
        on until then."""
        views = await asyncio.to_thread(self.views)
        pids = {found["name"]: found["pid"] for found in views}
        for node in nodes:
            if pids[node.name] is None:
                raise ClusterFailed(f"{node.name} is not running")
        for node in nodes:
            os.kill(pids[node.name], signal.SIGKILL)

    def stop(self) -> None:
        """Stop all nodes, and with them the process that looks after them."""
        self._fifo("stop")

    async def restart(self, node: Node) -> None:
        """Start a killed node again, on what its disk holds."""
        await asyncio.to_thread(self._fifo, "restart", str(node.number))

    def begin_restart(self, nodes: Sequence[Node]) -> None:
        """The same for several killed nodes at once, without waiting for any."""
        for node in nodes:
            ClusterFolder(self._folder).start_request(node.name).touch()

    async def caught_up(self, node: Node) -> None:
        """Wait until a node has applied what was committed when this was asked."""
        leader, _ = await self.leader()
        await applied(node, await commit_index(leader), CATCH_UP_LIMIT_S)

    def _command(self, verb: str, *arguments: str) -> list[str]:
        return [*self._program, "cluster", verb, "--dir", str(self._folder), *arguments]

    def _fifo(self, verb: str, *arguments: str) -> str:
        outcome = subprocess.run(
            self._command(verb, *arguments),
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
        if outcome.returncode != 0:
            raise ClusterFailed(f"fifo cluster {verb}: {outcome.stderr.strip()}")
        return outcome.stdout


async def observe(node: Node) -> dict[str, Any] | None:
    """Status of a node; None where it does not answer."""
    try:
        return dict(await fifo.client.observe(node.client, OBSERVE_TIMEOUT_S))
    except (fifo.FifoError, OSError):
        return None


async def commit_index(node: Node) -> int:
    """Commit index of a node. Raises ClusterFailed where it does not answer."""
    view = await observe(node)
    if view is None:
        raise ClusterFailed(f"{node.name} does not answer")
    return int(view["commit"])


async def applied(node: Node, goal: int, limit_s: float) -> None:
    """Wait until a node has applied the log up to this index."""

    async def look() -> bool:
        view = await observe(node)
        return view is not None and int(view["applied"]) >= goal

    await until(look, limit_s, f"{node.name} did not catch up")


def _parsed(output: Path) -> dict[str, Any] | None:
    """Output of `cluster start --json`, once it is whole."""
    try:
        return dict(json.loads(output.read_text()))
    except (OSError, ValueError):
        return None
