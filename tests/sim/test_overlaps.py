"""Leaders that overlap: one lives on behind closed connections, and renews beside the next."""

from __future__ import annotations

import pytest

from node.raft.lease import NEVER
from tests.sim.mutants import abandoned_leader, twice_abandoned_leader
from tests.sim.run import run
from tests.sim.world import World
from tests.support import raft_probe

pytestmark = pytest.mark.slow

SEEDS = range(4)


def _stand_early_again(world: World) -> None:
    """Have every member forget that it stood early, so that changes follow one another."""
    for host in world.hosts.values():
        raft = None if host.running is None else raft_probe.raft_of(host.running)
        if raft is not None:
            raft_probe.core(raft)._early_at = NEVER


def _restless(world: World) -> None:
    at = world.plan.faults[2].at
    world.loop.after(at - 0.001, _stand_early_again, world)


def test_a_leader_that_lives_on_renews_beside_the_next_and_breaks_no_promise() -> None:
    for seed in SEEDS:
        world = run(abandoned_leader(seed))
        assert world.counts["elected beside a lease"] == 1, f"seed {seed}"


def test_two_changes_of_leader_within_one_lease_break_no_promise() -> None:
    for seed in SEEDS:
        world = run(twice_abandoned_leader(seed), prepare=_restless)
        assert world.counts["elected beside a lease"] >= 3, f"seed {seed}"
