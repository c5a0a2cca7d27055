"""The registry follows the code: every mutant can be switched on, is hunted, and has its line."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from tests.mutants.hunting import (
    HEAD,
    ROOT,
    SURVIVED,
    Catch,
    Mutant,
    NotHeld,
    catches,
    report,
    scenario,
    seeds,
)
from tests.mutants.in_process import each_case, in_process
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


def fails_always() -> None:
    raise KeyError("whatever the bug is")


def skips() -> None:
    pytest.skip("no Java here")


def raises_nothing() -> None:
    with pytest.raises(KeyError):
        assert Sample.value == 1


@pytest.mark.parametrize("work", [fails_always, skips, raises_nothing])
def test_a_scenario_that_does_not_hold_without_the_bug_catches_nothing(
    work: Callable[[], None],
) -> None:
    hunts = (scenario(work, work.__name__),)
    with pytest.raises(NotHeld, match=work.__name__):
        catches(Mutant("area", "two", "says two", replaced(Sample, "value", 2), hunts))


def needs_a_number(number: int, tmp_path: Path) -> None:
    assert Sample.value == number
    assert not list(tmp_path.iterdir())


def test_a_hunt_whose_values_do_not_fit_its_test_cannot_be_written() -> None:
    with pytest.raises(TypeError, match=r"needs_a_number needs 1 values \(number\), not 0"):
        in_process(needs_a_number)
    with pytest.raises(TypeError, match="says_one needs 0 values"):
        in_process(says_one, 1)
    assert in_process(needs_a_number, 1)() is None
    assert in_process(needs_a_number, 2)() == Catch("`needs_a_number`", "1 scenario")


@pytest.mark.parametrize(("two", "one"), [(2, 1), pytest.param(4, 2, id="four")])
def is_half(one: int, two: int) -> None:
    assert one * 2 * Sample.value == two


def test_a_hunt_by_each_case_gives_values_to_their_parameters() -> None:
    assert each_case(is_half)() is None
    with replaced(Sample, "value", 2)():
        assert each_case(is_half)() is not None


@contextmanager
def folder_of(tmp_path: Path) -> Iterator[str]:
    yield tmp_path.name


@asynccontextmanager
async def loop_of() -> AsyncIterator[asyncio.AbstractEventLoop]:
    yield asyncio.get_running_loop()


async def has_fixtures(
    folder: str, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert folder == tmp_path.name
    assert loop is asyncio.get_running_loop()
    monkeypatch.setattr(Sample, "value", 3)


def test_a_hunt_has_fixtures_of_its_own_that_need_others_and_end_with_it() -> None:
    hunt = in_process(has_fixtures, fixtures={"folder": folder_of, "loop": loop_of})
    assert hunt() is None
    assert Sample.value == 1


async def waits() -> None:
    await asyncio.get_running_loop().create_future()


def test_a_hunt_that_waits_for_ever_ends_after_its_time() -> None:
    assert in_process(waits, within_s=0.01)() is not None


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
