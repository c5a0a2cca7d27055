"""Random disks that are lost, copied or set back, beside kills, power cuts and broken connections.

A disk changes where no other member recovers, and is set back only while the members that saw more
are up: what no member that is up can know is no promise (raft.md 2).
"""

from __future__ import annotations

import pytest

from node.testing.disk import Image
from tests.support.raft_world import SimNode, World

pytestmark = pytest.mark.slow

ACTIONS = 24
SECONDS_MAX = 1.5
"""Between two actions: about two elections."""


def change_disk(world: World, node: SimNode, images: dict[str, Image]) -> None:
    """Take the journal of a member away, in one of the ways that operators have."""
    way = world.rng.choice(("wipe", "copy", "image", "image"))
    world.happened(way)
    if way == "wipe":
        node.wipe()
    elif way == "copy":
        node.set_back(node.storage.image(), copied=True)
    else:
        node.set_back(images.pop(node.name))
    images.pop(node.name, None)
    node.start()


def act(world: World, images: dict[str, Image]) -> None:
    """Do one thing to one member."""
    node = world.nodes[world.rng.choice(sorted(world.nodes))]
    action = world.rng.choice(("kill", "power", "break", "image", "disk", "disk"))
    if action == "disk":
        quiet = all(each.alive and not each.recovering for each in world.nodes.values())
        if quiet and node.name in images:
            change_disk(world, node, images)
    elif action == "image":
        if not node.recovering:
            images[node.name] = node.storage.image()
    elif action == "break":
        other = world.rng.choice(sorted(set(world.nodes) - {node.name}))
        world.network.break_link(node.name, other)
    elif node.alive:
        node.kill(power=action == "power")
        world.after(world.rng.uniform(0.1, 2.0), lambda: None if node.alive else node.start())


def run(seed: int) -> World:
    """Run one seed to its end, where all members have a voice and are level."""
    world = World("abc", seed=seed, passports=True).start()
    world.run_until(lambda: not any(node.recovering for node in world.nodes.values()))
    images: dict[str, Image] = {}
    for _ in range(ACTIONS):
        leader = next((one for one in world.leaders if one.node.is_leader), None)
        for _ in range(world.rng.randrange(4) if leader is not None else 0):
            assert leader is not None
            world.submit(leader, world.payload())
        act(world, images)
        world.run(world.rng.uniform(0.05, SECONDS_MAX))
    world.run(3.0)
    world.start()
    world.run(3.0)
    for node in world.nodes.values():
        node.set_back_to_image = False  # All were judged by all: a set-back disk lacked nothing.
    world.run_until(lambda: not any(node.recovering for node in world.nodes.values()), 30.0)
    world.commit(world.elect(), 2)
    world.run(12.0)
    world.checks.at_rest()
    return world


@pytest.mark.parametrize("first", [7000, 7010])
def test_random_faults_and_disks_that_change_break_nothing(first: int) -> None:
    for seed in range(first, first + 10):
        run(seed)
