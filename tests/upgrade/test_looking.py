"""The leader's own look whether the version may be raised: when it proposes, and when it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from fifo.words.versions import NEWEST
from node.broker import limits
from node.broker.proposals import Proposals, Waiter
from node.broker.requests.proposer import Proposer
from node.broker.requests.upgrading import Upgrading
from node.broker.upgrade import SILENT
from node.raft import Outcome
from tests.upgrade.test_upgrade import NEW, Scene

pytestmark = pytest.mark.slow


class Leader:
    """A leader that looks, and what it has proposed."""

    def __init__(self, scene: Scene) -> None:
        self.now_s = 100.0
        self.versions: list[int] = []
        self.waiters: list[Waiter] = []
        self.upgrading = Upgrading(
            scene.upgrade,
            cast("Proposer", None),  # for requests of operators
            cast("Proposals", self),
            lambda: self.now_s,
            alone=True,
        )

    def propose(
        self, encode: Callable[[int], Any], waiter: Waiter, *, weight: int, version: int
    ) -> None:
        self.versions.append(version)
        self.waiters.append(waiter)

    def lose(self) -> None:
        """The last proposal is not applied."""
        lost = self.waiters[-1].lost
        assert lost is not None
        lost(Outcome.NOT_LEADER)

    def look(self) -> None:
        """Look when it is time again."""
        self.now_s += limits.UPGRADE_LOOK_SECONDS
        self.upgrading.look()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_leader_that_knows_an_older_member_leaves_the_version_to_the_operator(
    scene: Scene,
) -> None:
    leader = Leader(scene)
    scene.heard("n2", NEW)
    leader.look()
    assert leader.upgrading.alone
    scene.heard("n3", SILENT)
    leader.look()
    assert not leader.upgrading.alone
    assert leader.versions == []


def test_where_the_operator_wants_it_the_version_is_raised_once_the_older_member_is_new(
    scene: Scene,
) -> None:
    leader = Leader(scene)
    scene.upgrade.automatic = True
    scene.heard("n2", NEW)
    scene.heard("n3", SILENT)
    leader.look()
    assert (leader.upgrading.alone, leader.versions) == (True, [])
    scene.heard("n3", NEW)
    leader.look()
    assert leader.versions == [NEWEST]


def test_there_is_one_proposal_at_a_time_and_another_where_it_is_lost(scene: Scene) -> None:
    leader = Leader(scene)
    scene.heard("n2", NEW)
    scene.heard("n3", NEW)
    leader.look()
    leader.look()
    assert leader.versions == [NEWEST]
    leader.lose()
    leader.look()
    assert leader.versions == [NEWEST, NEWEST]
    leader.lose()
    leader.upgrading.look()
    assert leader.versions == [NEWEST, NEWEST], "it is not time yet"


def test_the_look_ends_with_the_newest_version(scene: Scene) -> None:
    leader = Leader(scene)
    scene.heard("n2", NEW)
    scene.heard("n3", NEW)
    scene.raised()
    leader.look()
    assert not leader.upgrading.alone
    assert leader.versions == []
