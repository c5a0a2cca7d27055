"""Bugs put back on purpose: each is found within its seed limit, or the simulator is blind to it.

`make mutants` scores all of them on many seeds; here the first finding ends each search.
"""

from __future__ import annotations

import pytest

from tests.sim.mutants import MUTANTS, Mutant, found_by
from tests.sim.run import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_mutant_is_found(mutant: Mutant) -> None:
    # A seed that finds it stands first, so that CI pays for one run where nothing has changed.
    order = dict.fromkeys((mutant.known, *range(mutant.limit)))
    assert any(found_by(mutant, seed) is not None for seed in order), f"{mutant.name} survives"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_without_the_mutant_its_plan_breaks_nothing(mutant: Mutant) -> None:
    run(mutant.plan(mutant.known))
