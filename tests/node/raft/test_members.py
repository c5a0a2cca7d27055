"""Members that change while the cluster runs: learners, steps, hand-over, tombstones (raft.md 5).

A scenario takes the class of node to run, so that each rule can be taken out and seen to matter.
"""

from __future__ import annotations

import pytest

from node.raft.configuration import Change, Configuration, Member
from node.raft.node import RaftNode
from tests.node.raft.scenarios import Rule
from tests.support.raft_world import SimNode, World

NodeClass = type[RaftNode]

pytestmark = pytest.mark.slow


def make(seed: int, node_class: NodeClass = RaftNode, names: str = "abc", **more: int) -> World:
    """A world whose journals have an identity, with all members up, which have begun."""
    world = World(names, seed=seed, node_class=node_class, passports=True, **more).start()
    world.run_until(lambda: not any(node.recovering for node in world.nodes.values()), 5.0)
    return world


def as_member(node: SimNode) -> Member:
    """What an operator says of a machine that waits to join."""
    assert node.journal is not None
    assert node.journal.passport is not None
    address = ("127.0.0.1", 1000 + ord(node.name))
    return Member(node.name, address, "", "", node.journal.passport.journal)


def joining(world: World, *names: str) -> tuple[Member, ...]:
    """New machines, pointed at all members."""
    peers = [node.name for node in world.members()]
    return tuple(as_member(world.join(name, peers)) for name in names)


def newest(world: World) -> Configuration:
    return world.leaders[0].node.configuration


def ended(world: World) -> bool:
    leading = [node.node for node in world.leaders if node.node.is_leader]
    if not leading:
        return False
    return not leading[0].configuration.wanted and leading[0].configuration_committed


def voters(world: World) -> str:
    return "".join(sorted(voter.name for voter in newest(world).voters))


def finish(world: World, wanted: str, seconds: float = 20.0) -> None:
    """Wait for the end of a change, and look whether all is well."""
    world.run_until(lambda: ended(world), seconds)
    assert voters(world) == wanted
    world.commit(world.leaders[0], 3)
    world.run(2.0)
    world.checks.at_rest()


def one_grows_to_three(node_class: NodeClass = RaftNode) -> None:
    world = make(1, node_class, "a")
    leader = world.elect("a")
    world.commit(leader, 5)
    leader.node.change_members(Change(joining(world, "b", "c")))
    finish(world, "abc")


RULES: list[Rule] = []


def test_one_grows_to_three() -> None:
    one_grows_to_three()
