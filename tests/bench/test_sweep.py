"""`python -m bench.sweep`: each kind of command is in it, and its figures are of what it says."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from bench.sweep.__main__ import main, run
from bench.sweep.case import CASES
from fifo.machine import commands
from node.collector import Collector

pytestmark = pytest.mark.slow


def test_every_kind_of_command_has_a_case() -> None:
    kinds = {kind.__name__ for kind in commands.Command.__args__}
    assert {case.kind for case in CASES} == kinds


def test_no_two_cases_have_one_name() -> None:
    names = Counter((case.kind, case.name) for case in CASES)
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("frozen", [False, True])
def test_a_case_ends_with_what_is_due_after_its_command(frozen: bool) -> None:
    [case] = [one for one in CASES if one.name == "consumers whose one lock ends"]
    with Collector() as collector:
        timed = run(case, size=400, frozen=frozen, collector=collector)
    assert timed.first_ms > 0
    assert timed.ticks >= 1, "400 consumers lose their locks in one tick"
    assert timed.later_ms > 0


def test_the_sweep_prints_the_chosen_cases(capsys: pytest.CaptureFixture[str]) -> None:
    main(["SetVersion", "--repeats", "1", "--json"])
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert [one["command"] for one in figures] == ["SetVersion"]
    assert figures[0]["alone_ms"] > 0
