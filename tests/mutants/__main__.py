"""`python -m tests.mutants`: hunt every mutant, print what caught it, write `docs/mutants.md`.

Owns the command line, the processes that hunt, and what is printed. Must not know any single bug.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from tests.mutants.hunting import ROOT, Catch, Mutant, NotHeld, catches, report
from tests.mutants.registry import MUTANTS
from tests.support.many_seeds import add_jobs_option


class Hunted(NamedTuple):
    """Outcome of the hunt for one mutant."""

    found: list[Catch]
    broken: str | None
    """A scenario that fails without any bug, so that it can catch none."""


def main() -> int:
    """The process's exit code: 1 where one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", help="those whose area or name has it; no page")
    add_jobs_option(parser, "mutants")
    options = parser.parse_args()
    wanted = [
        number
        for number, mutant in enumerate(MUTANTS)
        if options.only is None or options.only in f"{mutant.area} {mutant.name} {mutant.breaks}"
    ]
    if not wanted:
        parser.error(f"no mutant's area or name has {options.only}")
    began = time.monotonic()
    rows: list[tuple[Mutant, list[Catch]]] = []
    broken: list[str] = []
    with ProcessPoolExecutor(options.jobs, initializer=_quiet) as pool:
        for number, hunted in zip(wanted, pool.map(_hunt, wanted), strict=True):
            mutant = MUTANTS[number]
            done = f"{len(rows) + len(broken) + 1}/{len(wanted)} {mutant.area:<8} {mutant.breaks}"
            print(f"{done}: {_said(mutant, hunted)}", flush=True)
            if hunted.broken is not None:
                broken.append(hunted.broken)
            else:
                rows.append((mutant, hunted.found))
    survivors = [mutant.breaks for mutant, found in rows if not found and mutant.unable is None]
    print(f"{len(rows) - len(survivors)} of {len(rows)} caught, {time.monotonic() - began:.0f} s")
    if survivors:
        print("survived: " + "; ".join(survivors), file=sys.stderr)
    if broken:
        print("not hunted: " + "; ".join(dict.fromkeys(broken)), file=sys.stderr)
    elif options.only is None:
        (ROOT / "docs" / "mutants.md").write_text(report(rows))
    return 1 if survivors or broken else 0


def _quiet() -> None:
    """Silence a worker: nodes with a bug and a failing disk have much to say."""
    logging.disable()


def _hunt(number: int) -> Hunted:
    mutant = MUTANTS[number]
    try:
        return Hunted(catches(mutant) if mutant.unable is None else [], None)
    except NotHeld as error:
        return Hunted([], str(error))


def _said(mutant: Mutant, hunted: Hunted) -> str:
    if hunted.broken is not None:
        return hunted.broken
    if mutant.unable is not None:
        return f"skipped: {mutant.unable}"
    return "; ".join(f"{catch.by} ({catch.took})" for catch in hunted.found) or "SURVIVED"


if __name__ == "__main__":
    sys.exit(main())
