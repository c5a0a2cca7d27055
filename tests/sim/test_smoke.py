"""The whole system under drawn faults, on the seeds that the repository names."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fifo.machine import checkout
from fifo.machine.state import records
from tests.sim.plan import PLANS, Consuming, Fault, Plan, Verbs
from tests.sim.run import run
from tests.sim.world import World

pytestmark = pytest.mark.slow


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


LED = range(2_000, 2_010)
"""Seeds in which no client renews, and the leader renews for all."""


@pytest.mark.parametrize("first", LED[::BATCH])
def test_what_the_leader_renews_keeps_every_promise(first: int) -> None:
    settled = sum(outlasted(run(PLANS["led"](seed))) for seed in range(first, first + BATCH))
    assert settled > 3, "the leader renewed nothing that mattered"


def outlasted(world: World) -> int:
    """Messages that were settled in time though one lock had not been enough for them."""
    ends: dict[tuple[int, int], float] = {}
    found = 0
    for event in world.history:
        value, time = event["value"], event["time"]
        key = (value.get("consumer"), value.get("token"))
        if event["f"] == "checkout":
            ends[key] = time + 1.3 * value["lock_ms"] / 1000
        elif event["f"] == "settle" and value.get("status") == "ok" and not value["late"]:
            found += time > ends.get(key, time)
    return found


@pytest.mark.parametrize("past", SEEDS["past"], ids=lambda past: f"{past['plan']}-{past['seed']}")
def test_a_past_failure_no_longer_occurs(past: dict[str, Any]) -> None:
    run(PLANS[past["plan"]](past["seed"]))


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


def test_steps_that_are_cut_short_break_no_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = checkout.is_cut_short
    cut_short: list[bool] = []

    def noting(*asked: Any) -> bool:
        cut_short.append(whole(*asked))
        return cut_short[-1]

    monkeypatch.setattr(checkout, "is_cut_short", noting)
    monkeypatch.setattr(records, "BATCH_CHECKOUT_MESSAGES", 3)
    faults = (Fault(3.0, "kill_leader", "n1"), Fault(3.4, "restart", "n1"))
    verbs = Verbs(getters=1, durables=1, ttl=True)
    run(Plan(1, 3, (20, 20), (QUICK,), 3, faults, ordering="key", verbs=verbs))
    assert any(cut_short), "no step was"


VERBS = Verbs(getters=1, durables=2, numbered=20, ttl=True, bury_expired=True, redrives=True)

VERB_SEEDS = range(3, 9)
"""As a rule the first reaches all of it; the next reach what a longer frame moves out of it."""

EXPIRED = "dead letter that had expired"

REACHED = (
    "get of 1",
    "durable SessionTaken",
    "durable took over what was held",
    "durable renewed",
    "durable forgotten",
    "numbered again",
    "redrive running",
    "transfer begun",
    "sync off the loop took time",
)


def test_every_verb_is_driven_into_its_interesting_cases() -> None:
    faults = [
        Fault(1.5, "slow_disk", "n1", number=5),
        Fault(1.6, "slow_disk", "n2", number=8),
        *(Fault(at, "transfer_leader", "n1") for at in (2.0, 4.0, 6.0, 8.0)),
        *(Fault(5.2, "client_cut", node, "pn") for node in ("n1", "n2", "n3")),
        Fault(3.0, "kill_leader", "n1"),
        Fault(3.4, "restart", "n1"),
        Fault(5.0, "client_kill", "n1", "t1"),
        Fault(7.5, "heal", "n1"),
        Fault(7.5, "fast_disk", "n2"),
    ]
    faults.sort(key=lambda fault: fault.at)
    plan = Plan(3, 3, (40, 40), (QUICK,), 3, tuple(faults), timeout_s=1.5, verbs=VERBS)
    missed = [*REACHED, EXPIRED]
    for seed in VERB_SEEDS:
        world = run(replace(plan, seed=seed))
        if any(one["value"].get("reason") == "expired" for one in world.history):
            world.happened(EXPIRED)
        missed = [state for state in missed if not world.counts.get(state)]
        if not missed:
            return
    raise AssertionError(f"never reached in {len(VERB_SEEDS)} seeds: {missed}")
