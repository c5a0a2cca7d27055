"""docs/walk.md shows what a run goes through today: the same packages and functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.walk.journeys import Walk
from tests.walk.page import PAGE, render, shown
from tests.walk.tracer import LANDMARKS, Step

CALLS_MAX = {"leader": 261, "follower": 106, "client": 71}
"""Calls of a publish that is alone, timers that fall between two of them included: a few more than
today, so that a question that is asked in each step again is seen. A feature that is worth its
calls may raise them, with the reason beside it."""


@pytest.fixture(scope="module")
def walk() -> Walk:
    walk = Walk()
    walk.run()
    return walk


@pytest.fixture(scope="module")
def journeys(walk: Walk) -> Mapping[str, Sequence[Step]]:
    return walk.journeys


@pytest.mark.slow
def test_the_page_shows_the_packages_and_functions_of_a_run(
    journeys: Mapping[str, Sequence[Step]],
) -> None:
    page, run = shown(PAGE.read_text(encoding="utf-8")), shown(render(journeys))
    assert page.keys() == run.keys()
    for name, steps in run.items():
        assert page[name] == steps, f"{name}: `make walk` writes the page anew"


@pytest.mark.slow
def test_the_way_of_a_publish_has_no_gap(journeys: Mapping[str, Sequence[Step]]) -> None:
    functions = {step.function for step in journeys["publish"]}
    assert functions.issuperset((*LANDMARKS, "Machine.apply_batch", "DurableLog.sync"))


@pytest.mark.slow
def test_reading_a_page_gives_every_step_back(journeys: Mapping[str, Sequence[Step]]) -> None:
    expected = {
        name: {(step.actor, step.room, step.function) for step in steps}
        for name, steps in journeys.items()
    }
    assert shown(render(journeys)) == expected


@pytest.mark.slow
def test_a_publish_that_is_alone_costs_no_more_calls_than_allowed(walk: Walk) -> None:
    assert walk.calls.keys() == CALLS_MAX.keys()
    dear = {who: calls for who, calls in walk.calls.items() if calls > CALLS_MAX[who]}
    assert not dear, f"calls for one publish: {dear}, at most {CALLS_MAX}"
