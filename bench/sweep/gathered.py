"""Cases of entries that gather many small commands, as many as their weights allow.

Owns what is filled and asked. Must not know how it is timed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.sweep.case import case
from bench.sweep.world import Entry, World, attach
from fifo.machine import commands
from fifo.words.settlement import Verb

if TYPE_CHECKING:
    from collections.abc import Sequence

GATHERED_MICROSECONDS = 21_000
"""The weights of an entry, `GATHER_MICROSECONDS_MAX` of the broker; those of its commands are in
`node/broker/cost.py`, which this room does not know."""

SMALL = GATHERED_MICROSECONDS // 30
TAKING = GATHERED_MICROSECONDS // 50
ACKS = GATHERED_MICROSECONDS // 46
NACKS = GATHERED_MICROSECONDS // 75
PUBLISHES = GATHERED_MICROSECONDS // 40


def _entry(gathered: Sequence[commands.Command]) -> Entry:
    return Entry(gathered[0], more=tuple(gathered[1:]))


def _apart(world: World, count: int, *, ready: int = 0, subscribed: bool = True) -> list[int]:
    """So many sessions, each with a queue of its own, a consumer and a lock; all of them."""
    sessions = []
    for place in range(count):
        world.declare(f"q{place}")
        sessions.append(world.session(place))
        if subscribed:
            world.subscribe(sessions[-1], f"q{place}")
        if subscribed or ready:
            world.fill(sessions[-1], max(ready, 1), f"q{place}")
    return sessions


@case(commands.Settle, "acks of a consumer and queue each, in one entry", ACKS)
def _acks(world: World, size: int) -> Entry:
    sessions = _apart(world, size)
    verb = int(Verb.ACK)
    return _entry(
        [commands.Settle(one, place + 1, verb, ((1, 1),)) for place, one in enumerate(sessions)]
    )


@case(commands.Settle, "acks that make room for one more each, in one entry", ACKS)
def _acks_that_go_on(world: World, size: int) -> Entry:
    sessions = _apart(world, size, ready=2)
    verb = int(Verb.ACK)
    return _entry(
        [commands.Settle(one, place + 1, verb, ((1, 1),)) for place, one in enumerate(sessions)]
    )


@case(commands.Settle, "nacks of a consumer and queue each, in one entry", NACKS)
def _nacks(world: World, size: int) -> Entry:
    sessions = _apart(world, size)
    verb = int(Verb.NACK)
    return _entry(
        [commands.Settle(one, place + 1, verb, ((1, 1),), 0) for place, one in enumerate(sessions)]
    )


@case(commands.Subscribe, "of a session and queue each, with a message, in one entry", TAKING)
def _subscribes(world: World, size: int) -> Entry:
    sessions = _apart(world, size, ready=1, subscribed=False)
    return _entry([commands.Subscribe(one, "t", f"q{place}") for place, one in enumerate(sessions)])


@case(commands.Get, "of a session and queue each, in one entry", TAKING)
def _gets(world: World, size: int) -> Entry:
    sessions = _apart(world, size, ready=1, subscribed=False)
    return _entry([commands.Get(one, f"q{place}", 1) for place, one in enumerate(sessions)])


@case(commands.Attach, "new sessions, in one entry", SMALL)
def _attaches(world: World, size: int) -> Entry:
    return _entry([attach(place) for place in range(size)])


@case(commands.Publish, "of a session and queue each, in one entry", PUBLISHES)
def _publishes(world: World, size: int) -> Entry:
    sessions = _apart(world, size)
    entries = [world.publishing(one, 1, f"q{place}") for place, one in enumerate(sessions)]
    first = entries[0]
    return first._replace(more=tuple([entry.command for entry in entries[1:]]))
