"""Resources and counters of the processes of a cluster's nodes.

Owns reading the system's figures of a process and a node's page of metrics. Knows no workload.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.cluster import BenchCluster

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Nodes:
    """The processes of a cluster's nodes, leader first."""

    def __init__(self, cluster: BenchCluster) -> None:
        views = sorted(cluster.views(), key=lambda view: view["role"] != "leader")
        self._pids = [int(view["pid"]) for view in views]
        self.client: str = views[0]["client"]
        self._http: str = views[0]["http"]

    def signal_leader(self, number: int) -> None:
        """Send a signal to the leader."""
        os.kill(self._pids[0], number)

    def cpu_seconds(self) -> list[float]:
        """CPU time of each node so far, all its threads, to the nanosecond."""
        return [time.clock_gettime(_cpu_clock(pid)) for pid in self._pids]

    async def busy(self, seconds: float) -> list[float]:
        """CPU of each node as a part of one core, over this time."""
        before = self.cpu_seconds()
        began = time.monotonic()
        await asyncio.sleep(seconds)
        lasted = time.monotonic() - began
        return [(now - at) / lasted for now, at in zip(self.cpu_seconds(), before, strict=True)]

    def memory_mib(self) -> list[float]:
        """Resident memory of each node."""
        return [
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / (1 << 20)
            for pid in self._pids
        ]

    def grown_mib(self, before: Sequence[float]) -> list[float]:
        """The difference from an earlier state."""
        return [now - then for now, then in zip(self.memory_mib(), before, strict=True)]

    async def metrics(self) -> str:
        """The leader's page of metrics."""

        def fetch() -> str:
            with urllib.request.urlopen(f"http://{self._http}/metrics", timeout=30) as answer:
                return str(answer.read().decode())

        return await asyncio.to_thread(fetch)

    async def metric(self, name: str) -> float:
        """A figure of it."""
        found = re.search(rf"^{name} (\S+)$", await self.metrics(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    async def longest_ms(self) -> dict[str, float]:
        """The leader's longest work in one go of the last minutes, CPU time by kind."""
        pattern = r'^fifo_loop_longest_seconds\{kind="(\w+)"\} (\S+)$'
        found = re.findall(pattern, await self.metrics(), re.MULTILINE)
        return {kind: 1000 * float(seconds) for kind, seconds in found}


def _cpu_clock(pid: int) -> int:
    """The clock of another process's CPU time, as Linux numbers it (`clock_getcpuclockid`)."""
    return (~pid << 3) | 2
