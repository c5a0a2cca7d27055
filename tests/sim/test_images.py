"""Disks that are set back to an older image, or replaced by a copy, beneath a whole system."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.testing.disk import Image
from tests.sim.hosts import Host
from tests.sim.plan import basic
from tests.sim.run import run
from tests.sim.world import World

pytestmark = pytest.mark.slow

TAKEN_S, SET_BACK_S = (2.0, 5.0), (3.5, 6.5)
"""When the images of two nodes are taken, one after the other, and when each is put back: clients
publish and settle all the time, so each lacks what its node has promised."""


def _prepare(world: World) -> None:
    """Have the leader's disk and that of another node be set back, one after the other."""
    images: dict[float, tuple[Host, Image]] = {}

    def take(at: float, leads: bool) -> None:
        leader = world.leader()
        others = [host for host in world.hosts.values() if host is not leader]
        host = leader if leads and leader is not None else others[0]
        images[at] = host, host.storage.image()

    def put_back(at: float, copied: bool) -> None:
        host, image = images[at]
        world.happened("set back")
        host.kill()
        host.storage.restore(image, copied=copied)
        host.start()

    first = world.plan.seed % 2 == 0
    for place, (taken, back) in enumerate(zip(TAKEN_S, SET_BACK_S, strict=True)):
        world.loop.after(taken, take, taken, (place == 0) == first)
        world.loop.after(back, put_back, taken, world.plan.seed % 3 == 2)


@pytest.mark.parametrize("seed", [3001, 3002, 3003])
def test_a_disk_that_is_set_back_breaks_no_promise(seed: int) -> None:
    plan = replace(basic(seed, nodes=3), faults=(), lasting=())
    world = run(plan, prepare=_prepare)
    assert world.counts["set back"] == 2
    assert world.counts["gave its journal up"] == 2
