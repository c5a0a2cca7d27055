"""Plausible bugs of a node's doors and descriptors: a test must notice each.

Owns the bugs, each as one place in the source of one function, and the tests that hunt them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from node.journal.io.seats import Seats
from tests.mutants.hunting import Hunt, Mutant, named, scenario
from tests.mutants.switch import Switch, edited
from tests.node.journal import test_descriptors as descriptors


def _in_folder(work: Callable[[Path], object]) -> Hunt:
    """A test that needs an empty folder and nothing else."""

    def run() -> None:
        with tempfile.TemporaryDirectory(prefix="fifo-mutant-") as folder:
            work(Path(folder))

    return scenario(run, named(work))


BUGS: dict[str, tuple[Switch, Hunt]] = {
    "a file that is closed gives its reserved descriptor away": (
        edited(Seats, "leave", "if descriptor in self._occupied:", "if False:"),
        _in_folder(descriptors.test_a_journal_gives_all_of_its_descriptors_back),
    ),
    "a file that cannot be opened costs a reserved descriptor": (
        edited(Seats, "take", "self._refill()", "pass"),
        _in_folder(descriptors.test_a_file_that_cannot_be_opened_costs_no_seat),
    ),
}

MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant("node", breaks, breaks, switch, (hunt,)) for breaks, (switch, hunt) in BUGS.items()
)
