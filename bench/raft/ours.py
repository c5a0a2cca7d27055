"""A member with this project's node: journal with fsync, transport, turns on an asyncio loop.

Owns what a broker owns around a `RaftNode`, and no more. Must not know queues.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import uvloop

from bench.raft.load import Load
from node.raft import (
    Journal,
    OsStorage,
    Outcome,
    RaftConfig,
    RaftEnvironment,
    RaftNode,
    TcpTransport,
    boot_clock,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from bench.raft.load import LoadSpec

CLUSTER_ID = b"fifo bench  raft"


class Member:
    """A node and its turns, coalesced."""

    def __init__(
        self,
        name: str,
        ports: dict[str, int],
        folder: Path,
        spec: LoadSpec,
        say: Callable[..., None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._spec = spec
        self._say = say
        self._load: Load | None = None
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        config = RaftConfig(
            name=name,
            peers={other: ("127.0.0.1", port) for other, port in ports.items() if other != name},
            bind=("127.0.0.1", ports[name]),
            cluster_id=CLUSTER_ID,
        )
        self._node = RaftNode(
            config,
            RaftEnvironment(
                journal=Journal.open(OsStorage(folder), cluster_id=CLUSTER_ID, node=name),
                transport=TcpTransport(config, rng=random.Random()),
                clock=boot_clock,
                rng=random.Random(),
                apply=lambda index, term, payload: None,
                before_sync=self._pump,
                wake=self._wake,
                on_role=self._on_role,
            ),
        )

    async def run(self) -> None:
        """Until the process is ended from outside."""
        await self._node.start()
        self._wake()
        await self._loop.create_future()

    def _on_role(self, role: str, term: int) -> None:
        if role == "leader":
            self._say("leader", term=term)
            self._load = Load(self._spec, self._submit, boot_clock)
            self._node.submit([b"first"], self._first)
        else:
            self._load = None

    def _first(self, outcome: Outcome, index: int) -> None:
        if outcome is Outcome.COMMITTED:
            self._say("first_commit", at=boot_clock())

    def _submit(self, payloads: Iterable[bytes], done: Callable[[bool], None]) -> None:
        def told(outcome: Outcome, _index: int) -> None:
            done(outcome is Outcome.COMMITTED)

        for payload in payloads:
            self._node.submit((payload,), told)

    def _pump(self) -> None:
        load = self._load
        if load is None:
            return
        load.pump()
        if load.over:
            self._load = None
            self._say("figures", **load.figures())

    def _wake(self) -> None:
        if not self._asked:
            self._asked = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._asked = False
        if self._timer is not None:
            self._timer.cancel()
        delay = self._node.turn()
        if not self._asked:
            self._timer = self._loop.call_later(delay, self._wake)


def run(
    name: str, ports: dict[str, int], folder: Path, spec: LoadSpec, say: Callable[..., None]
) -> None:
    """Run a member in this process; does not return."""

    async def live() -> None:
        await Member(name, ports, folder, spec, say).run()

    uvloop.run(live())
