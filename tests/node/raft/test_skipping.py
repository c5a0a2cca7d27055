"""An entry whose apply raises on every member is skipped by order, and by all of them alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from node.journal.skips import SKIPS_NAME, Skip, checksum_of
from node.raft.configuration import Change, Member
from node.raft.node import RaftNode
from node.raft.skipping import why_it_raised
from tests.node.raft.scenarios import Rule, as_tests
from tests.support import skip_mutants as mutants
from tests.support.raft_state import SKIPPED, lies_in_the_log
from tests.support.raft_world import SimNode, World

if TYPE_CHECKING:
    from node.journal.journal import Journal

pytestmark = pytest.mark.slow

NodeClass = type[RaftNode]

POISON = b"poison"


def journal_of(node: SimNode) -> Journal:
    assert node.journal is not None
    return node.journal


def raising(payload: bytes) -> None:
    if payload == POISON:
        raise KeyError("a mistake of this program")


def poisoned(node_class: NodeClass, *, passports: bool = False) -> tuple[World, Skip]:
    """(world, order): an entry has ended every member, and all of them are down."""
    world = World("abc", seed=1, node_class=node_class, passports=passports).start()
    world.run_until(lambda: not any(node.waiting for node in world.nodes.values()))
    leader = world.elect("a")
    world.commit(leader, 3)
    while lies_in_the_log(leader.node.last_index + 1, leader.node.last_index + 1):
        world.commit(leader, 1)
    for node in world.nodes.values():
        node.apply_hook = raising
    started(world)
    index = leader.node.last_index + 1
    world.submit(leader, POISON)
    world.run_until(lambda: not leader.alive)
    others = [world.nodes[name] for name in "bc"]
    world.run_until(lambda: not all(node.alive for node in others), 20.0)
    for node in world.nodes.values():
        node.kill()
    return world, order_of(world.nodes["a"], index)


def started(world: World) -> None:
    for node in world.nodes.values():
        if not node.alive:
            node.start()
        node.may_stop = True


def order_of(node: SimNode, index: int) -> Skip:
    """The order to skip an entry of a member that is down."""
    journal = node.open_journal(node.storage.for_process())
    try:
        checksum = checksum_of(journal.log.term_at(index), journal.log.read(index))
    finally:
        journal.close()
    return Skip(index, checksum, "ann")


def give(node: SimNode, order: Skip) -> None:
    """Leave an order in the folder of a member that is down."""
    journal = node.open_journal(node.storage.for_process())
    journal.skipping(order).result()
    journal.close()


def skipped(node: SimNode) -> list[int]:
    return [index for index, _, payload in node.applied if payload == SKIPPED]


def goes_on(world: World, order: Skip) -> None:
    """The whole cluster works again, and each member has skipped that entry."""
    world.commit(world.elect(), 5)
    world.run_until(
        lambda: all(node.alive for node in world.nodes.values()) and world.converged(), 20.0
    )
    for node in world.nodes.values():
        assert skipped(node) == [order.index]
    world.checks.at_rest()


def an_entry_that_ends_every_member_is_skipped_by_order(node_class: NodeClass = RaftNode) -> None:
    """Without the order each start ends at it again."""
    world, order = poisoned(node_class)
    started(world)
    world.run(3.0)
    assert not world.leaders
    for node in world.nodes.values():
        node.kill()
        give(node, order)
    started(world)
    goes_on(world, order)


def a_member_without_the_order_has_it_from_the_leader(node_class: NodeClass = RaftNode) -> None:
    """Before it comes to the entry: it need not end even once."""
    world, order = poisoned(node_class)
    for name in "ab":
        give(world.nodes[name], order)
        world.nodes[name].start()
    world.elect()
    world.nodes["c"].start()
    goes_on(world, order)


def a_member_that_lost_its_journal_skips_it_too(node_class: NodeClass = RaftNode) -> None:
    """The log comes to it from its beginning, and the order with it."""
    world, order = poisoned(node_class)
    for name in "ab":
        give(world.nodes[name], order)
    world.nodes["c"].lose_disk()
    started(world)
    world.run_until(lambda: not world.nodes["c"].recovering, 20.0)
    goes_on(world, order)


def what_the_leader_said_survives_a_restart(node_class: NodeClass = RaftNode) -> None:
    """Another start comes to the entry before it hears of any leader."""
    world, order = poisoned(node_class)
    for name in "ab":
        give(world.nodes[name], order)
        world.nodes[name].start()
    world.elect()
    world.nodes["c"].start()
    goes_on(world, order)
    last = world.nodes["c"]
    last.kill(power=True)
    world.network.isolate("c")
    last.start()
    assert journal_of(last).skips == {order.index: order}
    world.network.heal()
    world.run(2.0)
    goes_on(world, order)


def one_that_joins_has_it_from_a_leader_that_began_after_it_came(
    node_class: NodeClass = RaftNode,
) -> None:
    """The leader that it met first was gone before it had said so: as a learner it would end at the
    entry."""
    world, order = poisoned(node_class, passports=True)
    for node in world.nodes.values():
        give(node, order)
    started(world)
    leader = world.elect()
    world.network.intercept = lambda frame: (
        "hold" if frame.message()["type"] == "skipped" else "pass"
    )
    joining = world.join("d", "abc")
    joining.apply_hook = raising
    world.run(0.5)
    leader.kill()
    world.network.intercept = None
    leader = world.elect()
    world.commit(leader, 1)
    assert joining.journal is not None
    assert joining.journal.passport is not None
    new = Member("d", ("127.0.0.1", 4), "", "", joining.journal.passport.journal)
    leader.node.change_members(Change((new,)))
    world.run_until(lambda: leader.node.configuration.number > 1, 20.0)
    started(world)
    world.run_until(lambda: not leader.node.configuration.wanted, 20.0)
    goes_on(world, order)


def another_entry_of_that_index_is_applied(node_class: NodeClass = RaftNode) -> None:
    """An order is for one entry of one term: what came in its place is done."""
    world = World("abc", seed=2, node_class=node_class).start()
    leader = world.elect("a")
    index = leader.node.last_index + 1
    while lies_in_the_log(index, index):
        index += 1
    for node in world.nodes.values():
        journal_of(node).skipping(Skip(index, 7, "ann")).result()
    world.commit(leader, 5)
    world.run_until(world.converged)
    assert not any(skipped(node) for node in world.nodes.values())


def a_member_that_applied_it_does_not_skip_it(node_class: NodeClass = RaftNode) -> None:
    """Its state has it: another start must not make another one of the same log."""
    world = World("abc", seed=3, node_class=node_class).start()
    leader = world.elect("a")
    world.commit(leader, 5)
    world.run_until(world.converged)
    index = leader.node.last_index - 1
    term = journal_of(leader).log.term_at(index)
    order = Skip(index, checksum_of(term, journal_of(leader).log.read(index)), "ann")
    journal_of(leader).skipping(order).result()
    world.network.break_link("a", "c")
    world.network.reconnect("a", "c")
    world.run(3.0)
    assert not journal_of(world.nodes["c"]).skips


RULES: tuple[Rule, ...] = (
    (an_entry_that_ends_every_member_is_skipped_by_order, mutants.SkipsNothing),
    (a_member_without_the_order_has_it_from_the_leader, mutants.TellsNoSkips),
    (a_member_that_lost_its_journal_skips_it_too, mutants.TellsNoSkips),
    (what_the_leader_said_survives_a_restart, mutants.NotesNoSkips),
    (one_that_joins_has_it_from_a_leader_that_began_after_it_came, mutants.TellsNoGuests),
    (another_entry_of_that_index_is_applied, mutants.SkipsByIndex),
    (a_member_that_applied_it_does_not_skip_it, mutants.SkipsWhatItApplied),
)

test_the_rule_holds, test_the_rule_shows = as_tests(RULES)


def test_a_file_of_orders_that_is_damaged_says_nothing() -> None:
    world = World("a", seed=4).start()
    node = world.nodes["a"]
    node.kill()
    order = Skip(7, 0xAB12CD34, "ann")
    give(node, order)
    journal = node.open_journal(node.storage.for_process())
    assert journal.skips == {7: order}
    journal.close()
    content = bytearray(node.storage.content(SKIPS_NAME))
    content[20] ^= 1
    node.storage.replace(SKIPS_NAME, bytes(content))
    journal = node.open_journal(node.storage.for_process())
    assert journal.skips == {}
    journal.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("x"), "fifo entry show 7 (checksum "),
        (MemoryError(), "the cause is this machine's"),
        (OSError(5, "Input/output error"), "the cause is this machine's"),
    ],
)
def test_a_node_that_ends_at_an_entry_says_whose_fault_it_is(error: Exception, words: str) -> None:
    assert words in why_it_raised(7, 1, b"\x10x", error)
