"""The share of an entry that each command takes up: by its names, and by its session's holdings."""

from __future__ import annotations

import typing
from dataclasses import replace

from fifo.machine import Machine, commands
from fifo.words import bounds
from fifo.words.actions import Action
from fifo.words.settlement import Verb
from node.broker import cost
from node.broker import limits as broker
from tests.support.machine import Bench

MOST = broker.GATHER_MICROSECONDS_MAX
SESSION = bytes(16)


def weight(command: commands.Command, machine: Machine | None = None) -> int:
    return cost.weight(machine or Machine(), commands.to_list(command))


def settle(verb: Verb, *ranges: tuple[int, int]) -> commands.Settle:
    return commands.Settle(1, 1, int(verb), ranges)


def test_a_command_without_a_known_weight_has_an_entry_of_its_own() -> None:
    named = {commands.code_of(kind) for kind in typing.get_args(commands.Command)}
    assert cost._WEIGHTS.keys() < named
    for heavy in (commands.Tick(), commands.Move("a", "b"), commands.AckUpto(1, 1, 9)):
        assert weight(heavy) == MOST


def test_settlements_weigh_by_their_tokens_and_their_verb() -> None:
    assert weight(settle(Verb.ACK, (1, 1))) < 50
    assert weight(settle(Verb.ACK, (1, 500))) < MOST // 2
    assert weight(settle(Verb.NACK, (1, 250), (501, 750))) > MOST // 2
    assert weight(settle(Verb.RELEASE, (1, 1_000))) > MOST
    assert weight(commands.Cancel(1, 1, ((1, 1_000),))) > MOST
    assert weight(commands.Cancel(1, 1)) < 50


def test_an_entry_takes_no_more_small_commands_than_it_has_time_for() -> None:
    """Their times are those of `python -m bench.sweep "in one entry"`, after a freeze."""
    taking_microseconds, most_microseconds = 36, 20_000
    for command in (commands.Subscribe(1, "t", "q"), commands.Get(1, "q", 1)):
        assert MOST // weight(command) * taking_microseconds < most_microseconds


def test_a_command_refused_for_its_size_weighs_no_more_than_an_accepted_one() -> None:
    most = bounds.SETTLE_MESSAGES_MAX
    assert weight(settle(Verb.ACK, (1, 1 << 40))) == weight(settle(Verb.ACK, (1, most)))


def test_a_tick_for_expired_locks_alone_weighs_the_returned_messages() -> None:
    bench = Bench(check=False)
    for name, ordering in (("plain", "none"), ("alone", "single_active")):
        bench.declare(name, ordering=ordering)
    session = bench.attach()
    for name in ("plain", "alone"):
        bench.subscribe(session, name, prefetch=2_000)
        bench.publish(session, name, *[b""] * 2_000)
    machine = bench.machine
    assert cost.expired(machine, ((1, 1, 3), (1, 5, 5))) < 300
    assert cost.expired(machine, ((1, 1, 2_000),)) > MOST
    assert cost.expired(machine, ((2, 1, 1),)) > MOST, "all that a single active consumer holds"
    assert cost.expired(machine, ((3, 1, 9),)) < 100, "a consumer that is gone"


def test_a_publish_weighs_more_where_each_message_drops_another() -> None:
    bench = Bench()
    bench.declare("plain")
    bench.declare("ring", overflow="drop_oldest", max_length=10)
    machine = bench.machine
    plain, ring = (cost.published(machine, name, 500) for name in ("plain", "ring"))
    assert plain < MOST // 3 < MOST < ring
    assert cost.published(machine, "not declared yet", 500) == plain
    command = commands.Publish(1, 0, "ring", 0, 1, 500, 0, 0)
    assert weight(command, machine) == ring, "the same in both forms"


def test_an_action_on_a_message_shares_an_entry_unless_it_takes_a_lock() -> None:
    ready = commands.MessageAction("q", int(Action.DELETE), (1, 1, 1), 7)
    assert weight(ready) < 100
    assert weight(replace(ready, consumer=3, token=1)) == MOST


def test_a_publish_to_several_queues_weighs_what_one_to_each_would() -> None:
    bench = Bench()
    bench.declare("plain")
    bench.declare("ring", overflow="drop_oldest", max_length=10)
    machine = bench.machine
    apart = sum(cost.published(machine, name, 20) for name in ("plain", "ring"))
    together = cost.published_across(machine, ("plain", "ring"), (20, 20), alone=False)
    assert together == apart
    command = commands.PublishAcross(1, 0, ("plain", "ring"), 40, 0, 8, 24, 40, 200)
    assert weight(command, machine) >= together, "each message may be for the dearest"


def test_a_session_weighs_what_its_consumers_hold() -> None:
    bench = Bench(check=False)
    bench.declare("q")
    machine = bench.machine
    session_id = bytes(16)
    attach = commands.Attach(session_id, 0, bytes(16), bytes(16))
    new = weight(attach, machine)
    bench.apply(attach)
    number = bench.machine.session_of(session_id)
    assert number is not None
    of_session = (
        attach,
        commands.Detach(number, 0, 1),
        commands.Disconnect(number, 1, 0),
        commands.EndSession(number),
    )
    assert {weight(each, machine) for each in of_session} == {new}
    assert new < 50
    bench.subscribe(number, "q", prefetch=2_000)
    bench.publish(number, "q", *[b""] * 2_000)
    assert all(weight(each, machine) > MOST for each in of_session)
