"""Who hunts a mutant: stories, the model, scenarios, seeds of the simulator.

Owns what "caught" means. A hunt is called with the bug switched on, and says what it took; it is
caught where a check fails that holds without it, or where something raises that never does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import NamedTuple

from tests.mutants.switch import Switch

ROOT = Path(__file__).parents[2]


class Catch(NamedTuple):
    """Who noticed, and what it took: runs, seeds, or one directed scenario."""

    by: str
    took: str


Hunt = Callable[[], Catch | None]

SURVIVED = "**no test noticed it**"
COLUMNS = 118
"""Of a line of the page."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug: where it is at home, how it is put back, and who may catch it."""

    area: str
    name: str
    switch: Switch
    hunts: tuple[Hunt, ...]
    unable: str | None = None  # why nobody can hunt it on this machine


def catches(mutant: Mutant) -> list[Catch]:
    """All who notice it, in the order of its hunts."""
    with mutant.switch():
        found = [hunt() for hunt in mutant.hunts]
    return [catch for catch in found if catch is not None]


def scenario(work: Callable[[], object], name: str) -> Hunt:
    """A directed scenario, which goes red."""

    def hunt() -> Catch | None:
        try:
            work()
        except Exception:  # whatever breaks: without the bug nothing does
            return Catch(f"`{name}`", "1 scenario")
        except BaseException as error:
            if type(error).__name__ != "Failed":  # what `pytest.raises` raises in a scenario
                raise
            return Catch(f"`{name}`", "1 scenario")
        return None

    return hunt


def seeds(run: Callable[[int], str | None], by: str, limit: int, unit: str = "seeds") -> Hunt:
    """Random runs from seed 0 on, until one says what is wrong; at most `limit` of them."""

    def hunt() -> Catch | None:
        for seed in range(limit):
            if run(seed) is not None:
                return Catch(by, f"{seed + 1} of at most {limit} {unit}")
        return None

    return hunt


def report(rows: list[tuple[Mutant, list[Catch]]]) -> str:
    """The page for people: a section for each area, a line for each bug."""
    caught = sum(bool(found) for _, found in rows)
    lines = [
        "# Mutants",
        "",
        "Bugs put back on purpose, one at a time: a test of their area has to notice. `make",
        "mutants` hunts them all, fails where one survives, and writes this page. The registry is",
        "`tests/mutants/registry.py`; the bugs stand beside the tests of their area.",
        "",
        f"{caught} of {len(rows)} caught.",
    ]
    for area, mutants in groupby(rows, lambda row: row[0].area):
        lines += ["", f"## {area}", ""]
        lines += [line for mutant, found in mutants for line in _item(mutant, found)]
    return "\n".join(lines) + "\n"


def _item(mutant: Mutant, found: list[Catch]) -> list[str]:
    """The bug, what noticed it, and after how much, as the lines of a list's item."""
    missed = SURVIVED if mutant.unable is None else f"not hunted here: {mutant.unable}"
    by = ", ".join(dict.fromkeys(catch.by for catch in found)) or missed
    took = ", ".join(dict.fromkeys(catch.took for catch in found))
    text = f"- **{mutant.name}**: {by}" + (f" ({took})" if took else "")
    return wrap(
        text, COLUMNS, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
