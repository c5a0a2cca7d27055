"""The running hash: one number that two replicas share while every entry did the same to both.

Owns which facts of an entry go into it: what was answered, what is to be carried out, and what the
queues that were touched hold then. Not the entry's bytes, which Raft compares, and not the whole
state, which the digests of snapshots are for. A replica that leaves out one settlement has another
hash for ever after; a field that no entry looks at is not seen by it.

What is in it belongs to the machine's version: hashes of two versions are not compared.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from struct import Struct
from typing import Any
from zlib import crc32

from fifo.machine.effects import (
    Activity,
    ConsumerRemoved,
    Deliver,
    Effect,
    Fenced,
    Notify,
    Resumed,
    SessionEnded,
)
from fifo.machine.replies import (
    Attached,
    Done,
    Published,
    PublishedAcross,
    Receipt,
    Refused,
    Reply,
    Subscribed,
)
from fifo.machine.state.records import Queue

_FEW = 64
"""Facts of an entry of a few commands: most entries have no more, and these need no new packer."""

_PACKERS = tuple([Struct(f"<{count}q").pack for count in range(_FEW)])
"""By the number of facts. To pack takes a third of what an array of the same bytes takes, which
parses each number by a format of its own."""

Facts = list[int]


def fold(before: int, facts: Facts, replies: Sequence[Reply], effects: Sequence[Effect]) -> int:
    """The hash after an entry, of the hash before it. `facts`: its index, and those of queues."""
    for one in [*replies, *effects] if effects else replies:
        how = _FACTS.get(type(one))
        if isinstance(how, attrgetter):
            facts += how(one)
        elif how is not None:
            how(facts, one)
        else:  # what comes seldom, by its text, which names each of its fields
            facts.append(crc32(repr(one).encode()))
    count = len(facts)
    pack = _PACKERS[count] if count < _FEW else Struct(f"<{count}q").pack
    return crc32(pack(*facts), before)


def holds(queue: Queue) -> tuple[int, int, int, int]:
    """Of a queue that was touched, what it holds now."""
    return queue.number, queue.ready, queue.locked, queue.bytes


def _add_published(facts: Facts, reply: Published) -> None:
    facts += (reply.queue, reply.producer, reply.stored, reply.duplicates)
    if reply.refused is not None:
        _add_refused(facts, reply.refused)
    for repeat in reply.repeats:
        facts += repeat


def _add_published_across(facts: Facts, reply: PublishedAcross) -> None:
    for part in reply.parts:
        if type(part) is Published:
            _add_published(facts, part)
        else:
            assert isinstance(part, Refused), "each queue stores or refuses"
            _add_refused(facts, part)


def _add_receipt(facts: Facts, reply: Receipt) -> None:
    facts.append(reply.consumer)
    for row in reply.ranges:
        facts += row


def _add_refused(facts: Facts, reply: Refused) -> None:
    facts.append(crc32(reply.code.encode()))  # Not the text, which is for people.


def _add_deliver(facts: Facts, effect: Deliver) -> None:
    facts += (effect.session, effect.consumer, effect.first_token, effect.deadline_ms)
    for run in effect.runs:
        facts += (run.index, run.count, run.bodies_at, run.number)


def _add_notify(facts: Facts, effect: Notify) -> None:
    facts += (effect.session, effect.consumer, effect.notice, crc32(effect.kind.encode()))
    for row in effect.ranges:
        facts += row


_FACTS: "dict[type, attrgetter[Any] | Callable[[Facts, Any], None]]" = {
    Activity: attrgetter("session", "consumer", "active"),
    Attached: attrgetter("session", "epoch", "resumed"),
    ConsumerRemoved: attrgetter("session", "consumer"),
    Deliver: _add_deliver,
    Done: lambda facts, reply: None,
    Fenced: attrgetter("session", "role", "epoch"),
    Notify: _add_notify,
    Published: _add_published,
    PublishedAcross: _add_published_across,
    Receipt: _add_receipt,
    Refused: _add_refused,
    Resumed: attrgetter("session", "epoch"),
    SessionEnded: attrgetter("session", "cause"),
    Subscribed: attrgetter("consumer", "queue", "prefetch", "active"),
}
"""Fields that are numbers, of outcomes of which there may be thousands in an entry; or what adds
columns, and leaves out texts that are no part of the hash."""
