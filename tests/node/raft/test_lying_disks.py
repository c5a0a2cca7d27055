"""Random power cuts of disks that lie: one acknowledges syncs and keeps nothing, beside kills,
power cuts and broken connections of all members.

What lied loses its power only while the members that saw more are up: what no member that is up can
know is no promise (raft.md 2). Then nothing that was committed is lost, and no member votes or
counts by what its disk has forgotten.
"""

from __future__ import annotations

from collections import Counter

import pytest

from node.raft.core import Core
from node.raft.node import RaftNode
from tests.support import identity_mutants as mutants
from tests.support.raft_world import SimNode, World

pytestmark = pytest.mark.slow

ACTIONS = 24
SECONDS_MAX = 1.5
"""Between two actions: about two elections."""

JUDGED_SECONDS = 5.0
"""For a member that lacks something to be found: connections and two exchanges take far less."""

SEEDS = range(8100, 8120)


def acknowledged(world: World, node: SimNode) -> int:
    """The highest entry that a leader counts this member's disk for."""
    peers = [peer for one in world.leaders if one is not node for peer in one.node.status().peers]
    return max((peer.match_index for peer in peers if peer.name == node.name), default=0)


def lose_power(world: World, node: SimNode) -> None:
    """Cut the power of a member, if it may lose what it has. One that lacks then what a leader
    counted on has to give its journal up, for that leader is up."""
    if not node.storage.lying:
        node.kill(power=True)
    elif all(each.alive and not each.recovering for each in world.nodes.values()):
        world.happened("lied")
        promised = acknowledged(world, node)
        node.lose_lies()
        assert node.journal is not None
        if not node.waiting and node.journal.log.last_index < promised:
            world.happened("lacks what it promised")
            world.run_until(lambda: not node.set_back_to_image, JUDGED_SECONDS)


def act(world: World) -> None:
    """Do one thing to one member; one disk lies at a time."""
    node = world.nodes[world.rng.choice(sorted(world.nodes))]
    liar = next((each for each in world.nodes.values() if each.storage.lying), None)
    action = world.rng.choice(("kill", "power", "break", "lie", "lie"))
    if action == "lie":
        if liar is not None:
            lose_power(world, liar)
        elif node.alive and not node.recovering:
            node.storage.lying = True
    elif action == "break":
        other = world.rng.choice(sorted(set(world.nodes) - {node.name}))
        world.network.break_link(node.name, other)
    elif node.alive:
        if action == "power":
            lose_power(world, node)
        else:
            node.kill()
        world.after(world.rng.uniform(0.1, 2.0), lambda: None if node.alive else node.start())


def run(seed: int, core: type[Core] = Core) -> Counter[str]:
    """Run one seed to its end, where all members have a voice and are level; what happened."""
    node_class = type("Node", (RaftNode,), {"core_class": core})
    world = World("abc", seed=seed, passports=True, node_class=node_class).start()
    world.run_until(lambda: not any(node.recovering for node in world.nodes.values()))
    for _ in range(ACTIONS):
        leader = next((one for one in world.leaders if one.node.is_leader), None)
        for _ in range(world.rng.randrange(4) if leader is not None else 0):
            assert leader is not None
            world.submit(leader, world.payload())
        act(world)
        world.run(world.rng.uniform(0.05, SECONDS_MAX))
    world.run(3.0)
    world.start()
    world.run(3.0)
    for node in world.nodes.values():
        node.set_back_to_image = False  # All were judged by all: what was forgotten is not missed.
    world.run_until(lambda: not any(node.recovering for node in world.nodes.values()), 30.0)
    world.commit(world.elect(), 2)
    world.run(12.0)
    world.checks.at_rest()
    return Counter(world.counts)


def test_a_disk_that_lies_loses_nothing_that_was_committed() -> None:
    happened = sum((run(seed) for seed in SEEDS), Counter[str]())
    assert happened["lied"] > happened["gave up"] > 0
    assert happened["damaged by a lie"] > 0


@pytest.mark.parametrize(
    ("core", "seed"),
    [(mutants.ForgetsAcknowledgements, 8108), (mutants.BelievesOthersOfProcesses, 8139)],
    ids=["ForgetsAcknowledgements", "BelievesOthersOfProcesses"],
)
def test_a_schedule_finds_members_that_do_not_judge(core: type[Core], seed: int) -> None:
    with pytest.raises(AssertionError, match="not so after"):
        run(seed, core)
