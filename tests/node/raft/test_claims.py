"""docs/raft.md says what is guaranteed, and by what that is held: such tests and mutants exist."""

from __future__ import annotations

import re

import pytest

from tests.node.raft import (
    test_elections,
    test_hazards,
    test_recover,
    test_slow_disk,
    test_snapshot_hazards,
    test_switches,
    test_transfer,
)
from tests.node.raft.test_stock import HAZARDS
from tests.support import raft_mutants, raft_switches
from tests.support.pages import missing, named, page, rows

PAGE = page("raft")
GUARANTEES = rows(PAGE, "What it guarantees")
MUTANTS = {*raft_mutants.CORES, *raft_switches.SWITCHES}
SCENARIOS = [
    (scenario.__name__, mutant.__name__)
    for table in (
        test_hazards.SCENARIOS,
        test_snapshot_hazards.SCENARIOS,
        test_elections.RULES,
        test_transfer.RULES,
        test_slow_disk.RULES,
        test_recover.RULES,
    )
    for scenario, mutant in table
] + [(scenario.__name__, mutant) for scenario, mutant in test_switches.SCENARIOS]


def mutants_of(row: str) -> list[str]:
    """What stands in the last column."""
    return re.findall(r"`(\w+)`", row.split(" | ")[-1])


def test_every_test_that_the_page_names_exists() -> None:
    assert not missing(PAGE)
    assert len(named(PAGE)) > 100


def test_every_guarantee_is_a_sentence_with_a_test() -> None:
    assert len(GUARANTEES) >= 20
    for row in GUARANTEES:
        assert row.split(" | ")[0].endswith("."), row
        assert named(row), row


def test_every_hazard_has_its_row_and_a_test_that_is_named_after_it() -> None:
    table = rows(PAGE, "Hazards")
    assert [row[2:5] for row in table] == HAZARDS
    for row in table:
        assert any(re.search(rf"(^|_){row[2:5]}_", name) for _, name in named(row)), row


def test_every_property_has_its_row() -> None:
    table = rows(PAGE, "Properties")
    assert [row.split(" | ")[0] for row in table] == [f"| {number}" for number in range(1, 11)]


def test_every_mutant_that_the_page_names_exists_and_every_one_is_named() -> None:
    found = {name for row in (*GUARANTEES, *rows(PAGE, "Hazards")) for name in mutants_of(row)}
    assert found == MUTANTS


def test_beside_every_mutant_stands_what_it_turns_red() -> None:
    for row in (*GUARANTEES, *rows(PAGE, "Hazards")):
        names = {name for _, name in named(row)}
        for mutant in mutants_of(row):
            by_chance = any(name.startswith("test_random_faults_find_") for name in names)
            assert by_chance or any((name, mutant) in SCENARIOS for name in names), (mutant, row)


@pytest.mark.parametrize(("scenario", "mutant"), SCENARIOS)
def test_a_scenario_stands_in_one_row_with_the_mutant_that_turns_it_red(
    scenario: str, mutant: str
) -> None:
    assert any(
        f"::{scenario}`" in row and mutant in mutants_of(row)
        for row in (*GUARANTEES, *rows(PAGE, "Hazards"))
    )
