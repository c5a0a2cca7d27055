"""Syncs off the event loop: what counts, what waits, and what a slow disk may not cost."""

from __future__ import annotations

import errno
import os

import pytest

from node.journal.errors import JournalFailed
from node.raft.config import Outcome
from node.raft.node import RaftNode
from node.testing.disk import SimStorage
from tests.node.raft.scenarios import Rule, as_tests
from tests.support import raft_mutants as mutants
from tests.support import raft_probe, raft_schedule
from tests.support.journals import ONE_SEGMENT, open_journal
from tests.support.raft_network import Frame
from tests.support.raft_world import SimNode, World

NodeClass = type[RaftNode]


def make_slow(world: World, node: SimNode, seconds: float) -> None:
    """From now on each sync takes that long on the average, and the node knows it."""
    node.sync_seconds = seconds
    leader = world.leaders[0]
    while node.journal is not None and node.journal.log.recent_sync_seconds < 0.002:
        world.commit(leader, 1)


def test_a_slow_leader_commits_entries_on_a_majority_of_the_others() -> None:
    world = World("abc", seed=1).start()
    leader = world.elect("a")
    make_slow(world, leader, 0.4)
    for _ in range(20):
        began_at = world.now
        world.commit(leader, 5)
        assert world.now - began_at < 0.05
        assert leader.node.lease_until() > leader.clock()
        world.run(0.2)
    assert leader.node.is_leader
    assert leader.journal is not None
    assert leader.journal.log.synced_index <= leader.node.commit_index
    world.run(5.0)
    world.checks.at_rest()


def test_a_slow_follower_is_not_taken_for_a_dead_one() -> None:
    """A node of three is down, the other two have disks about as slow as an election timeout."""
    world = World("abc", seed=2).start()
    leader = world.elect("a")
    for name in "ab":
        make_slow(world, world.nodes[name], 0.45)
    world.nodes["c"].kill()
    term = leader.node.term
    for _ in range(5):
        submitted = world.submit(leader, world.payload())
        world.run_until(lambda: bool(submitted.outcomes), 9.0)  # noqa: B023  # called at once
        assert submitted.outcomes[0][0] is Outcome.COMMITTED
        assert leader.node.lease_until() > leader.clock()
    assert (leader.node.role, leader.node.term) == ("leader", term)


def test_a_fast_disk_stays_on_the_loops_thread_and_a_slow_one_comes_back() -> None:
    world = World("abc", seed=3).start()
    leader = world.elect("a")
    world.commit(leader, 5)
    assert not raft_probe.syncs_off_loop(leader.node)
    make_slow(world, leader, 0.5)
    world.run(1.0)
    assert raft_probe.syncs_off_loop(leader.node)
    leader.sync_seconds = 0.0001
    for _ in range(60):
        world.commit(leader, 1)
        world.run(0.01)
    assert not raft_probe.syncs_off_loop(leader.node)


def leader_counts_its_disk(node_class: NodeClass = RaftNode) -> None:
    """With one follower gone, nothing commits before the leader's own disk has it."""
    world = World("abc", seed=4, node_class=node_class).start()
    leader = world.elect("a")
    make_slow(world, leader, 2.0)
    raft_probe.core(leader.node).leave_hanging_disk = lambda: None  # type: ignore[method-assign]  # here it stays
    world.run(5.0)
    world.nodes["c"].kill()
    submitted = [world.submit(leader, world.payload()) for _ in range(3)]
    world.run_until(lambda: all(one.outcomes for one in submitted), 9.0)
    assert leader.journal is not None
    assert leader.journal.log.synced_index >= submitted[-1].outcomes[0][1]


def promises_wait_for_their_sync(node_class: NodeClass = RaftNode) -> None:
    """A follower's answer to entries leaves after the sync that covers them, not an earlier one."""
    world = World("abc", seed=5, node_class=node_class).start()
    leader = world.elect("a")
    follower = world.nodes["b"]
    make_slow(world, follower, 0.2)
    journal = follower.journal
    assert journal is not None

    def intercept(frame: Frame) -> str:
        message = frame.message()
        if frame.source == "b" and message["type"] == "next_node_idx" and message["success"]:
            assert message["next_node_idx"] - 1 <= journal.log.synced_index
        return "pass"

    world.network.intercept = intercept
    for _ in range(60):
        world.submit(leader, world.payload())
        world.run(0.05)
    world.run(3.0)
    assert journal.log.synced_index == leader.node.last_index


def all_slow(world: World, seconds: float) -> SimNode:
    """Every disk takes that long on the average, and every node knows; the leader."""
    leader = world.elect("a")
    for node in world.nodes.values():
        make_slow(world, node, seconds)
    world.run(3 * seconds)
    return leader


def votes_wait_for_their_sync(node_class: NodeClass = RaftNode) -> None:
    """A node that stands or votes says so when its disk has it; its loop goes on meanwhile."""
    world = World("abc", seed=6, node_class=node_class).start()
    leader = all_slow(world, 0.1)
    seen: list[str] = []

    def intercept(frame: Frame) -> str:
        kind = frame.message()["type"]
        journal = world.nodes[frame.source].journal
        if kind in ("request_vote", "response_vote") and journal is not None:
            assert journal.log.term_synced, kind
            seen.append(kind)
        return "pass"

    world.network.intercept = intercept
    for _ in range(3):
        leader.node.transfer(min(set("abc") - {leader.name}), lambda _: None)
        term = leader.node.term
        world.run_until(
            lambda: any(n.node.is_leader and n.node.term > term for n in world.leaders)  # noqa: B023  # called at once
        )
        leader = world.leaders[0]
        world.commit(leader, 3)
    assert {"request_vote", "response_vote"} <= set(seen)
    world.run(5.0)
    world.checks.at_rest()


def answers_wait_for_their_term(node_class: NodeClass = RaftNode) -> None:
    """A heartbeat of a new leader is answered once the disk has its term, not by the way."""
    world = World("abc", seed=8, node_class=node_class).start()
    leader = world.elect("a")
    follower = world.nodes["b"]
    make_slow(world, follower, 0.4)
    journal = follower.journal
    assert journal is not None

    def intercept(frame: Frame) -> str:
        message = frame.message()
        if frame.source == "b" and message["type"] == "next_node_idx":
            assert journal.log.term_synced or message["term"] < journal.log.term
        return "pass"

    world.network.intercept = intercept
    for target in "cac":
        leader.node.transfer(target, lambda _: None)
        leader = world.nodes[target]
        world.run_until(lambda: leader.node.is_leader)  # noqa: B023  # called at once
        world.commit(leader, 5)
        world.run(3.0)


RULES: list[Rule] = [
    (leader_counts_its_disk, mutants.CountsItself),
    (promises_wait_for_their_sync, mutants.ReleasesAll),
    (votes_wait_for_their_sync, mutants.AnswersAtOnce),
    (answers_wait_for_their_term, mutants.AnswersInAnyTerm),
]
test_the_rule_holds, test_the_scenario_shows_when_the_rule_is_taken_out = as_tests(RULES)


@pytest.mark.parametrize("seconds", [0.3, 0.9, 1.5])
def test_votes_are_not_overtaken_for_ever_on_disks_slower_than_an_election(seconds: float) -> None:
    world = World("abc", seed=9).start()
    leader = all_slow(world, seconds)
    leader.kill()
    world.run_until(lambda: any(node.node.is_leader for node in world.leaders), 60 * seconds)
    world.commit(world.leaders[0], 1)


@pytest.mark.slow
@pytest.mark.parametrize("base", [3000, 3010])
def test_random_faults_on_slow_disks_break_nothing(base: int) -> None:
    for seed in range(base, base + 10):
        names = "abcde" if seed % 4 == 3 else "abc"
        raft_schedule.run(seed, names=names, late=seed % 2 == 1, prepare=raft_schedule.slow_disks)


def test_random_faults_find_a_leader_that_counts_itself_too_early() -> None:
    node_class = mutants.node_with(mutants.CountsItself)
    for seed in range(10):
        try:
            raft_schedule.run(seed, node_class=node_class, prepare=raft_schedule.slow_disks)
        except AssertionError:
            return
    pytest.fail("the mutant survived 10 seeds")


# --- the journal's side ---


def test_entries_added_during_a_sync_go_with_the_next() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=ONE_SEGMENT)
    journal.log.add(b"\x01", 1, 0)
    job = journal.log.begin_sync()
    assert job is not None
    covered = journal.log.covered_end
    journal.log.add(b"\x10one", 2, 1)
    assert journal.log.begin_sync() is None
    assert journal.log.synced_end < covered < journal.log.gathered_end
    job.run()
    assert journal.log.synced_index == 0
    journal.log.finish_sync(job)
    assert (journal.log.synced_index, journal.log.synced_end, journal.log.dirty) == (
        1,
        covered,
        True,
    )
    journal.log.sync()
    assert (journal.log.synced_index, journal.log.dirty) == (2, False)


def test_a_truncation_during_a_sync_takes_back_its_proof() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=ONE_SEGMENT)
    for index in range(1, 6):
        journal.log.add(b"\x10", index, 1)
    job = journal.log.begin_sync()
    assert job is not None
    journal.log.truncate(3)
    journal.log.add(b"\x10other", 4, 2)
    journal.log.add(b"\x10other", 5, 2)
    job.run()
    journal.log.finish_sync(job)
    assert journal.log.synced_index == 3
    journal.log.sync()
    assert journal.log.synced_index == 5


def test_a_blocking_sync_finishes_the_one_under_way_first() -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=ONE_SEGMENT)
    journal.log.add(b"\x01", 1, 0)
    job = journal.log.begin_sync()
    assert job is not None
    journal.log.set_term(4, "b")
    assert not journal.log.dirty
    journal.log.finish_sync(job)  # Its thread tells later: nothing happens.
    assert journal.log.synced_index == 1
    storage.crash()
    again = open_journal(storage, limits=ONE_SEGMENT)
    assert (again.log.term, again.log.voted_for, again.log.last_index) == (4, "b", 1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_sync_that_fails_on_its_thread_ends_the_journal(number: int) -> None:
    storage = SimStorage()
    journal = open_journal(storage, limits=ONE_SEGMENT)
    journal.log.add(b"\x01", 1, 0)
    job = journal.log.begin_sync()
    assert job is not None

    def hook(operation: str, name: str) -> None:
        raise OSError(number, os.strerror(number))

    storage.hook = hook
    job.run()
    with pytest.raises(JournalFailed, match="has stopped"):
        journal.log.finish_sync(job)
    with pytest.raises(JournalFailed):
        journal.log.sync()
