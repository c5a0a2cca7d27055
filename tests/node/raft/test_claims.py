"""docs/raft.md names what is guaranteed, and what holds that: such tests and mutants exist.

Reads the page only: an entry is a paragraph that begins with a bold number or hazard id, its tests
and mutants are the list behind it. Must not know what an entry says.
"""

from __future__ import annotations

import re

import pytest

from tests.node.raft import (
    test_doubts,
    test_elections,
    test_equality,
    test_hazards,
    test_identity,
    test_members,
    test_recover,
    test_repairs,
    test_room,
    test_skipping,
    test_slow_disk,
    test_snapshot_hazards,
    test_switches,
    test_transfer,
    test_wrong_state,
)
from tests.node.raft.stock_proofs import HAZARDS
from tests.support import identity_mutants, member_mutants, raft_mutants, raft_switches
from tests.support.pages import page, rows
from tests.support.pytest_ids import ids, uncollected

PAGE = page("raft")
MUTANTS = {
    *raft_mutants.CORES,
    *identity_mutants.CORES,
    *member_mutants.CORES,
    *raft_switches.SWITCHES,
}
SCENARIOS = [
    (scenario.__name__, mutant.__name__)
    for table in (
        test_hazards.SCENARIOS,
        test_snapshot_hazards.SCENARIOS,
        test_elections.RULES,
        test_transfer.RULES,
        test_slow_disk.RULES,
        test_recover.RULES,
        test_repairs.RULES,
        test_equality.RULES,
        test_identity.RULES,
        test_members.RULES,
        test_wrong_state.RULES,
        test_room.RULES,
        test_skipping.RULES,
        test_doubts.RULES,
    )
    for scenario, mutant in table
] + [(scenario.__name__, mutant) for scenario, mutant in test_switches.SCENARIOS]


def entries(heading: str) -> dict[str, str]:
    """The entries of a section by their number or id, each with its list."""
    section = re.split(rf"^## \d+\. {heading}$", PAGE, maxsplit=1, flags=re.MULTILINE)[1]
    parts = re.split(
        r"^\*\*([\w.]+)\*\* ", re.split(r"^## ", section, flags=re.MULTILINE)[0], flags=re.M
    )
    return dict(zip(parts[1::2], parts[2::2], strict=True))


GUARANTEES = entries("What it guarantees")
OWN_HAZARDS = entries("Hazards")
ENTRIES = [*GUARANTEES.values(), *OWN_HAZARDS.values()]


def mutants_of(entry: str) -> list[str]:
    """The mutants of an entry."""
    listed = re.search(r"^- mutants: (.+(?:\n  .+)*)$", entry, flags=re.MULTILINE)
    return re.findall(r"`(\w+)`", listed[1]) if listed else []


def scenarios_of(entry: str) -> set[str]:
    """The names of an entry's tests, and of the scenarios that are their parameters."""
    found = set()
    for one in ids(entry):
        name, _, parameter = one.partition("::")[2].partition("[")
        found |= {name, parameter.rstrip("]").partition("-")[0]}
    return found


@pytest.mark.process
@pytest.mark.xdist_group("docs")
def test_pytest_collects_every_test_that_the_page_names() -> None:
    assert len(set(ids(PAGE))) > 100
    assert not uncollected(ids(PAGE))


def test_every_guarantee_is_a_sentence_with_a_test() -> None:
    assert list(GUARANTEES) == [f"1.{number}" for number in range(1, len(GUARANTEES) + 1)]
    assert len(GUARANTEES) >= 20
    for number, entry in GUARANTEES.items():
        assert entry.partition("\n\n")[0].endswith("."), number
        assert ids(entry), number


def test_every_hazard_has_its_entry_and_a_test_that_is_named_after_it() -> None:
    assert list(OWN_HAZARDS) == HAZARDS
    for hazard, entry in OWN_HAZARDS.items():
        assert any(re.search(rf"(^|_){hazard}_", name) for name in scenarios_of(entry)), hazard


def test_every_property_has_its_row() -> None:
    table = rows(PAGE, "5. Properties")
    assert [row.split(" | ")[0] for row in table] == [f"| {number}" for number in range(1, 11)]


def test_every_mutant_that_the_page_names_exists_and_every_one_is_named() -> None:
    assert {name for entry in ENTRIES for name in mutants_of(entry)} == MUTANTS


def test_each_mutant_has_in_its_entry_the_scenario_that_it_turns_red() -> None:
    for entry in ENTRIES:
        names = scenarios_of(entry)
        for mutant in mutants_of(entry):
            by_chance = any(name.startswith("test_random_faults_find_") for name in names)
            assert by_chance or any((name, mutant) in SCENARIOS for name in names), (mutant, entry)


@pytest.mark.parametrize(("scenario", "mutant"), SCENARIOS)
def test_a_scenario_stands_in_one_entry_with_the_mutant_that_turns_it_red(
    scenario: str, mutant: str
) -> None:
    assert any(scenario in scenarios_of(entry) and mutant in mutants_of(entry) for entry in ENTRIES)


@pytest.mark.parametrize("name", ["raft", "protocol-peer"])
def test_no_line_but_of_a_table_is_over_120_columns(name: str) -> None:
    lines = page(name).splitlines()
    assert not [line for line in lines if len(line) > 120 and not line.startswith("|")]
