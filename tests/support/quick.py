"""The quick tests: which they are, and what they may cost together.

Owns the measure. A quick test starts no process and is not marked `slow`; all of them together may
take BUDGET turns of a calibration loop that runs between them. Both are CPU seconds of the same
processes, so neither a slower machine nor a busy one changes their ratio much. Must not know any
single test.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Generator
from itertools import count
from statistics import median
from typing import Any

import pytest

LONGER = ("cluster", "spark", "process", "slow")
"""Markers of tests that are not quick."""

BUDGET = 3200
"""Turns of the calibration loop: 77 CPU seconds where a turn takes 24 ms. Forty more go for types,
lint and collection, which makes a minute of two cores."""

_STEPS = 110_000
_ROWS = 50_000
"""Lists that the loop holds: more than a core's own cache, so that another machine's work on the
same memory slows the loop as it slows the tests, and so does the heap of a worker that runs all
tests. Of one that only counted the same tests took 3,924 turns and 4,755."""
_TESTS_PER_TURN = 50
_SPENT = "quick_spent_s"
_TURNS = "quick_turns_s"


def is_quick(item: pytest.Item) -> bool:
    """Whether the test belongs to `make quick`."""
    return not any(item.get_closest_marker(name) for name in LONGER)


def turn_seconds() -> float:
    """CPU seconds of one turn of the calibration loop."""
    began = time.process_time()
    table: dict[int, list[int]] = {}
    for step in range(_STEPS):
        table[step * 7_919 % _ROWS] = [step]
    return time.process_time() - began


def ended_children() -> int:
    """A number that rises when a child process ends: the page faults of all that have ended."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


WHOLE_SHARE = 1.3
"""Of the budget, in a run of all tests: its processes hold Spark, nodes and what a thousand tests
have left, and the same quick tests take a fifth more in them than alone."""


class Budget:
    """The measure of one pytest process; xdist's controller adds its workers up.

    It fails a run whose quick tests are over BUDGET, and a quick test that starts a process.
    """

    def __init__(self, *, whole: bool = False) -> None:
        """`whole`: the run is of all tests."""
        self._limit = BUDGET * WHOLE_SHARE if whole else BUDGET
        self._numbers = count()
        self._spent_s = 0.0
        self._turns_s: list[float] = []

    @property
    def ratio(self) -> float:
        """CPU time of the quick tests in turns of the calibration loop."""
        return self._spent_s / median(self._turns_s) if self._turns_s else 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure a quick test, and the calibration loop before every fiftieth."""
        if not is_quick(item):
            return (yield)
        if next(self._numbers) % _TESTS_PER_TURN == 0:
            self._turns_s.append(turn_seconds())
        began = time.process_time()
        try:
            return (yield)
        finally:
            self._spent_s += time.process_time() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Fail a quick test in which a child process has ended."""
        before = ended_children()
        result = yield
        if is_quick(item) and ended_children() != before:
            pytest.fail("the test starts a process: mark it `process`")
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand the measure to the controller, or judge it."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output.update({_SPENT: self._spent_s, _TURNS: self._turns_s})
        elif self.ratio > self._limit:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a worker measured."""
        output = getattr(node, "workeroutput", {})
        self._spent_s += output.get(_SPENT, 0.0)
        self._turns_s += output.get(_TURNS, [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the ratio beside the budget."""
        if self._turns_s:
            over = self.ratio > self._limit
            hint = ": over the budget, make tests cheaper or mark them `slow`" if over else ""
            terminalreporter.write_line(
                f"quick tests: {self._spent_s:.1f} CPU seconds,"
                f" {self.ratio:.0f} of {self._limit:g} calibration turns{hint}",
                red=over,
            )
