"""The leader, since when it leads, and when another may (raft.md 3.8). Virtual time."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fifo.machine import limits as machine_limits
from node.peers.message import PeerNode
from node.raft import limits
from node.raft.config import Outcome
from node.raft.elections import LogEnd, PreVote, would_grant
from node.raft.node import RaftNode
from tests.node.raft.scenarios import Rule, as_tests
from tests.support import raft_mutants as mutants
from tests.support import raft_probe
from tests.support.raft_network import Frame
from tests.support.raft_world import SimNode, World

NodeClass = type[RaftNode]


def vote_request(term: int, index: int = 10**6) -> dict[str, Any]:
    """A candidate with the longest log there is."""
    return {
        "type": "request_vote",
        "term": term,
        "last_log_index": index,
        "last_log_term": term - 1,
        "transfer": False,
    }


def sticky_followers(node_class: NodeClass = RaftNode) -> None:
    """A node that hears its leader votes for no candidate, and adopts no candidate's term."""
    world = World("abc", seed=1, node_class=node_class).start()
    leader = world.elect("a")
    world.run(1.0)
    term = leader.node.term
    for name in "ab":
        core = raft_probe.core(world.nodes[name].node)
        core.receive(PeerNode("c"), vote_request(term + 5))
    world.run(0.5)
    assert leader.node.is_leader
    assert leader.node.term == world.nodes["b"].node.term == term


def restarted_nodes_wait(node_class: NodeClass = RaftNode) -> None:
    """A restarted node may have promised a lease: it votes for no candidate for a while."""
    world = World("abc", seed=2, node_class=node_class).start()
    leader = world.elect("a")
    world.run(1.0)
    term = leader.node.term
    b = world.nodes["b"]
    b.kill()
    b.start()
    receive = raft_probe.core(b.node).receive
    receive(PeerNode("c"), vote_request(term + 1))
    assert b.node.term == term
    world.nodes["a"].kill()
    world.nodes["c"].kill()
    world.run(0.62)
    receive(PeerNode("c"), vote_request(term + 1))
    assert b.node.term == term + 1


def rejoining_node_disturbs_nobody(node_class: NodeClass = RaftNode) -> None:
    """A follower that was cut off comes back without a raised term."""
    world = World("abc", seed=3, node_class=node_class).start()
    leader = world.elect("a")
    term = leader.node.term
    world.network.stop("a", "c")
    world.network.stop("c", "a")
    # b still hears c, and c hears b: only the leader is gone from c's sight.
    world.run(20.0)
    assert leader.node.is_leader
    world.network.heal()
    world.run(2.0)
    assert leader.node.is_leader
    assert {node.node.term for node in world.nodes.values()} == {term}


def lease_counts_from_sending(node_class: NodeClass = RaftNode) -> None:
    """An answer that comes late proves what was so when the round was sent."""
    world = World("abc", seed=4, node_class=node_class).start()
    leader = world.elect("a")
    world.run(1.0)
    held_at = world.now
    world.network.intercept = lambda frame: (
        "hold" if frame.message()["type"] == "next_node_idx" else "pass"
    )
    world.run(0.5)
    last_round_before = held_at + 0.02
    rounds = [f for f in world.network.held if f.message()["round"] and f.source == "b"]
    world.network.deliver(rounds[0])
    assert leader.node.lease_until() <= leader.offset + last_round_before + 0.1 + 0.54
    assert leader.node.lease_until() < leader.clock() + 0.2


def _impatient(node_class: NodeClass) -> NodeClass:
    """The same nodes, whose voters owe no leader anything."""

    class Impatient(node_class.core_class):  # type: ignore[name-defined,misc]  # a class at hand
        def sticky(self) -> bool:
            return False

    return type("ImpatientNode", (node_class,), {"core_class": Impatient})


def leases_begin_before_later_elections(node_class: NodeClass = RaftNode) -> None:
    """Two changes of leader within the lease of a third, which hears late answers only."""
    world = World("abcde", seed=15, node_class=_impatient(node_class), drifting=True).start()
    first = world.elect("a")
    world.run(1.0)
    # Who has led goes on behind one-way cuts; what is sent to the first arrives in the end.
    silent: set[str] = set()

    def intercept(frame: Frame) -> str:
        return "hold" if frame.target == "a" else "drop" if frame.source in silent else "pass"

    world.network.intercept = intercept
    world.run(0.12)
    silent.add("a")
    for name in "bc":
        node = world.nodes[name]
        raft_probe.core(node.node).election_deadline = node.clock() - 0.001
        node.wake()
        world.run_until(lambda n=node: n.node.lease_until() > n.clock(), 0.1)  # type: ignore[misc]  # bound now
        assert first.node.lease_until() > first.clock()
        silent.add(name)
    answers = [f for f in world.network.held if f.message()["type"] == "next_node_idx"]
    for frame in answers:
        if frame.message()["term"] == first.node.term:
            world.network.deliver(frame)
            world.checks.look_everywhere()
    assert world.counts["leases overlapped"] > 0


def only_later_rounds_prove_leadership(node_class: NodeClass = RaftNode) -> None:
    """Whether this node leads at an instant is shown by answers to rounds sent since, only."""
    world = World("abc", seed=16, node_class=node_class).start()
    leader = world.elect("a")
    world.run(1.0)
    world.network.intercept = lambda frame: (
        "hold" if frame.message()["type"] == "next_node_idx" else "pass"
    )
    world.run(0.3)
    asked_at = leader.clock()
    sent_before = leader.node.status().journal  # nothing is written for it
    leader.node.ask_round()
    for frame in world.network.held:
        world.network.deliver(frame)
    assert leader.node.led_at() < asked_at
    assert leader.node.lease_until() > leader.clock()
    world.network.intercept = None
    world.run(0.02)
    assert leader.node.led_at() >= asked_at
    assert leader.node.status().journal == sent_before


def lease_ends_with_the_connections(node_class: NodeClass = RaftNode) -> None:
    """A leader without connections to a majority holds no lease, and has it back with them."""
    world = World("abcde", seed=14, node_class=node_class).start()
    leader = world.elect("a")
    world.run(1.0)
    assert leader.transport is not None
    for other in "bc":
        leader.transport.disconnected(other)
        assert leader.node.lease_until() > leader.clock()
    leader.transport.disconnected("d")
    assert leader.node.lease_until() <= leader.clock()
    for other in "bcd":
        world.network.reconnect("a", other, 0.0)
    world.run(0.5)
    assert leader.node.lease_until() > leader.clock()


def who_hears_the_leader_keeps_it(node_class: NodeClass = RaftNode) -> None:
    """A follower alone loses its connection: the other hears the leader, and neither votes."""
    for other in "bc":
        world = World("abc", seed=17, node_class=node_class).start()
        leader = world.elect("a")
        world.run(1.0)
        term = leader.node.term
        world.network.stop("a", other)
        world.network.stop(other, "a")
        world.network.break_link("a", other)
        world.run(5.0)
        assert leader.node.is_leader
        assert {node.node.term for node in world.nodes.values()} == {term}


def a_lost_leader_is_missed_until_it_is_heard(node_class: NodeClass = RaftNode) -> None:
    """A leader that is back, and heard, is kept, though another member loses it then."""
    world = World("abc", seed=18, node_class=node_class).start()
    leader = world.elect("a")
    world.run(1.0)
    term = leader.node.term
    for other in "bc":
        world.network.break_link("a", other)
        world.run(0.4)  # It has dialed anew, and was heard.
        assert world.network.connected("a", other)
    assert leader.node.is_leader
    assert {node.node.term for node in world.nodes.values()} == {term}


def _is_led_by_another(world: World, than: SimNode) -> bool:
    return world.leaders[0] is not than and world.leaders[0].node.is_leader


def _break_all(world: World, leader: SimNode) -> None:
    for other in world.nodes:
        if other != leader.name:
            world.network.break_link(leader.name, other)


def _lose(world: World) -> float:
    """End the connections of the leader, which lives; the seconds until there is another."""
    leader, began_at = world.leaders[0], world.now
    _break_all(world, leader)
    world.run_until(partial(_is_led_by_another, world, leader))
    return world.now - began_at


def a_lost_leader_is_replaced_at_once_now_and_then(node_class: NodeClass = RaftNode) -> None:
    """Each member stands early once in ten seconds; then it waits until the leader is back."""
    world = World("abc", seed=19, node_class=node_class).start()
    world.elect("a")
    world.run(1.0)
    assert _lose(world) < 0.1
    world.run(1.0)
    assert _lose(world) < 0.1
    world.run(1.0)
    leader = world.leaders[0]
    _break_all(world, leader)
    world.run(2.0)
    assert leader.node.is_leader
    world.run(limits.EARLY_REST_SECONDS)
    assert _lose(world) < 0.1


def a_replaced_connection_is_no_lost_one(node_class: NodeClass = RaftNode) -> None:
    """A newer proven connection takes the place of an older one: no leader is missed."""
    world = World("abc", seed=20, node_class=node_class).start()
    leader = world.elect("a")
    world.run(1.0)
    term = leader.node.term
    world.network.intercept = lambda frame: "drop" if frame.source == "a" else "pass"
    for other in "bc":
        world.network.replace_link("a", other)
    world.run(0.2)
    world.network.intercept = None
    world.run(1.0)
    assert leader.node.is_leader
    assert {node.node.term for node in world.nodes.values()} == {term}


def a_granted_pre_vote_is_kept(node_class: NodeClass = RaftNode) -> None:
    """A candidate has raised the term on this word, so it gets the vote, though a is back."""
    world = World("abc", seed=21, node_class=node_class).start()
    leader = world.elect("a")
    world.run(1.0)
    term = leader.node.term
    world.network.intercept = lambda frame: (
        "hold" if frame.message()["type"] == "request_vote" else "pass"
    )
    for other in "bc":
        world.network.break_link("a", other)
    world.run(0.1)
    requests = [frame for frame in world.network.held if frame.source == "c"]
    assert [frame.target for frame in requests] == ["b"]
    world.network.reconnect("a", "b", 0.0)
    world.run(0.3)
    b = world.nodes["b"].node
    assert (b.leader, b.term) == ("a", term)
    world.network.deliver(requests[0])
    assert b.term == term + 1
    assert raft_probe.core(b).voted_for == "c"


def a_question_that_came_too_early_is_answered(node_class: NodeClass = RaftNode) -> None:
    """A member that is asked just before it notices says yes when it does, a little later."""
    world = World("abc", seed=22, node_class=node_class).start()
    world.elect("a")
    world.run(1.0)
    began_at = world.now
    world.nodes["a"].pause()
    for other, pause in (("c", 0.008), ("b", 0.0)):
        node = world.nodes[other]
        assert node.transport is not None
        node.transport.disconnected("a")
        world.run(pause)
    world.run_until(lambda: world.nodes["c"].node.is_leader, 1.0)
    assert world.now - began_at < 0.02


RULES: list[Rule] = [
    (sticky_followers, mutants.VotesForAnyone),
    (restarted_nodes_wait, mutants.VotesForAnyone),
    (rejoining_node_disturbs_nobody, mutants.NoPreVote),
    (lease_counts_from_sending, mutants.LeaseFromReceipt),
    (only_later_rounds_prove_leadership, mutants.LeaseFromReceipt),
    (lease_ends_with_the_connections, mutants.KeepsLeaseAlone),
    (leases_begin_before_later_elections, mutants.LeaseFromReceipt),
    (who_hears_the_leader_keeps_it, mutants.MissesWhoeverIsMissed),
    (a_lost_leader_is_missed_until_it_is_heard, mutants.MissesForEver),
    (a_lost_leader_is_replaced_at_once_now_and_then, mutants.NeverRests),
    (a_replaced_connection_is_no_lost_one, mutants.CountsReplaced),
    (a_granted_pre_vote_is_kept, mutants.ForgetsItsGrant),
    (a_question_that_came_too_early_is_answered, mutants.AsksAgainLate),
]
test_the_rule_holds, test_the_scenario_shows_when_the_rule_is_taken_out = as_tests(RULES)


def test_the_lease_runs_while_a_majority_answers_and_ends_without_it() -> None:
    world = World("abc", seed=5, drifting=True).start()
    leader = world.elect()
    for _ in range(20):
        world.run(0.1)
        assert 0.3 < leader.node.lease_until() - leader.clock() <= 0.54
    world.network.isolate(leader.name)
    world.run(0.56)
    assert leader.node.lease_until() <= leader.clock()
    world.run(1.0)
    assert leader.node.lease_until() == 0.0
    # A new leader had no lease before the old one's ended: the world checks it in every step.
    world.elect()


def test_no_configuration_gives_a_longer_lease_than_the_floors_cover() -> None:
    world = World("abc", min_timeout_seconds=3.0, max_timeout_seconds=4.0)
    for config in (world.nodes["a"].config, World("abc").nodes["a"].config):
        by_the_slowest_clock_ms = round(1000 * config.lease_seconds / limits.LEASE_FRACTION)
        assert by_the_slowest_clock_ms <= machine_limits.LEASE_MS


def test_a_new_leader_has_no_lease_before_a_majority_answered() -> None:
    world = World("abc", seed=6).start()
    world.network.intercept = lambda frame: (
        "drop" if frame.message()["type"] == "next_node_idx" else "pass"
    )
    leader = world.elect()
    assert leader.node.lease_until() == 0.0
    world.run(0.3)
    assert leader.node.lease_until() == 0.0


def test_a_single_node_leads_at_once_and_for_ever() -> None:
    world = World("a", seed=7).start()
    leader = world.elect()
    assert world.now < 0.01
    world.commit(leader, 3)
    assert leader.node.lease_until() > leader.clock()
    leader.kill(power=True)
    leader.start()
    world.elect()
    world.run(0.1)
    assert len(leader.applied) == 3


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_two_survivors_have_a_leader_within_about_a_second(first: int) -> None:
    for seed in range(first, first + 10):
        world = World("abc", seed=seed, drifting=True).start()
        leader = world.elect()
        world.commit(leader, 3)
        world.run(0.3)
        leader.pause()
        paused_at = world.now
        changed = partial(_is_led_by_another, world, leader)
        world.run_until(changed)
        assert 0.4 < world.now - paused_at < 1.3, f"seed {seed}"


@pytest.mark.slow
def test_a_leader_whose_connections_end_is_replaced_at_once() -> None:
    for seed in range(20):
        world = World("abc", seed=seed, drifting=True).start()
        leader = world.elect()
        world.commit(leader, 3)
        world.run(0.3)
        leader.kill()
        killed_at = world.now
        world.elect()
        assert world.now - killed_at < 0.05, f"seed {seed}"


def test_a_restarted_member_lets_no_one_stand_early() -> None:
    world = World("abc", seed=23).start()
    leader = world.elect("a")
    world.run(1.0)
    b = world.nodes["b"]
    b.kill()
    b.start()
    restarted_at = world.now
    leader.kill()
    world.elect()
    assert world.now - restarted_at >= b.config.min_timeout_seconds


def test_a_leader_behind_closed_connections_holds_a_lease_beside_the_next() -> None:
    for names in ("abc", "abcde"):
        world = World(names, seed=24, drifting=True).start()
        old = world.elect("a")
        world.run(1.0)
        world.network.abandon("a")
        world.run_until(lambda: len(world.leaders) == 2, 0.1)  # noqa: B023  # used at once
        new = world.leaders[0]
        world.run_until(lambda: new.node.lease_until() > new.clock(), 0.1)  # noqa: B023  # the same
        assert old.node.lease_until() > old.clock()
        world.checks.look_everywhere()
        assert world.counts["leases overlapped"] > 0
        world.run(1.0)
        assert not old.node.is_leader
        world.network.heal()
        world.run(2.0)
        assert world.converged()


def test_a_node_with_the_longest_log_and_an_old_term_does_not_block_the_rest() -> None:
    world = World("abc", seed=8).start()
    old = world.elect("a")
    world.network.intercept = lambda frame: "drop" if frame.source == "a" else "pass"
    for _ in range(5):
        world.submit(old, world.payload())
    world.run(0.1)
    old.kill()
    # b and c go through terms that a never hears of, without writing anything a lacks.
    world.network.intercept = None
    for name in "bc":
        node = world.nodes[name]
        assert node.journal is not None
        node.journal.log.set_term(9, None)
        node.kill()
    world.nodes["c"].storage.crash()
    world.nodes["a"].start()
    world.nodes["b"].start()
    world.run_until(lambda: bool(world.leaders), 5.0)
    assert world.leaders[0].node.term >= 10


def test_a_node_that_cannot_hear_does_not_keep_the_others_from_standing() -> None:
    world = World("abc", seed=9).start()
    world.elect("a")
    world.run(0.5)
    for other in "ab":
        world.network.stop(other, "c")
    world.nodes["a"].pause()
    world.run(1.5)
    assert not [node for node in world.leaders if node.name != "a"]
    world.nodes["a"].resume()
    world.run_until(lambda: any(n.node.is_leader for n in world.leaders), 3.0)


def test_two_leaders_in_one_term_stop_the_node() -> None:
    world = World("abc", seed=10).start()
    world.expect_stop = True
    leader = world.elect("a")
    message = {
        "type": "append_entries",
        "term": leader.node.term,
        "commit_index": 1,
        "prevLogIdx": 1,
        "prevLogTerm": 0,
        "round": 1,
        "entries": [],
    }
    raft_probe.core(leader.node).receive(PeerNode("b"), message)
    world.run(0.1)
    assert leader.stopped is not None
    assert "both lead term" in leader.stopped.reason


def test_held_frames_of_an_ended_connection_or_another_term_are_dropped() -> None:
    world = World("abc", seed=11).start()
    world.elect("a")
    world.run(0.5)
    node = world.nodes["b"].node
    assert world.nodes["b"].journal is not None
    held = raft_probe.core(node).outbox
    world.nodes["b"].journal.log.add(b"\x10x", node.last_index + 1, node.term)
    answer = {"type": "next_node_idx", "term": node.term, "round": 1, "next_node_idx": 9}
    answer |= {"reset": False, "success": True, "counted": True}
    held.send(PeerNode("a"), dict(answer))
    held.send(PeerNode("c"), dict(answer))
    held.send(PeerNode("c"), answer | {"term": node.term - 1, "success": False})
    held.forget(PeerNode("a"))
    sent: list[Frame] = []
    world.network.intercept = lambda frame: sent.append(frame) or "drop"  # type: ignore[func-returns-value]  # to note in passing
    world.nodes["b"].journal.log.sync()
    held.release(node.term)
    assert [(frame.target, frame.message()["term"]) for frame in sent] == [("c", node.term)]
    assert node.status().counters.held_frames_dropped_total == 2


def test_pre_votes_count_once_per_voter_and_question() -> None:
    question = PreVote(needed=2)
    number = question.ask()
    assert not question.grant("b", number)
    assert not question.grant("b", number)
    assert not question.grant("c", number - 1)
    assert question.grant("c", number)
    assert not question.grant("d", number)
    question.ask()
    question.stop()
    assert not question.grant("b", question.number)


@pytest.mark.parametrize(
    ("candidate", "asking", "name", "granted"),
    [
        (LogEnd(3, 9), False, "a", True),
        (LogEnd(3, 8), False, "z", False),
        (LogEnd(2, 99), False, "z", False),
        (LogEnd(3, 9), True, "a", False),
        (LogEnd(3, 9), True, "z", True),
        (LogEnd(3, 10), True, "a", True),
        (LogEnd(4, 1), True, "a", True),
    ],
)
def test_a_pre_vote_goes_to_the_better_log_and_then_to_the_greater_name(
    candidate: LogEnd, asking: bool, name: str, granted: bool
) -> None:
    own = LogEnd(3, 9)
    assert would_grant(candidate, own, asking=asking, candidate_name=name, own_name="m") is granted


def test_a_deposed_leader_reports_the_outcome_of_its_entries() -> None:
    world = World("abc", seed=12).start()
    old = world.elect("a")
    world.commit(old, 2)
    world.run(0.2)
    world.network.isolate("a")
    lost = [world.submit(old, world.payload()) for _ in range(3)]
    world.run(0.05)
    world.run(1.0)
    new = world.elect()
    assert new.name != "a"
    world.commit(new, 5)
    assert all(not submitted.outcomes for submitted in lost)
    world.network.break_link("a", "b")
    world.network.break_link("a", "c")
    world.network.heal()
    world.run(2.0)
    assert [submitted.outcomes[0][0] for submitted in lost] == [Outcome.DISCARDED] * 3
    world.checks.at_rest()


def test_an_entry_that_a_later_leader_commits_is_reported_committed() -> None:
    world = World("abc", seed=13).start()
    old = world.elect("a")
    world.run(0.3)
    # b gets the entry, a hears nothing of it any more, and b is elected with it.
    world.network.intercept = lambda frame: (
        "drop" if frame.target == "a" or (frame.source == "a" and frame.target == "c") else "pass"
    )
    submitted = world.submit(old, world.payload())
    world.run(0.05)
    assert world.nodes["b"].node.last_index == old.node.last_index
    world.run(0.8)
    world.elect("b")
    world.network.intercept = None
    world.run(1.0)
    assert submitted.outcomes[0][0] is Outcome.COMMITTED
    world.checks.at_rest()
