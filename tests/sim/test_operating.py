"""Members that change, and disks that go wrong, beneath a whole system that publishes and settles.

`python -m tests.sim --plan members --fresh --seeds 1000` runs more; so do `disks` and `operated`.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.plan import PLANS, Consuming, Fault, Plan
from tests.sim.run import run
from tests.sim.world import World

pytestmark = pytest.mark.slow

QUICK = Consuming(prefetch=20, lock_s=1.0, workers=2, auto_renew=True, slow=0.0)


def world_of(*faults: Fault, nodes: int = 3, seed: int = 1) -> World:
    return run(Plan(seed, nodes, (30, 30), (QUICK, QUICK), max_deliveries=4, faults=faults))


def at(*kinds: str, every: float = 1.2, node: str = "") -> tuple[Fault, ...]:
    """These kinds of faults, one after the other."""
    return tuple(Fault(1.5 + every * place, kind, node) for place, kind in enumerate(kinds))


def drawn(plan: str, seeds: tuple[int, ...]) -> Counter[str]:
    """Count what happened in the runs of these seeds."""
    return sum((Counter(run(PLANS[plan](seed)).counts) for seed in seeds), Counter())


# --- members ---


def test_a_node_alone_becomes_three() -> None:
    world = world_of(*at("member_add", "member_add"), nodes=1)
    assert sorted(world.checks.members) == ["n1", "n2", "n3"]


def test_three_become_five_and_three_again_without_the_leader() -> None:
    changes = ("member_add", "member_add", "member_remove_leader", "member_remove_leader")
    world = world_of(*at(*changes))
    assert world.counts["member add"] == world.counts["member remove"] == 2
    assert len(world.checks.members) == 3


def test_a_dead_member_and_the_one_that_leads_are_replaced() -> None:
    world = world_of(*at("member_replace_dead", "member_replace_leader", every=3.5))
    assert world.counts["member replace"] == 2
    assert {"n4", "n5"} < set(world.checks.members)


def test_a_member_moves_to_other_addresses() -> None:
    world = world_of(*at("member_move", node="n2"))
    assert world.counts["member move"] == 1
    assert str(world.hosts["n2"].config.node("n2").peer) == "n2:7112"


@pytest.mark.parametrize("delay", [0.005, 0.02, 0.06])
@pytest.mark.parametrize("end", ["kill_leader", "power_leader"])
def test_a_leader_ends_amid_a_change_and_the_next_one_goes_on(delay: float, end: str) -> None:
    faults = (
        Fault(1.5, "member_replace", "n2"),
        Fault(2.4 + delay, end),
        Fault(3.5, "restart"),
        Fault(4.5, "member_add"),
        Fault(5.3 + delay, end),
        Fault(6.0, "restart"),
    )
    world = world_of(*faults)
    assert world.counts["role leader"] > 2
    assert world.counts["member replace"] == 1


MEMBER_SEEDS = (3_001, 3_002, 3_005, 3_010, 3_016)
"""Of which some draw each change."""


def test_members_that_change_amid_faults_break_no_promise() -> None:
    happened = drawn("members", MEMBER_SEEDS)
    for change in ("add", "remove", "replace", "move"):
        assert happened[f"member {change}"], change


# --- disks ---


@pytest.mark.parametrize("seed", [1, 2])
def test_an_empty_disk_in_the_place_of_a_members_is_filled_by_the_others(seed: int) -> None:
    world = world_of(*at("disk_wiped", "disk_wiped", every=3.0, node=f"n{seed}"), seed=seed)
    assert world.counts["disk went wrong"] == 2


@pytest.mark.parametrize("node", ["n1", "n3"])
def test_a_bit_that_flips_in_a_record_is_mended_by_the_others(node: str) -> None:
    world = world_of(*at("disk_rots", "disk_rots", every=4.0, node=node))
    assert world.counts["disk rots"] > 0
    assert world.counts["rot mended"] > 0


def test_a_bit_that_flips_in_a_record_of_one_that_is_removed_then_is_nobodys_concern() -> None:
    faults = (Fault(2.0, "disk_rots", "n2"), Fault(2.01, "member_replace", "n2"))
    world = world_of(*faults)
    assert world.counts["member replace"] == world.counts["rot removed"] == 1


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_disk_that_has_lied_loses_power_and_nothing_confirmed_is_lost(seed: int) -> None:
    world = world_of(*at("disk_lies", "disk_was_lying", every=3.0, node=f"n{seed}"), seed=seed)
    assert world.counts["disk went wrong"] == 1


@pytest.mark.parametrize("node", ["n1", "n2"])
def test_a_node_whose_disk_is_full_comes_back_with_room_and_the_others_go_on(node: str) -> None:
    faults = (Fault(1.5, "disk_small", node), Fault(5.0, "disk_roomy", node))
    world = world_of(*faults, seed=2)
    assert world.counts["node stopped by its full disk"] > 1
    times = [one["time"] for one in world.history if one["f"] == "publish" and one["type"] == "ok"]
    assert any(2.5 < time < 5.0 for time in times)


def test_disks_that_fill_and_get_room_again_in_turn_break_no_promise() -> None:
    small = (Fault(1.5 + place, "disk_small", f"n{place % 3 + 1}") for place in range(6))
    roomy = (Fault(3.2 + place, "disk_roomy", f"n{place % 3 + 1}") for place in range(6))
    faults = sorted((*small, *roomy), key=lambda fault: fault.at)
    assert world_of(*faults, seed=3).counts["disk small"] == 6


DISK_SEEDS = (3_002, 3_004, 3_007, 3_008, 3_012)
"""Of which some draw each of these."""


def test_disks_that_go_wrong_amid_faults_break_no_promise() -> None:
    happened = drawn("disks", DISK_SEEDS)
    for what in (
        "rot mended",
        "damaged journal refused",
        "disk lies",
        "gave its journal up",
        "disk small",
    ):
        assert happened[what], what


def test_members_that_change_over_wrong_disks_break_no_promise() -> None:
    for seed in range(3_000, 3_002):
        run(PLANS["operated"](seed))
