"""The record of a mutant, and the hunts for it: stories, the model, scenarios, random seeds.

Owns the one form of all registries and the meaning of "caught". A hunt is called with the bug
switched on and reports what it took; a mutant is caught where a check fails that holds without it,
or where something raises that never does. That it holds without the bug is looked at first, for
each scenario once. Must not know any single bug.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

import pytest

from tests.mutants.switch import Switch

ROOT = Path(__file__).parents[2]


class Catch(NamedTuple):
    """The test that noticed, and what it took: runs, seeds, or one directed scenario."""

    by: str
    took: str


Hunt = Callable[[], Catch | None]

SURVIVED = "**no test noticed it**"
HEAD = """\
# Mutants

Bugs put back on purpose, one at a time: a test of their area has to notice. `make
mutants` hunts them all, prints how many were caught, fails where one survives, and writes
this page. The index is `tests/mutants/registry.py`; the bugs stand beside the tests of
their area.
"""
"""Of the page; it counts nothing, for a count would conflict wherever two changes add a bug."""
COLUMNS = 118
"""Of a line of the page."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug put back on purpose: the record that every area's registry is made of."""

    area: str
    name: str
    """By which its area asks for it: a class, a patch of the fault suite, or the sentence."""
    breaks: str
    """The bug as a sentence; its row in `docs/mutants.md`."""
    put_back: Switch
    caught_by: tuple[Hunt, ...]
    """The tests that must notice it; one of them is enough."""
    unable: str | None = None
    """Why this machine cannot hunt it."""


class NotHeld(Exception):
    """A scenario fails without any bug, so that it can catch none."""


_held: set[Hashable] = set()
"""Scenarios of this process that were seen to hold."""


def catches(mutant: Mutant) -> list[Catch]:
    """Put the bug back, run its hunts in order, and return those that noticed.

    Raises NotHeld where one of them fails without the bug.
    """
    for hunt in mutant.caught_by:
        if isinstance(hunt, Scenario):
            hunt.control()
    with mutant.put_back():
        found = [hunt() for hunt in mutant.caught_by]
    return [catch for catch in found if catch is not None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A directed scenario, which goes red: a hunt."""

    work: Callable[[], object]
    name: str
    key: Hashable
    """Of the scenario among those that were seen to hold."""

    def __call__(self) -> Catch | None:
        """Run it with the bug; any failure counts, for without the bug nothing fails."""
        failure = self._failure()
        return None if failure is None else Catch(f"`{self.name}`", "1 scenario")

    def control(self) -> None:
        """Run it without a bug, once. Raises NotHeld."""
        if self.key in _held:
            return
        failure = self._failure()
        if failure is not None:
            text = f"{self.name} fails without any bug: {type(failure).__name__}: {failure}"
            raise NotHeld(text) from failure
        _held.add(self.key)

    def _failure(self) -> BaseException | None:
        try:
            self.work()
        except (Exception, pytest.fail.Exception) as error:
            return error
        except pytest.skip.Exception as skipped:  # else a test that looks at nothing would hold
            raise NotHeld(f"{self.name} is skipped here: {skipped}") from skipped
        return None


def scenario(work: Callable[[], object], name: str, key: Hashable = None) -> Scenario:
    """A directed scenario; `key` where the same one has another function each time."""
    return Scenario(work, name, work if key is None else key)


def seeds(run: Callable[[int], str | None], by: str, limit: int, unit: str = "seeds") -> Hunt:
    """Random runs from seed 0 on, at most `limit`, until one reports what is wrong."""

    def hunt() -> Catch | None:
        for seed in range(limit):
            if run(seed) is not None:
                return Catch(by, f"{seed + 1} of at most {limit} {unit}")
        return None

    return hunt


def named(work: Callable[..., object]) -> str:
    """The id of a test that can be pasted; the bare name of a scenario."""
    if not work.__name__.startswith("test_"):
        return work.__name__
    return f"{work.__module__.replace('.', '/')}.py::{work.__name__}"


def report(rows: list[tuple[Mutant, list[Catch]]]) -> str:
    """The page for people: a section for each area, a line for each bug."""
    lines = HEAD.splitlines()
    for area, mutants in groupby(rows, lambda row: row[0].area):
        lines += ["", f"## {area}", ""]
        lines += [line for mutant, found in mutants for line in _item(mutant, found)]
    return "\n".join(lines) + "\n"


def _item(mutant: Mutant, found: list[Catch]) -> list[str]:
    """The bug, what noticed it, and after how much, as the lines of a list's item."""
    missed = SURVIVED if mutant.unable is None else f"not hunted here: {mutant.unable}"
    by = ", ".join(dict.fromkeys(catch.by for catch in found)) or missed
    took = ", ".join(dict.fromkeys(catch.took for catch in found))
    text = f"- **{mutant.breaks}**: {by}" + (f" ({took})" if took else "")
    return wrap(
        text, COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
