"""The demo's upgrade: nodes of an older release, brought to this one while the flights run.

Owns what stands for the installed release of a machine, and the order of an upgrade as
docs/operating.md has it: each node restarted alone, the leader last, then the finish. Must not
know what runs meanwhile.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import fifo
from bench.cluster import observe
from bench.demo import picture
from bench.loopback import until
from bench.processes import ROOT
from tools import release

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.cluster import BenchCluster

FINISH_LIMIT_S = 30.0
"""From the last node's restart until the leader has heard from every node what it can speak."""

FINISH_EVERY_S = 0.2


class Installed:
    """The place from which nodes take their modules: what `pip install` changes on a machine."""

    def __init__(self, folder: Path, version: str) -> None:
        self._link = folder / "installed"
        folder.mkdir(parents=True, exist_ok=True)
        older = release.unpacked(release.find(version), folder / version)
        self._link.symlink_to(older, target_is_directory=True)

    @property
    def program(self) -> tuple[str, ...]:
        """The command `fifo` of whatever is installed, and of the nodes that it starts. Without
        the first variable the modules of the folder in which it is started would come first."""
        path = f"PYTHONPATH={self._link}"
        return ("env", "PYTHONSAFEPATH=1", path, sys.executable, "-m", "node")

    def renew(self) -> None:
        """Install this checkout. What runs already goes on as it is."""
        new = self._link.with_suffix(".new")
        new.symlink_to(ROOT, target_is_directory=True)
        new.replace(self._link)


async def upgrade(
    cluster: BenchCluster, installed: Installed, note: Callable[[str, str], int]
) -> float:
    """Upgrade every node and finish; the seconds that it took. `note` keeps what happened."""
    installed.renew()
    began_ms = note(picture.UPGRADING, "a new release is installed")
    leader, _ = await cluster.leader()
    for node in sorted(cluster.nodes, key=lambda one: one == leader):
        await cluster.restart(node)
        await cluster.caught_up(node)
        view = await observe(node)
        runs = "runs again" if view is None else f"runs {view['version']}"
        note(picture.UPGRADED, f"{node.name} {runs}")
    async with fifo.connect(cluster.url) as client:

        async def finish() -> int | None:
            try:
                return await client.finish_upgrade()
            except fifo.FifoError:
                return None  # The leader has not heard from each node yet.

        version = await until(
            finish, FINISH_LIMIT_S, "the upgrade could not be finished", FINISH_EVERY_S
        )
    ended_ms = note(picture.FINISHED, f"upgrade finished: version {version} is in use")
    return (ended_ms - began_ms) / 1000
