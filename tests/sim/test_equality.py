"""Replicas compare what they did all through a run with faults, and are found equal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from node.raft.core import Core
from node.raft.equality import Comparison, Equality
from tests.sim.run import run
from tests.sim.world import World

pytestmark = pytest.mark.slow

SEEDS = range(3_001, 3_005)
"""Of groups of more than one."""

MARK_ENTRIES = 8


class Seen(Equality):
    """Keeps every outcome of a comparison."""

    found: list[Comparison] = []  # noqa: RUF012  # of all members of a run, on purpose

    def _noted(self, verdict: Comparison) -> Comparison:
        self.found.append(verdict)
        return super()._noted(verdict)


@contextmanager
def seen() -> Iterator[list[Comparison]]:
    """The comparisons of the runs within."""
    before, Core.equality_class = Core.equality_class, Seen
    Seen.found.clear()
    try:
        yield Seen.found
    finally:
        Core.equality_class = before


def closely(world: World) -> None:
    """Have the members compare often."""
    world.mark_entries = MARK_ENTRIES


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_make_no_replica_differ(seed: int) -> None:
    with seen() as found:
        run(seed, prepare=closely)
    assert len(found) > 5, "they compared hardly anything"
    assert not [one for one in found if one.differing]
    assert any(len(one.agreed) == 3 for one in found)
