"""`python -m tests.support.raising`: fifo with a mistake in its machine, on real processes.

Owns the mistake: to declare the queue `POISON` raises, as a case would that the machine's author
did not think of. Everything else is the program itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from fifo.machine.contract import Command, Machine, Meta, Outcome, commands
from node.cli.main import main

POISON = "poison"

_right = Machine.apply_batch


def apply_batch(machine: Machine, meta: Meta, batch: Sequence[Command]) -> Outcome:
    """Apply a batch; raises behind the change of time, as a real mistake leaves a half change."""
    found = _right(machine, meta, batch)
    for one in batch:
        if isinstance(one, commands.Declare) and one.name == POISON:
            raise KeyError("a mistake of this program")
    return found


if __name__ == "__main__":
    Machine.apply_batch = apply_batch  # type: ignore[assignment]
    main()
