"""The machines of a simulated cluster: a disk that stays, and node programs that come and go on it.

Owns starting, killing and pausing a real `Node`, with everything it takes from outside replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from node.peers.handshake import ListenerSide
from node.peers.transport import PeerLink
from node.raft import Inline, JournalLimits, RaftConfig, RaftError, TcpTransport, TransferRefused
from node.server import Environment, Node, NodeStopped
from tests.sim.clockwork import Program
from tests.support import raft_probe
from tests.support.simdisk import PowerCut, SimStorage

if TYPE_CHECKING:
    from tests.sim.world import World


class PeerPort(TcpTransport):
    """The peer port on the simulated network: only the listening socket is another."""

    async def start(self) -> None:
        """Listen and dial as the real one does."""
        loop = asyncio.get_running_loop()
        self._port = await loop.create_server(self._accepted, *self._config.bind)
        for name, address in self._config.peers.items():
            if name < self._config.name:
                self._tasks.append(loop.create_task(self._dial(name, address)))

    def _accepted(self) -> PeerLink:
        side = ListenerSide(self._identity, self._entropy, self._dialing_members)
        return PeerLink(self, side)

    async def close(self) -> None:
        """End in order."""
        await super().close()
        self._port.close()


class ClientPort:
    """The client port on the simulated network."""

    def __init__(self, _context: object, make: Callable[[], asyncio.Protocol]) -> None:
        self._make = make
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen as the real one does."""
        self._server = await asyncio.get_running_loop().create_server(self._make, host, port)

    def close(self) -> None:
        """Stop accepting connections."""
        if self._server is not None:
            self._server.close()


class SlowDisk:
    """Work off the event loop, as slow as the machine's disk is at the moment."""

    def __init__(self, host: Host, name: str) -> None:
        """`name` is what the thread would have."""
        self._host = host
        self._reads = name == "reads"
        assert host.program is not None
        self._chance = host.world.chance(f"{host.program.name} {name}").random
        self._loop = asyncio.get_running_loop()
        self._free_at = 0.0
        self._closed = False

    def run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """See `node.raft.Worker`: in the order of asking, and on the platter only at its end."""
        now = self._loop.time()
        seconds = self._host.sync_seconds
        if self._reads:
            seconds = max(seconds, self._host.read_seconds)
        if not seconds and self._free_at <= now:
            self._end(work, done)
            return
        self._host.world.happened(f"{'read' if self._reads else 'sync'} off the loop took time")
        took = seconds * 2 * self._chance()
        self._free_at = max(self._free_at, now) + took
        self._loop.call_at(self._free_at, self._end, work, done)

    def _end(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        if not self._closed:
            Inline().run(partial(self._host.beside_loop, work), done)

    def close(self) -> None:
        """Discard what has not ended, as if it had never begun."""
        self._closed = True


class Host:
    """A machine, and the node on it if one runs."""

    node_class: type[Node] = Node

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.storage = SimStorage(name)
        self.incarnation = 0
        self.disk_failed = False
        self.sync_seconds = 0.0
        """Mean duration of a sync; on the loop it is instantaneous, and only measured as this."""
        self.read_seconds = 0.0
        """Mean duration of a read; on the loop, which blocks the node, the exact one."""
        self._beside_loop = False
        self._measured = 0.0
        self.program: Program | None = None
        self.node: Node | None = None
        self._rate = world.rng.uniform(0.98, 1.02)
        self._offset = world.rng.uniform(0.0, 1e5)

    @property
    def alive(self) -> bool:
        """Whether a node runs here; a paused one does."""
        return self.program is not None

    @property
    def running(self) -> Node | None:
        """The node, where it runs, is not paused, and has started."""
        if self.program is None or self.program.paused:
            return None
        node = self.node
        return None if node is None or raft_probe.raft_of(node) is None else node

    def start(self) -> None:
        """Start a node on this machine's disk."""
        if self.program is not None:
            return
        self.incarnation += 1
        self.disk_failed = False
        self.read_seconds = 0.0
        self.world.network.down.pop(self.name, None)
        self.program = Program(
            self.world.loop, f"{self.name}#{self.incarnation}", self.name,
            rate=self._rate, offset=self._offset,
        )  # fmt: skip
        self.program.run(self._main(self.program))

    async def _main(self, program: Program) -> None:
        rng = self.world.chance(program.name)
        node = self.node = self.node_class(
            self.world.config,
            self.name,
            Environment(
                clock=program.clock,
                wall=program.wall,
                rng=rng,
                entropy=self.world.chance(f"{program.name} secrets").randbytes,
                worker=partial(SlowDisk, self),
                disk_clock=self._disk_clock,
                stopwatch=program.clock,
                cpu_clock=program.clock,
                listener=ClientPort,
                # So small that most bodies come from the disk, and files are dropped and compacted.
                journal_limits=JournalLimits(segment_bytes=32_768, cache_bytes=4_096),
                storage=lambda _folder: self.storage.for_process(),
                transport=partial(_peer_port, rng.randbytes),
            ),
        )
        self.world.watch(self, node)
        try:
            await node.start()
            await node.run()
        except (NodeStopped, RaftError):
            if not self.disk_failed:
                raise
            self.world.happened("node stopped by its disk")
            self.kill()
            if self.world.healed:
                self.start()

    def _disk_clock(self) -> float:
        self._measured += self.sync_seconds
        return self._measured

    def beside_loop(self, work: Callable[[], None]) -> None:
        """Do what a thread of its own does."""
        self._beside_loop = True
        try:
            work()
        finally:
            self._beside_loop = False

    def slow_reads(self, seconds: float) -> None:
        """Slow the disk's reads down to `seconds` each until the node is gone."""
        self.read_seconds = seconds
        self.storage.read_hook = self._read

    def _read(self, _name: str) -> None:
        program = self.program
        if program is not None and not self._beside_loop and not program.paused:
            self.world.happened("the loop waited for a read")
            program.pause()
            self.world.loop.after(self.read_seconds, program.resume)

    def transfer(self) -> None:
        """Ask this leader to hand over to the follower that is best placed."""
        raft = raft_probe.raft_of(self.node) if self.node is not None else None
        target = None if raft is None else raft.successor()
        if self.program is None or raft is None or target is None:
            return

        async def ask() -> None:
            with contextlib.suppress(TransferRefused):
                raft.transfer(target, lambda _reason: self.world.happened("transfer failed"))
                self.world.happened("transfer begun")

        self.program.run(ask())

    def kill(self, *, power: bool = False) -> None:
        """End the node: by a signal, or with the power and all that was not synced."""
        program, self.program, self.node = self.program, None, None
        if program is None:
            return
        self.world.network.kill(program, power=power)
        program.die()
        if power:
            self.world.network.down[self.name] = None
            self.storage.power_loss(self.world.rng)
            self._offset = self.world.rng.uniform(0.0, 1e5)
        else:
            self.storage.crash()

    def lose_power_in_turn(self, operations: int) -> None:
        """Lose power in the middle of some disk operation, a few from now."""

        def hook(operation: str, name: str) -> None:
            nonlocal operations
            operations -= 1
            if operations <= 0:
                self.kill(power=True)
                raise PowerCut(f"in {operation} of {name}")

        if self.alive:
            self.storage.hook = hook

    def fail_disk(self, operations: int, number: int) -> None:
        """Some disk operation, a few from now, and all after it fail until the node is gone."""

        def hook(operation: str, name: str) -> None:
            nonlocal operations
            operations -= 1
            if operations <= 0 and (number == errno.EIO or operation in ("write", "create")):
                self.disk_failed = True
                raise OSError(number, os.strerror(number))

        if self.alive:
            self.storage.hook = hook


def _peer_port(entropy: object, config: RaftConfig, rng: random.Random) -> TcpTransport:
    return PeerPort(config, rng=rng, entropy=entropy)  # type: ignore[arg-type]  # rng.randbytes
