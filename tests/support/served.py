"""A `fifo serve` as a process of its own, on a configuration file that a test may write again.

Owns its start, its log and its end. What it is asked is the tests' business.
"""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from node.cli.folders import init
from node.config import ClusterConfig, to_toml
from tests.support.cluster import eventually

START_SECONDS = 30.0
"""Several processes may start at once, on a busy machine."""


class Served:
    """A `fifo serve` process on a file that tests write again."""

    def __init__(self, config: ClusterConfig, folder: Path, name: str = "n1") -> None:
        """Write the configuration, and start the node of this name."""
        self.config = config
        self.name = name
        self.file = folder / "cluster.toml"
        self.log = folder / f"{name}.log"
        self.me = config.node(name)
        self.address = str(self.me.client)
        self.host, self.port = self.me.client.host, self.me.client.port
        self.write(config)
        if len(config.nodes) == 1:
            init(self.file)  # One node alone begins nothing in an empty folder.
        self.start()

    def start(self) -> None:
        """Run it, with a log that begins anew."""
        command = [sys.executable, "-m", "node", "serve", "--config", str(self.file)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*command, "--node", self.name], stdout=log, stderr=log)

    def kill(self) -> None:
        """End it without a word to anybody."""
        self.process.kill()
        self.process.wait(20)

    def write(self, config: ClusterConfig) -> None:
        self.file.write_text(to_toml(config))

    async def told(self, words: str, times: int = 1) -> str:
        """Wait until the log has so many lines with these words; the last of them."""

        def look() -> str | None:
            assert self.process.poll() is None, self.log.read_text()
            lines = [line for line in self.log.read_text().splitlines() if words in line]
            return lines[-1] if len(lines) >= times else None

        return await eventually(look, within=START_SECONDS)

    def hang_up(self) -> None:
        self.process.send_signal(signal.SIGHUP)

    def shown(self) -> str:
        """The certificate that the client port shows now."""
        return ssl.get_server_certificate((self.host, self.port), timeout=10)


@asynccontextmanager
async def served(config: ClusterConfig, folder: Path) -> AsyncIterator[Served]:
    node = Served(config, folder)
    try:
        await node.told("event=leading")
        yield node
    finally:
        node.process.terminate()
        node.process.wait(20)
