"""The registry follows the code: every mutant can be switched on, is hunted, and has its line."""

import pytest

from tests.mutants.hunting import (
    HEAD,
    ROOT,
    SURVIVED,
    Catch,
    Mutant,
    catches,
    report,
    scenario,
    seeds,
)
from tests.mutants.registry import MUTANTS
from tests.mutants.switch import edited, replaced


def test_there_is_one_list_with_each_mutant_once() -> None:
    names = [(mutant.area, mutant.breaks) for mutant in MUTANTS]
    assert len(names) == len(set(names))
    assert len({area for area, _ in names}) >= 3


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.breaks.replace(" ", "-"))
def test_a_mutant_can_be_put_back_and_has_a_hunt(mutant: Mutant) -> None:
    with mutant.put_back():
        pass
    assert mutant.caught_by


class Sample:
    """Something to break."""

    value = 1


def says_one() -> None:
    assert Sample.value == 1


def test_a_mutant_is_off_after_the_hunt_and_a_red_scenario_has_caught_it() -> None:
    hunts = (scenario(says_one, "says_one"), seeds(lambda _: None, "chance", 3))
    mutant = Mutant("area", "two", "says two", replaced(Sample, "value", 2), hunts)
    assert catches(mutant) == [Catch("`says_one`", "1 scenario")]
    assert Sample.value == 1
    assert catches(Mutant("area", "one", "says one", replaced(Sample, "value", 1), hunts)) == []


def test_the_page_has_the_catch_of_each_mutant_and_the_survivors() -> None:
    mutant = Mutant("area", "it", "bug", replaced(Sample, "value", 2), ())
    page = report([(mutant, [Catch("model", "3 of at most 120 runs")]), (mutant, [])])
    assert page.startswith(f"{HEAD}\n## area\n")
    assert "## area\n\n- **bug**: model (3 of at most 120 runs)\n" in page
    assert f"- **bug**: {SURVIVED}\n" in page


def test_the_page_that_is_kept_has_every_mutant_and_each_was_caught() -> None:
    page = (ROOT / "docs" / "mutants.md").read_text()
    assert page.startswith(HEAD)
    assert SURVIVED not in page
    folded = " ".join(page.split())
    missing = [
        one.breaks for one in MUTANTS if f"- **{' '.join(one.breaks.split())}**: " not in folded
    ]
    assert not missing, "run `make mutants`"


def test_a_place_that_is_not_there_any_more_is_an_error() -> None:
    from fifo.machine import returns

    switch = edited(returns, "joined", "no such text", "")
    with pytest.raises(LookupError, match="joined"), switch():
        pass
