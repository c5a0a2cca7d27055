"""Runs of a pair from a seed, without Hypothesis: many steps quickly, and short stories.

`python -m tests.machine.model.driving SEEDS STEPS [FIRST] [runs]` runs them; the first that differs
is cut down to the entries that matter, and printed.
"""

import random
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any
from unittest.mock import patch

from fifo.machine import Machine, limits
from tests.machine.model.comparing import Pair, Step
from tests.machine.model.generating import Chooser, Generator
from tests.machine.model.running import RunsGenerator

Script = list[tuple[int, tuple[Step, ...]]]


@dataclass
class SeededDraw:
    """Choices from a seeded generator."""

    rng: random.Random

    def below(self, limit: int) -> int:
        """An integer from 0 up to, not including, `limit`."""
        return self.rng.randrange(limit)


def run(
    seed: int, steps: int, *, restore_percent: int = 2, kind: type[Generator] = Generator
) -> tuple[Pair, AssertionError | None]:
    """Run a seed; return the pair, with the first difference between model and machine.

    Every fifth one keeps very few ranges of taken tokens, for the bound of 4096 is out of reach.
    """
    with few_taken_ranges(seed % 5 == 4):
        return _run(seed, steps, restore_percent, kind)


@contextmanager
def few_taken_ranges(few: bool) -> Iterator[None]:
    """A bound of three ranges per consumer, where asked for."""
    with patch.object(limits, "TAKEN_RANGES", 3 if few else limits.TAKEN_RANGES):
        yield


def _run(
    seed: int, steps: int, restore_percent: int, kind: type[Generator]
) -> tuple[Pair, AssertionError | None]:
    pair = Pair()
    chooser = Chooser(SeededDraw(random.Random(seed)))
    generator = kind(pair, chooser)
    try:
        for steps_of_entry in generator.first_entries():
            pair.apply(0, *steps_of_entry)
        for _ in range(steps):
            if chooser.chance(restore_percent):
                pair.machine = Machine.restore(pair.machine.snapshot())
            batch = generator.entry()
            pair.apply(generator.stamp(), *batch)
    except AssertionError as error:
        return pair, error
    return pair, None


def replay(script: Script) -> AssertionError | None:
    """The first difference when these entries are applied."""
    pair = Pair()
    try:
        for stamp_ms, steps in script:
            pair.apply(stamp_ms, *steps)
    except AssertionError as error:
        return error
    return None


def place_of(error: AssertionError | None) -> list[int]:
    """Locate the failure: a shorter script must fail in the same way."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    return [frame.lineno or 0 for frame in frames[-2:]]


def shorten(script: Script) -> Script:
    """Fewer entries that still differ: chunks are left out as long as that helps."""
    wanted = place_of(replay(script))
    size = len(script) // 2
    while size:
        at = 0
        while at < len(script):
            shorter = script[:at] + script[at + size :]
            if shorter and place_of(replay(shorter)) == wanted:
                script = shorter
            else:
                at += size
        size //= 2
    return _thinner(script, wanted)


def _thinner(script: Script, wanted: list[int]) -> Script:
    """The same with single commands left out of entries."""
    for at in range(len(script)):
        for place in reversed(range(len(script[at][1]))):
            stamp_ms, steps = script[at]
            entry = (stamp_ms, steps[:place] + steps[place + 1 :])
            thinner = [*script[:at], entry, *script[at + 1 :]]
            if len(steps) > 1 and place_of(replay(thinner)) == wanted:
                script = thinner
    return script


def shown(value: Any) -> str:
    """A command without the fields that have their default."""
    if not is_dataclass(value):
        return repr(value)
    parts = []
    for item in fields(value):
        found = getattr(value, item.name)
        if found == item.default:
            continue
        if isinstance(found, list):
            found = "[" + ", ".join(shown(one) for one in found) + "]"
        parts.append(f"{item.name}={found}")
    return f"{type(value).__name__}({', '.join(parts)})"


def story(script: Script) -> str:
    """A script as lines a person can follow."""
    lines = []
    for index, (stamp_ms, steps) in enumerate(script, 1):
        lines.append(f"{index} @{stamp_ms}: " + "; ".join(shown(step) for step in steps))
    return "\n".join(lines)


def report(seed: int, pair: Pair, error: AssertionError) -> str:
    """Describe the difference, after the entries that matter."""
    script = pair.script
    if replay(script) is not None:
        script = shorten(script)
        error = replay(script) or error
    return f"seed {seed} differs after {len(pair.script)} entries\n{story(script)}\n{error}"


def main() -> None:
    """Run seeds from the command line; with the word `runs` those of runs of keys."""
    kind = RunsGenerator if "runs" in sys.argv else Generator
    sys.argv = [word for word in sys.argv if word != "runs"]
    seeds, steps = int(sys.argv[1]), int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    for seed in range(first, first + seeds):
        pair, error = run(seed, steps, kind=kind)
        if error is not None:
            with few_taken_ranges(seed % 5 == 4):
                print(report(seed, pair, error))
            raise SystemExit(1)
    print(f"{seeds} runs of {steps} steps agree")


if __name__ == "__main__":
    main()
