"""Renewed locks survive whatever happens to one leader: simulated, for seeds that stay the same.

`python -m tests.sim --plan held --seeds 1000` runs as many as wanted.
"""

from __future__ import annotations

import pytest

from tests.sim.held_locks import FAULTS, LOCK_SECONDS, hold, wrong

pytestmark = pytest.mark.slow

SEEDS = range(4)


@pytest.mark.parametrize("lock_s", LOCK_SECONDS)
@pytest.mark.parametrize("fault", FAULTS)
def test_renewed_locks_survive_any_single_fault_of_the_leader(fault: str, lock_s: float) -> None:
    broken = [found for seed in SEEDS if (found := wrong(seed, fault, lock_s))]
    assert not broken, broken


@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_cluster_sees_no_connection_that_looks_for_another_leader(seed: int) -> None:
    assert hold(seed, "nothing", 2.0).dialed == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_client_that_was_stopped_does_not_take_its_leader_for_silent(seed: int) -> None:
    found = hold(seed, "client pause", 5.0)
    assert found.dialed == 0
    assert max(found.attempts) == 1
