"""The client beside its promises: what it says, against what the replicated state says happened.

`--hypothesis-profile=thorough` makes it long; without it, it is quick and the same in every run.
The seeded runs, which are always the same, are quicker per step; the two share the actions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.client.model.acting import TIMEOUT_S
from tests.client.model.actions import ACTIONS, step
from tests.client.model.driving import run
from tests.client.model.playing import Scene, played
from tests.client.model.rows import ELSEWHERE, ROWS
from tests.machine.model.generating import Chooser
from tests.machine.model.profiles import is_thorough, present
from tests.machine.model.test_stateful import DataDraw
from tests.support.pages import page

pytestmark = pytest.mark.slow

SEEDS = range(400) if is_thorough() else range(20)
BATCH = 10
"""Seeds of one test: enough to be worth a test's own cost, few enough to share between cores."""

BLOCKING_SEEDS = range(400) if is_thorough() else range(10)

SEEDS_OF_ALL = 60
"""Seeds within which each promise is compared; a change of the product moves what a seed does."""

QUICK = settings(
    max_examples=15,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


class BesideTheTruth(RuleBasedStateMachine):
    """Programs on a simulated cluster; `played` compares at each answer and at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.run = ExitStack()
        self.scene: Scene | None = None
        self.error: AssertionError | None = None

    @initialize(seed=st.integers(0, 1_000))
    def begin(self, seed: int) -> None:
        """A cluster, its queues and the first programs."""
        self.scene = self.run.enter_context(played(seed))

    def teardown(self) -> None:
        """Wait until everything is at rest, and compare it."""
        if self.error is None:
            self.run.close()
            return
        with suppress(AssertionError):  # it was reported where it was found
            self.run.__exit__(AssertionError, self.error, None)


def _rule(name: str) -> Callable[..., None]:
    """A rule of Hypothesis that does this action."""

    @precondition(lambda self: self.scene is not None and bool(ACTIONS[name].can(self.scene)))
    @rule(data=st.data())
    def act(self: BesideTheTruth, data: Any) -> None:
        assert self.scene is not None
        try:
            step(self.scene, Chooser(DataDraw(data)), name)
        except AssertionError as error:
            self.error = error
            raise AssertionError(self.scene.report(error)) from error

    act.__name__ = name
    return act


for _name in ACTIONS:
    setattr(BesideTheTruth, _name, _rule(_name))


def test_no_answer_lies_in_any_run() -> None:
    chosen = settings(present(), max_examples=300, stateful_step_count=40)
    run_state_machine_as_test(BesideTheTruth, settings=chosen if is_thorough() else QUICK)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", SEEDS[::BATCH])
def test_no_answer_lies(first: int) -> None:
    for seed in range(first, first + BATCH):
        run(seed)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", BLOCKING_SEEDS[::BATCH])
def test_no_answer_of_the_blocking_client_lies(first: int) -> None:
    for seed in range(first, first + BATCH):
        run(seed, blocking=True)


def test_a_run_with_threads_is_the_same_each_time() -> None:
    once, again = (run(3, blocking=True) for _ in range(2))
    assert any(actor.blocks for actor in once.actors)
    assert once.lines == again.lines


def test_every_promise_is_compared() -> None:
    """A comparison that is never made proves nothing."""
    compared: Counter[str] = Counter()
    wanted = {name for names in ROWS.values() for name in names}
    for seed in range(SEEDS_OF_ALL):
        compared.update(run(seed).heard.kinds)
        if wanted <= set(compared):
            break
    assert wanted <= set(compared)


def test_a_program_that_takes_a_session_starves_no_queue_of_the_one_before() -> None:
    with played(0) as scene:
        first = scene.actors[0]
        first.run(first.consume("solo", None, 3, 1.0))
        scene.until(lambda: len(first.consumers) == 2, 1.0, "no consumer")
        second = scene.join("c1t", first.session_id)
        scene.until(lambda: second.is_up, 1.0, "the second is not up")
        second.run(second.consume("solo", None, 3, 1.0))
        second.run(second.publish_many("solo", 3))


def test_what_is_stored_is_not_called_refused_where_its_program_stood_still() -> None:
    """Its calls end between two reads of the answer: five are stored, and three are refused."""
    with played(0) as scene:
        actor = scene.actors[0]
        for _ in range(8):
            actor.run(actor.publish("small", None))
        scene.pass_by(0.0002)
        assert not scene.truth.stored.get(actor.publishings[-8].body), "it is on its way"
        actor.program.pause()
        scene.pass_by(TIMEOUT_S + 0.5)
        assert scene.truth.stored[actor.publishings[-8].body]
        network = scene.world.network
        network.cutting = 1.0
        cuts = iter((1, 0))  # of its two connections

        def first_byte(_low: int, _high: int) -> int:
            network.cutting = float(next(cuts))
            return 1

        with patch.object(network.rng, "randint", first_byte):
            actor.program.resume()
            scene.pass_by(0.001)


def test_every_guarantee_is_held_by_the_model_or_says_why_not() -> None:
    section = page("client").split("## What it guarantees", 1)[1]
    guarantees = [line[2:] for line in section.splitlines() if line.startswith("- ")]
    rows = [*ROWS, *ELSEWHERE]
    found = {one: [row for row in rows if one.startswith(row)] for one in guarantees}
    assert {one: names for one, names in found.items() if len(names) != 1} == {}
    assert len(guarantees) == len(rows)
