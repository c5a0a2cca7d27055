"""`python -m tests.support.erring`: fifo whose nodes compute wrongly, each in its own way.

Owns the mistakes. To declare the queue `ONCE` makes n2 and n3 count its bytes wrongly when they
apply that entry first, as memory that flips does; to declare `ALWAYS` has every node do so whenever
it applies it, as programs that differ do. Marks are closer together than in a node that ships.
Everything else is the program itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from unittest.mock import patch

from fifo.machine.contract import Command, Machine, Meta, Outcome, commands
from node.broker import machine_host
from node.cli.main import main

ONCE = "once"
ALWAYS = "always"
MARK_ENTRIES = 16

_right = Machine.apply_batch
_erred: set[int] = set()
"""Entries at which this process was wrong."""


def apply_batch(machine: Machine, meta: Meta, batch: Sequence[Command]) -> Outcome:
    """Apply a batch, and count the bytes of a queue wrongly, by the number of this node."""
    found = _right(machine, meta, batch)
    number = int(sys.argv[-1].removeprefix("n"))
    for one in batch:
        if not isinstance(one, commands.Declare):
            continue
        queue = machine.state.queues[machine.state.queue_names[one.name]]
        if one.name == ALWAYS:
            queue.bytes += number
        elif one.name == ONCE and number > 1 and meta.index not in _erred:
            _erred.add(meta.index)
            queue.bytes += number
    return found


if __name__ == "__main__":
    with (
        patch.object(Machine, "apply_batch", apply_batch),
        patch.object(machine_host, "MARK_ENTRIES", MARK_ENTRIES),
    ):
        main()
