"""Three real `fifo serve` processes, with disks of their own that can be small, and a client.

Owns starting and ending the processes, mounting a small disk (a tmpfs, as root), putting errors and
delays into the system calls of one node (strace), and filling and draining a queue. Must not assert
what a test is about.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fifo
from fifo.client import observe
from node.config import ClusterConfig, LimitSettings, cluster_config, to_toml
from tests.node.cli.local import free_base_port
from tests.support.cluster import passed

NAMES = ("n1", "n2", "n3")
SICK = "n1"
WAIT_SECONDS = 60.0
TMPFS_BYTES = 96 << 20
"""Room for one segment and some more."""


def unmountable() -> str | None:
    """Why no tmpfs can be mounted here, or None."""
    if os.geteuid() != 0:
        return "a small disk needs root"
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return None if probe.returncode == 0 else "a small disk needs the right to mount"


def untraceable() -> str | None:
    """Why no system call can be made to fail here, or None."""
    if shutil.which("strace") is None:
        return "strace is not installed: apt-get install strace"
    probe = subprocess.run(
        ["strace", "-qq", "-e", "trace=fdatasync", "true"], capture_output=True, check=False
    )
    return None if probe.returncode == 0 else "strace may trace nothing here"


@contextmanager
def small_disk(where: Path, size: int = TMPFS_BYTES) -> Iterator[None]:
    """A tmpfs for the node's data."""
    where.mkdir(parents=True)
    mounted = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(where)]
    subprocess.run(mounted, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True)


class Nodes:
    """Three `fifo serve` processes; n1 is the one that gets into trouble."""

    module = "node"
    """The program to run: fifo, or one with a mistake in it."""

    def __init__(self, config: ClusterConfig, folder: Path) -> None:
        self.config = config
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.data = config.node(SICK).data_dir
        config.path.write_text(to_toml(config)) if config.path else None

    def start(self, name: str, *flags: str, file_bytes_max: int | None = None) -> None:
        """Start one; its log is kept apart for each start."""
        command = [sys.executable, "-m", self.module, "serve", "--config", str(self.config.path)]
        command += flags
        limit = None
        if file_bytes_max is not None:
            bounds = (file_bytes_max, file_bytes_max)
            limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, bounds)
        with self.log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [*command, "--node", name], stderr=log, stdout=log, preexec_fn=limit
            )

    def start_ended(self) -> None:
        """Start those that a failed test has left ended."""
        for name, process in list(self.processes.items()):
            if process.poll() is not None:
                self.start(name)

    def kill(self, name: str) -> None:
        """End one with SIGKILL."""
        self.processes[name].kill()
        self.processes[name].wait(WAIT_SECONDS)

    def log(self, name: str) -> Path:
        """Output of a node since its last start."""
        return self.folder / f"{name}.log"

    async def said(self, name: str, what: str) -> None:
        """Wait until the output contains `what`."""
        async with asyncio.timeout(WAIT_SECONDS):
            while what not in self.log(name).read_text():
                await passed(0.02)

    async def ended(self, name: str) -> str:
        """Wait until the process ends on its own; returns its last line."""
        process = self.processes[name]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_SECONDS
        while (code := process.poll()) is None:
            assert loop.time() < deadline, self.log(name).read_text()
            await passed(0.02)
        assert code == 1, self.log(name).read_text()
        text = self.log(name).read_text()
        assert "Traceback" not in text
        return text.splitlines()[-1]

    @contextmanager
    def injected(self, call: str, what: str, name: str = SICK) -> Iterator[None]:
        """From now on each such system call of a node fails, or takes longer."""
        tracer = subprocess.Popen(
            [
                *("strace", "-f", "-qq", "-p", str(self.processes[name].pid)),
                *("-e", f"trace={call}", "-e", f"inject={call}:{what}", "-o", os.devnull),
            ],
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.wait(WAIT_SECONDS)

    async def status(self, name: str) -> dict[str, Any] | None:
        """Status of a node; None while it does not answer."""
        try:
            return await observe(str(self.config.node(name).client), timeout=2.0)
        except fifo.FifoError:
            return None

    async def until_level(self) -> None:
        """Wait until all three have applied the same."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                found = [await self.status(name) for name in NAMES]
                if all(found) and len({one["applied"] for one in found if one}) == 1:
                    return
                await passed(0.05)

    def stop(self) -> None:
        """End them all."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(WAIT_SECONDS)


@contextmanager
def three(folder: Path, limits: LimitSettings | None = None) -> Iterator[Nodes]:
    """Three nodes, stopped in the end; by default their low mark is as low as it may be."""
    made = cluster_config(3, free_base_port(), folder)
    limits = limits or LimitSettings(disk_low_bytes=64 << 20)
    nodes = Nodes(replace(made, limits=limits), folder)
    for name in NAMES:
        nodes.start(name)
    try:
        yield nodes
    finally:
        nodes.stop()


@asynccontextmanager
async def led_by_n1(nodes: Nodes) -> AsyncIterator[fifo.Client]:
    """A client, and n1 leads; in the end all has to be level and complete."""
    async with fifo.connect(nodes.config.url, timeout=WAIT_SECONDS, connect_timeout=60) as client:
        await client.declare(fifo.QueueSpec("orders"))
        await client.transfer_leadership(SICK)
        yield client
        await nodes.until_level()


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[Nodes, fifo.Client]]:
    """Three nodes led by n1, and a client."""
    with three(folder) as nodes:
        async with led_by_n1(nodes) as client:
            yield nodes, client


async def publish(client: fifo.Client, count: int = 20, size: int = 10_000) -> list[bytes]:
    """So many messages, confirmed."""
    bodies = [b"%d " % n + os.urandom(4).hex().encode() * (size // 8) for n in range(count)]
    await client.publish_many("orders", bodies)
    return bodies


async def consumed(client: fifo.Client, count: int) -> list[bytes]:
    """Everything in the queue."""
    found: list[bytes] = []
    async with asyncio.timeout(WAIT_SECONDS), client.consume("orders", prefetch=500) as messages:
        async for message in messages:
            found.append(message.body)
            await message.ack()
            if len(found) == count:
                return found
    raise AssertionError("the consumer ended")


ROOM_AGAIN_SECONDS = 30.0
"""An emptied queue takes messages again within this."""


async def until_refused(client: fifo.Client) -> str:
    """Publish until a node refuses; returns the refusal."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                await client.publish_many("orders", [bytes(500_000)] * 10, timeout=1.0)
            except fifo.Overloaded as refused:
                return str(refused)


async def drained(client: fifo.Client) -> None:
    """Settle all there is."""
    async with asyncio.timeout(WAIT_SECONDS):
        while messages := await client.get("orders", 50):
            await asyncio.gather(*(message.ack() for message in messages))
