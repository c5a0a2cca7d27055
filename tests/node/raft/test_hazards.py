"""The hazards of the stock library, by id: each scenario holds on ours and goes red on the stock.

A scenario takes the class of node to run, so that the last test can put each stock behaviour
back. Virtual time, simulated disks, the real node, journal and frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from node.peers.message import MessageRefused, PeerNode
from node.raft.config import Outcome
from node.raft.errors import RaftStopped
from node.raft.node import RaftNode
from tests.support import raft_mutants as mutants
from tests.support import raft_probe
from tests.support.raft_network import Frame
from tests.support.raft_world import Submitted, World

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.raft.core import Core
    from tests.support.raft_world import SimNode

NodeClass = type[RaftNode]


def has_entries(frame: Frame, source: str, target: str) -> bool:
    """Whether a frame carries entries from one node to another."""
    message = frame.message()
    return (
        (frame.source, frame.target) == (source, target)
        and message["type"] == "append_entries"
        and bool(message["entries"])
    )


def outcome(submitted: Submitted) -> Outcome | None:
    """The only outcome, or None so far."""
    assert len(submitted.outcomes) <= 1
    return submitted.outcomes[0][0] if submitted.outcomes else None


def payloads(node: SimNode) -> list[bytes]:
    """Payloads that a node has applied."""
    return [payload for _, _, payload in node.applied]


def b04_late_frame(node_class: NodeClass = RaftNode) -> None:
    """A late copy of an old frame must not erase what came after it."""
    world = World("abc", seed=4, node_class=node_class).start()
    leader = world.elect("a")
    copies: list[Frame] = []

    def copy(frame: Frame) -> str:
        if has_entries(frame, "a", "b"):
            copies.append(frame)
        # c hears nothing of the entries: only a and b hold them.
        return "drop" if has_entries(frame, "a", "c") else "pass"

    world.network.intercept = copy
    world.commit(leader, 1)
    world.commit(leader, 20)
    world.run(0.2)
    world.network.deliver(copies[0])
    world.network.intercept = None
    leader.kill()
    world.elect("b")
    leader.start()
    world.run(2.0)
    world.checks.at_rest()
    assert len(payloads(world.nodes["b"])) == 21


def b05_raising_callback(node_class: NodeClass = RaftNode) -> None:
    """A callback that raises changes nothing: each index is applied once."""
    world = World("abc", seed=5, node_class=node_class).start()
    leader = world.elect()

    def done(outcome: Outcome, index: int) -> None:
        raise ZeroDivisionError("the owner's mistake")

    leader.node.submit([b"raises"], done)
    world.commit(leader, 3)
    world.run(1.0)
    for node in world.nodes.values():
        assert payloads(node)[0] == b"raises"
        assert len(payloads(node)) == 4
    assert leader.node.status().counters.callback_errors_total == 1


def b06_raising_apply(node_class: NodeClass = RaftNode) -> None:
    """An apply that raises stops the node: its state may be half changed."""
    world = World("abc", seed=6, node_class=node_class).start()
    world.expect_stop = True
    leader = world.elect()
    tries = []

    def apply(payload: bytes) -> None:
        if payload == b"poison":
            tries.append(payload)
            raise KeyError("half changed")

    leader.apply_hook = apply
    submitted = world.submit(leader, b"poison")
    after = world.submit(leader, b"after")
    world.run(1.0)
    assert tries == [b"poison"]
    assert isinstance(leader.stopped, RaftStopped)
    assert "half changed" in leader.stopped.reason
    with pytest.raises(RaftStopped):
        leader.node.turn()
    assert outcome(submitted) is Outcome.UNKNOWN
    assert outcome(after) is Outcome.UNKNOWN


def b09_full_queue(node_class: NodeClass = RaftNode) -> None:
    """A full queue refuses, and what it refused is never applied."""
    world = World(
        "abc", seed=5, node_class=node_class, queue_commands_max=10, submit_seconds=5.0
    ).start()
    leader = world.elect()
    found = [world.submit(leader, world.payload()) for _ in range(15)]
    assert not any(submitted.outcomes for submitted in found), "answers come from turns only"
    world.run(0.5)
    outcomes = [submitted.outcomes[0][0] for submitted in found]
    assert outcomes == [Outcome.COMMITTED] * 10 + [Outcome.QUEUE_FULL] * 5
    assert Outcome.QUEUE_FULL in raft_probe.NEVER_APPLIED
    assert payloads(leader) == [submitted.payload for submitted in found[:10]]


def b11_static_membership(node_class: NodeClass = RaftNode) -> None:
    """No way of the library's leads to another set of members."""
    core = raft_probe.core(World("abc", node_class=node_class).start().elect().node)
    members = set(core.otherNodes)
    doors: list[Callable[[], object]] = [
        lambda: core.change_members(["add", "d"]),
        lambda: core.parse_member_change(b"\x02"),
    ]
    for shut in doors:
        with pytest.raises(RaftStopped, match="own change of members"):
            shut()
    with pytest.raises(Exception, match="dynamicMembershipChange is disabled"):
        core.addNodeToCluster("d")
    assert set(core.otherNodes) == members


def b12_isolated_leader(node_class: NodeClass = RaftNode) -> None:
    """An isolated leader stops believing in itself when its followers may."""
    world = World("abc", seed=12, node_class=node_class).start()
    leader = world.elect("a")
    world.run(1.0)
    world.network.isolate("a")
    world.run(0.55)
    assert leader.node.lease_until() <= leader.clock()
    world.run(0.25)
    assert leader.node.role == "follower"


def b12_nack(node_class: NodeClass = RaftNode) -> None:
    """Entries of a lower term are answered with the higher one."""
    world = World("abc", seed=13, node_class=node_class).start()
    leader = world.elect("a")
    copies: list[Frame] = []
    answers: list[dict[str, Any]] = []

    def watch(frame: Frame) -> str:
        message = frame.message()
        if message["type"] == "append_entries" and frame.target == "b":
            copies.append(frame)
        if message["type"] == "next_node_idx" and (frame.source, frame.target) == ("b", "c"):
            answers.append(message)
        return "pass"

    world.network.intercept = watch
    world.run(0.3)
    leader.kill()
    new = world.elect("c")
    answers.clear()
    old = copies[0]
    world.network.deliver(Frame("c", "b", old.epoch, old.content, old.header_end))
    world.run(0.05)
    assert answers
    assert answers[0]["term"] == new.node.term > old.message()["term"]
    assert not answers[0]["success"]


def b16_every_submit_ends(node_class: NodeClass = RaftNode) -> None:
    """A submit ends in bounded time, whatever is lost, and is never forwarded."""
    world = World("abc", seed=16, node_class=node_class, submit_seconds=3.0).start()
    leader = world.elect("a")
    elsewhere = world.submit("b", b"on a follower")
    world.run(0.1)
    assert outcome(elsewhere) is Outcome.NOT_LEADER
    world.network.isolate("a")
    lost = world.submit(leader, b"on an isolated leader")
    world.run(2.9)
    assert outcome(lost) is None
    world.run(0.3)
    assert outcome(lost) is Outcome.UNKNOWN
    assert outcome(lost) not in raft_probe.NEVER_APPLIED


def b17_unknown_type(node_class: NodeClass = RaftNode) -> None:
    """An entry that is not ours stops the node; nothing is shifted or applied twice."""
    world = World("a", seed=17, node_class=node_class)
    world.expect_stop = True
    node = world.nodes["a"]

    def fill(journal: Any) -> None:
        journal.log.add(b"\x01", 1, 0)
        for index, command in ((2, b"\x10one"), (3, b"\x03version five"), (4, b"\x10two")):
            journal.log.add(command, index, 0)
        journal.log.sync()

    node.journal_hook = fill
    world.start()
    world.run(2.0)
    assert payloads(node) == [b"one"]
    assert node.stopped is not None
    assert "unknown type" in node.stopped.reason


def b18_durable_before_answer(node_class: NodeClass = RaftNode) -> None:
    """No acknowledgement and no vote leaves before what it stands on is on the disk."""
    world = World("abc", seed=18, node_class=node_class)
    answers = []

    def check(frame: Frame) -> str:
        message = frame.message()
        journal = world.nodes[frame.source].journal
        assert journal is not None
        if message["type"] in ("next_node_idx", "response_vote", "request_vote"):
            answers.append(message["type"])
            assert not journal.log.dirty
            if message.get("success"):
                assert message["next_node_idx"] - 1 <= journal.log.synced_index
        return "pass"

    world.network.intercept = check
    world.expect_stop = False
    world.start()
    leader = world.elect()
    world.commit(leader, 30)
    world.run(0.2)
    assert {"next_node_idx", "response_vote", "request_vote"} <= set(answers)
    assert all(raft_probe.core(node.node).failure is None for node in world.nodes.values())


def b20_old_acks(node_class: NodeClass = RaftNode) -> None:
    """Acks held back from an earlier leadership of the same node count for nothing."""
    world = World("abcde", seed=20, node_class=node_class).start()
    world.elect("a")
    world.run(0.5)
    first_term = world.nodes["a"].node.term

    def only_b_hears_a(frame: Frame) -> str:
        message = frame.message()
        if message["type"] == "append_entries" and frame.source == "a":
            return "pass" if frame.target == "b" else "drop"
        if (frame.source, frame.target) == ("b", "a") and message["type"] == "next_node_idx":
            return "hold"
        return "pass"

    world.network.intercept = only_b_hears_a
    lost = [world.submit("a", world.payload()) for _ in range(5)]
    world.run(0.2)
    assert world.nodes["b"].node.last_index == world.nodes["a"].node.last_index
    held = [frame for frame in world.network.held if frame.message()["term"] == first_term]

    # c wins without a and b, and commits other entries there; a and b get them, too.
    world.network.intercept = None
    world.nodes["a"].pause()
    world.nodes["b"].pause()
    world.elect("c")
    world.nodes["b"].resume()
    world.nodes["a"].resume()
    world.run(1.0)
    assert all(node.node.last_index < lost_end(held) for node in world.nodes.values())

    # a leads again and writes as far as the old acks reach, on its own disk only.
    world.nodes["c"].kill()
    world.elect("a")
    world.network.intercept = lambda frame: "drop" if frame.source == "a" else "pass"
    again = [world.submit("a", world.payload()) for _ in range(5)]
    world.run(0.05)
    for frame in held:
        world.network.deliver(frame)
        world.network.deliver(Frame("d", "a", 0, frame.content, frame.header_end))
    world.run(0.2)
    assert all(outcome(submitted) is None for submitted in again)
    assert all(outcome(submitted) is not Outcome.COMMITTED for submitted in lost)
    assert world.nodes["a"].node.status().counters.stale_acks_dropped_total >= len(held)


def lost_end(held: list[Frame]) -> int:
    """Last index that the held acks reach."""
    claims: list[int] = [frame.message()["next_node_idx"] for frame in held]
    return max(claims) - 1


def b21_no_chunks(node_class: NodeClass = RaftNode) -> None:
    """Entries around a multiple of the batch size travel whole."""
    world = World("abc", seed=21, node_class=node_class, batch_bytes=4_000).start()
    leader = world.elect()
    for multiple in (1, 2, 3):
        for size in range(multiple * 4_000 - 60, multiple * 4_000 + 3, 7):
            world.submit(leader, world.payload(size))
    world.run(2.0)
    assert all(outcome(submitted) is Outcome.COMMITTED for submitted in world.submitted)
    assert world.converged()


def b23_commit_hint(node_class: NodeClass = RaftNode) -> None:
    """A stored commit index past the end of the log commits nothing that is written later."""
    world = World("abc", seed=23, node_class=node_class).start()
    leader = world.elect("a")
    world.commit(leader, 2)
    world.run(0.2)
    leader.kill()

    def exaggerate(journal: Any) -> None:
        journal.log.commit_hint = lambda: 50

    leader.journal_hook = exaggerate
    leader.start()
    world.run(0.2)
    assert leader.node.commit_index <= leader.node.last_index
    world.run(0.5)
    world.elect().node.transfer("a", lambda _: None)
    world.elect("a")
    world.network.intercept = lambda frame: "drop"
    isolated = [world.submit("a", world.payload()) for _ in range(5)]
    world.run(0.4)
    assert all(outcome(submitted) is not Outcome.COMMITTED for submitted in isolated)


def b24_never_forwarded(node_class: NodeClass = RaftNode) -> None:
    """No command, and no answer to one, is taken from another node."""
    world = World("abc", seed=24, node_class=node_class).start()
    leader = world.elect("a")
    end = leader.node.last_index
    receive = raft_probe.core(leader.node).receive
    for message in (
        {"type": "apply_command", "command": b"\x10x", "request_id": 1},
        {"type": "apply_command_response", "request_id": 1, "log_idx": 2, "log_term": 1},
    ):
        with pytest.raises(MessageRefused):
            receive(PeerNode("b"), message)
    world.run(0.5)
    assert leader.node.last_index == end
    assert leader.node.is_leader


def b25_long_divergent_tail(node_class: NodeClass = RaftNode) -> None:
    """A follower with thousands of conflicting entries is found again in a few round trips."""
    world = World("abc", seed=25, node_class=node_class, batch_bytes=2_000).start()
    old = world.elect("a")
    world.commit(old, 10)
    world.run(0.2)
    world.network.isolate("a")
    for _ in range(3_000):
        world.submit(old, world.payload())
    world.run(0.3)
    assert old.node.last_index > 3_000
    world.run(1.5)
    new = world.elect()
    for _ in range(4):
        world.commit(new, 800)
    world.run(0.2)
    # The next leader expects a where its own long log ends, far past where the two agree.
    new.kill()
    last = world.nodes["b" if new.name == "c" else "c"]
    world.network.break_link("a", last.name)
    world.network.heal()
    world.elect(last.name)
    world.run_until(world.converged, 2.0)
    assert last.node.status().counters.resets_total <= 2


def b26_reset_beyond_the_end(node_class: NodeClass = RaftNode) -> None:
    """A reset that names an index past the leader's log does not take the leader there."""
    world = World("abc", seed=26, node_class=node_class).start()
    leader = world.elect("a")
    world.commit(leader, 3)
    world.run(0.3)
    core = raft_probe.core(leader.node)
    message = {
        "type": "next_node_idx",
        "term": leader.node.term,
        "round": core.lease.round + 1,
        "next_node_idx": leader.node.last_index + 100,
        "reset": True,
        "counted": True,
        "success": False,
    }
    core.receive(PeerNode("b"), message)
    assert core.replication.peers[PeerNode("b")].next_index <= leader.node.last_index + 1
    world.commit(leader, 3)
    world.run(0.3)
    assert world.converged()


def b28_one_vote_per_voter(node_class: NodeClass = RaftNode) -> None:
    """The same vote delivered three times is one vote."""
    world = World("abcde", seed=28, node_class=node_class)

    def only_b_votes_often(frame: Frame) -> str:
        if frame.message()["type"] != "response_vote":
            return "pass"
        if frame.source == "b" and frame.target == "a":
            for _ in range(3):
                world.after(0.002, lambda: world.network.deliver(frame))
        return "drop"

    world.network.intercept = only_b_votes_often
    world.start()
    for node in world.nodes.values():
        late = 0.61 if node.name == "a" else 3.0
        raft_probe.core(node.node).election_deadline = node.clock() + late
    world.run_until(lambda: ("candidate", 1) in world.nodes["a"].roles)
    world.run(0.3)
    assert not world.leaders


SCENARIOS: list[tuple[Callable[..., None], type[Core]]] = [
    (b04_late_frame, mutants.Truncates),
    (b05_raising_callback, mutants.CallbackDisturbs),
    (b06_raising_apply, mutants.RetriesApply),
    (b09_full_queue, mutants.QueuesWhatItRefuses),
    (b11_static_membership, mutants.TakesMembershipChanges),
    (b12_isolated_leader, mutants.BelievesInItself),
    (b12_nack, mutants.SilentToOldLeaders),
    (b16_every_submit_ends, mutants.NoDeadline),
    (b17_unknown_type, mutants.SkipsUnknown),
    (b18_durable_before_answer, mutants.AnswersAtOnce),
    (b20_old_acks, mutants.CountsOldAcks),
    (b21_no_chunks, mutants.SendsChunks),
    (b23_commit_hint, mutants.TrustsCommitHint),
    (b24_never_forwarded, mutants.TakesForwarded),
    (b25_long_divergent_tail, mutants.StepsBack),
    (b26_reset_beyond_the_end, mutants.ProbesAnywhere),
    (b28_one_vote_per_voter, mutants.CountsVotes),
]
IDS = [scenario.__name__ for scenario, _ in SCENARIOS]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [scenario for scenario, _ in SCENARIOS], ids=IDS)
def test_the_hazard_does_not_show(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "core"), SCENARIOS, ids=IDS)
def test_the_hazard_shows_when_the_stock_behaviour_is_put_back(
    scenario: Callable[[NodeClass], None], core: type[Core]
) -> None:
    with pytest.raises((AssertionError, RaftStopped, pytest.fail.Exception)):
        scenario(mutants.node_with(core))
