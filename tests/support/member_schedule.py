"""Random changes of the members, beside kills, power cuts, cuts, broken connections and lost disks.

Owns what may happen to members, and what a seed decides of it. Members are added, removed, replaced
and moved, and changes are given up, by whichever node leads; disks are wiped where no other member
recovers, and snapshots come every few entries. No run may break a check of the world, and in the
end the change that was under way has ended, or is given up. Used by the tests of node/raft and,
without end, by `python -m tests.node.raft --members`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from node.raft.configuration import Change, ChangeRefused, Member
from node.raft.node import RaftNode
from tests.support.raft_world import World

if TYPE_CHECKING:
    from tests.support.raft_world import SimNode

ACTIONS = 45
SECONDS_MAX = 1.2
"""Between two actions: about two elections."""

NAMES = "abcdefghijklmnopqrstuvwxyz"
VOTERS_MOST = 5

WAYS = {
    "change": 10,
    "undo": 1,
    "move": 1,
    "kill": 3,
    "power": 3,
    "break": 3,
    "cut": 3,
    "isolate": 2,
    "heal": 3,
    "transfer": 2,
    "wipe": 2,
}


def as_member(node: SimNode) -> Member:
    """The words of an operator on a machine that waits to join."""
    assert node.journal is not None
    assert node.journal.passport is not None
    address = ("127.0.0.1", 1000 + ord(node.name))
    return Member(node.name, address, "", "", node.journal.passport.journal)


def leading(world: World) -> SimNode | None:
    """The node that leads, if there is one."""
    return next((node for node in world.leaders if node.node.is_leader), None)


class Run:
    """The run of a seed: its world, and the machines that are there for it."""

    def __init__(self, seed: int, node_class: type[RaftNode]) -> None:
        names = ("a", "abc", "abc", "abcde")[seed % 4]
        self.world = World(
            names,
            seed=seed,
            passports=True,
            node_class=node_class,
            drifting=True,
            snapshot_bytes=(2_500, 9_000, 1 << 30)[seed % 3],
            snapshot_chunk_bytes=700,
        )
        self.rng = self.world.rng

    def without_voice(self) -> list[str]:
        """The members that have lost their journal, and those that wait to join."""
        return [node.name for node in self.world.nodes.values() if node.recovering]

    def voters(self, leader: SimNode) -> list[str]:
        return [voter.name for voter in leader.node.configuration.voters]

    # --- what may happen ---

    def act(self) -> None:
        """Do one thing."""
        world, rng = self.world, self.rng
        way = rng.choices(list(WAYS), list(WAYS.values()))[0]
        leader = leading(world)
        node = world.nodes[rng.choice(sorted(world.nodes))]
        if way in ("change", "undo", "move", "transfer"):
            if leader is not None and leader.runs:
                self.ask(way, leader)
        elif way == "wipe":
            self.wipe(node)
        elif way == "heal":
            world.network.heal()
        elif way == "isolate":
            if leader is not None:
                world.network.isolate(leader.name)
                world.after(rng.uniform(0.5, 3.0), world.network.heal)
        elif way in ("break", "cut"):
            others = sorted(set(world.nodes) - {node.name})
            if others:
                self.between(way, node.name, rng.choice(others))
        elif node.alive:
            node.kill(power=way == "power")
            world.after(rng.uniform(0.1, 2.5), lambda: None if node.alive else node.start())

    def between(self, way: str, one: str, other: str) -> None:
        network = self.world.network
        if way == "break":
            network.break_link(one, other)
            return
        network.stop(one, other)
        if self.rng.random() < 0.5:
            network.stop(other, one)

    def ask(self, way: str, leader: SimNode) -> None:
        """Ask the leader for a change, as an operator would."""
        voters = self.voters(leader)
        name = self.rng.choice(voters)
        try:
            if way == "change":
                leader.node.change_members(self.change(voters))
            elif way == "undo":
                leader.node.undo_change()
            elif way == "move":
                port = self.rng.randrange(5000, 9000)
                leader.node.move_member(name, ("127.0.0.1", port), "c", "h")
            else:
                leader.node.transfer(name, lambda _: None)
        except (ChangeRefused, RuntimeError):
            self.world.happened(f"{way} refused")
        except Exception as error:
            if type(error).__name__ != "TransferRefused":
                raise
        else:
            self.world.happened(way)

    def change(self, voters: list[str]) -> Change:
        """Return a change to one to five voters."""
        rng = self.rng
        removes = rng.sample(voters, rng.choice((0, 0, 1, 1, 2, len(voters))) % (len(voters) + 1))
        left = len(voters) - len(removes)
        least = 1 if left == 0 else 0
        adds = rng.randint(least, max(least, min(2, VOTERS_MOST - left)))
        return Change(tuple(self.joining(adds)), tuple(removes))

    def joining(self, count: int) -> list[Member]:
        """New machines, or such as wait already."""
        world = self.world
        known = {one.name for node in world.leaders[:1] for one in node.node.configuration.members}
        gone = {one.name for node in world.leaders[:1] for one in node.node.configuration.removed}
        idle = [
            node
            for node in world.nodes.values()
            if node.alive and node.config.joins and node.name not in known | gone
        ]
        while len(idle) < count and len(world.nodes) < len(NAMES):
            peers = sorted(known) or sorted(world.nodes)
            idle.append(world.join(NAMES[len(world.nodes)], peers))
        self.rng.shuffle(idle)
        return [as_member(node) for node in idle[:count]]

    def wipe(self, node: SimNode) -> None:
        """Take the journal of a member away where the others are whole, and more than one."""
        leader = leading(self.world)
        if leader is None or node.recovering or not node.alive:
            return
        configuration = leader.node.configuration
        names = self.voters(leader)
        others = [self.world.nodes[name] for name in names if name != node.name]
        whole = all(other.alive and not other.recovering for other in others)
        if node.name in names and len(names) > 2 and whole and not configuration.wanted:
            self.world.happened("wipe")
            if not node.config.joins:  # Its operator has its file name the others of today.
                peers = dict.fromkeys((one.name for one in others), ("127.0.0.1", 1))
                node.config = replace(node.config, peers=peers)
            node.wipe()
            node.start()

    # --- the run ---

    def run(self) -> Counter[str]:
        """Run it to its end; what happened."""
        world = self.world.start()
        world.run_until(lambda: not any(self.without_voice()))
        for _ in range(ACTIONS):
            leader = leading(world)
            if leader is not None and leader.runs:
                for _ in range(self.rng.randrange(4)):
                    world.submit(leader, world.payload(self.rng.choice((1, 20, 300, 1500))))
            self.act()
            world.run(self.rng.uniform(0.02, SECONDS_MAX))
        self.settle()
        return Counter(world.counts)

    def settle(self) -> None:
        """Heal everything: the change ends, or what is left of it is given up."""
        world = self.world
        for _ in range(3):
            world.network.heal()
            for node in world.nodes.values():
                if not node.alive:
                    node.start()
            world.run(4.0)
        world.run_until(lambda: self.settled_or_undone(), 60.0)
        leader = leading(world)
        assert leader is not None
        world.happened(f"voters {len(self.voters(leader))}")
        world.commit(leader, 3)
        world.run_until(world.converged, 20.0)
        world.checks.at_rest()

    def settled_or_undone(self) -> bool:
        leader = leading(self.world)
        if leader is None or not leader.node.configuration_committed:
            return False
        configuration = leader.node.configuration
        if configuration.wanted:
            waits = leader.node.change_progress()
            if waits is not None and "to be level" in waits.waits_for and self.rng.random() < 0.01:
                leader.node.undo_change()
            return False
        return not any(self.world.nodes[one.name].recovering for one in configuration.members)


def run(seed: int, node_class: type[RaftNode] = RaftNode) -> Counter[str]:
    """Run one seed; what happened."""
    return Run(seed, node_class).run()
