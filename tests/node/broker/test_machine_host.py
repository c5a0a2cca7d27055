"""Commands come out of the log as they went in, on every node."""

from __future__ import annotations

import pytest

from fifo.machine import commands
from node.broker import entry
from node.broker.machine_host import _command

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
    packed = [entry.pack_command(commands.to_list(command))]
    payload = memoryview(b"".join(entry.pack(packed, [], version=1, stamp_ms=1, wall_ms=2)))
    (plain,) = entry.unpack(payload).commands
    read = _command(plain)
    assert read == command
    assert repr(read) == repr(commands.from_list(commands.to_list(command)))
