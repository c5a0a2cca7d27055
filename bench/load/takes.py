"""The runs of one command: one, several of the same, one per value of a sweep, or both.

Owns their order and their names. Knows no Spark.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from bench.load import sweep
from bench.load.workload import Workload


class Take(NamedTuple):
    """A run. `name`: of its queue, and of its history among several; `value`: of what is swept,
    else 0."""

    name: str
    value: int
    workload: Workload


def takes(options: argparse.Namespace) -> list[Take]:
    """The runs, in rounds over the values: a noisy minute of the machine falls on all. Raises
    WorkloadWrong where one of them cannot be carried out."""
    values = [(0, options.workload)]
    if options.sweep:
        values = sweep.variants(options.workload, options.sweep)
    found = []
    for number in range(1, options.runs + 1):
        for value, workload in values:
            parts = [options.queue]
            parts += [str(value)] if options.sweep else []
            parts += [str(number)] if options.runs > 1 else []
            found.append(Take("-".join(parts), value, workload))
    return found
