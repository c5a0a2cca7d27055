"""The statuses of all nodes, asked for as any observer asks, and shared by all who look.

Owns the question to each node, its pace, and the connections that stay open while someone looks.
Must not know what is shown of the answers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fifo.client import FifoError, Options, Timeout
from fifo.client.connection.in_process import environment_of
from fifo.client.connection.observing import NodeLink
from node.config import NodeConfig
from node.http import limits
from node.http.console import verdicts

if TYPE_CHECKING:
    from node.server import Node

logger = logging.getLogger("fifo.http")


class Members:
    """The statuses of the cluster's nodes, from any of them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._asked: asyncio.Task[list[dict[str, Any]]] | None = None
        self._asked_at = 0.0
        self._links: dict[str, NodeLink] = {}
        self._resting: asyncio.TimerHandle | None = None

    async def views(self, options: Options) -> list[dict[str, Any]]:
        """The view of each node, at most a second old; `options`: credentials and TLS of one who
        may see it."""
        now = time.monotonic()
        old = now - self._asked_at >= limits.LOOK_SECONDS_MIN
        if self._asked is None or (old and self._asked.done()):
            self._asked_at = now
            self._asked = asyncio.ensure_future(self._ask(options))
        return await asyncio.shield(self._asked)

    async def close(self) -> None:
        """Give up a question that is under way."""
        if self._asked is not None:
            self._asked.cancel()
            await asyncio.gather(self._asked, return_exceptions=True)
        if self._resting is not None:
            self._resting.cancel()
        self._rest()

    def _rest(self) -> None:
        """Close the connections: no one has looked for a while."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    async def _ask(self, options: Options) -> list[dict[str, Any]]:
        if self._resting is not None:
            self._resting.cancel()
        loop = asyncio.get_running_loop()
        self._resting = loop.call_later(limits.OBSERVER_IDLE_SECONDS, self._rest)
        nodes = self._node.roster.nodes
        views = await asyncio.gather(*(self._view(node, options) for node in nodes))
        for view in views:
            view["restart"] = verdicts.restart(views, view["name"])
        return views

    def _hears_leader(self) -> bool:
        """Whether this node leads, or is connected to the leader: one that cannot be asked for its
        status, for want of a certificate, say, may lead all the same."""
        raft = self._node.raft_status()
        if raft is None or raft.leader is None:
            return False
        peers = {peer.name: peer.connected for peer in raft.peers}
        return peers.get(raft.leader, raft.role == "leader")

    async def _view(self, node: NodeConfig, options: Options) -> dict[str, Any]:
        known = {"name": node.name, "client": str(node.client), "http": str(node.http)}
        if node.name == self._node.me.name:
            return {**self._node.broker.status(), **known, "hears": self._hears_leader()}
        try:
            return {**await self._status(str(node.client), options), **known}
        except (FifoError, OSError) as error:
            return {**known, "error": str(error)}

    async def _status(self, address: str, options: Options) -> dict[str, Any]:
        """The status of another node, on a connection that stays open."""
        link = self._links.pop(address, None)
        if link is not None:
            try:
                return await self._status_by(address, link)
            except Timeout:
                raise
            except FifoError as error:
                # It may have ended long ago, by a restart: another one says how things are.
                logger.debug("event=observer_lost address=%s reason=%s", address, error)
        alone = replace(options, addresses=(address,))
        environment = environment_of([address])
        link = await NodeLink.open(address, limits.OBSERVE_SECONDS, environment, alone)
        return await self._status_by(address, link)

    async def _status_by(self, address: str, link: NodeLink) -> dict[str, Any]:
        try:
            found = await link.status(limits.OBSERVE_SECONDS)
        except BaseException:
            link.close()
            raise
        self._links[address] = link
        return found
