"""Members that change while the cluster runs: learners, steps, hand-over, tombstones.

A scenario takes the class of node to run, so that each rule can be taken out and seen to matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node.raft.configuration import Change, ChangeRefused, Configuration, Member
from node.raft.node import RaftNode
from tests.node.raft.scenarios import Rule, as_tests
from tests.support import member_mutants as mutants
from tests.support import raft_probe
from tests.support.member_schedule import as_member, leading
from tests.support.raft_world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.raft_network import Frame
    from tests.support.raft_world import SimNode

NodeClass = type[RaftNode]

pytestmark = pytest.mark.slow


def make(
    seed: int,
    node_class: NodeClass = RaftNode,
    names: str = "abc",
    snapshot_bytes: int = 1 << 30,
    batch_bytes: int = 1 << 20,
) -> World:
    """A world whose journals have an identity, with all members up, which have begun."""
    world = World(
        names,
        seed=seed,
        node_class=node_class,
        passports=True,
        snapshot_bytes=snapshot_bytes,
        batch_bytes=batch_bytes,
    ).start()
    world.run_until(lambda: not any(node.recovering for node in world.nodes.values()), 5.0)
    return world


def joining(world: World, *names: str) -> tuple[Member, ...]:
    """New machines, pointed at all members."""
    peers = [node.name for node in world.members()]
    return tuple(as_member(world.join(name, peers)) for name in names)


def ended(world: World) -> bool:
    """Whether a leader knows that no change is under way any more."""
    leader = leading(world)
    if leader is None:
        return False
    return not leader.node.configuration.wanted and leader.node.configuration_committed


def settled(world: World) -> bool:
    """Whether a leader's newest configuration is committed."""
    leader = leading(world)
    return leader is not None and leader.node.configuration_committed


def names_of(configuration: Configuration) -> str:
    return "".join(sorted(voter.name for voter in configuration.voters))


def finish(world: World, wanted: str, seconds: float = 20.0) -> None:
    """Wait for the end of a change, and look whether all is well."""
    world.run_until(lambda: ended(world), seconds)
    leader = leading(world)
    assert leader is not None
    assert names_of(leader.node.configuration) == wanted
    world.commit(leader, 3)
    world.run(2.0)
    world.checks.at_rest()
    assert all(len(world.nodes[name].applied) >= 3 for name in wanted)


def begin(world: World, change: Change) -> SimNode:
    """Begin a change with the leader."""
    world.run_until(lambda: leading(world) is not None)
    leader = leading(world)
    assert leader is not None
    world.commit(leader, 1)
    leader.node.change_members(change)
    return leader


# --- what a change does ---


def one_grows_to_three(node_class: NodeClass = RaftNode) -> None:
    """Neither is promoted before both are level: the first alone, and dead, would stop a group of
    two."""
    world = make(1, node_class, "a")
    leader = world.elect("a")
    world.commit(leader, 5)
    added = joining(world, "b", "c")
    world.nodes["c"].kill()
    leader.node.change_members(Change(added))
    world.run(3.0)
    assert names_of(leader.node.configuration) == "a"
    progress = leader.node.change_progress()
    assert progress is not None
    assert progress.waits_for == "c to be level with the leader"
    assert {one.name: one.level for one in progress.learners} == {"b": True, "c": False}
    world.commit(leader, 1)  # Learners do not count: it is a majority alone.
    world.nodes["c"].start()
    finish(world, "abc")


def three_grow_to_five_and_back(node_class: NodeClass = RaftNode) -> None:
    world = make(2, node_class)
    begin(world, Change(joining(world, "d", "e")))
    finish(world, "abcde")
    begin(world, Change(remove=("a", "b")))
    finish(world, "cde")
    for name in "ab":
        assert world.nodes[name].node.removed


def a_dead_one_of_three_is_replaced(node_class: NodeClass = RaftNode) -> None:
    world = make(3, node_class)
    world.nodes["c"].kill()
    world.elect("a")
    begin(world, Change(joining(world, "d"), ("c",)))
    finish(world, "abd")


def the_only_one_is_replaced(node_class: NodeClass = RaftNode) -> None:
    """The last voter goes after its successor has come, and leads until then."""
    world = make(4, node_class, "a")
    world.commit(world.elect("a"), 3)
    begin(world, Change(joining(world, "b"), ("a",)))
    finish(world, "b")


def three_shrink_to_one(node_class: NodeClass = RaftNode) -> None:
    world = make(5, node_class)
    world.elect("a")
    begin(world, Change(remove=("b", "c")))
    finish(world, "a")


def a_leader_hands_over_before_it_goes(node_class: NodeClass = RaftNode) -> None:
    """No time without a leader but that of a hand-over."""
    world = make(6, node_class)
    leader = world.elect("a")
    before = leader.node.term
    begin(world, Change(remove=("a",)))
    finish(world, "bc", 5.0)
    assert world.leaders[0].node.term == before + 1
    assert leader.node.removed


def a_member_moves(node_class: NodeClass = RaftNode) -> None:
    world = make(7, node_class)
    leader = world.elect("a")
    world.commit(leader, 1)
    leader.node.move_member("b", ("127.0.0.1", 99), "c:1", "h:1")
    finish(world, "abc")
    for node in world.nodes.values():
        found = node.node.configuration.member("b")
        assert found is not None
        assert (found.address, found.client, found.http) == (("127.0.0.1", 99), "c:1", "h:1")
    transport = world.nodes["c"].transport
    assert transport is not None
    assert transport.followed["b"] == ("127.0.0.1", 99)


def a_change_is_undone(node_class: NodeClass = RaftNode) -> None:
    world = make(8, node_class)
    world.elect("a")
    added = joining(world, "d")
    world.nodes["d"].kill()
    leader = begin(world, Change(added))
    world.run(1.0)
    leader.node.undo_change()
    finish(world, "abc")
    world.nodes["d"].start()
    world.run(2.0)
    assert world.nodes["d"].node.removed


def a_new_leader_reads_the_last_command_behind_configurations() -> None:
    """Its owner takes the clock of the log from it: a configuration is no command, and ended each
    new leader one after the other."""
    world = make(27)
    leader = world.elect("a")
    world.commit(leader, 1)
    world.network.intercept = lambda frame: (
        "hold" if frame.message()["type"] == "next_node_idx" else "pass"
    )
    last = world.submit(leader, world.payload())
    before = leader.node.last_index
    world.run_until(lambda: leader.node.last_index > before)
    leader.node.change_members(Change(remove=("c",)))
    world.run_until(lambda: world.nodes["b"].node.configuration.number == 1)
    leader.kill()
    leader = world.elect("b")
    found = leader.node.last_entry_payload()
    assert found is not None
    assert bytes(found) == last.payload
    world.network.intercept = None
    finish(world.start(), "ab")


def what_became_of(world: World, change: Configuration) -> bool | None:
    """Whether a change was done, by the leader; None: it does not know it."""
    leader = leading(world)
    assert leader is not None
    return dict(leader.node.configuration.ended).get(change.place)


def a_change_is_known_by_its_place() -> None:
    """The first is lost with its leader, the last is given up, others come between: what became of
    each is known, whatever the members are by then."""
    world = make(28)
    leader = world.elect("a")
    world.commit(leader, 2)
    first, second = joining(world, "d"), joining(world, "e")
    world.network.isolate("a")
    lost = leader.node.change_members(Change(first))
    world.run(3.0)
    world.network.heal()
    world.run(3.0)
    begin(world, Change(second))
    finish(world, "abce")
    leader = begin(world, Change(remove=("e",)))
    done = leader.node.configuration
    finish(world, "abc")
    world.nodes["d"].kill()
    leader = begin(world, Change(first))
    given_up = leader.node.configuration
    world.run_until(lambda: settled(world))
    leader.node.undo_change()
    finish(world, "abc")
    found = [what_became_of(world, one) for one in (lost, done, given_up)]
    assert found == [None, True, False]
    assert leader.node.committed_term > lost.place.term, "it is lost for good"


# --- what counts ---


def a_learner_neither_votes_nor_counts(node_class: NodeClass = RaftNode) -> None:
    """With its only other voter gone, a leader of two commits nothing, whatever a learner has."""
    world = make(9, node_class, "ab")
    leader = world.elect("a")
    added = joining(world, "c", "d", "e")
    world.nodes["d"].kill()
    begin(world, Change(added))
    world.run(2.0)
    world.nodes["b"].kill()
    late = world.submit(leader, world.payload())
    world.run(0.3)
    assert not late.outcomes
    world.run(4.0)
    assert not world.leaders, "a learner proves no lease, and elects no leader"
    world.start()
    finish(world, "abcde")


def a_configuration_counts_from_append(node_class: NodeClass = RaftNode) -> None:
    """Two of three go: what the last one appended it commits alone, and none of it is lost."""
    world = make(10, node_class)
    world.elect("a")
    world.nodes["b"].kill()
    world.nodes["c"].kill()
    leader = world.nodes["a"]
    world.run(0.05)
    world.start()
    world.run(3.0)
    leader = world.leaders[0]
    others = tuple(name for name in "abc" if name != leader.name)
    begin(world, Change(remove=others))
    finish(world, leader.name)


def a_configuration_is_taken_back(node_class: NodeClass = RaftNode) -> None:
    """A deposed leader appended one alone: it holds no more once it is cut off."""
    world = make(11, node_class)
    leader = world.elect("a")
    world.commit(leader, 2)
    added = joining(world, "d")
    world.network.isolate("a")
    leader.node.change_members(Change(added))
    world.run(0.2)
    assert leader.node.configuration.number == 1
    assert not leader.node.configuration_committed
    world.run(3.0)
    world.commit(world.leaders[0], 2)
    world.network.heal()
    world.run(3.0)
    assert leader.node.configuration.number == 0
    assert not leader.node.status().peers[-1].learner
    begin(world, Change(added))
    finish(world, "abcd")


def a_removal_is_taken_back(node_class: NodeClass = RaftNode) -> None:
    """The member that a leader had begun to remove leads next, and needs the word of that one."""
    world = make(31, node_class)
    deposed = world.elect("a")

    def fate(frame: Frame) -> str:
        """Only b has what a commits with, and it can commit nothing without a."""
        way, message = frame.source + frame.target, frame.message()
        if names_of(deposed.node.configuration) == "ac" and world.nodes["b"].node.role != "leader":
            lost = "a" in way
        else:
            lost = way == "ca" or (way == "bc" and bool(message.get("entries")))
        return "drop" if lost else "pass"

    world.commit(deposed, 1)
    world.network.intercept = fate
    deposed.node.change_members(Change(remove=("b",)))
    world.run_until(lambda: names_of(deposed.node.configuration) == "ac")
    for name, seconds in (("a", 9.0), ("b", 0.6), ("c", 9.0)):
        node = world.nodes[name]
        raft_probe.core(node.node).election_deadline = node.clock() + seconds
    world.run_until(lambda: names_of(deposed.node.configuration) == "abc", 10.0)
    assert world.nodes["b"].node.role == "leader"
    world.network.intercept = None
    finish(world, "ac")


def a_restart_knows_the_members(node_class: NodeClass = RaftNode) -> None:
    """From the log, and where that is gone, from the snapshot."""
    world = make(12, node_class, snapshot_bytes=2_500)
    world.elect("a")
    begin(world, Change(joining(world, "d"), ("c",)))
    finish(world, "abd")
    for power in (False, True):
        for name in "abd":
            world.nodes[name].kill(power=power)
            world.nodes[name].start()
        assert {names_of(world.nodes[name].node.configuration) for name in "abd"} == {"abd"}
        world.run(3.0)
        world.commit(world.leaders[0], 30, 300)
        world.run(1.0)
    journal = world.nodes["a"].journal
    assert journal is not None
    assert journal.log.first_index > 40, "the log begins behind the change"


def a_snapshot_brings_the_members(node_class: NodeClass = RaftNode) -> None:
    """A member that was away while others came and the log went on learns of them."""
    world = make(13, node_class, snapshot_bytes=2_500)
    world.elect("a")
    world.nodes["c"].kill()
    begin(world, Change(joining(world, "d")))
    world.run_until(lambda: ended(world))
    world.commit(world.leaders[0], 60, 300)
    world.nodes["c"].start()
    finish(world, "abcd")
    assert names_of(world.nodes["c"].node.configuration) == "abcd"


def who_was_away_hears_a_leader_that_it_does_not_know(node_class: NodeClass = RaftNode) -> None:
    """All others are replaced while a member is down: it comes back, and counts."""
    world = make(14, node_class)
    world.elect("a")
    world.commit(world.leaders[0], 2)
    world.nodes["c"].kill()
    begin(world, Change(joining(world, "d", "e"), ("a", "b")))
    world.run_until(lambda: ended(world), 30.0)
    for name in "ab":
        world.nodes[name].kill()
    world.nodes["c"].start()
    world.run(3.0)
    world.nodes["d"].kill()
    world.run_until(lambda: leading(world) is not None, 10.0)
    world.commit(world.leaders[0], 2)
    world.nodes["d"].start()
    finish(world, "cde")


def a_wiped_learner_comes_back(node_class: NodeClass = RaftNode) -> None:
    """Its new journal is not the named one, so it recovers, as a voter does."""
    world = make(15, node_class)
    world.elect("a")
    added = joining(world, "d")
    world.nodes["d"].wipe()
    world.nodes["d"].start()
    begin(world, Change(added))
    finish(world, "abcd")


def a_voter_is_let_in_by_no_older_image(node_class: NodeClass = RaftNode) -> None:
    """Set back to when it was waiting to join, it has promised much since: it recovers."""
    world = make(25, node_class, "ab")
    world.elect("a")
    added = joining(world, "d")
    world.run(0.5)
    image = world.nodes["d"].storage.image()
    begin(world, Change(added))
    finish(world, "abd")
    world.elect("a")
    world.nodes["b"].kill()
    world.commit(world.nodes["a"], 5)
    world.nodes["d"].set_back(image)
    world.nodes["a"].kill()
    world.nodes["b"].start()
    world.nodes["d"].start()
    world.run(5.0)
    assert not world.leaders
    world.nodes["d"].set_back_to_image = False
    finish(world.start(), "abd")


def a_removed_one_disturbs_no_member(node_class: NodeClass = RaftNode) -> None:
    """Cut off as it went, and with the secret for ever, it asks for votes, and gets none."""
    world = make(16, node_class)
    leader = world.elect("a")
    world.commit(leader, 2)
    world.network.isolate("c")
    begin(world, Change(remove=("c",)))
    world.run_until(lambda: ended(world))
    term = leader.node.term
    world.nodes["b"].kill()
    world.nodes["b"].start()
    world.network.heal()
    world.network.reconnect("c", "a", 0.0)
    world.run(5.0)
    assert world.nodes["c"].node.removed
    assert world.leaders[0].node.term == term
    world.network.break_link("a", "b")
    world.run(3.0)
    assert world.nodes["c"].node.role == "follower"
    finish(world, "ab")


def a_removed_one_counts_for_no_candidate(node_class: NodeClass = RaftNode) -> None:
    """Of four with one removed two are no majority of three, though the removed one is up."""
    world = make(17, node_class, "abcd")
    world.elect("a")
    world.network.isolate("d")
    begin(world, Change(remove=("d",)))
    world.run_until(lambda: ended(world))
    for name in "bc":
        world.nodes[name].kill()
    world.network.heal()
    late = world.submit(world.nodes["a"], world.payload())
    world.run(5.0)
    assert not world.leaders
    assert all(outcome.value != "committed" for outcome, _ in late.outcomes)
    world.start()
    finish(world, "abc")


def a_healthy_journal_is_not_given_up(node_class: NodeClass = RaftNode) -> None:
    """A new leader that was a learner judges the others by what it knows, and that is enough."""
    world = make(18, node_class)
    world.elect("a")
    world.commit(world.leaders[0], 5)
    begin(world, Change(joining(world, "d", "e"), ("a",)))
    finish(world, "bcde")
    world.nodes["b"].kill()
    world.nodes["c"].kill()
    world.nodes["b"].start()
    world.nodes["c"].start()
    world.run(1.0)
    world.run_until(lambda: leading(world) is not None)
    if world.leaders[0].name != "d":
        world.leaders[0].node.transfer("d", lambda _: None)
    world.run_until(lambda: world.leaders[0].name == "d" and leading(world) is not None)
    world.run(2.0)
    finish(world, "bcde")
    assert "gave up" not in world.counts


# --- when a change may begin, and go on ---


def an_old_configuration_gives_no_journal_up(node_class: NodeClass = RaftNode) -> None:
    """A joiner sees a member under the journal in which that recovered, then reads of its old one
    in the log."""
    world = make(26, node_class, batch_bytes=100)  # Each configuration comes alone.
    world.elect("a")
    begin(world, Change(joining(world, "d")))
    finish(world, "abcd")
    world.nodes["b"].wipe()
    world.nodes["b"].start()
    world.run_until(lambda: not world.nodes["b"].recovering, 20.0)
    added = joining(world, "e")
    world.run(1.0)
    begin(world, Change(added))
    finish(world, "abcde")
    world.nodes["b"].kill()
    world.nodes["b"].start()
    world.run(3.0)
    finish(world, "abcde")
    assert "gave up" not in world.counts


def refused(world: World, change: Change, words: str) -> None:
    leader = leading(world)
    assert leader is not None
    assert words in refusal(lambda: leader.node.change_members(change))


def refusal(ask: Callable[[], Configuration]) -> str:
    """Why a change was refused; empty where it was not."""
    try:
        ask()
    except ChangeRefused as refused_so:
        return str(refused_so)
    return ""


def one_change_at_a_time(node_class: NodeClass = RaftNode) -> None:
    world = make(19, node_class)
    leader = world.elect("a")
    world.commit(leader, 1)
    first, second = joining(world, "d"), joining(world, "e")
    world.network.stop("b", "a")
    world.network.stop("c", "a")
    leader.node.change_members(Change(first))
    assert "not committed yet" in refusal(leader.node.undo_change)
    world.network.heal()
    world.nodes["d"].kill()
    world.run_until(lambda: settled(world))
    refused(world, Change(second), "under way")


def none_before_an_entry_of_the_leaders_term(node_class: NodeClass = RaftNode) -> None:
    """A new leader may not know yet which configuration its predecessor had committed."""
    world = make(20, node_class)
    world.elect("a")
    added = joining(world, "d")
    world.network.intercept = lambda frame: (
        "hold" if frame.message()["type"] == "next_node_idx" else "pass"
    )
    world.nodes["a"].kill()
    leader = world.elect("b")
    refused(world, Change(added), "not committed yet")
    world.network.intercept = None
    for frame in world.network.held:
        world.network.deliver(frame)
    world.start()
    world.run(1.0)
    assert leader.node.configuration.number == 0


def none_while_a_member_recovers(node_class: NodeClass = RaftNode) -> None:
    world = make(21, node_class, "abcde")
    world.elect("a")
    world.commit(world.leaders[0], 2)
    added = joining(world, "f")
    world.nodes["c"].wipe()
    world.nodes["b"].kill()  # It has to report its term.
    world.nodes["c"].start()
    world.run(2.0)
    refused(world, Change(added), "c is recovering")
    refused(world, Change(added, ("b",)), "c is recovering")
    world.start()
    finish(world, "abcde")


def a_lost_one_is_replaced(node_class: NodeClass = RaftNode) -> None:
    """A member that recovers may be removed; what it had promised counts for no one."""
    world = make(22, node_class)
    world.elect("a")
    world.commit(world.leaders[0], 2)
    world.nodes["c"].wipe()
    begin(world, Change(joining(world, "d"), ("c",)))
    finish(world, "abd")
    world.nodes["c"].start()
    world.run(5.0)
    assert world.nodes["c"].recovering
    assert world.nodes["c"].node.role != "leader"


def a_wiped_one_asks_the_newest_members(node_class: NodeClass = RaftNode) -> None:
    """Its file names members that are gone; the leader that finds it names those that there are."""
    world = make(23, node_class)
    world.elect("a")
    begin(world, Change(joining(world, "d", "e"), ("b", "c")))
    finish(world, "ade")
    for name in "bc":
        world.nodes[name].kill()
    world.nodes["a"].wipe()
    world.nodes["a"].start()
    world.run_until(lambda: not world.nodes["a"].recovering, 20.0)
    finish(world, "ade")


def a_wiped_one_hears_a_leader_that_was_wiped_before(node_class: NodeClass = RaftNode) -> None:
    """The log, which comes long after the words of all members, names the journal that the next
    leader has lost since; its file does not name that one, so those words were none of a member."""
    world = make(26, node_class)
    world.elect("a")
    begin(world, Change((as_member(world.join("d", ["a", "b"])),), ("b",)))
    finish(world, "acd")
    world.nodes["c"].wipe()
    world.nodes["c"].start()
    world.run_until(lambda: not world.nodes["c"].recovering, 20.0)
    finish(world, "acd")
    leader = world.elect()
    if leader.name != "a":
        leader.node.transfer("a", lambda _: None)
        world.run_until(lambda: world.nodes["a"].node.is_leader)
    world.network.intercept = lambda frame: (
        "drop" if frame.target == "d" and frame.message()["type"] == "append_entries" else "pass"
    )
    world.nodes["d"].wipe()
    world.nodes["d"].start()
    world.run(1.0)
    world.network.intercept = None
    world.run_until(lambda: not world.nodes["d"].recovering, 20.0)
    finish(world, "acd")


def a_change_goes_on_under_the_next_leader(node_class: NodeClass = RaftNode) -> None:
    """Each leader of a change dies as soon as it has taken a step."""
    world = make(24, node_class)
    world.elect("a")
    begin(world, Change(joining(world, "d", "e"), ("a", "b")))
    seen = 1
    for _ in range(40):
        leader = leading(world)
        if leader is not None and leader.node.configuration.number > seen:
            seen = leader.node.configuration.number
            leader.kill(power=True)
            world.run(1.0)
            leader.start()
        world.run(0.05)
    finish(world, "cde", 60.0)


RULES: list[Rule] = [
    (one_grows_to_three, mutants.PromotesTheFirst),
    (a_leader_hands_over_before_it_goes, mutants.RemovesItself),
    (a_learner_neither_votes_nor_counts, mutants.CountsLearners),
    (a_configuration_is_taken_back, mutants.KeepsWhatIsCutOff),
    (a_removal_is_taken_back, mutants.BarsTooEarly),
    (a_restart_knows_the_members, mutants.ForgetsConfigurations),
    (a_snapshot_brings_the_members, mutants.SnapshotsWithoutMembers),
    (who_was_away_hears_a_leader_that_it_does_not_know, mutants.HearsMembersOnly),
    (a_voter_is_let_in_by_no_older_image, mutants.LetsVotersIn),
    (a_removed_one_disturbs_no_member, mutants.HearsRemoved),
    (one_change_at_a_time, mutants.ChangesAtAnyTime),
    (none_before_an_entry_of_the_leaders_term, mutants.ChangesAtOnce),
    (none_while_a_member_recovers, mutants.ChangesAmidRecovery),
    (an_old_configuration_gives_no_journal_up, mutants.BelievesOldConfigurations),
    (a_wiped_one_asks_the_newest_members, mutants.AsksItsFile),
    (a_wiped_one_hears_a_leader_that_was_wiped_before, mutants.LearnsOfKnownMembersOnly),
    (a_change_goes_on_under_the_next_leader, mutants.LeavesChangesOfOthers),
]

test_the_rule_holds, test_the_rule_taken_out_shows = as_tests(RULES)


@pytest.mark.parametrize(
    "scenario",
    [
        three_grow_to_five_and_back,
        a_dead_one_of_three_is_replaced,
        the_only_one_is_replaced,
        three_shrink_to_one,
        a_member_moves,
        a_change_is_undone,
        a_new_leader_reads_the_last_command_behind_configurations,
        a_change_is_known_by_its_place,
        a_wiped_learner_comes_back,
        a_configuration_counts_from_append,
        a_removed_one_counts_for_no_candidate,
        a_healthy_journal_is_not_given_up,
        a_lost_one_is_replaced,
    ],
    ids=lambda scenario: scenario.__name__,
)
def test_it_comes_out_right(scenario: Callable[[], None]) -> None:
    scenario()
