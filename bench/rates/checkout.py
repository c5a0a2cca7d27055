"""A checkout whose nodes and clients are measured: this one, or another with a `.venv` of its own.

Owns its commands, its cluster while it runs, one run of one row, and the CPU time of all processes
meanwhile. Knows the row's clients, no table.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.cluster import BenchCluster
from bench.loopback import ClusterFailed, until
from bench.rates.rows import (
    ACKED,
    CLIENT_CPU,
    CONFIRM_P50,
    CONFIRM_P99,
    CPU,
    END_P50,
    END_P99,
    FOLLOWER_CPU,
    LEADER_CPU,
    PAUSE,
    PUBLISHED,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.processes import Household
    from bench.rates.rows import Row

ROOT: Final = Path(__file__).resolve().parents[2]
DRIVER: Final = Path(__file__).with_name("driver.py")

READY_S: Final = 90.0
"""Time that drivers may take to start, connect and fill a queue."""

WARM_UP_S: Final = 1.0
ENDS_S: Final = 60.0
"""Time that a driver may take beyond the measured one: its last calls."""

LEADER_S: Final = 20.0
KILL_AFTER: Final = 0.3
"""Part of the measured time after which a leader is killed."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Checkout:
    """A folder with the project, and the interpreter that runs it."""

    name: str
    root: Path
    python: str

    @classmethod
    def here(cls) -> Checkout:
        """This one."""
        return cls("this checkout", ROOT, sys.executable)

    @classmethod
    def at(cls, root: Path) -> Checkout:
        """Another. Raises ClusterFailed where it has no environment."""
        python = root / ".venv" / "bin" / "python"
        if not python.exists():
            raise ClusterFailed(f"{root} has no .venv/bin/python: run `make setup` there")
        return cls(root.name, root.resolve(), str(python))

    def command(self, *arguments: str) -> tuple[str, ...]:
        """A command of its interpreter that finds its modules and no others; nor do those that it
        starts. Without the first variable `-m` would look in the current folder, this checkout."""
        return ("env", "PYTHONSAFEPATH=1", f"PYTHONPATH={self.root}", self.python, *arguments)


class Drivers:
    """The drivers of one run of a row."""

    def __init__(self, processes: Sequence[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    async def lines(self, limit_s: float) -> list[dict[str, Any]]:
        """The next line of each. Raises ClusterFailed where one has ended or says nothing."""
        try:
            async with asyncio.timeout(limit_s):
                return [await self._line(process) for process in self._processes]
        except TimeoutError:
            raise ClusterFailed(f"a driver said nothing for {limit_s:.0f} s") from None

    async def _line(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        assert process.stdout is not None, "it has a pipe"
        line = await process.stdout.readline()
        if not line:
            assert process.stderr is not None, "it has a pipe"
            said = (await process.stderr.read()).decode(errors="replace").strip()
            raise ClusterFailed(said or "a driver ended without a word")
        return dict(json.loads(line))

    def say(self, line: dict[str, Any]) -> None:
        """Write one line to each."""
        for process in self._processes:
            assert process.stdin is not None, "it has a pipe"
            process.stdin.write(json.dumps(line).encode() + b"\n")

    async def ended(self) -> None:
        """Wait until all have left; those that do not are killed."""
        for process in self._processes:
            try:
                await asyncio.wait_for(process.communicate(), ENDS_S)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def kill(self) -> None:
        """End those that run."""
        for process in self._processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


class Measuring:
    """A cluster of one checkout, and the rows that are run on it."""

    _numbers = itertools.count(1)

    def __init__(
        self,
        checkout: Checkout,
        household: Household,
        folder: Path,
        snapshot_bytes: int | None = None,
    ) -> None:
        """`snapshot_bytes`: of journal between two snapshots, where not the default."""
        self._checkout = checkout
        fifo = checkout.command("-m", "node")
        self._cluster = BenchCluster(household, folder, snapshot_bytes, fifo)

    @property
    def configuration(self) -> Path:
        """The configuration that the nodes were started with."""
        return self._cluster.file

    async def start(self) -> None:
        """Start its nodes."""
        await self._cluster.start()

    async def run(self, row: Row, seconds: float) -> dict[str, float]:
        """The figures of one run. Raises ClusterFailed where a driver fails."""
        drivers = await self._started(row)
        try:
            await drivers.lines(READY_S)
            nodes = await self._nodes()
            begin_ns = time.monotonic_ns() + int(WARM_UP_S * 1e9)
            end_ns = begin_ns + int(seconds * 1e9)
            kill_ns = begin_ns + int(KILL_AFTER * (end_ns - begin_ns)) if row.kills else 0
            drivers.say({"begin_ns": begin_ns, "end_ns": end_ns, "kill_ns": kill_ns})
            if row.kills:
                await _until(begin_ns)
                await self._kill_leader(kill_ns, end_ns)
            nodes_cpu_s = await _watch(nodes, begin_ns, end_ns)
            shown = await drivers.lines(ENDS_S)
            drivers.say({"leave": True})
            await drivers.ended()
        finally:
            await drivers.kill()
        roles = [clients.role for clients in row.clients]
        return figures_of(dict(zip(roles, shown, strict=True)), nodes_cpu_s, seconds)

    async def _started(self, row: Row) -> Drivers:
        queue = f"rates-{next(self._numbers)}"
        processes = []
        for number, clients in enumerate(row.clients):
            place = {"url": self._cluster.url, "queue": queue, "spec": dict(row.spec)}
            job = clients.job() | place | {"leaves": number == 0 and not row.kills}
            processes.append(
                await asyncio.create_subprocess_exec(
                    *self._checkout.command(str(DRIVER), json.dumps(job)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
            )
        return Drivers(processes)

    async def _kill_leader(self, kill_ns: int, end_ns: int) -> None:
        """Kill it at one instant, and ask at the other who leads: to ask takes CPU time, which is
        not to be missing where another is elected. Raises ClusterFailed where that is no other."""
        leader, *_ = await self._nodes()
        await _until(kill_ns)
        os.kill(leader, signal.SIGKILL)
        await _until(end_ns)
        follows, *_ = await self._nodes()
        if follows == leader:
            raise ClusterFailed("the leader was killed, and the status names no other")

    async def _nodes(self) -> list[int]:
        """The pids of the nodes, the leader's first."""

        async def agreed() -> list[int] | None:
            views = await asyncio.to_thread(self._cluster.views)
            running = [view for view in views if view["pid"] is not None]
            leads = [view["pid"] for view in running if view["role"] == "leader"]
            others = [view["pid"] for view in running if view["pid"] not in leads]
            return leads + others if leads else None

        return await until(agreed, LEADER_S, "no leader")


async def _watch(nodes: Sequence[int], begin_ns: int, end_ns: int) -> list[float]:
    """CPU seconds of each node between two instants; 0 of one that has ended."""
    await _until(begin_ns)
    before = [cpu_seconds(pid) for pid in nodes]
    await _until(end_ns)
    after = [cpu_seconds(pid) for pid in nodes]
    return [late and late - early for early, late in zip(before, after, strict=True)]


def figures_of(
    shown: dict[str, dict[str, float]], nodes_cpu_s: Sequence[float], seconds: float
) -> dict[str, float]:
    """All figures of one run, from what its drivers counted; those of no meaning are left out.

    `nodes_cpu_s`: of each node, the leader's first.
    """
    consumed = shown.get("consume")
    published = next((one for role, one in shown.items() if role != "consume"), None)
    figures = {}
    if published is None and consumed is not None:  # What waited may be through before the end.
        seconds = consumed["span_s"] or seconds
    if published is not None:
        figures[PUBLISHED] = published["messages"] / seconds
        figures[CONFIRM_P50], figures[CONFIRM_P99] = published["p50_ms"], published["p99_ms"]
        figures[PAUSE] = published["pause_s"]
    if consumed is not None:
        figures[ACKED] = consumed["messages"] / seconds
        figures[END_P50], figures[END_P99] = consumed["p50_ms"], consumed["p99_ms"]
    messages = max(one["messages"] for one in shown.values())
    if messages:
        leader_s, *followers_s = nodes_cpu_s
        clients_s = sum(one["cpu_s"] for one in shown.values())
        figures[CPU] = (leader_s + sum(followers_s) + clients_s) / messages * 1e6
        figures[LEADER_CPU] = leader_s / messages * 1e6
        figures[FOLLOWER_CPU] = statistics.mean(followers_s) / messages * 1e6
        figures[CLIENT_CPU] = clients_s / messages * 1e6
    return figures


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far; 0 where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def _until(at_ns: int) -> None:
    await asyncio.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
