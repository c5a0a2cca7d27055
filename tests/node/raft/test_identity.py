"""Journals with an identity: one that comes back empty, older or copied is found by the others.

A scenario takes the class of node to run, so that each rule can be taken out and seen to matter.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.journal import passport
from node.raft.node import RaftNode
from node.raft.roll import Standing
from tests.node.raft.scenarios import Rule, as_tests
from tests.support import identity_mutants as mutants
from tests.support import raft_probe
from tests.support.raft_world import SimNode, World

NodeClass = type[RaftNode]

pytestmark = pytest.mark.slow


def make(seed: int, node_class: NodeClass = RaftNode, names: str = "abc") -> World:
    """A world whose journals have an identity, with all members up, which have begun."""
    world = World(names, seed=seed, node_class=node_class, passports=True).start()
    world.run_until(lambda: not any(node.recovering for node in world.nodes.values()), 5.0)
    return world


def settled(world: World, seconds: float = 20.0) -> None:
    """Wait until every member has a voice, and look whether all is well."""
    world.start()
    world.run_until(lambda: not any(node.recovering for node in world.nodes.values()), seconds)
    world.commit(world.elect(), 3)
    world.run(1.0)
    world.checks.at_rest()


def waits_for(node: SimNode) -> str:
    return str(node.node.waits_for())


def standing(world: World, judge: str, other: str) -> Standing | None:
    """The standing of one member with another; None: it counts."""
    found = raft_probe.core(world.nodes[judge].node)._standings
    return next((what for node, what in found.items() if node.id == other), None)


def empty_members_begin_together(node_class: NodeClass = RaftNode) -> None:
    """Two of three empty ones may stand for lost journals; three begin."""
    world = World("abc", seed=1, node_class=node_class, passports=True)
    for name in "ab":
        world.nodes[name].start()
    world.network.connect_all()
    world.run(10.0)
    assert not world.leaders
    assert "not reached: c" in waits_for(world.nodes["a"])
    assert "fifo cluster init" in waits_for(world.nodes["a"])
    settled(world)


def an_empty_folder_is_no_member(node_class: NodeClass = RaftNode) -> None:
    """A member that lost its journal elects no leader that lacks what only it had with another;
    it comes back by an ordinary start."""
    world = make(2, node_class)
    leader, wiped = world.elect("a"), world.nodes["c"]
    world.nodes["b"].kill()
    world.commit(leader, 5)
    wiped.wipe()
    leader.kill()
    wiped.start()
    world.nodes["b"].start()
    world.run(5.0)
    assert not world.leaders
    assert "the terms of a" in waits_for(wiped)
    settled(world)
    assert len(wiped.applied) == 8


def an_older_image_is_no_member(node_class: NodeClass = RaftNode) -> None:
    """A disk that is set back is given up, for a member knows what it has acknowledged."""
    world = make(3, node_class)
    leader, old = world.elect("a"), world.nodes["c"]
    world.run(1.0)
    image = old.storage.image()
    world.nodes["b"].kill()
    world.commit(leader, 5)
    old.set_back(image)
    old.start()
    world.run(3.0)
    assert world.counts.get("gave up") == 1
    assert old.recovering
    settled(world)


def an_older_image_of_a_leader_is_no_member(node_class: NodeClass = RaftNode) -> None:
    """A leader acknowledges nothing, and yet its own disk counts for what it commits."""
    world = make(21, node_class)
    leader = world.elect("a")
    world.run(1.0)
    image = leader.storage.image()
    world.nodes["b"].kill()
    world.commit(leader, 5)
    world.run(0.5)
    leader.set_back(image)
    leader.start()
    world.run(3.0)
    assert world.counts.get("gave up") == 1
    assert leader.recovering
    settled(world)
    assert len(world.nodes["b"].applied) == 8


def a_leader_says_again_what_it_has_promised(node_class: NodeClass = RaftNode) -> None:
    """A member whose connection was new hears it too, in an idle cluster."""
    world = make(22, node_class)
    leader = world.elect("a")
    world.run(1.0)
    image = leader.storage.image()
    world.nodes["b"].kill()
    world.commit(leader, 5)
    world.nodes["c"].kill()
    world.nodes["c"].start()
    world.nodes["b"].start()
    world.run(0.3)
    world.nodes["c"].kill()
    leader.set_back(image)
    leader.start()
    world.run(3.0)
    assert world.counts.get("gave up") == 1
    settled(world)


def who_learned_of_no_process_is_not_stuck(node_class: NodeClass = RaftNode) -> None:
    """A member that has acknowledgements of a process to judge learns of no later one from others;
    it judges that one itself when they meet, however many there were between."""
    world = make(23, node_class)
    world.commit(world.elect("a"), 3)
    world.run(1.5)
    other = world.nodes["b"]
    world.network.stop("a", "b")
    world.network.stop("b", "a")
    for _ in range(3):
        other.kill()
        world.run(0.5)
        other.start()
        world.run(2.0)
    opens = [raft_probe.core(world.nodes[name].node).roll.known("b").opens for name in "ac"]
    assert opens[0] < opens[1] - 1, "it heard of each process, and has met none"
    world.network.heal()
    world.run(3.0)
    assert standing(world, "a", "b") is None
    assert raft_probe.core(world.nodes["a"].node).roll.known("b").opens == opens[1]
    assert "gave up" not in world.counts
    world.nodes["c"].kill()
    world.commit(world.elect(), 3)
    settled(world)


def what_others_count_is_judged_by_its_promises(node_class: NodeClass = RaftNode) -> None:
    """A disk that is set back is seen first by a member that it has acknowledged nothing to."""
    world = make(20, node_class)
    leader, old = world.elect("a"), world.nodes["c"]
    world.run(1.0)
    image = old.storage.image()
    world.commit(leader, 5)
    world.run(1.0)
    old.set_back(image)
    world.network.stop("a", "c")
    world.network.stop("c", "a")
    old.start()
    world.run(0.5)
    world.network.heal()
    world.run(3.0)
    assert world.counts.get("gave up") == 1
    settled(world)


def acknowledgements_survive_restarts(node_class: NodeClass = RaftNode) -> None:
    """An acknowledgement is known after a restart of the one that it answered."""
    world = make(4, node_class)
    leader, old = world.elect("a"), world.nodes["c"]
    world.run(1.0)
    image = old.storage.image()
    world.nodes["b"].kill()
    world.commit(leader, 5)
    world.run(2.5)
    old.kill()
    leader.kill()
    old.set_back(image)
    world.nodes["a"].start()
    old.start()
    world.run(3.0)
    assert world.counts.get("gave up") == 1
    settled(world)


def an_image_of_fewer_opens_is_no_member(node_class: NodeClass = RaftNode) -> None:
    """A disk that was opened since is older, though it acknowledged nothing meanwhile."""
    world = make(5, node_class)
    world.elect("a")
    world.run(1.0)
    old = world.nodes["c"]
    image = old.storage.image()
    for _ in range(2):
        old.kill()
        old.start()
        world.run(2.0)
    old.set_back(image)
    old.start()
    world.run(3.0)
    assert world.counts.get("gave up") == 1
    settled(world)


def a_copy_of_files_is_no_member(node_class: NodeClass = RaftNode) -> None:
    """Files that were copied are those of another moment: the node sees it and has no voice."""
    world = make(6, node_class)
    leader, copied = world.elect("a"), world.nodes["c"]
    world.commit(leader, 2)
    world.run(1.0)
    image = copied.storage.image()
    world.nodes["b"].kill()
    world.commit(leader, 5)
    leader.kill()
    copied.set_back(image, copied=True)
    copied.start()
    world.nodes["b"].start()
    world.run(5.0)
    assert world.counts.get("gave up") == 1
    assert "the terms of a" in waits_for(copied)
    assert not world.leaders
    settled(world)


def copies_alone_give_nothing_up(node_class: NodeClass = RaftNode) -> None:
    """Where all folders were copied, as in a move of the whole cluster, each waits and keeps its
    files; adopted, they go on."""
    world = make(7, node_class)
    world.commit(world.elect("a"), 4)
    world.run(1.0)
    for node in world.nodes.values():
        node.kill()
    for node in world.nodes.values():
        node.set_back(node.storage.image(), copied=True)
        node.start()
    world.network.connect_all()
    world.run(5.0)
    assert not world.leaders
    assert "gave up" not in world.counts
    for node in world.nodes.values():
        assert "fifo cluster adopt" in waits_for(node)
        node.kill()
        node.storage.replace(passport.ADOPT_ORDER, b"")
        node.set_back_to_image = False
    settled(world)
    assert len(world.nodes["c"].applied) == 7


def an_unknown_journal_does_not_count(node_class: NodeClass = RaftNode) -> None:
    """A journal that no member has seen neither votes nor counts, and is not given up either."""
    world = make(8, node_class)
    leader, other = world.elect("a"), world.nodes["c"]
    world.run(1.0)
    other.kill()
    papers = passport.read(other.storage)
    assert papers is not None
    passport.write(other.storage, replace(papers, journal=b"another journal."))
    world.nodes["b"].kill()
    other.start()
    world.run_until(lambda: world.network.connected("a", "c"))
    submitted = world.submit(leader, world.payload())
    world.run(5.0)
    assert not world.leaders
    assert all(outcome.name != "COMMITTED" for outcome, _ in submitted.outcomes)
    assert standing(world, "a", "c") is Standing.BARRED
    assert "gave up" not in world.counts
    other.kill()
    world.checks.lost(other)
    passport.write(other.storage, replace(papers, opens=papers.opens + 9))
    settled(world)


def a_journal_given_up_is_no_member(node_class: NodeClass = RaftNode) -> None:
    """The old disk of a member that has recovered on another one is known as what it is."""
    world = make(9, node_class)
    world.commit(world.elect("a"), 2)
    world.run(1.0)
    member = world.nodes["c"]
    image = member.storage.image()
    member.wipe()
    settled(world)
    member.set_back(image)
    member.start()
    world.run(3.0)
    assert world.counts.get("gave up") == 1
    settled(world)


def of_two_an_empty_one_is_let_in(node_class: NodeClass = RaftNode) -> None:
    """Neither of two leads without the other, so the one that is whole has everything."""
    world = make(10, node_class, "ab")
    world.checks.disks = False  # What is on one disk of two is not on a majority, for a moment.
    leader = world.elect("a")
    world.commit(leader, 5)
    world.run(1.0)
    world.nodes["b"].wipe()
    settled(world)
    assert len(world.nodes["b"].applied) == 8
    world.nodes["a"].kill()
    settled(world)


def a_restart_is_no_loss(node_class: NodeClass = RaftNode) -> None:
    """Members that are killed and started again, by signals and with the power, count at once."""
    world = make(11, node_class)
    for round_number in range(6):
        world.commit(world.elect(), 3)
        member = world.nodes["abc"[round_number % 3]]
        member.kill(power=round_number % 2 == 1)
        world.commit(world.elect(), 2)
        member.start()
    for member in world.nodes.values():
        member.kill(power=True)
    settled(world)
    assert "gave up" not in world.counts
    assert not any(world.nodes[one].recovering for one in "abc")


def acknowledgements_are_no_evidence_against_their_own_process(
    node_class: NodeClass = RaftNode,
) -> None:
    """A process that a member first met while it had no voice says at each connection how its
    journal ended when it was opened; what it has acknowledged since is more than that."""
    world = make(12, node_class)
    world.commit(world.elect("a"), 2)
    met, judge = world.nodes["b"], world.nodes["c"]
    met.kill()
    judge.wipe()
    judge.start()
    world.run(2.0)
    assert judge.recovering
    met.start()
    core = raft_probe.core(judge.node)
    world.run_until(lambda: any(node.id == "b" for node in core._said), 5.0)
    assert judge.recovering
    world.network.intercept = lambda frame: (
        "drop" if frame.source == "b" and frame.message()["type"] == "journal" else "pass"
    )
    world.run_until(lambda: not judge.recovering, 20.0)
    world.run(2.0)
    leader = world.elect()
    if leader is not judge:
        leader.node.transfer("c", lambda _: None)
        world.run_until(lambda: judge.node.is_leader, 10.0)
    world.commit(judge, 5)
    world.run(2.0)
    world.network.intercept = None
    world.network.break_link("b", "c")
    world.run(3.0)
    assert "gave up" not in world.counts
    assert standing(world, "c", "b") is None
    settled(world)


def journals_without_identity_are_believed_once(node_class: NodeClass = RaftNode) -> None:
    """After an upgrade each journal gets an id, and the others take the first that they see."""
    world = World("abc", seed=12, node_class=node_class).start()
    world.commit(world.elect("a"), 3)
    for node in world.nodes.values():
        node.kill()
    world.passports = True
    settled(world)
    member = world.nodes["c"]
    world.run(1.0)
    member.wipe()
    member.start()
    world.run(0.3)
    assert member.recovering
    settled(world)


def says_connected(world: World, says: str, hears: str, other: str, open_id: bytes) -> None:
    """Have one member say to another that this process of a third is connected to it."""
    core = raft_probe.core(world.nodes[hears].node)
    node = next(one for one in core.nodes if one.id == says)
    said = replace(core._said[node], connected={other: open_id})
    core.receive(node, said.frame)


def a_second_process_does_not_count_wherever_it_is_connected(
    node_class: NodeClass = RaftNode,
) -> None:
    """Of two that came at once the least member keeps its own; the other counts once the word of
    the first is gone."""
    world = make(13, node_class)
    world.commit(world.elect("a"), 2)
    world.run(1.0)
    another = bytes(range(16))
    says_connected(world, "b", "a", "c", another)
    assert standing(world, "a", "c") is None, "taken before, and the least name"
    says_connected(world, "a", "b", "c", another)
    assert standing(world, "b", "c") is Standing.BARRED
    world.run(3.0)
    assert standing(world, "b", "c") is Standing.BARRED
    assert "gave up" not in world.counts
    world.nodes["a"].kill()
    world.run(3.0)
    assert standing(world, "b", "c") is None, "the first process is connected to no member"
    settled(world)
    assert standing(world, "b", "c") is None


RULES: list[Rule] = [
    (acknowledgements_are_no_evidence_against_their_own_process, mutants.TakesDownNoProcess),
    (empty_members_begin_together, mutants.BeginsAmongTheReachable),
    (an_empty_folder_is_no_member, mutants.BeginsEmpty),
    (an_older_image_is_no_member, mutants.ForgetsAcknowledgements),
    (an_older_image_of_a_leader_is_no_member, mutants.KeepsItsOwnPromises),
    (a_leader_says_again_what_it_has_promised, mutants.SaysItOnce),
    (who_learned_of_no_process_is_not_stuck, mutants.BelievesInNoGaps),
    (what_others_count_is_judged_by_its_promises, mutants.BelievesOthersOfProcesses),
    (acknowledgements_survive_restarts, mutants.NotesNoAcknowledgements),
    (an_image_of_fewer_opens_is_no_member, mutants.CountsNoOpens),
    (a_copy_of_files_is_no_member, mutants.TrustsCopies),
    (copies_alone_give_nothing_up, mutants.CopiesJudge),
    (an_unknown_journal_does_not_count, mutants.CountsUnknownJournals),
    (a_journal_given_up_is_no_member, mutants.ForgetsFormerJournals),
    (of_two_an_empty_one_is_let_in, mutants.AdmitsNone),
    (a_restart_is_no_loss, mutants.TakesRestartsForLoss),
    (journals_without_identity_are_believed_once, mutants.BeginsEmpty),
    (
        a_second_process_does_not_count_wherever_it_is_connected,
        mutants.CountsProcessesElsewhere,
    ),
]
test_the_rule_holds, test_the_rule_is_needed = as_tests(RULES)
