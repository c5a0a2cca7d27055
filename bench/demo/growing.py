"""The demo's growth: two machines join while the flights run, as docs/operating.md has it.

Owns the files and processes of the new nodes, and the order: started to join, added, level, next.
Must not know what runs meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import fifo
from bench.cluster import FIFO
from bench.demo import picture
from bench.loopback import free_ports, until
from node.config import Address, NodeConfig, load_config, to_toml

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.cluster import BenchCluster
    from bench.processes import Household

NAMES: Final = ("n4", "n5")

JOINED_LIMIT_S: Final = 60.0
"""From the start of a node until it is level and counts, on a busy machine."""

LOOK_EVERY_S: Final = 0.1


async def grow(
    cluster: BenchCluster, household: Household, folder: Path, note: Callable[[str, str], int]
) -> float:
    """Take two more nodes in, one after the other; the seconds that it took. `note` keeps what
    happened."""
    began_ms = ended_ms = note(picture.GROWING, "two more nodes join")
    async with fifo.connect(cluster.url) as client:
        for name in NAMES:
            file = _write(cluster.file, folder / name, name, await _membership(client))
            household.start(name, *FIFO, "serve", "--config", str(file), "--node", name)
            await _taken_in(client, name)
            ended_ms = note(picture.GREW, f"{name} is a member")
    return (ended_ms - began_ms) / 1000


async def _membership(client: fifo.Client) -> dict[str, Any]:
    return dict((await client.status()).membership)


def _write(shared: Path, folder: Path, name: str, known: dict[str, Any]) -> Path:
    """Write the file of a new machine: its own section, and where the members are."""
    host, _, port = known["members"][0]["peer"].rpartition(":")
    folder.mkdir(parents=True)
    client, peer, http = (Address("127.0.0.1", port) for port in free_ports(3))
    file = folder / "cluster.toml"
    own = NodeConfig(name, client, peer, http, folder / "data")
    config = replace(load_config(shared), nodes=(own,), join=(Address(host, int(port)),), path=file)
    file.write_text(to_toml(config))
    return file


async def _taken_in(client: fifo.Client, name: str) -> None:
    """Add a node that has just been started, and wait until it counts."""

    async def waits() -> bool:
        return name in [one["name"] for one in (await _membership(client))["waiting"]]

    async def counts() -> bool:
        found = await _membership(client)
        return bool(found["committed"]) and not found["wanted"]

    await until(waits, JOINED_LIMIT_S, f"{name} does not say that it wants to join", LOOK_EVERY_S)
    await client.change_members("add", name)
    await until(counts, JOINED_LIMIT_S, f"{name} is not level", LOOK_EVERY_S)
