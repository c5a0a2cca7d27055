"""The machines of a simulated cluster: a disk that stays, and node programs that come and go on it.

Owns starting, killing and pausing a real `Node`, with everything it takes from outside replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from node.broker.joining import Joining
from node.raft import Inline, JournalLimits, TransferRefused
from node.server import Environment, Node, NodeStopped, identity_of
from node.table import ConfigError
from node.testing import hosts
from node.testing.disk import PowerCut
from tests.support import raft_probe

if TYPE_CHECKING:
    from node.config import ClusterConfig
    from tests.sim.world import World


START_AGAIN_SECONDS = 0.5
"""For an operator to read why a process did not start."""

JOURNAL_LIMITS = JournalLimits(segment_bytes=32_768, cache_bytes=4_096)
"""So small that most bodies come from the disk, and files are dropped and compacted."""

ON_SMALL_DISKS = replace(JOURNAL_LIMITS, preallocation_bytes=1_024, reserve_bytes=1_024)
"""Where disks get small: a run that writes little needs room for that, and has some in reserve."""

NO_ROOM = "no room"
"""Said by each error of a full disk."""


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


class Host(hosts.Host):
    """A machine of a world, and the node on it if one runs."""

    journal_limits = JOURNAL_LIMITS

    def __init__(self, world: World, name: str, config: ClusterConfig | None = None) -> None:
        """`config`: what the file of this machine says, where that is not what all others say."""
        self.world = world
        super().__init__(
            world.loop, world.network, world.config if config is None else config, name,
            world.chance,
            rate=world.rng.uniform(0.98, 1.02), offset=world.rng.uniform(0.0, 1e5),
        )  # fmt: skip
        self._before = self._config
        if any(fault.kind == "disk_small" for fault in world.plan.faults):
            self.journal_limits = ON_SMALL_DISKS
        self.recovers = False
        """Whether its operator starts it with --recover next."""
        self.disk_failed = False
        self.disk_was_small = False
        """Whether something has filled the disk under the node that runs."""
        self.sync_seconds = 0.0
        """Mean duration of a sync; on the loop it is instantaneous, and only measured as this."""
        self.read_seconds = 0.0
        """Mean duration of a read; on the loop, which blocks the node, the exact one."""
        self._beside_loop = False
        self._measured = 0.0

    def start(self) -> None:
        """Start a node on this machine's disk."""
        if self.program is None:
            self.disk_failed = False
            self.disk_was_small = self.storage.capacity_bytes is not None
            self.read_seconds = 0.0
        super().start()

    @property
    def config(self) -> ClusterConfig:
        """The content of the file of this machine."""
        return self._config

    def rewrite(self, config: ClusterConfig) -> None:
        """Have the file of this machine say something else: its next start reads that."""
        self._before, self._config = self._config, config

    async def make(self, environment: Environment) -> Node:
        """See `hosts.Host`; one that joins asks first who the members are, as `fifo serve` does."""
        joins = bool(self._config.join)
        config = await self._found(environment) if joins else self._config
        recover, self.recovers = self.recovers, False
        return Node(config, self.name, environment, recover=recover, joins=joins)

    async def _found(self, environment: Environment) -> ClusterConfig:
        """The members. A node whose file names another address than they know is refused where its
        folder is empty: its operator puts the address back, and moves it later."""
        while True:
            config, storage = self._config, self.storage.for_process()
            port = environment.transport(identity_of(config, self.name), environment.rng)
            try:
                return await Joining(config, config.node(self.name), port).found(storage)
            except ConfigError as error:
                self.world.happened("start refused")
                self.world.note(f"{self.name} does not start: {error}")
                self.rewrite(self._before)
                await asyncio.sleep(START_AGAIN_SECONDS)

    def made(self, node: Node) -> None:
        """See `World.watch`."""
        self.world.watch(self, node)

    def ended(self, error: Exception) -> None:
        """A failed disk may end a node; it starts again once all is healed. One that gave its
        journal up starts at once, as `fifo serve` does."""
        if isinstance(error, NodeStopped) and error.recovers:
            self.world.happened("gave its journal up")
            self.kill()
            self.start()
            return
        if self.world.disks.ended(self, error):
            return
        full = self.disk_was_small and NO_ROOM in str(error)
        if not self.disk_failed and not full:
            raise error
        self.world.happened(f"node stopped by its {'full ' if full else ''}disk")
        self.kill()
        if self.world.healed:
            self.start()
        elif full:
            self.world.loop.after(START_AGAIN_SECONDS, self.start)

    def worker(self, name: str) -> SlowDisk:
        """See `SlowDisk`."""
        return SlowDisk(self, name)

    def disk_clock(self) -> float:
        """Measure syncs, which take what the disk takes."""
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

    def kill(self) -> None:
        """See `hosts.Host`."""
        with self._judged():
            super().kill()

    def lose_power(self, rng: random.Random) -> None:
        """See `hosts.Host`; its clock begins anew."""
        if self.alive:
            with self._judged():
                super().lose_power(rng)
            self._offset = rng.uniform(0.0, 1e5)

    @contextlib.contextmanager
    def _judged(self) -> Iterator[None]:
        """Where something filled the disk, and nothing else is wrong with it: what the node that
        ends took for durable is there."""
        raft = None if self.node is None else raft_probe.raft_of(self.node)
        judged = (
            raft is not None and self.disk_was_small and self.name not in self.world.disks.frail
        )
        end = raft_probe.synced_end(raft) if raft is not None and judged else 0
        yield
        if judged:
            self.world.checks.keeps(self, end)

    def lose_power_in_turn(self, operations: int) -> None:
        """Lose power in the middle of some disk operation, a few from now."""

        def hook(operation: str, name: str) -> None:
            nonlocal operations
            operations -= 1
            if operations <= 0:
                self.lose_power(self.world.rng)
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
