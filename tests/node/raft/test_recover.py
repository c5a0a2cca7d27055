"""A member that lost its journal: it has no voice before it has back what it may have promised.

A scenario takes the class of node to run, so that each rule can be taken out and seen to matter.
"""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import pytest

from node.journal.errors import JournalDamaged, JournalForeign, JournalWhole
from node.raft.node import RaftNode
from node.raft.rejoin import RecoverRefused, Rejoin, check_members
from node.raft.transfer import TransferRefused
from node.testing.disk import PowerCut, SimStorage
from tests.node.raft.scenarios import Rule, as_tests
from tests.node.raft.test_slow_disk import make_slow
from tests.support import raft_mutants as mutants
from tests.support import raft_probe, raft_schedule
from tests.support.journals import open_journal
from tests.support.raft_network import Frame
from tests.support.raft_world import SimNode, World

if TYPE_CHECKING:
    from node.peers.message import PeerNode

NodeClass = type[RaftNode]
STAMP = "20261122T043238Z"


def believe(world: World, leader: SimNode) -> None:
    """Make this leader lead on although no member answers; its lease ends as usual."""
    world.checks.alone = False
    raft_probe.core(leader.node).conf.leaderFallbackTimeout = 60.0


def recovered(world: World, seconds: float = 10.0) -> None:
    """Wait until everybody has a voice, and look whether all is well."""
    world.run_until(lambda: not any(node.recovering for node in world.nodes.values()), seconds)
    world.commit(world.elect(), 3)
    world.run(1.0)
    world.checks.at_rest()


def entries_to(frame: Frame, *targets: str) -> bool:
    """Whether a frame carries entries to one of these."""
    message = frame.message()
    return frame.target in targets and bool(message.get("entries"))


def forgotten_entries(node_class: NodeClass = RaftNode) -> None:
    """Entries that the lost journal held with the leader's alone are not voted away."""
    world = World("abc", seed=1, node_class=node_class).start()
    leader, lost = world.elect("a"), world.nodes["c"]
    world.network.isolate("b")
    world.commit(leader, 5)
    lost.lose_disk()
    leader.kill()
    lost.start()
    world.network.heal()
    world.run(5.0)
    assert not world.leaders
    assert "the terms of a" in str(lost.node.waits_for())
    leader.start()
    recovered(world)
    assert len(lost.applied) == 8


def forgotten_promise(node_class: NodeClass = RaftNode) -> None:
    """A leader that was left for another one gets nothing committed by who forgot that."""
    world = World("abc", seed=2, node_class=node_class).start()
    old, lost = world.elect("a"), world.nodes["c"]
    world.commit(old, 2)
    believe(world, old)
    world.network.isolate("a")
    world.run_until(lambda: world.nodes["b"].node.is_leader)
    world.commit(world.nodes["b"], 3)
    lost.lose_disk()
    world.network.isolate("b")
    for way in ("ac", "ca"):
        world.network.cut.discard((way[0], way[1]))
    lost.start()
    mine = [world.submit(old, world.payload()) for _ in range(5)]
    world.run(2.0)
    assert lost.node.leader == "a"
    assert lost.node.last_index >= old.node.last_index
    assert not any(one.outcomes for one in mine)
    world.network.heal()
    recovered(world)


def lost_copy(node_class: NodeClass = RaftNode) -> None:
    """Entries acknowledged and then lost are no copy any more, as soon as the leader knows."""
    world = World("abc", seed=3, node_class=node_class).start()
    leader, lost = world.elect("a"), world.nodes["b"]
    make_slow(world, leader, 3.0)
    raft_probe.core(leader.node).leave_hanging_disk = lambda: None  # type: ignore[method-assign]  # here it stays
    believe(world, leader)
    world.nodes["c"].kill()
    world.run(7.0)
    assert leader.journal is not None
    submitted = world.submit(leader, world.payload())
    last = leader.node.last_index + 1
    world.run_until(lambda: raft_probe.core(leader.node).match_index[_peer(leader, "b")] >= last)
    assert leader.journal.log.synced_index < last
    lost.lose_disk()
    world.network.intercept = lambda frame: "drop" if entries_to(frame, "b") else "pass"
    lost.start()
    journal = leader.journal
    world.run_until(lambda: journal.log.synced_index >= last)
    world.run(1.0)
    assert not submitted.outcomes
    world.network.intercept = None
    world.nodes["c"].start()
    recovered(world, 30.0)  # The leader's disk takes seconds for each step.


def _peer(node: SimNode, name: str) -> PeerNode:
    return next(peer for peer in raft_probe.core(node.node).nodes if peer.id == name)


def late_word(node_class: NodeClass = RaftNode) -> None:
    """Acknowledgements from before the loss may still arrive; then it must not vote yet."""
    world = World("abc", seed=4, node_class=node_class, batch_bytes=1).start()
    leader, lost = world.elect("a"), world.nodes["b"]
    believe(world, leader)
    world.commit(leader, 3)
    world.run(0.5)
    world.network.isolate("c")
    first = leader.node.last_index + 1
    said: list[Frame] = []

    def intercept(frame: Frame) -> str:
        message = frame.message()
        if frame.source == "b" and message.get("next_node_idx", 0) > first:
            said.append(frame)
            return "drop"
        past = entries_to(frame, "b") and message["entries"][-1][1] >= first
        return "drop" if said and past else "pass"

    world.network.intercept = intercept
    world.submit(leader, world.payload())
    world.run_until(lambda: bool(said))
    lost.lose_disk()
    lost.start()
    world.run(2.0)
    world.network.deliver(said[0])
    world.run(0.5)
    world.network.intercept = None
    leader.kill()
    world.network.heal()
    world.run(3.0)
    assert not world.leaders
    leader.start()
    recovered(world)


def heard_too_early(node_class: NodeClass = RaftNode) -> None:
    """A new leader says late what is committed: its word alone brings no voice back."""
    world = World("abc", seed=5, node_class=node_class).start()
    leader, lost = world.elect("a"), world.nodes["c"]
    world.network.isolate("b")
    world.commit(leader, 5)
    lost.lose_disk()
    leader.kill()
    leader.start()
    world.network.heal()
    lost.start()
    world.network.intercept = lambda frame: "drop" if entries_to(frame, "b", "c") else "pass"
    world.run_until(lambda: bool(world.leaders) and lost.node.leader == "a")
    world.run(0.3)
    leader.kill()
    world.network.intercept = None
    world.run(4.0)
    assert not world.leaders
    leader.start()
    recovered(world)


def restart_in_the_middle(node_class: NodeClass = RaftNode) -> None:
    """A power cut while it recovers, and a start without a word about it: it goes on."""
    world = World("abc", seed=6, node_class=node_class).start()
    leader, lost = world.elect("a"), world.nodes["c"]
    world.network.isolate("b")
    world.commit(leader, 5)
    lost.lose_disk(damaged=True)
    leader.kill()
    lost.start()
    world.network.heal()
    world.run(0.5)
    lost.kill(power=True)
    lost.start()
    world.run(4.0)
    assert not world.leaders
    assert lost.node.waits_for() is not None
    leader.start()
    recovered(world)


RULES: list[Rule] = [
    (forgotten_entries, mutants.VotesAtOnce),
    (forgotten_promise, mutants.CountsAtOnce),
    (lost_copy, mutants.KeepsOldMatch),
    (late_word, mutants.DoneAtTheCurrentLeader),
    (heard_too_early, mutants.DoneWithTheFirstFrame),
    (restart_in_the_middle, mutants.ForgetsItsMarker),
]
test_the_rule_holds, test_the_scenario_shows_when_the_rule_is_taken_out = as_tests(RULES)


@pytest.mark.slow
@pytest.mark.parametrize("base", [5000, 5010, 5020])
def test_random_faults_and_lost_journals_break_nothing(base: int) -> None:
    counts: dict[str, int] = {}
    for seed in range(base, base + 10):
        names = "abcde" if seed % 4 == 3 else "abc"
        world = raft_schedule.run(seed, names=names, late=seed % 2 == 1, losses=True)
        for what, count in world.counts.items():
            counts[what] = counts.get(what, 0) + count
    assert counts["lost"] >= 8
    assert counts["installed"] >= 3


# --- the way back -------------------------------------------------------------------------------


def test_a_recovery_takes_a_few_round_trips_while_the_cluster_serves() -> None:
    world = World("abc", seed=10, drifting=True).start()
    leader = world.elect("a")
    world.commit(leader, 50, 300)
    lost = world.nodes["c"]
    lost.lose_disk()
    lost.start()
    began_at = world.now
    recovered(world)
    assert world.now - began_at < 3.0
    assert world.leaders[0].node.term > raft_probe.core(leader.node).counters.elections_total
    assert len(lost.applied) == 53


def test_a_leader_names_a_member_that_does_not_count_and_never_hands_over_to_it() -> None:
    world = World("abc", seed=11).start()
    leader, lost = world.elect("a"), world.nodes["c"]
    world.commit(leader, 3)
    world.nodes["b"].kill()
    believe(world, leader)
    lost.lose_disk()
    lost.start()
    world.run(1.0)
    peers = {peer.name: peer for peer in leader.node.status().peers}
    assert not peers["c"].counted
    assert peers["c"].match_index == leader.node.last_index
    with pytest.raises(TransferRefused, match="c is recovering a lost journal"):
        leader.node.transfer("c", lambda _: None)
    assert leader.node.successor() is None
    assert lost.node.status().recovering == lost.node.waits_for()


def test_a_recovering_member_says_what_it_waits_for() -> None:
    world = World("abc", seed=12).start()
    leader, lost = world.elect("a"), world.nodes["c"]
    world.commit(leader, 3)
    world.network.stop("a", "b")
    world.network.stop("b", "a")
    believe(world, leader)
    lost.lose_disk()
    world.network.intercept = lambda frame: "drop" if frame.source == "b" else "pass"
    lost.start()
    world.run(1.0)
    assert str(lost.node.waits_for()).startswith("the terms of b: every other member")
    world.network.intercept = lambda frame: "pass"
    world.run_until(lambda: "elected in a term above" in str(lost.node.waits_for()))
    world.network.heal()
    recovered(world)
    assert lost.node.waits_for() is None


def test_two_of_five_recover_at_once() -> None:
    world = World("abcde", seed=13, drifting=True).start()
    leader = world.elect("a")
    world.commit(leader, 10)
    for name in "de":
        world.nodes[name].lose_disk()
    for name in "de":
        world.nodes[name].start()
    recovered(world)


def test_the_journal_may_be_lost_again_on_the_way_back() -> None:
    world = World("abc", seed=14).start()
    leader, lost = world.elect("a"), world.nodes["c"]
    world.commit(leader, 5)
    world.nodes["b"].kill()
    believe(world, leader)
    for _ in range(3):
        lost.lose_disk()
        lost.start()
        world.run(1.0)
        assert lost.node.last_index == leader.node.last_index
    world.nodes["b"].start()
    recovered(world)


# --- questions and answers ----------------------------------------------------------------------


def report(rejoin: Rejoin, peer: str, term: int, *, recovering: bool = False) -> bool:
    """An answer to the question that is open."""
    number = rejoin.question()["number"]
    return rejoin.reported(peer, {"number": number, "term": term, "recovering": recovering})


def test_everybody_has_to_answer_and_the_highest_term_counts() -> None:
    rejoin = Rejoin(["b", "c"], random.Random(1))
    missing = "the terms of b, c: every other member has to report its own; "
    assert rejoin.waits_for(None).startswith(missing)
    assert "where a majority is gone for good, `fifo cluster rebuild`" in rejoin.waits_for(None)
    assert not report(rejoin, "b", 7)
    assert rejoin.floor is None
    assert not rejoin.reported("c", {"number": 0, "term": 9, "recovering": False})
    assert report(rejoin, "c", 5)
    assert rejoin.floor == 7
    assert rejoin.question()["above"] == 7
    assert rejoin.waits_for(None) == "a leader elected in a term above 7"
    assert "b was asked to hand over" in rejoin.waits_for(("b", 7))
    assert rejoin.waits_for(("b", 8)) == "the log of b, which leads term 8"


def test_after_another_one_said_that_it_recovers_the_rest_is_asked_again() -> None:
    rejoin = Rejoin(["b", "c", "d", "e"], random.Random(2))
    report(rejoin, "b", 3)
    report(rejoin, "c", 0, recovering=True)
    report(rejoin, "d", 3)
    assert not report(rejoin, "e", 3)
    assert rejoin.floor is None
    report(rejoin, "b", 6)
    report(rejoin, "c", 0, recovering=True)
    report(rejoin, "d", 3)
    assert report(rejoin, "e", 3)
    assert rejoin.floor == 6


def test_the_answer_of_a_learner_takes_the_place_of_none_and_counts() -> None:
    """Seed 910487 of the random changes: a member that lost its disk amid a change stayed out."""
    rejoin = Rejoin(["b", "c"], random.Random(5))
    assert not report(rejoin, "learner", 8)
    assert not report(rejoin, "b", 3)
    assert report(rejoin, "c", 5)
    assert rejoin.floor == 8


def test_members_without_a_majority_that_has_its_journals_say_so() -> None:
    rejoin = Rejoin(["b", "c"], random.Random(4))
    for _ in range(2):
        report(rejoin, "b", 3)
        report(rejoin, "c", 0, recovering=True)
    assert rejoin.floor == 3
    waits_for = rejoin.waits_for(None)
    assert "a majority with journals of their own; also without: c; " in waits_for
    assert "`fifo cluster rebuild`" in waits_for
    assert "the log of b" in rejoin.waits_for(("b", 4)), "a leader proves that there is one"


def test_questions_are_repeated_and_only_the_leader_is_asked_to_hand_over() -> None:
    rejoin = Rejoin(["b", "c"], random.Random(3))
    assert [rejoin.asks("b", None, now) for now in (1.0, 1.1, 1.6)] == [True, False, True]
    report(rejoin, "b", 4)
    assert not rejoin.asks("b", None, 9.0)
    report(rejoin, "c", 4)
    assert not rejoin.asks("b", ("c", 4), 20.0)
    assert rejoin.asks("c", ("c", 4), 20.0)
    assert not rejoin.asks("c", ("c", 5), 30.0)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([], "it is the only member, so no other one has its messages"),
        (["b"], "b has every acknowledged message.* without --recover"),
    ],
)
def test_a_group_without_a_majority_of_others_gets_advice(others: list[str], words: str) -> None:
    with pytest.raises(RecoverRefused, match=words):
        check_members("a", others)
    check_members("a", ["b", "c"])


@pytest.mark.slow
@pytest.mark.parametrize("away_seconds", [0.0, 0.3, 1.0, 2.2])
def test_of_two_members_one_may_begin_empty_for_neither_leads_without_the_other(
    away_seconds: float,
) -> None:
    """The refusal's advice, whether or not its leader leads on meanwhile. The disks of one
    alone hold everything then: not looked at."""
    for seed in range(5):
        world = World("ab", seed=seed, drifting=True).start()
        world.checks.disks = False
        leader = world.elect("a" if seed % 2 else "b")
        world.commit(leader, 10)
        lost = world.nodes["b"]
        lost.lose_disk()
        lost.lost = False
        world.run(away_seconds)
        lost.start()
        world.commit(world.elect(), 3)
        world.run(1.0)
        world.checks.at_rest()


def test_a_member_that_lost_acknowledged_entries_is_caught_up_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An empty folder without --recover is a mistake, but one that the leader can see, and the
    less the member lacks, the less harm its vote can do."""
    world = World("abc", seed=1).start()
    world.checks.disks = False
    leader, lost = world.elect("a"), world.nodes["c"]
    world.commit(leader, 10)
    world.run(0.5)
    lost.lose_disk()
    lost.lost = False
    lost.start()
    world.run(1.0)
    assert [node.name for node in world.leaders] == ["a"]
    assert len(lost.applied) == 10
    assert [
        record.getMessage() for record in caplog.records if "peer_forgot" in record.getMessage()
    ] == [
        "event=peer_forgot peer=c acknowledged=12 has=1 advice=the folder of a member that lost "
        "its files is started with --recover"
    ]


# --- the folder -----------------------------------------------------------------------------------


def written(storage: SimStorage) -> None:
    """A journal of a few entries in several segments, its process gone."""
    journal = open_journal(storage)
    for index in range(1, 40):
        journal.log.add(b"\x10" + bytes(100), index, 1)
        journal.log.sync()
    journal.close()
    storage.crash()


def damage(storage: SimStorage) -> str:
    """Flip a bit in the middle of the first segment."""
    name = storage.listdir()[0]
    content = bytearray(storage.content(name))
    content[len(content) // 2] ^= 1
    storage.replace(name, bytes(content))
    return name


def test_damage_names_file_offset_and_the_way_out() -> None:
    storage = SimStorage()
    written(storage)
    name = damage(storage)
    with pytest.raises(JournalDamaged, match=r"fifo serve --recover") as caught:
        open_journal(storage)
    assert caught.value.file == name
    assert caught.value.offset > 0


def test_damaged_files_are_set_aside_and_stay_whatever_is_started_later() -> None:
    storage = SimStorage()
    written(storage)
    damage(storage)
    old = {name: storage.content(name) for name in storage.listdir()}
    journal = open_journal(storage, recover=STAMP)
    assert journal.recovering
    assert journal.log.last_index == 0
    journal.close()
    for recover in (None, "20270101T000000Z"):
        journal = open_journal(storage, recover=recover)
        assert journal.recovering
        journal.close()
    journal = open_journal(storage)
    journal.end_recovery()
    journal.close()
    journal = open_journal(storage)
    assert not journal.recovering
    journal.close()
    for name, content in old.items():
        assert storage.content(f"{name}.lost-{STAMP}") == content


def test_an_empty_folder_counts_as_lost_only_where_that_is_said() -> None:
    storage = SimStorage()
    assert open_journal(storage, recover=STAMP).recovering
    assert not open_journal(SimStorage()).recovering


def test_an_intact_journal_is_not_set_aside() -> None:
    storage = SimStorage()
    written(storage)
    before = storage.listdir()
    with pytest.raises(JournalWhole, match="start without --recover"):
        open_journal(storage, recover=STAMP)
    assert storage.listdir() == before
    journal = open_journal(storage)
    assert journal.log.last_index == 39
    assert storage.open_files > 0
    journal.close()


def test_the_journal_of_another_node_is_not_set_aside() -> None:
    storage = SimStorage()
    written(storage)
    with pytest.raises(JournalForeign):
        open_journal(storage, node="somebody", recover=STAMP)
    assert open_journal(storage).log.last_index == 39


def test_a_power_cut_at_any_operation_leaves_the_old_files_or_a_member_that_recovers() -> None:
    """Nothing in between: no start ever finds an empty journal and no marker."""
    for empty in (False, True):
        operation = 0
        while True:
            storage = SimStorage()
            if not empty:
                written(storage)
                damage(storage)
            left = operation

            def hook(_operation: str, _name: str) -> None:
                nonlocal left
                left -= 1
                if left < 0:
                    raise PowerCut

            storage.hook = hook
            try:
                open_journal(storage, recover=STAMP)
                break
            except PowerCut:
                storage.power_loss(random.Random(operation))
            operation += 1
            if not storage.listdir():
                assert empty  # As it was before: no message to the operator said that it began.
                continue
            with contextlib.suppress(JournalDamaged):
                assert open_journal(storage).recovering
            storage.crash()
            journal = open_journal(storage, recover=STAMP)
            assert journal.recovering
            journal.end_recovery()
        assert operation > 5
