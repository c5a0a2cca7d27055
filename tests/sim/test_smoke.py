"""The whole system under drawn faults, on the seeds that the repository names."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.sim.plan import Consuming, Fault, Plan
from tests.sim.run import run
from tests.sim.world import World

SEEDS = tomllib.loads(Path(__file__).with_name("seeds.toml").read_text())
SMOKE = range(SEEDS["smoke"]["first"], SEEDS["smoke"]["first"] + SEEDS["smoke"]["count"])
BATCH = 5
"""Seeds of one test: enough to be worth a test's own cost, few enough to share between cores."""

QUICK = Consuming(prefetch=20, lock_s=1.0, workers=2, auto_renew=True, slow=0.0)


def world_of(*faults: Fault, nodes: int = 3) -> World:
    return run(Plan(1, nodes, (30, 30), (QUICK, QUICK), max_deliveries=4, faults=faults))


@pytest.mark.parametrize("first", SMOKE[::BATCH])
def test_drawn_faults_break_no_promise(first: int) -> None:
    for seed in range(first, min(first + BATCH, SMOKE.stop)):
        run(seed)


def test_what_once_went_wrong_goes_right() -> None:
    for past in SEEDS.get("past", ()):
        run(past["seed"])


def test_publish_consume_and_ack_without_any_fault() -> None:
    world = world_of()
    assert world.counts["ack ok"] > 20
    assert world.checks.digests_compared > 1


def test_the_leader_is_killed_and_another_goes_on() -> None:
    world = world_of(Fault(2.0, "kill_leader", "n1"), Fault(5.0, "restart", "n1"))
    assert world.counts["role leader"] >= 2


def test_the_power_fails_everywhere_at_once() -> None:
    world = world_of(Fault(2.0, "power_all", "n1"), Fault(4.0, "power_all", "n1"))
    assert world.counts["role leader"] >= 3


def test_a_single_node_loses_power_and_comes_back() -> None:
    world = world_of(Fault(2.0, "power", "n1"), Fault(3.0, "restart", "n1"), nodes=1)
    assert world.counts["role leader"] == 2


def test_five_nodes_lose_two() -> None:
    faults = (Fault(2.0, "kill_leader", "n1"), Fault(3.5, "kill_leader", "n1"))
    world = world_of(*faults, nodes=5)
    assert world.counts["role leader"] >= 3
