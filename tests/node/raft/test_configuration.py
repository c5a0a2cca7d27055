"""Configurations: every step of every change shares a voter with the one before it."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import msgpack
import pytest

from node.peers.message import CONFIGURATION_BYTE
from node.raft import limits
from node.raft.configuration import (
    NO_PLACE,
    Change,
    ChangeRefused,
    Configuration,
    ConfigurationDamaged,
    Ended,
    HandOver,
    Member,
    Place,
    Removed,
    Waits,
    begin,
    decode,
    encode,
    moved,
    next_step,
    placed,
    undone,
)


def member(number: int) -> Member:
    return at(f"n{number}", 7000 + number, bytes([number]) * 16)


def at(name: str, port: int, journal: bytes) -> Member:
    return Member(name, ("10.0.0.1", port), f"h:{name}", f"w:{name}", journal)


def voters(count: int) -> Configuration:
    return Configuration(1, tuple(member(number) for number in range(1, count + 1)))


def majorities(configuration: Configuration) -> list[set[str]]:
    names = [voter.name for voter in configuration.voters]
    return [set(chosen) for chosen in combinations(names, configuration.majority)]


def drive(current: Configuration, leader: str, down: str = "") -> list[Configuration]:
    """All configurations from the beginning of a change to its end, with every learner level, and
    all voters up but one that goes."""
    seen = [current]
    while True:
        level = {each.name for each in current.learners}
        up = {voter.name for voter in current.voters} - {leader, down}
        step = next_step(current, leader, level, up)
        assert not isinstance(step, Waits)
        if step is None:
            return seen
        if isinstance(step, HandOver):
            leader = step.names[0]
            continue
        current = step
        seen.append(current)
        assert len(seen) < 30, "the change does not end"


CHANGES = [
    (count, adds, removes)
    for count in range(1, 6)
    for adds in range(5)
    for size in range(count + 1)
    for removes in combinations(range(1, count + 1), size)
    if adds + size and adds + count - size
]


def test_majorities_before_and_after_each_step_share_a_voter() -> None:
    for count, adds, removes in CHANGES:
        change = Change(
            tuple(member(count + 1 + each) for each in range(adds)),
            tuple(f"n{each}" for each in removes),
        )
        first = voters(count)
        for leader, down in product(first.voters, ("", *change.remove)):
            if leader.name == down:
                continue
            seen = [first, *drive(begin(first, change, ()), leader.name, down)]
            for before, after in pairwise(seen):
                assert after.number == before.number + 1
                assert after.voters
                for one in majorities(before):
                    assert all(one & other for other in majorities(after)), (before, after)
            sizes = [len(one.voters) for one in seen]
            assert max(sizes) <= max(count, len(seen[1].wanted)) + 1
            last = seen[-1]
            names = {voter.name for voter in last.voters}
            assert names == set(seen[1].wanted)
            assert not last.wanted
            assert not last.learners
            assert {gone.name for gone in last.removed} == set(change.remove)
            assert all(not last.counts(gone.name, gone.journal) for gone in last.removed)


def test_from_one_to_three_both_are_level_before_the_first_is_promoted() -> None:
    current = begin(voters(1), Change((member(2), member(3))), ())
    assert next_step(current, "n1", {"n2"}, ()) == Waits(("n3",))
    assert isinstance(next_step(current, "n1", {"n2", "n3"}, ()), Configuration)


def test_a_dead_one_of_three_is_removed_when_its_successor_is_level() -> None:
    current = begin(voters(3), Change((member(4),), ("n3",)), ("n3",))
    assert next_step(current, "n1", (), {"n2"}) == Waits(("n4",))
    names = [sorted(each.name for each in step.voters) for step in drive(current, "n1", "n3")]
    assert names[:3] == [["n1", "n2", "n3"], ["n1", "n2"], ["n1", "n2", "n4"]]


def test_one_that_is_up_goes_after_its_successor_has_come() -> None:
    """Were it the other way round, two of three would have to be up that stay."""
    current = begin(voters(3), Change((member(4),), ("n3",)), ())
    names = [sorted(each.name for each in step.voters) for step in drive(current, "n1")]
    assert names[1:3] == [["n1", "n2", "n3", "n4"], ["n1", "n2", "n4"]]


def test_no_step_leaves_a_majority_that_is_not_up() -> None:
    """Of the two that would be left n3 has lost its journal: the one that goes is needed."""
    current = begin(voters(3), Change(remove=("n2",)), ())
    assert next_step(current, "n1", (), {"n2"}) == Waits(("n3",))
    assert isinstance(next_step(current, "n1", (), {"n2", "n3"}), Configuration)
    assert isinstance(next_step(current, "n1", (), {"n3"}), Configuration)


def test_a_leader_hands_over_before_it_is_removed() -> None:
    current = begin(voters(3), Change(remove=("n1",)), ())
    assert next_step(current, "n1", (), {"n2", "n3"}) == HandOver(("n2", "n3"))


def test_no_change_begins_amid_another_or_while_another_member_recovers() -> None:
    with pytest.raises(ChangeRefused, match="n2 is recovering"):
        begin(voters(3), Change(remove=("n1",)), ("n2",))
    current = begin(voters(3), Change(remove=("n2",)), ("n2",))
    with pytest.raises(ChangeRefused, match="under way"):
        begin(current, Change(remove=("n3",)), ())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Change(), "names no member"),
        (Change(remove=("n9",)), "'n9' is no member; there are: n1, n2"),
        (Change(remove=("n1", "n2")), "no member would be left"),
        (Change((member(2),)), "is a member already"),
        (Change(tuple(map(member, range(3, 11)))), "there would be 10 members, at most 9"),
        (Change((at("n3", 7001, b"x"),)), "is that of 'n1'"),
        (Change((at("n3", 7003, b""),)), "no journal id"),
        (Change((at("n3", 7003, bytes([1]) * 16),)), "is that of 'n1'"),
    ],
)
def test_a_change_that_cannot_be_is_refused(change: Change, words: str) -> None:
    with pytest.raises(ChangeRefused, match=words):
        begin(voters(2), change, ())


def test_only_the_named_journal_of_a_voter_counts() -> None:
    current = begin(voters(2), Change((member(3),)), ())
    assert current.counts("n1", member(1).journal)
    assert not current.counts("n1", member(2).journal), "another voter's"
    assert not current.counts("n1", b"unknown")
    assert not current.counts("n1", b"")
    assert not current.counts("n3", member(3).journal), "a learner's"


def test_a_removed_journal_never_comes_back() -> None:
    gone = drive(begin(voters(3), Change(remove=("n3",)), ()), "n1")[-1]
    assert gone.was_removed(member(3).journal)
    with pytest.raises(ChangeRefused, match="was removed from this cluster"):
        begin(gone, Change((member(3),)), ())


def test_a_change_is_given_up_with_its_learners() -> None:
    current = undone(begin(voters(1), Change((member(2),)), ()))
    assert [voter.name for voter in current.voters] == ["n1"]
    assert not current.learners
    assert not current.wanted
    assert current.was_removed(member(2).journal)
    with pytest.raises(ChangeRefused, match="nothing to undo"):
        undone(current)


def test_a_change_is_found_by_its_place_once_it_has_ended() -> None:
    """Others have come after it: it was done, or given up, whatever the members are now."""
    done = drive(placed(begin(voters(1), Change((member(2),)), ()), Place(2, 7)), "n1")
    assert {one.change for one in done[:-1]} == {Place(2, 7)}
    assert (done[-1].change, done[-1].ended) == (NO_PLACE, (Ended(Place(2, 7), done=True),))
    again = placed(begin(done[-1], Change(remove=("n2",)), ()), Place(3, 20))
    assert again.place == Place(3, 20)
    undo = placed(undone(again), Place(3, 21))
    assert undo.place == Place(3, 21)
    assert undo.ended == (
        Ended(Place(2, 7), done=True),
        Ended(Place(3, 20), done=False),
        Ended(Place(3, 21), done=True),
    )
    current = undo
    for index in range(30, 30 + limits.CHANGES_KEPT):
        move = moved(current, "n1", ("10.0.0.9", index), "h:9", "w:9", ())
        current = placed(move, Place(4, index))
    assert [one.place.index for one in current.ended] == [*range(30, 30 + limits.CHANGES_KEPT)]
    assert decode(encode(current)) == current


def test_a_member_moves_to_an_address_of_its_own() -> None:
    after = moved(voters(2), "n2", ("10.0.0.9", 7002), "h:9", "w:9", ())
    found = after.member("n2")
    assert found is not None
    assert found == Member("n2", ("10.0.0.9", 7002), "h:9", "w:9", member(2).journal)
    with pytest.raises(ChangeRefused, match="is that of 'n1'"):
        moved(voters(2), "n2", ("10.0.0.1", 7001), "h:9", "w:9", ())
    with pytest.raises(ChangeRefused, match="n1 is recovering"):
        moved(voters(2), "n2", ("10.0.0.9", 7002), "h:9", "w:9", ("n1",))


def test_a_configuration_is_read_as_it_was_written_and_damage_is_refused() -> None:
    first = placed(begin(voters(3), Change((member(4),), ("n1",)), ()), Place(1, 1))
    for each in drive(first, "n1"):
        entry = encode(each)
        assert decode(entry) == each
        for size in range(len(entry)):
            with pytest.raises(ConfigurationDamaged):
                decode(entry[:size])


@pytest.mark.parametrize(
    "fields",
    [
        [1, 0, [], [], [], [], [0, 0], []],
        [1, True, [], [], [], [], [0, 0], []],
        [1, "1", [], [], [], [], [0, 0], []],
        [2, 1, [], [], [], [], [0, 0], []],
        [1, 1, [["n1", "h", "7000", "c", "w", b""]], [], [], [], [0, 0], []],
        [1, 1, [["n1", "h", True, "c", "w", b""]], [], [], [], [0, 0], []],
        [1, 1, [], [], [["n1", "j"]], [], [0, 0], []],
        [1, 1, [], [], [], [1], [0, 0], []],
        [1, 1, [], [], []],
        [1, 1, [], [], [], []],
        [1, 1, [], [], [], [], [0, 0]],
        [1, 1, [], [], [], [], [0], []],
        [1, 1, [], [], [], [], [True, 0], []],
        [1, 1, [], [], [], [], [0, -1], []],
        [1, 1, [], [], [], [], [0, 0], [[1, 2]]],
        [1, 1, [], [], [], [], [0, 0], [[1, 2, 1]]],
        [1, 1, [], [], [], [], [0, 0], [], []],
    ],
)
def test_fields_that_no_node_writes_are_no_configuration(fields: list[object]) -> None:
    with pytest.raises(ConfigurationDamaged):
        decode(CONFIGURATION_BYTE + msgpack.packb(fields))


def test_an_unseen_journal_counts_for_no_one() -> None:
    unseen = Configuration(1, (Member("n1", ("h", 1), "c", "w", b""),), (), (Removed("n2", b""),))
    assert not unseen.counts("n1", b"")
    assert not unseen.was_removed(b"")
