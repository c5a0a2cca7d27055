"""The links of a cluster, and what can be done to them: by proxies, which need no rights.

Owns `Proxied`; `namespaces.Namespaced` has the same methods on a real network of its own. Owns
`Links` too, the proxies between nodes: all of them here, and there those of far nodes. Names are
those of nodes; `CLIENTS` stands for all client programs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from bench.loopback import free_ports
from tests.jepsen.proxy import Direction, Proxy

CLIENTS = "clients"

DELAYS_S = (0.005, 0.02, 0.08)
"""Delays that a slow link adds; a jitter of the same length comes on top."""

FAR_S = 0.05
"""The delay of each direction between nodes that are far from each other: across a continent."""

LOSS = 0.1

LOOPBACK = "127.0.0.1"


class Links:
    """A proxy for each node that dials and each that is dialed: either of a pair may."""

    def __init__(
        self, rng: random.Random, *, host: str = LOOPBACK, source: str | None = None
    ) -> None:
        """They listen at `host`, and their own connections come from `source`."""
        self._rng = rng
        self._host, self._source = host, source
        self._proxies: dict[tuple[str, str], Proxy] = {}
        self._peers: dict[str, str] = {}

    async def join(self, name: str, peer: str) -> None:
        """Make those to and from a node with this peer address, or anew to one that has moved."""
        await self._stop(key for key in self._proxies if key[1] == name)
        others = [other for other in self._peers if other != name]
        self._peers[name] = peer
        for other in others:
            await self._make(other, name)
            if (name, other) not in self._proxies:
                await self._make(name, other)

    async def _make(self, dialer: str, dialed: str) -> None:
        host, port = self._peers[dialed].split(":")
        made = Proxy((host, int(port)), self._rng, host=self._host, source=self._source)
        self._proxies[(dialer, dialed)] = made
        await made.start()

    async def leave(self, name: str) -> None:
        """End those to and from a node."""
        self._peers.pop(name, None)
        await self._stop(key for key in self._proxies if name in key)

    async def _stop(self, keys: Any) -> None:
        gone = [self._proxies.pop(key) for key in list(keys)]
        await asyncio.gather(*[proxy.stop() for proxy in gone])

    async def stop(self) -> None:
        """End all."""
        await self._stop(self._proxies)

    def dials(self) -> dict[str, str]:
        """Where a node dials instead, by its name and the peer address that it would."""
        return {
            f"{dialer}>{self._peers[dialed]}": f"{proxy.host}:{proxy.port}"
            for (dialer, dialed), proxy in self._proxies.items()
        }

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing of one reaches the other any more, whichever of them has dialed."""
        for key, way in (((sender, receiver), "there"), ((receiver, sender), "back")):
            if key in self._proxies:
                getattr(self._proxies[key], way).cut = True

    def reset(self, *between: str) -> None:
        """Break the connections between two, or all."""
        for key, proxy in self._proxies.items():
            if not between or {*between} == {*key}:
                proxy.reset()

    def slow(self) -> None:
        """All take their time, each another one."""
        for proxy in self._proxies.values():
            delay_s = self._rng.choice(DELAYS_S)
            proxy.there = Direction(delay_s=delay_s, jitter_s=delay_s)
            proxy.back = Direction(delay_s=delay_s, jitter_s=delay_s)

    def far(self) -> None:
        """All nodes are far from each other."""
        for proxy in self._proxies.values():
            proxy.there, proxy.back = Direction(delay_s=FAR_S), Direction(delay_s=FAR_S)

    def lossy(self) -> None:
        """All lose packets: TCP sends them again, later."""
        for proxy in self._proxies.values():
            proxy.there, proxy.back = Direction(loss=LOSS), Direction(loss=LOSS)

    def heal(self) -> None:
        """Nothing is wrong any more."""
        for proxy in self._proxies.values():
            proxy.heal()


class Proxied:
    """All on loopback: proxies between nodes, and one in front of each client port."""

    def __init__(self, names: Sequence[str], rng: random.Random) -> None:
        self.names = list(names)
        self._rng = rng
        self._links = Links(rng)
        self._doors: dict[str, Proxy] = {}
        self._taken: set[int] = set()

    async def start(self) -> dict[str, Any]:
        """Listen; returns the addresses of the nodes for `cluster.json`."""
        return {name: await self.join(name) for name in self.names}

    def hosts(self) -> list[str]:
        """The hosts at which clients find nodes, now and later."""
        return [LOOPBACK]

    async def join(self, name: str) -> dict[str, str]:
        """Make room for a node, or for one that moves; returns its addresses."""
        if name not in self.names:
            self.names.append(name)
        before = self._doors.pop(name, None)
        if before is not None:
            await before.stop()
        client, peer, http = self._ports()
        door = self._doors[name] = Proxy((LOOPBACK, client), self._rng)
        await door.start()
        await self._links.join(name, f"{LOOPBACK}:{peer}")
        return {
            "client": f"{LOOPBACK}:{client}",
            "peer": f"{LOOPBACK}:{peer}",
            "http": f"{LOOPBACK}:{http}",
            "door": f"{LOOPBACK}:{door.port}",
        }

    def _ports(self) -> list[int]:
        """Three that are free, and of no other node, which may be down."""
        while True:
            found = free_ports(3)
            if not self._taken & {*found}:
                self._taken |= {*found}
                return found

    async def leave(self, name: str) -> None:
        """A node is gone for good."""
        self.names.remove(name)
        await self._doors.pop(name).stop()
        await self._links.leave(name)

    async def stop(self) -> None:
        """Close all."""
        await asyncio.gather(*[proxy.stop() for proxy in self._doors.values()])
        await self._links.stop()

    def dials(self) -> dict[str, str]:
        """Where nodes dial each other: `Links.dials`."""
        return self._links.dials()

    def inside(self, _name: str) -> tuple[str, ...]:
        """The prefix of a node's command: nothing here."""
        return ()

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing of one reaches the other any more."""
        if CLIENTS in (sender, receiver):
            door = self._doors[receiver if sender == CLIENTS else sender]
            (door.there if sender == CLIENTS else door.back).cut = True
        else:
            self._links.cut(sender, receiver)

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two."""
        nodes = [name for name in (one, other) if name != CLIENTS]
        if len(nodes) == 1:
            self._doors[nodes[0]].reset()
        else:
            self._links.reset(one, other)

    def slow(self) -> None:
        """All links between nodes take their time."""
        self._links.slow()

    async def far(self) -> str:
        """All nodes are far from each other; says by which means."""
        self._links.far()
        return "proxy"

    def redial(self) -> None:
        """End connections that have to go another way: none here."""

    def lossy(self) -> None:
        """Links between nodes lose packets: TCP sends them again, later."""
        self._links.lossy()

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self._links.heal()
        for door in self._doors.values():
            door.heal()
