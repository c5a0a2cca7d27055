"""Runs from a seed, without Hypothesis.

`python -m tests.client.model.driving FIRST COUNT [blocking]`, where every second program of a run
has the blocking client.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter

from tests.client.model.actions import ACTIONS, step
from tests.client.model.playing import Scene, played
from tests.machine.model.driving import SeededDraw
from tests.machine.model.generating import Chooser

STEPS = 35


def run(seed: int, steps: int = STEPS, *, blocking: bool = False) -> Scene:
    """Play a seed to its end. Raises AssertionError with what led to it."""
    rng = random.Random(f"promises {seed}")
    choose = Chooser(SeededDraw(rng))
    with played(seed, blocking=blocking) as scene:
        for _ in range(steps):
            can = [name for name, action in ACTIONS.items() if action.can(scene)]
            step(scene, choose, rng.choices(can, [ACTIONS[name].weight for name in can])[0])
    return scene


def main() -> int:
    """Run seeds, and print those that fail."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    blocking = "blocking" in sys.argv[3:]
    compared: Counter[str] = Counter()
    failed = 0
    began = time.monotonic()
    for seed in range(first, first + count):
        try:
            compared.update(run(seed, blocking=blocking).heard.kinds)
        except AssertionError as error:
            failed += 1
            lines = str(error).splitlines()
            print(f"seed {seed}: {lines[-1]}" if count > 1 else str(error))
    print(f"{failed} of {count} failed, {time.monotonic() - began:.1f} s")
    for name, number in sorted(compared.items()):
        print(f"{number:8} {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
