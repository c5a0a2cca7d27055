"""A simulated machine: a disk that stays, and node programs that come and go on it.

Owns starting and killing a real `Node`, with everything it takes from outside replaced. Must not
know what a test looks for.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from node.config import ClusterConfig
from node.raft import Inline, JournalLimits, RaftError, Worker
from node.server import Environment, Node, NodeStopped
from node.testing.clockwork import Program, VirtualLoop
from node.testing.disk import SimStorage
from node.testing.network import Network
from node.testing.ports import ClientPort, peer_port


class Host:
    """A machine, and the node on it if one runs."""

    node_class: type[Node] = Node
    journal_limits = JournalLimits(preallocation_bytes=0)

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        config: ClusterConfig,
        name: str,
        chance: Callable[[str], random.Random],
        *,
        rate: float = 1.0,
        offset: float = 0.0,
    ) -> None:
        """`chance` makes a source of randomness for each name; `rate` and `offset` are those of the
        machine's clock. The machine is called as the host of the node's client address."""
        self.name = name
        self.at = config.node(name).client.host
        self.storage = SimStorage(name)
        self.incarnation = 0
        self.program: Program | None = None
        self.node: Node | None = None
        self._loop = loop
        self._network = network
        self._config = config
        self._chance = chance
        self._rate = rate
        self._offset = offset

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
        return None if node is None or node.raft_status() is None else node

    def start(self) -> None:
        """Start a node on this machine's disk."""
        if self.program is not None:
            return
        self.incarnation += 1
        self._network.down.pop(self.at, None)
        self.program = Program(
            self._loop, f"{self.name}#{self.incarnation}", self.at,
            rate=self._rate, offset=self._offset,
        )  # fmt: skip
        self.program.run(self._main(self.program))

    async def _main(self, program: Program) -> None:
        try:
            self.node = await self.make(self._environment(program))
            self.made(self.node)
            await self.node.start()
            await self.node.run()
        except (NodeStopped, RaftError) as error:
            self.ended(error)

    async def make(self, environment: Environment) -> Node:
        """Make the node that is to run now."""
        return self.node_class(self._config, self.name, environment)

    def made(self, node: Node) -> None:
        """Look at a node before it starts."""

    def ended(self, error: Exception) -> None:
        """Handle the end of a node that could not go on: by default an error of the simulation."""
        raise error

    def worker(self, _name: str) -> Worker:
        """Make what does work off the event loop: here it takes no time."""
        return Inline()

    def disk_clock(self) -> float:
        """Measure syncs."""
        return 0.0

    def _environment(self, program: Program) -> Environment:
        rng = self._chance(program.name)
        return Environment(
            clock=program.clock,
            wall=program.wall,
            rng=rng,
            entropy=self._chance(f"{program.name} secrets").randbytes,
            worker=self.worker,
            disk_clock=self.disk_clock,
            stopwatch=program.clock,
            cpu_clock=program.clock,
            listener=ClientPort,
            journal_limits=self.journal_limits,
            storage=lambda _folder: self.storage.for_process(),
            audit=lambda _folder: None,
            transport=partial(peer_port, rng.randbytes),
        )

    def kill(self) -> None:
        """End the node by a signal: what it wrote stays."""
        if self._end(power=False):
            self.storage.crash()

    def lose_power(self, rng: random.Random) -> None:
        """End the node with the power, and with all that was not synced."""
        if self._end(power=True):
            self._network.down[self.at] = None
            self.storage.power_loss(rng)

    def _end(self, *, power: bool) -> bool:
        program, self.program, self.node = self.program, None, None
        if program is None:
            return False
        self._network.kill(program, power=power)
        program.die()
        return True
