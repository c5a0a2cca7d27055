"""The links of a cluster, and what can be done to them: by proxies, which need no rights.

Owns `Proxied`; `namespaces.Namespaced` has the same methods on a real network of its own. Names are
those of nodes; `CLIENTS` stands for all client programs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from tests.jepsen.proxy import Direction, Proxy
from tests.support.cluster import free_ports

CLIENTS = "clients"

DELAYS_S = (0.005, 0.02, 0.08)
"""Delays that a slow link adds; a jitter of the same length comes on top."""

FAR_S = 0.05
"""The delay of each direction between nodes that are far from each other: across a continent."""

LOSS = 0.1


class Proxied:
    """All on loopback: a proxy for each pair of nodes, and one in front of each client port."""

    def __init__(self, names: Sequence[str], rng: random.Random) -> None:
        self.names = list(names)
        self._rng = rng
        self._links: dict[tuple[str, str], Proxy] = {}
        self._doors: dict[str, Proxy] = {}

    async def start(self) -> dict[str, Any]:
        """Listen; returns the addresses for `cluster.json`: nodes and dials."""
        ports = iter(free_ports(3 * len(self.names)))
        nodes = {}
        for name in self.names:
            client, peer, http = (next(ports) for _ in range(3))
            door = self._doors[name] = Proxy(("127.0.0.1", client), self._rng)
            await door.start()
            nodes[name] = {
                "client": f"127.0.0.1:{client}",
                "peer": f"127.0.0.1:{peer}",
                "http": f"127.0.0.1:{http}",
                "door": f"127.0.0.1:{door.port}",
            }
        dials = {}
        for place, name in enumerate(self.names):
            for elder in self.names[:place]:  # The younger of two dials: one connection per pair.
                host, port = nodes[elder]["peer"].split(":")
                link = self._links[(name, elder)] = Proxy((host, int(port)), self._rng)
                await link.start()
                dials[f"{name}>{elder}"] = f"127.0.0.1:{link.port}"
        return {"nodes": nodes, "dials": dials}

    async def stop(self) -> None:
        """Close all."""
        await asyncio.gather(*[proxy.stop() for proxy in self._proxies()])

    def inside(self, _name: str) -> tuple[str, ...]:
        """The prefix of a node's command: nothing here."""
        return ()

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing of one reaches the other any more."""
        if CLIENTS in (sender, receiver):
            door = self._doors[receiver if sender == CLIENTS else sender]
            (door.there if sender == CLIENTS else door.back).cut = True
            return
        younger, elder = sorted((sender, receiver), reverse=True)
        link = self._links[(younger, elder)]
        (link.there if sender == younger else link.back).cut = True

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two."""
        nodes = [name for name in (one, other) if name != CLIENTS]
        if len(nodes) == 1:
            self._doors[nodes[0]].reset()
        else:
            younger, elder = sorted(nodes, reverse=True)
            self._links[(younger, elder)].reset()

    def slow(self) -> None:
        """All links between nodes take their time."""
        for link in self._links.values():
            delay_s = self._rng.choice(DELAYS_S)
            link.there = Direction(delay_s=delay_s, jitter_s=delay_s)
            link.back = Direction(delay_s=delay_s, jitter_s=delay_s)

    def far(self) -> None:
        """All nodes are far from each other."""
        for link in self._links.values():
            link.there, link.back = Direction(delay_s=FAR_S), Direction(delay_s=FAR_S)

    def lossy(self) -> None:
        """Links between nodes lose packets: TCP sends them again, later."""
        for link in self._links.values():
            link.there, link.back = Direction(loss=LOSS), Direction(loss=LOSS)

    def heal(self) -> None:
        """Nothing is wrong any more."""
        for proxy in self._proxies():
            proxy.heal()

    def _proxies(self) -> list[Proxy]:
        return [*self._links.values(), *self._doors.values()]
