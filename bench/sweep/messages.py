"""Cases about messages: publishes, settlements, deliveries, moves.

Owns what is filled and asked. Must not know how it is timed.
"""

from __future__ import annotations

from array import array
from functools import partial
from itertools import accumulate
from typing import Any

from bench.sweep.case import case
from bench.sweep.world import LOCK_MS, Entry, World
from fifo.machine import commands, limits
from fifo.machine.types import NEVER_MS
from fifo.words import bounds
from fifo.words.settlement import Verb

SETTLED = bounds.SETTLE_MESSAGES_MAX
GROWN = 20_000
"""Messages in a queue that has some: several steps' worth."""

KEY_QUEUE: dict[str, Any] = {"ordering": "key"}
RING: dict[str, Any] = {"overflow": "drop_oldest", "max_length": GROWN}
RING_OF_BYTES: dict[str, Any] = {"overflow": "drop_oldest", "max_bytes": GROWN}
TO_LETTERS: dict[str, Any] = {"dead_letter": "d", "dead_letter_overflow": True}


def _keys(count: int, first: int = 0) -> list[bytes]:
    return [b"%08d" % place for place in range(first, first + count)]


# --- publish -------------------------------------------------------------------------------------


@case(commands.Publish, "plain messages", bounds.PUBLISH_MESSAGES_MAX)
def _plain(world: World, size: int) -> Entry:
    world.declare()
    session = world.session()
    world.fill(session, GROWN)
    return world.publishing(session, size)


@case(commands.Publish, "messages with a key and a ttl each", bounds.PUBLISH_MESSAGES_MAX // 10)
def _rich(world: World, size: int) -> Entry:
    world.declare(**KEY_QUEUE)
    session = world.session()
    return world.publishing(session, size, keys=_keys(size), ttl_ms=LOCK_MS)


@case(commands.Publish, "delayed messages, each with a dedup id", 500)
def _delayed(world: World, size: int) -> Entry:
    world.declare(dedup_window_ms=LOCK_MS)
    session = world.session()
    world.fill(session, GROWN, delays=None)
    delays = [60_000 + place * 7_919 % size for place in range(size)]
    return world.publishing(session, size, dedup=_keys(size), delays=delays)


@case(commands.Publish, "messages with a priority unlike their neighbours'", 285)
def _prioritised(world: World, size: int) -> Entry:
    world.declare(priorities=True)
    session = world.session()
    priorities = bytes(place % 10 for place in range(size))
    return world.publishing(session, size, priorities=priorities)


def _evicting(world: World, size: int, **spec: Any) -> Entry:
    world.declare(**RING, **spec)
    session = world.session()
    for _ in range(GROWN // limits.DROPPING_MESSAGES):
        world.fill(session, limits.DROPPING_MESSAGES)
    return world.publishing(session, size)


@case(commands.Publish, "messages that each evict one", limits.DROPPING_MESSAGES)
def _evicting_plain(world: World, size: int) -> Entry:
    return _evicting(world, size)


@case(commands.Publish, "messages that each evict one to dead letters", limits.DROPPING_MESSAGES)
def _evicting_to_letters(world: World, size: int) -> Entry:
    return _evicting(world, size, **TO_LETTERS)


def _large(world: World, size: int, step: int, **spec: Any) -> Entry:
    world.declare(**RING_OF_BYTES, **spec)
    session = world.session()
    for _ in range(GROWN // 500):
        world.fill(session, 500, size=1)
    evicted = max(step // 50, 1) * 50 // size
    return world.publishing(session, size, size=max(evicted, 1))


@case(commands.Publish, "messages that evict all a step allows", 50)
def _large_plain(world: World, size: int) -> Entry:
    return _large(world, size, limits.STEP_MESSAGES)


@case(commands.Publish, "messages that evict all a step allows, to dead letters", 50)
def _large_to_letters(world: World, size: int) -> Entry:
    return _large(world, size, limits.STEP_MESSAGES // limits.DROP_COST, **TO_LETTERS)


@case(commands.Publish, "messages that evict delayed ones with keys, to full dead letters", 100)
def _evicting_at_its_worst(world: World, size: int) -> Entry:
    world.declare("d", **RING)
    world.declare(**RING, **KEY_QUEUE, dead_letter="d", dead_letter_overflow=True)
    session = world.session()
    for _ in range(GROWN // 500):
        world.fill(session, 500, "d")
    for first in range(0, GROWN, 500):
        delays = [60_000 + place * 7_919 % GROWN for place in range(first, first + 500)]
        entry = world.publishing(session, 500, keys=_keys(500, first), delays=delays)
        world.apply(entry)
    return world.publishing(session, size, keys=_keys(size))


@case(commands.Publish, "messages to a queue whose consumers take one each", 2_000)
def _handed_out(world: World, size: int) -> Entry:
    world.declare()
    for place in range(size):
        if place % limits.CONSUMERS_PER_SESSION == 0:
            session = world.session(place)
        world.subscribe(session, tag=f"t{place}")
    return world.publishing(session, size)


def _for_each(session: int, names: list[str], each: int, before: int = 0) -> Entry:
    """So many messages of a byte for each queue; `before`: those of the producer there already."""
    count = each * len(names)
    columns = [
        array("I", [each] * len(names)),
        array("Q", [before] * len(names)),
        array("Q", [before + 1] * len(names)),
        array("I", [1] * count),
    ]
    packed = [column.tobytes() for column in columns]
    counts_at, previous_at, numbers_at, sizes_at, bodies_at = accumulate(
        [len(column) for column in packed], initial=0
    )
    command = commands.PublishAcross(
        *(session, 0, tuple(names), count),
        *(counts_at, previous_at, numbers_at, sizes_at, bodies_at),
    )
    return Entry(command, b"".join(packed) + bytes(count))


@case(commands.PublishAcross, "a message for each queue", bounds.PUBLISH_QUEUES_MAX)
def _across(world: World, size: int) -> Entry:
    names = [f"q{place}" for place in range(size)]
    for name in names:
        world.declare(name)
    return _for_each(world.session(), names, 1)


@case(commands.PublishAcross, "messages that each evict one to dead letters", 250)
def _across_evicting(world: World, size: int) -> Entry:
    names = [f"q{place}" for place in range(size)]
    session = world.session()
    for name in names:
        world.declare(name, **TO_LETTERS, overflow="drop_oldest", max_length=2)
        world.fill(session, 2, name)
    return _for_each(session, names, 2, before=2)


# --- settlements ---------------------------------------------------------------------------------


def _settling(session: int, verb: Verb, size: int, **more: Any) -> Entry:
    return Entry(commands.Settle(session, 1, int(verb), ((1, size),), **more))


def _hold(world: World, count: int, *, singly: bool = False, **spec: Any) -> int:
    """The session of a consumer that holds so many, of a queue that is paused then."""
    world.declare(**spec)
    session = world.session()
    world.subscribe(session, prefetch=count)
    if spec.get("ordering") == "key":
        world.fill_keys(session, _keys(count))
    elif singly:
        world.fill_singly(session, count)
    else:
        world.fill(session, count)
    while (tick := world.next_tick()) is not None:
        world.apply(tick)
    world.do(commands.PauseQueue("q"))
    return session


_PLACES: dict[str, dict[str, Any]] = {
    "": {},
    " locked one by one": {"singly": True},
    " of a key each": KEY_QUEUE,
}


def _settled(verb: Verb, how: dict[str, Any], world: World, size: int) -> Entry:
    more: dict[str, Any] = {"dead_letter": "d"} if verb == Verb.TERMINATE else {}
    session = _hold(world, max(size, 2 * SETTLED if size == SETTLED else 0), **how, **more)
    return _settling(session, verb, size)


for _verb in Verb:
    for _where, _how in _PLACES.items():
        case(commands.Settle, f"{_verb.name.lower()} of messages{_where}", SETTLED)(
            partial(_settled, _verb, _how)
        )


@case(commands.Settle, "ack of messages that came back once", SETTLED)
def _ack_returned(world: World, size: int) -> Entry:
    session = _hold(world, size, **KEY_QUEUE)
    world.apply(_settling(session, Verb.NACK, size, delay_ms=0))
    world.do(commands.ResumeQueue("q"))
    while (tick := world.next_tick()) is not None:
        world.apply(tick)
    return Entry(commands.Settle(session, 1, int(Verb.ACK), ((size + 1, 2 * size),)))


@case(commands.Settle, "late ack of messages that a lock lost", SETTLED)
def _ack_late(world: World, size: int) -> Entry:
    session = _hold(world, size, singly=True)
    world.apply(world.tick(later_ms=LOCK_MS))
    while (tick := world.next_tick()) is not None:
        world.apply(tick)
    return _settling(session, Verb.ACK, size)


@case(commands.Settle, "nack at the limit of failures, to dead letters", SETTLED)
def _nack_at_the_limit(world: World, size: int) -> Entry:
    session = _hold(world, size, singly=True, dead_letter="d", max_deliveries=1)
    return _settling(session, Verb.NACK, size)


@case(commands.Cancel, "unopened messages", SETTLED)
def _cancel(world: World, size: int) -> Entry:
    session = _hold(world, size, singly=True)
    return Entry(commands.Cancel(session, 1, ((1, size),)))


@case(commands.AckUpto, "messages of a key each", limits.ACK_UPTO_MESSAGES)
def _ack_upto(world: World, size: int) -> Entry:
    session = _reader(world, size)
    while world.machine.held_count(1) < size:
        world.do(commands.Reserve(1, 1, size - world.machine.held_count(1), session))
    return Entry(commands.AckUpto(1, 1, size))


# --- taking --------------------------------------------------------------------------------------


def _returned(world: World, count: int, **spec: Any) -> int:
    """A queue with so many messages that came back and are ready; a session."""
    world.declare(**spec)
    session = world.session()
    first = 0
    while first < count:
        held = min(count - first, limits.SINGLE_ACTIVE_PREFETCH)
        world.subscribe(session, tag=f"holder {first}", prefetch=held)
        first += held
    world.fill_singly(session, count)
    world.do(commands.PauseQueue("q"))
    for consumer in list(world.machine.state.sessions[session].consumers):
        held = world.machine.held_count(consumer)
        for low in range(1, held + 1, SETTLED):
            last = min(low + SETTLED - 1, held)
            world.do(commands.Settle(session, consumer, int(Verb.NACK), ((low, last),), 0))
        world.do(commands.Cancel(session, consumer))
    world.do(commands.ResumeQueue("q"))
    return session


def _reader(world: World, count: int, *, returned: bool = False) -> int:
    """A durable consumer, number 1 by its queue, and what it can reserve; a session."""
    world.declare(**KEY_QUEUE)
    world.do(commands.OpenDurable("q", "reader", {"lock_ms": LOCK_MS}))
    session = world.session()
    world.fill_keys(session, _keys(count))
    return session


@case(commands.Reserve, "messages of a key each", limits.STEP_MESSAGES)
def _reserve(world: World, size: int) -> Entry:
    session = _reader(world, size)
    return Entry(commands.Reserve(1, 1, size, session))


@case(commands.Fetch, "messages reserved one by one", limits.STEP_MESSAGES)
def _fetch(world: World, size: int) -> Entry:
    world.declare()
    world.do(commands.OpenDurable("q", "reader", {"lock_ms": LOCK_MS}))
    session = world.session()
    for _ in range(size):
        world.apply(world.publishing(session, 1)._replace(later_ms=1))
        world.do(commands.Reserve(1, 1, 1, session))
    return Entry(commands.Fetch(1, 1, 1, size, session))


@case(commands.OpenDurable, "messages reserved one by one", limits.STEP_MESSAGES)
def _open_durable(world: World, size: int) -> Entry:
    _fetch(world, size)
    return Entry(commands.OpenDurable("q", "reader", {"lock_ms": LOCK_MS}))


@case(commands.RenewDurable, "messages reserved one by one", limits.STEP_MESSAGES)
def _renew_durable(world: World, size: int) -> Entry:
    _fetch(world, size)
    return Entry(commands.RenewDurable(1, 1))


@case(commands.Forget, "messages reserved one by one", limits.STEP_MESSAGES)
def _forget(world: World, size: int) -> Entry:
    _fetch(world, size)
    return Entry(commands.Forget(1, 1))


@case(commands.Get, "messages that came back", bounds.GET_MESSAGES_MAX)
def _get(world: World, size: int) -> Entry:
    session = _returned(world, size)
    return Entry(commands.Get(session, "q", size))


@case(commands.Get, "expired messages on the way, to dead letters", GROWN)
def _get_expired(world: World, size: int) -> Entry:
    world.declare(ttl_ms=1_000, dead_letter="d")
    session = world.session()
    world.fill(session, size)
    return Entry(commands.Get(session, "q", 1), later_ms=1_000)


@case(commands.Get, "messages of one busy key on the way", GROWN)
def _get_keyed(world: World, size: int) -> Entry:
    world.declare(**KEY_QUEUE)
    session = world.session()
    world.fill_keys(session, [b"hot"] * size)
    world.do(commands.Get(session, "q", 1))
    return Entry(commands.Get(session, "q", 1))


@case(commands.Subscribe, "messages that came back, one by one", GROWN)
def _take_returned(world: World, size: int) -> Entry:
    session = _returned(world, size)
    options = {"prefetch": size, "lock_ms": LOCK_MS, "max_lock_ms": LOCK_MS}
    return Entry(commands.Subscribe(session, "taker", "q", options))


@case(commands.Subscribe, "messages of a key each", GROWN)
def _take_keyed(world: World, size: int) -> Entry:
    world.declare(**KEY_QUEUE)
    session = world.session()
    world.fill_keys(session, _keys(size))
    options = {"prefetch": size, "lock_ms": LOCK_MS, "max_lock_ms": LOCK_MS}
    return Entry(commands.Subscribe(session, "taker", "q", options))


@case(commands.Credit, "messages that came back, to a pulling consumer", GROWN)
def _credit(world: World, size: int) -> Entry:
    session = _returned(world, size)
    taker = world.subscribe(session, tag="taker", prefetch=size, pull=True)
    return Entry(commands.Credit(session, taker, size, drain=True))


@case(commands.ResumeQueue, "messages that came back, to waiting consumers", GROWN)
def _resume_queue(world: World, size: int) -> Entry:
    session = _returned(world, size)
    world.do(commands.PauseQueue("q"))
    for place in range(limits.CONSUMERS_PER_SESSION // 2):
        world.subscribe(session, tag=f"t{place}", prefetch=size)
    return Entry(commands.ResumeQueue("q"))


@case(commands.PauseQueue, "messages", GROWN)
def _pause_queue(world: World, size: int) -> Entry:
    _returned(world, size)
    return Entry(commands.PauseQueue("q"))


# --- moving --------------------------------------------------------------------------------------


@case(commands.Purge, "plain messages", GROWN)
def _purge(world: World, size: int) -> Entry:
    world.declare()
    world.fill(world.session(), size)
    return Entry(commands.Purge("q"))


@case(commands.Purge, "messages that came back", GROWN)
def _purge_returned(world: World, size: int) -> Entry:
    _returned(world, size)
    return Entry(commands.Purge("q"))


@case(commands.Purge, "delayed messages with keys", GROWN)
def _purge_delayed(world: World, size: int) -> Entry:
    world.declare(**KEY_QUEUE)
    session = world.session()
    for first in range(0, size, 500):
        delays = [60_000 + place * 7_919 % size for place in range(first, first + 500)]
        world.apply(world.publishing(session, 500, keys=_keys(500, first), delays=delays))
    return Entry(commands.Purge("q"))


@case(commands.Move, "messages that came back", limits.MOVE_MESSAGES)
def _move(world: World, size: int) -> Entry:
    _returned(world, size)
    world.declare("r")
    return Entry(commands.Move("q", "r", size))


def _letters(world: World, count: int) -> None:
    """So many dead letters in queue d."""
    world.declare("q", ttl_ms=1_000, dead_letter="d")
    world.fill(world.session(), count)
    world.apply(world.tick(later_ms=1_000))
    while (tick := world.next_tick()) is not None:
        world.apply(tick)


@case(commands.Redrive, "dead letters", GROWN)
def _redrive(world: World, size: int) -> Entry:
    _letters(world, size)
    return Entry(commands.Redrive("d"))


@case(commands.RedriveStop, "dead letters", GROWN)
def _redrive_stop(world: World, size: int) -> Entry:
    _letters(world, size)
    world.do(commands.Redrive("d"))
    return Entry(commands.RedriveStop("d"))


@case(commands.RedriveStep, "dead letters", limits.MOVE_MESSAGES)
def _redrive_step(world: World, size: int) -> Entry:
    _letters(world, size)
    world.do(commands.Redrive("d"))
    found, _ = world.machine.redrive_candidates("d", size)
    positions = tuple(one[0] if isinstance(one, tuple) else one.position for one in found)
    return Entry(commands.RedriveStep("d", 0, NEVER_MS, positions))
