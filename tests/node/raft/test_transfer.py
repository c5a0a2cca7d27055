"""Leadership goes where it is asked to go, loses nothing, and its lease ends first."""

from __future__ import annotations

import itertools

import pytest

from node.raft.config import Outcome
from node.raft.node import RaftNode
from node.raft.transfer import TransferRefused
from tests.node.raft.scenarios import Rule, as_tests
from tests.support import raft_mutants as mutants
from tests.support import raft_probe, raft_schedule
from tests.support.raft_network import Frame
from tests.support.raft_world import World

NodeClass = type[RaftNode]


def kind(frame: Frame) -> str:
    """The type of a frame's message."""
    return str(frame.message()["type"])


def transfer(world: World, source: str, target: str) -> list[str]:
    """Ask for a transfer; the reasons why it was given up, if it is."""
    reasons: list[str] = []
    world.nodes[source].node.transfer(target, reasons.append)
    return reasons


def test_a_transfer_takes_a_few_round_trips_and_loses_nothing() -> None:
    world = World("abc", seed=1, drifting=True).start()
    leader = world.elect("a")
    world.commit(leader, 20)
    world.run_until(world.converged)
    during = [world.submit(leader, world.payload()) for _ in range(10)]
    began_at = world.now
    assert transfer(world, "a", "b") == []
    late = [world.submit(leader, world.payload()) for _ in range(5)]
    world.run_until(lambda: world.nodes["b"].node.is_leader, 0.1)
    assert world.now - began_at < 0.06
    world.commit(world.nodes["b"], 3)
    world.run(1.0)
    assert leader.node.role == "follower"
    outcomes = {submitted.outcomes[0][0] for submitted in [*during, *late]}
    assert outcomes <= {Outcome.COMMITTED, Outcome.NOT_LEADER}
    assert world.nodes["c"].node.term == leader.node.term
    world.checks.at_rest()


def test_leadership_can_go_round_for_ever() -> None:
    world = World("abcde", seed=2, drifting=True).start()
    world.elect("a")
    names = "abcdeabcdeabcde"
    for source, target in itertools.pairwise(names):
        world.commit(world.nodes[source], 2)
        transfer(world, source, target)
        world.run_until(lambda name=target: world.nodes[name].node.is_leader, 0.3)  # type: ignore[misc]  # bound now
    world.run(1.0)
    world.checks.at_rest()


def test_an_impossible_transfer_is_refused_with_a_reason() -> None:
    world = World("abc", seed=3).start()
    leader = world.elect("a")
    world.run(0.5)
    for target, words in (
        ("a", "a already leads"),
        ("x", "there is no node 'x'; there are: a, b, c"),
    ):
        with pytest.raises(TransferRefused, match=words):
            transfer(world, "a", target)
    with pytest.raises(TransferRefused, match="b does not lead"):
        transfer(world, "b", "c")
    world.nodes["c"].kill()
    with pytest.raises(TransferRefused, match="c is not connected to the leader a"):
        transfer(world, "a", "c")
    transfer(world, "a", "b")
    with pytest.raises(TransferRefused, match="a transfer to b is under way already"):
        transfer(world, "a", "b")
    world.elect("b")
    assert leader.node.successor() is None


def test_who_lacks_more_than_a_window_is_refused_and_never_chosen() -> None:
    world = World("abc", seed=4, batch_bytes=2_000, window_bytes=4_000).start()
    leader = world.elect("a")
    world.run(0.3)
    world.nodes["b"].pause()
    world.commit(leader, 30, size=500)
    with pytest.raises(TransferRefused, match="b is 30 entries behind"):
        transfer(world, "a", "b")
    assert leader.node.successor() == "c"


def test_a_target_that_does_not_catch_up_leaves_everything_as_it_was() -> None:
    world = World("abc", seed=5).start()
    leader = world.elect("a")
    world.run(0.3)
    world.nodes["b"].pause()
    world.commit(leader, 3)
    reasons = transfer(world, "a", "b")
    waiting = [world.submit(leader, world.payload()) for _ in range(3)]
    world.run(0.5)
    assert leader.node.transferring
    assert not any(submitted.outcomes for submitted in waiting)
    world.run(0.7)
    assert reasons == ["b did not catch up in time, 3 entries are missing"]
    assert leader.node.is_leader
    assert leader.node.lease_until() > leader.clock()
    assert [submitted.outcomes[0][0] for submitted in waiting] == [Outcome.COMMITTED] * 3


def test_a_target_whose_connection_ends_leaves_everything_as_it_was() -> None:
    world = World("abc", seed=6).start()
    leader = world.elect("a")
    world.run(0.3)
    world.nodes["b"].pause()
    world.commit(leader, 1)
    reasons = transfer(world, "a", "b")
    world.nodes["b"].kill()
    world.run(0.1)
    assert reasons == ["the connection to b ended"]
    assert leader.node.is_leader


def lost_request_ends_the_leadership(node_class: NodeClass = RaftNode) -> None:
    """A leader that asked another to stand cannot know that it never will: it steps down."""
    world = World("abc", seed=7, node_class=node_class).start()
    leader = world.elect("a")
    world.run(0.3)
    world.network.intercept = lambda frame: "drop" if kind(frame) == "timeout_now" else "pass"
    transfer(world, "a", "b")
    world.run(0.2)
    term = leader.node.term
    assert leader.node.lease_until() <= leader.clock()
    world.run(1.0)
    assert (leader.node.role, leader.node.term) != ("leader", term)
    world.elect()


def a_lease_is_given_up_before_another_is_asked(node_class: NodeClass = RaftNode) -> None:
    """The old leader hears nothing of the election that it asked for."""
    world = World("abc", seed=8, node_class=node_class).start()
    world.elect("a")
    world.run(0.3)
    # From the moment b stands, b and c hear each other alone, and no message reaches a.
    cut = False

    def intercept(frame: Frame) -> str:
        nonlocal cut
        cut = cut or (kind(frame) == "request_vote" and frame.source == "b")
        return "drop" if cut and "a" in (frame.source, frame.target) else "pass"

    world.network.intercept = intercept
    transfer(world, "a", "b")
    world.run_until(lambda: world.nodes["b"].node.lease_until() > 0, 0.2)
    world.run(0.5)  # The world checks after each step that b does not stand under a's lease.


def late_target_disturbs_nobody(node_class: NodeClass = RaftNode) -> None:
    """A target that hears of it after others have gone on stands without the privilege."""
    world = World("abc", seed=9, node_class=node_class).start()
    world.elect("a")
    world.run(0.3)
    world.network.intercept = lambda frame: "hold" if kind(frame) == "timeout_now" else "pass"
    transfer(world, "a", "b")
    world.run(0.1)
    held = world.network.held
    world.nodes["b"].pause()
    world.run(1.1)
    world.elect("c")
    world.run(0.3)
    term = world.nodes["c"].node.term
    world.nodes["b"].resume()
    world.network.deliver(held[0])
    # b is cut off from its new leader, hears a, and would stand for the term after this one.
    for one, other in (("b", "c"), ("c", "b")):
        world.network.stop(one, other)
    world.run(3.0)
    assert world.nodes["c"].node.is_leader
    assert {node.node.term for node in world.nodes.values()} == {term}


def only_the_leader_may_ask(node_class: NodeClass = RaftNode) -> None:
    """A request of another node, or of another term, moves no node."""
    world = World("abc", seed=10, node_class=node_class).start()
    leader = world.elect("a")
    world.run(0.3)
    term = leader.node.term
    core = raft_probe.core(world.nodes["b"].node)
    peers = {node.id: node for node in core.nodes}
    for source, claimed in (("c", term), ("a", term - 1), ("a", term + 1)):
        core.receive(peers[source], {"type": "timeout_now", "term": claimed})
    world.run(1.0)
    assert leader.node.is_leader
    assert leader.node.term == term


RULES: list[Rule] = [
    (lost_request_ends_the_leadership, mutants.LeadsOn),
    (a_lease_is_given_up_before_another_is_asked, mutants.KeepsLease),
    (late_target_disturbs_nobody, mutants.FlagsAndForcesForEver),
    (only_the_leader_may_ask, mutants.StandsForAnyone),
]
test_the_rule_holds, test_the_scenario_shows_when_the_rule_is_taken_out = as_tests(RULES)


def with_transfers(seed: int, names: str) -> list[raft_schedule.Fault]:
    """The schedule of a seed, with much more handing over."""
    return [
        raft_schedule.Fault(fault.at, "transfer", fault.node, fault.other, fault.number)
        if fault.number % 4 == 0
        else fault
        for fault in raft_schedule.draw(seed, names)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("base", [2000, 2010])
def test_random_faults_during_transfers_break_nothing(base: int) -> None:
    for seed in range(base, base + 10):
        names = "abcde" if seed % 4 == 3 else "abc"
        faults = with_transfers(seed, names)
        raft_schedule.run(seed, names=names, late=seed % 2 == 1, faults=faults)
