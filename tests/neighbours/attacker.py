"""`python -m tests.neighbours.attacker PLAN KIND SECONDS SEED`: attack, then print its cost.

Owns nothing but its process: an attack must share neither memory nor an event loop with the client
that it disturbs.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from tests.conformance.peer import Broken
from tests.neighbours.field import Field
from tests.neighbours.kinds import ATTACKS


def main() -> None:
    """Attack until the time is over, whatever the nodes answer."""
    plan, kind, seconds, seed = sys.argv[1:]
    field = Field.of(Path(plan), float(seconds), seed)
    for _ in field.rounds(0.05):  # What a node refuses or cuts is tried again.
        with contextlib.suppress(Broken, OSError):
            ATTACKS[kind].run(field)
    print(field.report())


if __name__ == "__main__":
    main()
