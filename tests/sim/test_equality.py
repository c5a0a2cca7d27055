"""Replicas compare what they did all through a run with faults, and are found equal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fifo.words.versions import NEWEST
from node.raft.core import Core
from node.raft.equality import Comparison, Equality
from tests.sim.run import run
from tests.sim.world import World

pytestmark = pytest.mark.slow

SEEDS = range(3_001, 3_005)
"""Of groups of more than one."""

MARK_ENTRIES = 8
DIGEST_MS = 500


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
    """Have the members compare often, their whole states too."""
    world.mark_entries = MARK_ENTRIES
    world.digest_ms = DIGEST_MS


def raised_amid_faults(world: World) -> None:
    """The same, and the version is raised while something goes wrong."""
    closely(world)
    first, last = world.plan.faults[0].at, world.plan.faults[-1].at
    world.raised_at = world.chance("version").uniform(first, last)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_make_no_replica_differ(seed: int) -> None:
    with seen() as found:
        run(seed, prepare=closely)
    assert len(found) > 5, "they compared hardly anything"
    assert not [one for one in found if one.differing]
    assert any(len(one.agreed) == 3 for one in found)
    assert [one for one in found if one.whole], "no whole states were compared"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_version_is_raised_amid_faults(
    seed: int,
) -> None:
    with seen() as found:
        world = run(seed, prepare=raised_amid_faults)
    assert not [one for one in found if one.differing]
    versions = {
        host.running.broker.host.machine.version
        for host in world.hosts.values()
        if host.running is not None and host.name != world.sick
    }
    assert versions == {NEWEST}
