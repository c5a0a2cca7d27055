"""Commands come out of the log as they went in, on every node."""

from __future__ import annotations

import pytest

from fifo.machine import commands
from fifo.machine.contract import Machine
from node.broker import entry
from node.broker.machine_host import MachineHost, _command
from node.journal.skips import Skip

COMMANDS = [
    commands.Lead(7),
    commands.Tick(((1, 2, 3), (4, 5, 6))),
    commands.Attach(b"s" * 16, 1, b"i" * 16, b"k" * 16, "user", "127.0.0.1:9"),
    commands.Disconnect(1, 2, 3, ((4, 5),)),
    commands.Declare("q", {"lock_ms": 5000, "nack_backoff": "fixed:1s", "priorities": None}),
    commands.Publish(1, 0, "q", 4, 5, 6, 7, 8),
    commands.Publish(
        1, 2, "q", 4, 5, 6, 7, 8, (9, 10), (11, 12), 13, 14, 15, (16, 17), 18, fence=(0, 3)
    ),
    commands.Subscribe(1, "t", "q", {"prefetch": 9, "renewable": False}, (0, 3)),
    commands.Cancel(1, 2, ((3, 4), (6, 7)), (1, 1)),
    commands.Settle(1, 2, 3, ((1, 2), (5, 9))),
    commands.Settle(
        *(1, 2, 3, ((1, 2),), 50, "r", "d", "t", "x", None, 9, (None, None, None, (100, 20)), True),
        (0, 3),
    ),
    commands.NoticeAck(1, 2, (1, 1)),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda one: type(one).__name__)
def test_a_command_round_trips_through_the_log(command: commands.Command) -> None:
    (plain,) = entry.unpack(packed(command)).commands
    read = _command(plain)
    assert read == command
    assert repr(read) == repr(commands.from_list(commands.to_list(command)))


def packed(*batch: commands.Command) -> memoryview:
    """An entry of these commands."""
    plain = [entry.pack_command(commands.to_list(one)) for one in batch]
    return memoryview(b"".join(entry.pack(plain, [], version=1, stamp_ms=1, wall_ms=2)))


def test_a_replica_that_skipped_an_entry_differs_from_one_that_applied_it() -> None:
    """Also where the entry changes nothing; from others that skipped the same it does not."""
    hosts = [MachineHost(Machine(), lambda index: memoryview(b"")) for _ in range(4)]
    payload = packed()
    orders = (None, Skip(7, 1, "ann"), Skip(7, 1, "bob"), Skip(7, 2, "ann"))
    for host, order in zip(hosts, orders, strict=True):
        host.apply(6, payload)
        if order is None:
            host.apply(7, payload)
        else:
            host.skip(7, payload, order)
        host.apply(8, payload)
    applied, skipped, the_same, another = (host.machine.running_hash for host in hosts)
    assert skipped == the_same
    assert len({applied, skipped, another}) == 3


def test_a_mark_comes_before_an_entry_that_is_skipped_too() -> None:
    marks: list[int] = []
    host = MachineHost(
        Machine(), lambda index: memoryview(b""), marked=lambda mark: marks.append(mark.index)
    )
    host.mark_entries = 10
    for index in (9, 11, 12):
        host.apply(index, packed())
    host.skip(20, packed(), Skip(20, 1, "ann"))
    host.apply(21, packed())
    assert marks == [10, 20]
