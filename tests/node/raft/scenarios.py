"""Rules as scenarios: each holds, and each goes red with the rule taken out.

Owns the two tests that every table of them is run by. Knows none of the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from node.raft.core import Core
from node.raft.errors import RaftStopped
from tests.support import raft_mutants as mutants

Rule = tuple[Callable[..., None], type[Core]]
"""A scenario that takes the class of a node, ours by default, and the core without the rule."""


def as_tests(rules: Sequence[Rule]) -> tuple[Callable[..., None], Callable[..., None]]:
    """The tests of a table, to be given names in its module."""
    names = [scenario.__name__ for scenario, _ in rules]

    @pytest.mark.parametrize("scenario", [scenario for scenario, _ in rules], ids=names)
    def holds(scenario: Callable[[], None]) -> None:
        scenario()

    @pytest.mark.parametrize(("scenario", "core"), rules, ids=names)
    def shows(scenario: Callable[..., None], core: type[Core]) -> None:
        with pytest.raises((AssertionError, RaftStopped)):
            scenario(mutants.node_with(core))

    return holds, shows
