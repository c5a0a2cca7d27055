"""`python -m tests.mutants`: hunt every mutant, print what caught it, write `docs/mutants.md`."""

from __future__ import annotations

import argparse
import logging
import sys
import time

from tests.mutants.hunting import ROOT, Catch, Mutant, NotHeld, catches, report
from tests.mutants.registry import MUTANTS


def main() -> int:
    """The process's exit code: 1 where one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", help="those whose area or name has it; no page")
    options = parser.parse_args()
    wanted = [
        mutant
        for mutant in MUTANTS
        if options.only is None or options.only in f"{mutant.area} {mutant.name} {mutant.breaks}"
    ]
    logging.disable()  # Nodes with a bug and a failing disk have much to say.
    began = time.monotonic()
    rows: list[tuple[Mutant, list[Catch]]] = []
    broken: list[str] = []
    for mutant in wanted:
        found: list[Catch] = []
        try:
            if mutant.unable is None:
                found = catches(mutant)
        except NotHeld as error:
            broken.append(str(error))
            print(f"{mutant.area:<8} {mutant.breaks}: {error}", flush=True)
            continue
        rows.append((mutant, found))
        words = "; ".join(f"{catch.by} ({catch.took})" for catch in found) or "SURVIVED"
        if mutant.unable is not None:
            words = f"skipped: {mutant.unable}"
        print(f"{mutant.area:<8} {mutant.breaks}: {words}", flush=True)
    survivors = [mutant.breaks for mutant, found in rows if not found and mutant.unable is None]
    print(f"{len(rows) - len(survivors)} of {len(rows)} caught, {time.monotonic() - began:.0f} s")
    if survivors:
        print("survived: " + "; ".join(survivors), file=sys.stderr)
    if broken:
        print("not hunted: " + "; ".join(dict.fromkeys(broken)), file=sys.stderr)
    elif options.only is None:
        (ROOT / "docs" / "mutants.md").write_text(report(rows))
    return 1 if survivors or broken else 0


if __name__ == "__main__":
    sys.exit(main())
