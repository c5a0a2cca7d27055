"""`python -m tests.neighbours`: every kind of attack beside an honest client.

The exit code is 1 where a fact is broken. `--write` keeps the table in `docs/neighbours.md`.
Several runs in a row (`--runs 3`) end at the first broken fact, and then write nothing;
`--spinning 2` has two processes of normal priority spin beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.processes import Household
from tests.neighbours.judge import Verdict, judge, prepare
from tests.neighbours.kinds import KINDS, WITH_SECRET, lasts
from tests.neighbours.nodes import Nodes
from tests.neighbours.page import Beginning, Run, commit_now, write

AROUND_SECONDS: Final = 4.0
"""About what a kind takes beside its attack, before the first one was timed: for the estimate."""

SECRET: Final = b"the members' own secret, 32 bytes"
"""Of nodes with one."""


class Estimate:
    """Time that is left, from the kinds that were run."""

    def __init__(self, kinds: Sequence[str], seconds: float, runs: int) -> None:
        self._took = {kind: lasts(kind, seconds) + AROUND_SECONDS for kind in kinds}
        self._left = list(kinds) * runs

    def took(self, kind: str, seconds: float) -> None:
        """Take note of the time of the next kind."""
        self._took[kind] = seconds
        self._left.remove(kind)

    def __str__(self) -> str:
        minutes = sum(self._took[kind] for kind in self._left) / 60
        return f"{len(self._left)} to go, about {minutes:.0f} min"


async def run(
    kinds: Sequence[str], seconds: float, seed: int, folder: Path, left: Estimate, *, ends: bool
) -> list[Verdict]:
    """Judge these kinds one after the other. A broken cluster is replaced by a new one, or `ends`
    the run."""
    verdicts: list[Verdict] = []
    nodes: Nodes | None = None
    try:
        for at, kind in enumerate(kinds):
            secret = SECRET if kind in WITH_SECRET else None
            if nodes is not None and nodes.secret != secret:
                nodes.stop()
                nodes = None
            if nodes is None:
                nodes = Nodes(folder / str(at), secret)
                await nodes.start()
                await prepare(nodes)
            began = time.monotonic()
            found = await judge(nodes, kind, seconds, seed)
            left.took(kind, time.monotonic() - began)
            verdicts.append(found)
            said = "; ".join(found.broken) or "holds"
            cost = f"{found.frames} frames, {found.connections} connections"
            print(f"{kind:<26} {found.p99_ms:5.0f} ms  {cost:<38} {said}  ({left})", flush=True)
            if found.says:
                print(f"    {found.says}", flush=True)
            if found.broken:
                nodes.stop()
                nodes = None
                if ends:
                    break
    finally:
        if nodes is not None:
            nodes.stop()
    return verdicts


@contextlib.contextmanager
def spinning(count: int, folder: Path) -> Iterator[None]:
    """Have processes of normal priority use all the CPU that they get."""
    household = Household(folder / "spinning")
    try:
        for number in range(count):
            household.start(f"spin{number}", sys.executable, "-c", "while True: pass")
        yield
    finally:
        household.end()


def main() -> int:
    """The process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.neighbours", description=__doc__)
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this; repeatable")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each attack")
    parser.add_argument("--seed", type=int, default=1, help="of what is random, in the first run")
    parser.add_argument("--runs", type=int, default=1, help="in a row; more end at a broken fact")
    parser.add_argument("--spinning", type=int, default=0, help="processes that spin beside it")
    parser.add_argument("--write", action="store_true", help="keep docs/neighbours.md")
    options = parser.parse_args()
    beginning = Beginning(commit_now(), options.spinning)
    kinds = options.kind or list(KINDS)
    left = Estimate(kinds, options.seconds, options.runs)
    runs: list[Run] = []
    with (
        tempfile.TemporaryDirectory(prefix="fifo-neighbours-") as made,
        spinning(options.spinning, Path(made)),
    ):
        for seed in range(options.seed, options.seed + options.runs):
            began = time.monotonic()
            folder = Path(made) / str(seed)
            ends = options.runs > 1
            verdicts = asyncio.run(run(kinds, options.seconds, seed, folder, left, ends=ends))
            runs.append(Run(verdicts, seed, time.monotonic() - began))
            held = sum(not one.broken for one in verdicts)
            print(f"seed {seed}: {held} of {len(kinds)} kinds: every fact holds", flush=True)
            if ends and held < len(kinds):
                return 1
    if options.write:
        write(runs, beginning)
    return 0 if held == len(kinds) else 1


if __name__ == "__main__":
    sys.exit(main())
