"""An operator of a simulated cluster: adds, removes, replaces and moves members, and gives up.

Owns what an operator does, in what order, and on which machines; all of it by the public client and
by starting machines, as `fifo member` and `fifo serve --join` do. Must not know how a change is
made. One wish at a time: what is asked for meanwhile is dropped.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fifo
from node.config import Address, ClusterConfig, NodeConfig
from node.raft import Configuration
from tests.support import raft_probe

if TYPE_CHECKING:
    from tests.sim.workload import Programs
    from tests.sim.world import World

NAME = "op"
"""Of the operator's program, and of its machine."""

VOTERS_MOST = 5
MACHINES_MOST = 9

ASKED_MOST = 12
ASK_AGAIN_SECONDS = 0.4
"""An operator that is refused looks why, and asks again until it has had enough."""


def address_of(name: str, place: int) -> NodeConfig:
    """A machine is called as its node is; `place` makes the ports of another home of it."""
    client, peer, http = (Address(name, 7101 + 10 * place + port) for port in range(3))
    return NodeConfig(name, client, peer, http, Path("simulated") / name)


class Operator:
    """The operator of one world. `act` begins what a fault asks for."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._busy = False
        self._moves: dict[str, int] = {}
        self._connect: Callable[[], Awaitable[fifo.Client]]
        self._client: fifo.Client | None = None
        self.rng = world.chance("operator")

    # --- the program ---

    def start(self, programs: Programs) -> None:
        """Have a program to work with."""

        async def main(name: str, rng: random.Random) -> None:
            self._connect = lambda: programs.connect(name, rng)

        programs.start(NAME, main)

    @property
    def busy(self) -> bool:
        """Whether a wish is not fulfilled yet, nor given up."""
        return self._busy

    def act(self, kind: str, name: str) -> None:
        """Begin with a wish about the members, where there is none under way; `name` is of the
        member that it is about, where that is one."""
        program = self._world.programs[NAME]
        if self._busy or self._world.healed:
            self._world.happened("wish dropped")
            return
        work = getattr(self, kind)
        self._busy = True

        async def whole() -> None:
            try:
                await work(name)
            finally:
                self._busy = False

        program.run(whole())

    # --- wishes ---

    async def member_add(self, _name: str) -> None:
        """A new machine becomes a member."""
        if len(self._voters()) < VOTERS_MOST and (new := self._join()) is not None:
            await self._ask("add", new)

    async def member_remove(self, name: str) -> None:
        """A member goes for good; its machine stays and runs."""
        found = self._one_of(name)
        if found is not None and len(self._voters()) > 1:
            await self._ask("remove", found)

    async def member_replace(self, name: str, *, dead: bool = False) -> None:
        """A new machine takes the place of a member, which may have died."""
        found, new = self._one_of(name), self._join()
        if found is None or new is None:
            return
        if dead:
            self._world.hosts[found].kill()
        await self._ask("replace", new, replaces=found)

    async def member_replace_dead(self, name: str) -> None:
        """A member that has died takes no part any more; another machine comes in its place."""
        found = self._one_of(name)
        if found is not None and found not in self._world.disks.frail and len(self._voters()) > 2:
            await self.member_replace(found, dead=True)

    async def member_remove_leader(self, _name: str) -> None:
        """The one that leads goes."""
        leader = self._world.leader()
        await self.member_remove("" if leader is None else leader.name)

    async def member_replace_leader(self, _name: str) -> None:
        """The one that leads is replaced."""
        leader = self._world.leader()
        await self.member_replace("" if leader is None else leader.name)

    async def member_undo(self, _name: str) -> None:
        """Whatever is under way is given up."""
        await self._ask("undo")

    async def member_move(self, name: str) -> None:
        """A member goes to other addresses: it stops, its file changes, the others are notified."""
        found = self._one_of(name)
        if found is None or found in self._world.disks.frail or len(self._voters()) == 1:
            return  # Clients of a node alone know no other address.
        host = self._world.hosts[found]
        before = host.config
        place = self._moves[found] = self._moves.get(found, 0) + 1
        me = address_of(found, place)
        others = [one for one in before.nodes if one.name != found]
        host.kill()
        host.rewrite(replace(before, nodes=(me, *others)))
        addresses = {"peer": str(me.peer), "client": str(me.client), "http": str(me.http)}
        if not await self._ask("move", found, **addresses):
            host.rewrite(before)
        if not host.alive:
            host.start()

    # --- how ---

    def _configuration(self) -> Configuration | None:
        raft = self._world.leading()
        return None if raft is None else raft.configuration

    def _voters(self) -> list[str]:
        found = self._configuration()
        return [] if found is None else [one.name for one in found.voters]

    def _one_of(self, name: str) -> str | None:
        """This voter, or any where it is none."""
        voters = self._voters()
        if name in voters or not voters:
            return name if voters else None
        return self.rng.choice(voters)

    def _join(self) -> str | None:
        """A machine that waits to join; None where there are enough machines."""
        world = self._world
        known = self._configuration()
        if known is None or len(world.hosts) >= MACHINES_MOST:
            return None
        name = f"n{len(world.hosts) + 1}"
        at = [one.address for one in known.members]
        self.rng.shuffle(at)
        host = world.add_host(name, joining(world.config, name, [Address(*one) for one in at]))
        host.start()
        world.happened("machine joined")
        return name

    async def _ask(self, action: Any, member: str | None = None, **more: Any) -> bool:
        """Ask until it is begun, or is of no use any more."""
        world = self._world
        for _ in range(ASKED_MOST):
            if self._client is None:
                self._client = await self._connect()
            try:
                await self._client.change_members(action, member, **more)
            except fifo.InvalidArgument as refused:
                world.happened(f"{action} refused")
                world.note(f"operator: {refused}")
                if "no change of the members is under way" in str(refused):
                    return False
                if f"{member!r} is a member already" in str(refused):
                    return True  # It was begun before the answer was lost.
            except fifo.FifoError as error:  # What is typed next is another process.
                world.happened(f"{action} {type(error).__name__}")
                left, self._client = self._client, None
                await left.close()
            else:
                world.happened(f"member {action}")
                return True
            await asyncio.sleep(ASK_AGAIN_SECONDS * (0.5 + self.rng.random()))
        return False

    # --- the end ---

    def settled(self) -> bool:
        """Whether no wish is open and no change under way, and all members have a voice."""
        raft = self._world.leading()
        if self._busy or raft is None or raft.configuration.wanted:
            return False
        return raft.configuration_committed and not any(map(self._has_no_voice, self._voters()))

    def _has_no_voice(self, name: str) -> bool:
        host = self._world.hosts[name]
        if host.name == self._world.sick:
            return False
        raft = None if host.running is None else raft_probe.raft_of(host.running)
        return raft is None or raft.waits_for() is not None


def joining(config: ClusterConfig, name: str, at: list[Address]) -> ClusterConfig:
    """The file of a machine that joins: it names itself, and where to ask."""
    return replace(config, nodes=(address_of(name, 0),), join=tuple(at))
