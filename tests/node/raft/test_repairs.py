"""Damage that is found in use is mended from the other members, and ends no node that it need not.

Each scenario holds on ours and goes red when the faulty behaviour is put back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from node.journal.io.readers import NotCached
from node.raft import limits
from node.raft.node import RaftNode
from tests.node.raft.scenarios import Rule, as_tests
from tests.node.raft.test_snapshot_hazards import commit_past, compacting
from tests.support import repair_mutants as mutants
from tests.support.raft_world import World
from tests.support.snapshots import flipped

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from node.journal.journal import Journal
    from node.journal.locations import EntryLocation
    from tests.support.raft_network import Frame
    from tests.support.raft_world import SimNode

pytestmark = pytest.mark.slow

NodeClass = type[RaftNode]

KEPT = 9
"""An entry that the state points to for ever (`lies_in_the_log`)."""


SCRUB_SECONDS = 10.0
"""Until the first pass, and behind one that found a file in doubt."""


class Reader:
    """A waiter for one entry."""

    def __init__(self, node: SimNode, index: int) -> None:
        self._node = node
        self._index = index
        self.body: bytes | None = None
        self.entries_cached()

    def needs(self) -> Iterable[Sequence[int]]:
        return [[self._index]]

    def entries_cached(self) -> None:
        try:
            self.body = bytes(self._node.node.read_cached(self._index))
        except NotCached:
            self._node.node.fetch(self)


def with_old_bodies(node_class: NodeClass) -> tuple[World, SimNode]:
    """(world, leader): entry `KEPT` lies before the log on each member, and in no cache."""
    world = compacting(
        1, node_class, scrub_first_seconds=SCRUB_SECONDS, scrub_again_seconds=SCRUB_SECONDS
    )
    leader = world.elect("a")
    for _ in range(10):
        world.commit(leader, 20, 100)
        world.run(0.2)
    world.run_until(world.converged, 20.0)
    for node in world.nodes.values():
        assert node.journal is not None
        assert node.journal.read_cached(KEPT) is None
        assert node.journal.log.first_whole_index > KEPT
    return world, leader


def lies_at(node: SimNode, index: int) -> tuple[str, EntryLocation]:
    """The file of an entry, and where it lies there."""
    assert node.journal is not None
    store = node.journal._snapshots.entries
    location = store.locate(index)
    assert location is not None
    return store.file_of(location).name, location


def rot(node: SimNode, index: int, at: int = 60) -> tuple[str, bytes]:
    """Flip a bit of an entry's record under the process; (file, what was in it)."""
    name, location = lies_at(node, index)
    before = node.storage.content(name)
    node.storage.rot(name, flipped(before, location.offset + at))
    return name, before


def body_of(world: World, index: int) -> bytes:
    """The payload of an entry, as it was submitted."""
    return next(found for at, _, found in world.nodes["a"].applied if at == index)


def scrub(world: World, seconds: float = 5.0) -> None:
    """Run until the disks have been read."""
    world.run(SCRUB_SECONDS + seconds)


def the_scrub_finds_damage_and_mends_it(node_class: NodeClass = RaftNode) -> None:
    """Nothing has asked for that body: it is read, found, and written as it was."""
    world, _ = with_old_bodies(node_class)
    node = world.nodes["c"]
    name, before = rot(node, KEPT)
    scrub(world)
    assert node.storage.content(name) == before
    found = node.node.status().scrub
    assert (found.found_total, found.repaired_total, found.damaged) == (1, 1, 0)


def a_damaged_body_is_waited_for(node_class: NodeClass = RaftNode) -> None:
    """A leader that has to deliver it goes on with everything else, and then has it."""
    world, leader = with_old_bodies(node_class)
    rot(leader, KEPT)
    reader = Reader(leader, KEPT)
    whole = Reader(leader, 2 * KEPT)
    world.run(1.0)
    assert whole.body == body_of(world, 2 * KEPT)
    world.run_until(lambda: reader.body is not None, 5.0)
    assert reader.body == body_of(world, KEPT)
    assert leader.node.is_leader


def a_member_that_does_not_have_it_is_not_the_last_one_asked(
    node_class: NodeClass = RaftNode,
) -> None:
    """The first member that is asked has the same entry damaged."""
    world, leader = with_old_bodies(node_class)
    for name in "ab":
        rot(world.nodes[name], KEPT)
    reader = Reader(leader, KEPT)
    world.run_until(lambda: reader.body is not None, 10.0)
    assert reader.body == body_of(world, KEPT)
    world.run_until(lambda: not world.nodes["b"].node.status().scrub.damaged, 10.0)


def entries_that_no_member_has_hold_up_no_others(node_class: NodeClass = RaftNode) -> None:
    """More of them are damaged everywhere than are asked for together."""
    world, leader = with_old_bodies(node_class)
    indexes = [index for index, _ in leader.state.pointed_to() if index % KEPT == 0]
    *gone, last = indexes[: limits.REPAIRS_AT_ONCE + 1]
    for node in world.nodes.values():
        for index in gone:
            rot(node, index)
    rot(leader, last)
    scrub(world)
    assert last not in {one.log_index for one in _journal(leader).damaged_entries()}
    assert len(_journal(leader).damaged_entries()) == len(gone)


def _journal(node: SimNode) -> Journal:
    assert node.journal is not None
    return node.journal


def nobody_waits_for_ever(node_class: NodeClass = RaftNode) -> None:
    """A body that no member has ends the node that has to deliver it, with the file and the byte;
    another may lead."""
    world, leader = with_old_bodies(node_class)
    for node in world.nodes.values():
        rot(node, KEPT)
    leader.may_stop = True
    Reader(leader, KEPT)
    world.run(limits.REPAIR_SECONDS - 5.0)
    assert leader.stopped is None
    world.run(10.0)
    assert leader.stopped is not None
    assert f"entry {KEPT} is not what was written" in str(leader.stopped)


def an_answer_that_does_not_fit_is_not_written(node_class: NodeClass = RaftNode) -> None:
    """Of another size it would write over the next record."""
    world, _ = with_old_bodies(node_class)
    node = world.nodes["c"]
    name, before = rot(node, KEPT)

    def longer(frame: Frame) -> str:
        message = frame.message()
        if message["type"] != "entry_found" or frame.target != "c":
            return "pass"
        node.node._core.receive(*_from(node, frame.source, message | {"data": b"\x10" * 500}))
        return "drop"

    world.network.intercept = longer
    scrub(world)
    after = node.storage.content(name)
    differ = [at for at in range(len(before)) if before[at] != after[at]]
    assert len(differ) == 1
    world.network.intercept = None
    world.run(2 * limits.REPAIR_ASK_SECONDS)
    assert node.storage.content(name) == before


def _from(node: SimNode, source: str, message: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments of a message's receipt."""
    return next(one for one in node.node._core.nodes if one.id == source), message


def a_snapshot_is_sent_behind_a_repair(node_class: NodeClass = RaftNode) -> None:
    """The leader's own copy of a body that the snapshot needs is damaged."""
    world, leader = with_old_bodies(node_class)
    behind = world.nodes["c"]
    world.network.isolate("c")
    commit_past(world, leader, behind)
    rot(leader, KEPT)
    world.network.heal()
    # It is brought up to date by a snapshot, with all bodies, only if it lacks them all.
    behind.kill()
    behind.lose_disk()
    behind.start()
    world.run_until(world.converged, 60.0)
    assert leader.node.status().scrub.repaired_total == 1
    assert leader.stopped is None


def a_compaction_waits_for_a_repair(node_class: NodeClass = RaftNode) -> None:
    """A copy that meets a damaged entry is given up, and made when the entry is whole again."""
    world, leader = with_old_bodies(node_class)
    names = {name: rot(node, KEPT)[0] for name, node in world.nodes.items() if name != "c"}
    for _ in range(10):
        world.commit(leader, 20, 100)
        world.run(2.0)
    scrub(world)
    for name in names:
        assert world.nodes[name].stopped is None
        assert world.nodes[name].node.status().scrub.damaged == 0


def a_damaged_snapshot_is_replaced(node_class: NodeClass = RaftNode) -> None:
    """A byte of the newest snapshot: later ones take its place, and the file goes."""
    world, leader = with_old_bodies(node_class)
    node = world.nodes["c"]
    assert node.journal is not None
    meta = node.journal.snapshot
    assert meta is not None
    node.storage.rot(meta.name, flipped(node.storage.content(meta.name), 200))
    scrub(world)
    assert node.node.status().scrub.damaged == 1
    newest = node.journal.snapshot
    for _ in range(2):
        world.commit(leader, 1, 10)
        world.run(SCRUB_SECONDS + 5.0)
    assert node.journal.snapshot != newest
    assert node.node.status().scrub.damaged == 0


def uncached(node: SimNode, first: int) -> int:
    """The first entry of the log from `first` on that is on the disk alone."""
    log = _journal(node).log
    return next(
        index
        for index in range(max(first, log.first_whole_index), log.last_index)
        if _journal(node).read_cached(index) is None
    )


def behind_a_start(node_class: NodeClass) -> tuple[World, SimNode]:
    """(world, member): it has entries on its disk that it does not know to be committed."""
    world = World("abc", seed=1, node_class=node_class).start()
    leader, node = world.elect("a"), world.nodes["c"]
    world.commit(leader, 5)
    world.run(2.0)  # The commit hint is on the disk.
    world.commit(leader, 60, 200)
    world.run_until(world.converged)
    node.kill()
    node.start()
    world.network.isolate("c")
    world.run(0.1)
    assert node.node.applied_index < node.node.last_index
    return world, node


def a_damaged_entry_that_is_to_be_applied_is_waited_for(
    node_class: NodeClass = RaftNode,
) -> None:
    """A member that lags behind its own log goes on when it has the entry again."""
    world, node = behind_a_start(node_class)
    index = uncached(node, node.node.applied_index + 5)
    name, before = rot(node, index)
    world.network.heal()
    world.run_until(world.converged, 20.0)
    assert node.storage.content(name)[: len(before)] == before
    world.checks.at_rest()


def no_state_machine_waits_for_ever(node_class: NodeClass = RaftNode) -> None:
    """A member that has to apply what no member has ends, with the file and the byte."""
    world, node = behind_a_start(node_class)
    index = uncached(node, node.node.applied_index + 5)
    for one in world.nodes.values():
        if one is not node:
            one.kill()
            one.start()
    for one in world.nodes.values():
        rot(one, index)
    world.expect_stop = True
    world.network.heal()
    world.run(limits.REPAIR_SECONDS + 10.0)
    assert all(one.stopped is not None for one in world.nodes.values())
    assert f"entry {index} is not what was written" in str(node.stopped)


def lagging(node_class: NodeClass, *damaged: str) -> tuple[World, SimNode, int]:
    """(world, leader, entry): one that c lacks is damaged on these members, in the log."""
    world = compacting(1, node_class, snapshot_bytes=1 << 20)
    leader, behind = world.elect("a"), world.nodes["c"]
    world.commit(leader, 5)
    behind.kill()
    world.commit(leader, 60, 200)
    world.run(1.0)
    index = uncached(leader, behind_index(world) + 3)
    for name in damaged:
        rot(world.nodes[name], index)
    return world, leader, index


def behind_index(world: World) -> int:
    return min(node.node.last_index for node in world.nodes.values() if node.alive) - 55


def a_damaged_entry_that_another_member_lacks_is_waited_for(
    node_class: NodeClass = RaftNode,
) -> None:
    """The leader leads on, has it from the third member, and sends it."""
    world, leader, index = lagging(node_class, "a")
    world.nodes["c"].start()
    world.run_until(world.converged, 20.0)
    assert leader.node.is_leader
    assert index not in _journal(leader).damages.entries
    world.checks.at_rest()


def a_snapshot_stands_for_what_no_member_has(node_class: NodeClass = RaftNode) -> None:
    """A member that lags is no reason to end: the leader has applied the entry."""
    world, leader, _ = lagging(node_class, "a", "b")
    behind = world.nodes["c"]
    behind.start()
    for _ in range(4):
        world.run(limits.REPAIR_SECONDS)
        world.commit(leader, 2, 200)
    world.run_until(world.converged, 20.0)
    assert leader.node.is_leader
    assert behind.node.status().counters.snapshots_installed_total == 1


def a_new_leader_waits_for_its_newest_entry(node_class: NodeClass = RaftNode) -> None:
    """The owner goes by the time of that entry, and leads when it is whole. Nothing else has asked
    for it yet, for the member does not know that it is committed."""
    world, node = behind_a_start(node_class)
    newest = node.node.last_index
    for one in world.nodes.values():
        if one is not node:
            one.kill()
            one.start()
    name, before = rot(node, newest)
    held: list[Frame] = []

    def slowly(frame: Frame) -> str:
        if frame.message()["type"] != "entry_found":
            return "pass"
        held.append(frame)
        return "hold"

    world.network.intercept = slowly
    world.network.heal()
    world.run(0.1)
    node.node._core.election_deadline = node.clock()
    world.run_until(lambda: bool(held))
    world.run(1.0)
    assert node.node.role == "leader"
    assert not node.node.is_leader, "its owner does not know of it yet"
    assert ("leader", node.node.term) not in node.roles
    world.network.intercept = None
    world.elect("c")
    assert node.storage.content(name)[: len(before)] == before
    world.commit(node, 3)
    world.run_until(world.converged)
    world.checks.at_rest()


def alone_with_its_tail(node_class: NodeClass, count: int) -> tuple[World, SimNode]:
    """(world, leader): it leads with entries at the end of its log that no other member has, and
    of which none is in its memory."""
    world = World("abc", seed=1, node_class=node_class).start()
    leader = world.elect("c")
    world.commit(leader, 5)
    world.run(2.0)
    for name in "ab":
        world.nodes[name].kill()
    for _ in range(count):
        world.submit(leader, world.payload(200))
    world.run(0.1)
    leader.kill()
    world.start()
    return world, leader


def a_leader_ends_that_alone_had_an_entry(node_class: NodeClass = RaftNode) -> None:
    """Where that is damaged, no member can tell what it was: it was not committed, for no majority
    has it; and another member, whose log has none there, leads on."""
    world, leader = alone_with_its_tail(node_class, 2)
    rot(leader, leader.node.last_index - 1)
    world.expect_stop = True
    world.elect("c")
    world.run(limits.REPAIR_SECONDS + 5.0)
    assert "is not what was written" in str(leader.stopped)
    world.run_until(lambda: bool(world.leaders))
    world.commit(world.leaders[0], 3)


RULES: tuple[Rule, ...] = (
    (the_scrub_finds_damage_and_mends_it, mutants.ReadsNothing),
    (a_damaged_body_is_waited_for, mutants.AsksNobody),
    (a_member_that_does_not_have_it_is_not_the_last_one_asked, mutants.AsksTheSameAgain),
    (entries_that_no_member_has_hold_up_no_others, mutants.AsksForTheFirst),
    (nobody_waits_for_ever, mutants.WaitsForEver),
    (an_answer_that_does_not_fit_is_not_written, mutants.WritesWhatComes),
    (a_snapshot_is_sent_behind_a_repair, mutants.EndsAtDamage),
    (a_compaction_waits_for_a_repair, mutants.EndsAtDamage),
    (a_damaged_snapshot_is_replaced, mutants.KeepsDamagedSnapshots),
    (a_damaged_entry_that_is_to_be_applied_is_waited_for, mutants.EndsAtDamage),
    (no_state_machine_waits_for_ever, mutants.WaitsForEver),
    (a_damaged_entry_that_another_member_lacks_is_waited_for, mutants.EndsAtDamage),
    (a_new_leader_waits_for_its_newest_entry, mutants.EndsAtDamage),
    (a_leader_ends_that_alone_had_an_entry, mutants.StaysInOffice),
    (a_snapshot_stands_for_what_no_member_has, mutants.LeavesThemBehind),
)

test_the_rule_holds, test_the_rule_shows = as_tests(RULES)
