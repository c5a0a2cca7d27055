"""Bugs put back on purpose: each is found within its seed limit, or the simulator is blind to it.

`make mutants` scores all of them on many seeds; here the first finding ends each search.
"""

from __future__ import annotations

import pytest

from tests.mutants.switch import Switch
from tests.sim.mutants import SEARCHES, Search, found_by
from tests.sim.run import run

pytestmark = pytest.mark.slow


IDS = [breaks.replace(" ", "-") for breaks, _, _ in SEARCHES]


@pytest.mark.parametrize(("breaks", "switch", "search"), SEARCHES, ids=IDS)
def test_the_mutant_is_found(breaks: str, switch: Switch, search: Search) -> None:
    # A seed that finds it stands first, so that CI pays for one run where nothing has changed.
    order = dict.fromkeys((search.known, *range(search.limit)))
    assert any(found_by(switch, search, seed) is not None for seed in order), f"{breaks} survives"


@pytest.mark.parametrize("search", [search for _, _, search in SEARCHES], ids=IDS)
def test_without_the_mutant_its_plan_breaks_nothing(search: Search) -> None:
    run(search.plan(search.known))
