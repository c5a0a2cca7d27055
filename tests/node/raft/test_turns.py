"""The cost of a commit in turns and frames: none that has nothing to do."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from node.peers.message import PeerNode
from node.raft import limits
from node.raft.config import Outcome
from tests.support import raft_probe
from tests.support.raft_network import Frame
from tests.support.raft_world import SimNode, World


def watched(node: SimNode) -> list[str]:
    """Note, and grant, each request for a turn of this node from now on."""
    asked: list[str] = []

    def wake() -> None:
        asked.append("wake")
        node.wake()

    raft_probe.on_wake(node.node, wake)
    return asked


def test_an_answer_after_the_commit_asks_for_no_turn() -> None:
    world = World("abc", seed=1).start()
    leader = world.elect("a")
    world.commit(leader, 3)
    world.run(1.0)
    # The last answer is the one of c; nothing else moves.
    world.network.intercept = lambda frame: "drop" if frame.source == "c" else "pass"
    world.submit(leader, world.payload())
    last = leader.node.last_index + 1
    world.run_until(lambda: leader.node.commit_index == last)
    asked = watched(leader)
    core = raft_probe.core(leader.node)
    answer = {
        "type": "next_node_idx",
        "term": leader.node.term,
        "round": core.lease.round,
        "next_node_idx": last + 1,
        "reset": False,
        "success": True,
        "counted": True,
    }
    core.receive(PeerNode("c"), answer)
    assert core.replication.peers[PeerNode("c")].match_index == last
    assert asked == []


def test_an_answer_that_makes_room_for_more_asks_for_a_turn() -> None:
    world = World("abc", seed=2).start()
    leader = world.elect("a")
    world.commit(leader, 3)
    world.run(1.0)
    core = raft_probe.core(leader.node)
    progress = core.replication.peers[PeerNode("c")]
    world.network.intercept = lambda frame: "drop" if frame.source == "c" else "pass"
    progress.in_flight_bytes = window = core.config.window_bytes
    progress.in_flight.append((leader.node.last_index + 1, window))
    world.commit(leader, 2)
    asked = watched(leader)
    answer = {
        "type": "next_node_idx",
        "term": leader.node.term,
        "round": core.lease.round,
        "next_node_idx": leader.node.last_index,
        "reset": False,
        "success": True,
        "counted": True,
    }
    core.receive(PeerNode("c"), answer)
    assert asked == ["wake"]


def test_a_submission_during_a_commit_leaves_in_the_same_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World("abc", seed=3).start()
    leader = world.elect("a")
    world.commit(leader, 1)
    world.run(1.0)
    asked = watched(leader)
    committed: list[int] = []
    asked_within: list[str] = []

    def done(outcome: Outcome, index: int) -> None:
        committed.append(index)
        if len(committed) == 1:
            before = len(asked)
            leader.node.submit([b"the next"], done)
            asked_within.extend(asked[before:])

    leader.node.submit([b"the first"], done)
    world.run_until(lambda: bool(committed))
    assert leader.node.last_index == committed[0] + 1, "in the log as soon as the turn is over"
    assert not asked_within
    world.run_until(lambda: len(committed) == 2)


def test_a_submission_after_the_tick_leaves_in_the_same_turn() -> None:
    """An owner that submits upon an answer does so in `before_sync`: no second turn for that."""
    world = World("abc", seed=5).start()
    leader = world.elect()
    world.run(1.0)
    outcomes: list[Outcome] = []
    due = [b"one"]

    def submit() -> None:
        if due:
            leader.node.submit([due.pop()], lambda outcome, _index: outcomes.append(outcome))

    raft_probe.on_before_sync(leader.node, submit)
    last = leader.node.last_index
    leader.node.turn()
    assert leader.journal is not None
    assert leader.node.last_index == last + 1 == leader.journal.log.synced_index
    sent = raft_probe.core(leader.node).replication.peers.values()
    assert [progress.next_index for progress in sent] == [last + 2] * 2
    world.run(0.2)
    assert outcomes == [Outcome.COMMITTED]


def test_a_leader_without_news_appends_and_does_not_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tick is for the commit rule, heartbeats and the end of a leadership."""
    world = World("abc", seed=8).start()
    leader = world.elect()
    world.commit(leader, 3)
    world.run(1.0)
    core = raft_probe.core(leader.node)
    ticks: list[float] = []
    tick = core.stock_tick

    def stock_tick() -> None:
        ticks.append(world.now)
        tick()

    monkeypatch.setattr(core, "stock_tick", stock_tick)
    leader.node.turn()  # For what may be due.
    ticks.clear()
    leader.node.turn()
    assert ticks == []
    last = leader.node.last_index
    submitted = world.submit(leader, world.payload())
    leader.node.turn()
    assert (ticks, leader.node.last_index) == ([], last + 1), "appended without a tick"
    leader.node.turn()
    assert len(ticks) == 1, "the disk has more: that is news"
    began_at = world.now
    world.run_until(lambda: bool(submitted.outcomes))
    assert submitted.outcomes[0][0] is Outcome.COMMITTED
    ticks.clear()
    world.run(1.0)
    gaps = [later - earlier for earlier, later in pairwise([began_at, *ticks, world.now])]
    assert max(gaps) < 2 * limits.TURN_SECONDS_BUSY, "time alone brings a tick"


def test_a_submission_refused_in_the_midst_of_a_turn_is_answered_in_the_next_one() -> None:
    world = World("abc", seed=5).start()
    leader = world.elect()
    world.run(1.0)
    follower = next(node for node in world.nodes.values() if node is not leader)
    outcomes: list[Outcome] = []
    asked: list[bool] = []
    due = [b"one"]

    def submit() -> None:
        if due:
            follower.node.submit([due.pop()], lambda outcome, _index: outcomes.append(outcome))

    raft_probe.on_before_sync(follower.node, submit)
    raft_probe.on_wake(follower.node, lambda: asked.append(True))
    follower.node.turn()
    assert (outcomes, asked) == ([], [True])
    follower.node.turn()
    assert outcomes == [Outcome.NOT_LEADER]


@pytest.mark.slow
def test_a_busy_leader_announces_commits_with_entries_and_a_quiet_one_by_heartbeat() -> None:
    world = World("abc", seed=4).start()
    leader = world.elect("a")
    world.commit(leader, 3)
    world.run(1.0)
    frames: Counter[bool] = Counter()

    def count(frame: Frame) -> str:
        message = frame.message()
        if message["type"] == "append_entries":
            frames[bool(message["entries"])] += 1
        return "pass"

    world.network.intercept = count
    until = world.now + 1.0
    while world.now < until:
        world.commit(leader, 1)
    assert frames[True] > 50
    assert frames[False] <= 4
    world.run(0.06)
    assert {node.node.commit_index for node in world.nodes.values()} == {leader.node.last_index}


def test_a_follower_acknowledges_at_once_and_applies_in_batches() -> None:
    world = World("abc", seed=6).start()
    leader = world.elect("a")
    world.commit(leader, 3)
    world.run(1.0)
    follower = world.nodes["b"]
    came: list[float] = []
    acknowledged: list[float] = []
    applied_at: list[float] = []

    def watch(frame: Frame) -> str:
        if frame.source == "b" and frame.message()["type"] == "next_node_idx":
            acknowledged.append(world.now)
        return "pass"

    receive = follower.receive

    def received(frame: Frame) -> None:
        if frame.message().get("entries"):
            came.append(world.now)
        receive(frame)

    follower.receive = received  # type: ignore[method-assign]  # to see frames as they come
    world.network.intercept = watch
    raft_probe.on_before_sync(follower.node, lambda: applied_at.append(world.now))
    started = world.now
    for _ in range(150):
        world.submit(leader, world.payload())
        world.run(0.001)
    world.run(0.05)
    assert len(came) > 100
    assert set(came) <= set(acknowledged)
    assert len(applied_at) <= (world.now - started) / limits.FOLLOW_SECONDS + 1
    assert follower.node.applied_index == leader.node.applied_index == leader.node.last_index


def test_a_follower_that_is_asked_to_stand_does_not_rest() -> None:
    world = World("abc", seed=7).start()
    leader = world.elect("a")
    world.commit(leader, 3)
    world.run(1.0)
    follower = world.nodes["b"]
    world.commit(leader, 1)
    world.run_until(lambda: raft_probe.rests_until(follower.node) > follower.clock())
    message = {"type": "timeout_now", "term": leader.node.term}
    raft_probe.core(follower.node).receive(PeerNode("a"), message)
    follower.node.turn()
    assert follower.node.role == "candidate"


def test_a_follower_that_is_behind_applies_without_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "APPLY_ENTRIES_PER_TURN", 7)
    world = World("abc", seed=8).start()
    leader = world.elect("a")
    follower = world.nodes["b"]
    follower.kill()
    world.commit(leader, 100)
    follower.start()
    turns: list[tuple[float, int]] = []
    raft_probe.on_before_sync(
        follower.node, lambda: turns.append((world.now, follower.node.applied_index))
    )
    world.run(1.0)
    assert follower.node.applied_index == leader.node.last_index
    busy = [at for at, applied in turns if 2 < applied < follower.node.applied_index]
    assert len(busy) > 10
    assert busy[-1] - busy[0] < len(busy) * limits.FOLLOW_SECONDS / 2
