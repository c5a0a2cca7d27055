"""Why a member took on its role: what the log and the views of operators say."""

from __future__ import annotations

import re

from tests.support.raft_world import World

FOLLOWS = ("leads", "stands for election", "is in term 2")
"""Whatever of its successor a former leader hears first."""


def test_a_member_that_leads_says_why_it_stood() -> None:
    world = World("abc", seed=9).start()
    first = world.elect()
    world.network.isolate(first.name)
    world.run(3.0)
    second = world.leaders[0] if world.leaders[0] is not first else world.leaders[-1]
    silent = rf"elected, because the leader {first.name} was silent for \d\.\d\d s"
    assert re.fullmatch(silent, second.node.role_cause), second.node.role_cause
    world.network.heal()
    world.run(1.0)
    assert first.node.role == "follower"
    assert first.node.role_cause in {f"{second.name} {says}" for says in FOLLOWS}


def test_a_hand_over_is_a_cause() -> None:
    world = World("abc", seed=9).start()
    leader = world.elect()
    target = next(name for name in world.nodes if name != leader.name)
    world.commit(leader, 3)
    world.run(0.5)
    leader.node.transfer(target, lambda why: None)
    world.run_until(lambda: world.nodes[target].node.role == "leader")
    cause = world.nodes[target].node.role_cause
    assert cause == "elected, because the leader handed over to it"
