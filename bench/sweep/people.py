"""Cases about queues, sessions, consumers and producers, and about time.

Owns what is filled and asked. Must not know how it is timed.
"""

from __future__ import annotations

from typing import Any

from bench.sweep.case import case
from bench.sweep.messages import GROWN, KEY_QUEUE, TO_LETTERS
from bench.sweep.world import LOCK_MS, Entry, World, attach
from fifo.machine import commands, limits
from fifo.machine.state import locks, ready
from fifo.machine.types import EndCause
from fifo.words import bounds
from fifo.words.actions import Action

PER_SESSION = limits.CONSUMERS_PER_SESSION


# --- sessions ------------------------------------------------------------------------------------


def _crowd(world: World, count: int, queue: str = "q", **options: Any) -> list[int]:
    """So many consumers of one queue, as few sessions as that takes; those."""
    sessions = []
    for place in range(count):
        if place % PER_SESSION == 0:
            sessions.append(world.session(place))
        world.subscribe(sessions[-1], queue, f"t{place}", **options)
    return sessions


def _spread(world: World, count: int) -> int:
    """A session with a consumer on each of so many queues, which holds a message; the session."""
    session = world.session()
    for place in range(count):
        world.declare(f"q{place}")
        world.subscribe(session, f"q{place}", "t")
        world.fill(session, 1, f"q{place}")
    return session


@case(commands.Attach, "consumers of as many queues, with a lock each", PER_SESSION)
def _attach_spread(world: World, size: int) -> Entry:
    _spread(world, size)
    return Entry(attach(0))


@case(commands.Attach, "the same by another client object, after a change of leader", PER_SESSION)
def _attach_other(world: World, size: int) -> Entry:
    _spread(world, size)
    world.do(commands.Lead(1))
    return Entry(attach(0, incarnation=1))


@case(commands.Attach, "consumers of one single-active queue", PER_SESSION)
def _attach_single(world: World, size: int) -> Entry:
    world.declare(ordering="single_active")
    _crowd(world, size)
    return Entry(attach(0))


@case(commands.Attach, "messages locked one by one", GROWN)
def _attach_holding(world: World, size: int) -> Entry:
    world.declare()
    session = world.session()
    for place in range(0, size, PER_SESSION):
        world.subscribe(session, tag=f"t{place}", prefetch=PER_SESSION)
    world.fill_singly(session, size)
    return Entry(attach(0))


@case(commands.Detach, "consumers of as many queues", PER_SESSION)
def _detach(world: World, size: int) -> Entry:
    return Entry(commands.Detach(_spread(world, size), 0, 1))


@case(commands.Disconnect, "consumers of as many queues, with floors", PER_SESSION)
def _disconnect(world: World, size: int) -> Entry:
    session = _spread(world, size)
    floors = tuple((number, LOCK_MS) for number in world.machine.state.sessions[session].consumers)
    return Entry(commands.Disconnect(session, 1, 0, floors))


@case(commands.EndSession, "consumers of as many queues, with a lock each", PER_SESSION)
def _end_spread(world: World, size: int) -> Entry:
    return Entry(commands.EndSession(_spread(world, size)))


@case(commands.EndSession, "the same by an operator", PER_SESSION)
def _end_by_operator(world: World, size: int) -> Entry:
    return Entry(commands.EndSession(_spread(world, size), int(EndCause.OPERATOR)))


@case(commands.EndSession, "messages locked one by one", GROWN)
def _end_holding(world: World, size: int) -> Entry:
    _attach_holding(world, size)
    return Entry(commands.EndSession(1))


@case(commands.EndSession, "queues that its producer published to", limits.QUEUES)
def _end_publisher(world: World, size: int) -> Entry:
    session = world.session()
    for place in range(size):
        world.declare(f"q{place}")
        world.fill(session, 1, f"q{place}")
    return Entry(commands.EndSession(session))


@case(commands.NoticeAck, "notices", limits.NOTICES)
def _notice_ack(world: World, size: int) -> Entry:
    world.declare()
    session = world.session()
    for place in range(size):
        world.subscribe(session, tag=f"t{place}")
    world.fill(session, size)
    world.apply(world.tick(later_ms=LOCK_MS))
    while (tick := world.next_tick()) is not None:
        world.apply(tick)
    return Entry(commands.NoticeAck(session, size))


# --- consumers -----------------------------------------------------------------------------------


def _waiting(world: World, count: int) -> int:
    """So many consumers that wait for one single-active queue; the session of the first."""
    world.declare(ordering="single_active")
    return _crowd(world, count)[0]


@case(commands.Subscribe, "consumers of a single-active queue, above them", 9_999)
def _subscribe_above(world: World, size: int) -> Entry:
    _waiting(world, size)
    session = world.session(GROWN)
    return Entry(commands.Subscribe(session, "above", "q", {"priority": 1}))


@case(commands.Cancel, "consumers that wait when the active one goes", 10_000)
def _cancel_active(world: World, size: int) -> Entry:
    return Entry(commands.Cancel(_waiting(world, size), 1))


@case(commands.MessageAction, "unlock where as many consumers wait for their turn", 10_000)
def _unlock(world: World, size: int) -> Entry:
    session = _waiting(world, size)
    world.fill(session, 1)
    [(held, _)] = locks.all_holds(world.machine.state.consumers[1])
    message = ready.message_id(world.machine.state.queues[1], held.position)
    return Entry(
        commands.MessageAction("q", int(Action.UNLOCK), message, held.position, 1, held.first)
    )


@case(commands.Get, "gets' consumers of a single-active queue", 9_999)
def _get_single(world: World, size: int) -> Entry:
    world.declare(ordering="single_active")
    for place in range(size):
        world.do(commands.Get(world.session(place), "q", 1))
    return Entry(commands.Get(world.session(GROWN), "q", 1))


@case(commands.Alive, "consumers of a single-active queue, all suspected", 2_000)
def _alive(world: World, size: int) -> Entry:
    session = _waiting(world, size)
    for consumer in world.machine.state.consumers.values():
        consumer.suspicion = 1
    return Entry(commands.Alive(session, 1))


# --- queues --------------------------------------------------------------------------------------


@case(commands.Declare, "dead-letter queues in a chain", limits.QUEUES - 1)
def _declare(world: World, size: int) -> Entry:
    world.declare("q0")
    for place in range(1, size):
        world.declare(f"q{place}", dead_letter=f"q{place - 1}")
    return Entry(commands.Declare("q", {"dead_letter": f"q{size - 1}"}))


@case(commands.UpdateQueue, "messages above a lowered limit, to dead letters", GROWN)
def _update_limit(world: World, size: int) -> Entry:
    world.declare(overflow="drop_oldest", max_length=size, **TO_LETTERS)
    session = world.session()
    for _ in range(size // limits.DROPPING_MESSAGES):
        world.fill(session, limits.DROPPING_MESSAGES)
    return Entry(commands.UpdateQueue("q", {"max_length": 1}))


@case(commands.UpdateQueue, "keys that delayed messages hold, freed", GROWN)
def _update_skip(world: World, size: int) -> Entry:
    world.declare(**KEY_QUEUE)
    session = world.session()
    consumer = world.subscribe(session, prefetch=size)
    for first in range(0, size, 1_000):
        world.fill_keys(session, [b"%08d" % key for key in range(first, first + 1_000)])
        ranges = ((first + 1, first + 1_000),)
        world.do(commands.Settle(session, consumer, 1, ranges, LOCK_MS))
    world.fill_keys(session, [b"%08d" % key for key in range(size)])
    return Entry(commands.UpdateQueue("q", {"on_delay": "skip"}))


@case(commands.DeleteQueue, "consumers", limits.CONSUMERS_PER_QUEUE)
def _delete_crowd(world: World, size: int) -> Entry:
    world.declare()
    sessions = _crowd(world, size)
    world.fill(sessions[0], size)
    return Entry(commands.DeleteQueue("q"))


@case(commands.DeleteQueue, "messages locked one by one", GROWN)
def _delete_holding(world: World, size: int) -> Entry:
    _attach_holding(world, size)
    return Entry(commands.DeleteQueue("q"))


# --- producers -----------------------------------------------------------------------------------


def _wide_producer(world: World, count: int) -> None:
    """A named producer with a message in each of so many queues."""
    opened = world.do(commands.OpenProducer("p"))
    for place in range(count):
        world.declare(f"q{place}")
        entry = world.publishing(0, 1, f"q{place}")
        publish = entry.command
        assert isinstance(publish, commands.Publish)
        producer = getattr(opened, "producer")  # noqa: B009  # of `ProducerOpened`
        world.apply(
            entry._replace(
                command=commands.Publish(0, producer, f"q{place}", 0, 1, 1, 0, publish.bodies_at)
            )
        )


@case(commands.OpenProducer, "queues that it published to", limits.QUEUES)
def _open_producer(world: World, size: int) -> Entry:
    _wide_producer(world, size)
    return Entry(commands.OpenProducer("p"))


def _people(count: int) -> commands.ImportUsers:
    """So many users, each with as many tokens as one may have."""
    users = []
    for place in range(count):
        first = place * limits.USER_TOKENS + 1
        numbers = range(first, first + limits.USER_TOKENS)
        tokens = tuple((f"t{one}", one.to_bytes(32, "big"), 0) for one in numbers)
        users.append((f"u{place}", {"tokens": tokens, "operate": True, "publish": ("orders.*",)}))
    return commands.ImportUsers(tuple(users))


@case(commands.PutUser, "other users, with all the tokens that they may have", limits.USERS)
def _put_user(world: World, size: int) -> Entry:
    world.do(_people(size))
    return Entry(commands.PutUser("u0", {"password": "x", "operate": True}, 1))


@case(commands.RemoveUser, "other users, with all the tokens that they may have", limits.USERS)
def _remove_user(world: World, size: int) -> Entry:
    world.do(_people(size))
    return Entry(commands.RemoveUser("u0", 1))


@case(commands.ImportUsers, "users, with all the tokens that they may have", limits.USERS)
def _import_users(world: World, size: int) -> Entry:
    return Entry(_people(size))


@case(commands.ForgetProducer, "queues that it published to", limits.QUEUES)
def _forget_producer(world: World, size: int) -> Entry:
    _wide_producer(world, size)
    return Entry(commands.ForgetProducer("p"))


@case(commands.Publish, "queues that its producer published to before", limits.QUEUES - 1)
def _publish_wide(world: World, size: int) -> Entry:
    session = world.session()
    for place in range(size):
        world.declare(f"q{place}")
        world.fill(session, 1, f"q{place}")
    world.declare("another")
    return world.publishing(session, 1, "another")


# --- the group -----------------------------------------------------------------------------------


@case(commands.Lead, "sessions", limits.QUEUES)
def _lead(world: World, size: int) -> Entry:
    for place in range(size):
        world.session(place)
    return Entry(commands.Lead(1))


@case(commands.SetVersion, "nothing", 1)
def _set_version(world: World, size: int) -> Entry:
    return Entry(commands.SetVersion(size))


# --- time ----------------------------------------------------------------------------------------


@case(commands.Tick, "locks of one consumer that end, in one stretch", GROWN)
def _expire(world: World, size: int) -> Entry:
    world.declare()
    session = world.session()
    world.subscribe(session, prefetch=size)
    world.fill(session, size)
    world.do(commands.PauseQueue("q"))
    return world.tick(later_ms=LOCK_MS)


@case(commands.Tick, "locks that end, taken one by one", GROWN)
def _expire_singly(world: World, size: int) -> Entry:
    _attach_holding(world, size)
    world.do(commands.PauseQueue("q"))
    return world.tick(later_ms=2 * LOCK_MS)


@case(commands.Tick, "locks that end, handed out again to another", GROWN)
def _expire_again(world: World, size: int) -> Entry:
    _attach_holding(world, size)
    world.subscribe(world.session(1), tag="other", prefetch=size)
    return world.tick(later_ms=2 * LOCK_MS)


@case(commands.Tick, "consumers whose one lock ends", limits.CONSUMERS_PER_QUEUE)
def _expire_crowd(world: World, size: int) -> Entry:
    world.declare()
    sessions = _crowd(world, size)
    world.fill(sessions[0], size)
    return world.tick(later_ms=LOCK_MS)


@case(commands.Tick, "locks that the active consumer loses with one", limits.SINGLE_ACTIVE_PREFETCH)
def _expire_single(world: World, size: int) -> Entry:
    world.declare(ordering="single_active")
    session = world.session()
    world.subscribe(session, prefetch=size)
    world.fill_singly(session, size)
    return world.tick(later_ms=LOCK_MS - size + 1)


@case(commands.Tick, "locks whose end makes dead letters", GROWN)
def _expire_to_letters(world: World, size: int) -> Entry:
    world.declare(dead_letter="d", max_deliveries=1)
    session = world.session()
    world.subscribe(session, prefetch=size)
    world.fill_singly(session, size)
    return world.tick(later_ms=2 * LOCK_MS)


@case(commands.Tick, "delays that end, in no order of place", GROWN)
def _due(world: World, size: int) -> Entry:
    world.declare()
    session = world.session()
    delays = [60_000 + place * 7_919 % size for place in range(size)]
    for first in range(0, size, 5_000):
        part = delays[first : first + 5_000]
        world.apply(world.publishing(session, len(part), delays=part))
    return world.tick(later_ms=60_000 + size)


@case(commands.Tick, "messages whose ttl ends", GROWN)
def _ttl(world: World, size: int) -> Entry:
    world.declare(ttl_ms=1_000)
    world.fill(world.session(), size)
    return world.tick(later_ms=1_000)


@case(commands.Tick, "messages whose ttl ends, to dead letters", GROWN)
def _ttl_to_letters(world: World, size: int) -> Entry:
    world.declare(ttl_ms=1_000, dead_letter="d")
    world.fill(world.session(), size)
    return world.tick(later_ms=1_000)


@case(commands.Tick, "locked messages whose ttl ends", 500_000)
def _ttl_locked(world: World, size: int) -> Entry:
    world.declare(ttl_ms=1_000)
    session = world.session()
    for place in range(0, size, 50_000):
        world.subscribe(session, tag=f"t{place}", prefetch=50_000)
    world.fill(session, size)
    return world.tick(later_ms=1_000)


@case(commands.Tick, "dedup ids that are forgotten", GROWN)
def _dedup(world: World, size: int) -> Entry:
    world.declare(dedup_window_ms=1_000)
    session = world.session()
    for first in range(0, size, 500):
        ids = [b"%08d" % place for place in range(first, first + 500)]
        world.apply(world.publishing(session, 500, dedup=ids))
    return world.tick(later_ms=1_000)


@case(commands.Tick, "released messages that are ready for their releaser again", GROWN)
def _avoided(world: World, size: int) -> Entry:
    world.declare()
    session = world.session()
    consumer = world.subscribe(session, prefetch=size)
    world.fill_singly(session, size)
    world.do(commands.PauseQueue("q"))
    for first in range(1, size + 1, bounds.SETTLE_MESSAGES_MAX):
        ranges = ((first, first + bounds.SETTLE_MESSAGES_MAX - 1),)
        world.do(commands.Settle(session, consumer, 2, ranges))
    return world.tick(later_ms=1_000)


@case(commands.Tick, "queues with something due", limits.QUEUES - 1)
def _due_queues(world: World, size: int) -> Entry:
    session = world.session()
    for place in range(size):
        world.declare(f"q{place}", ttl_ms=1_000, dead_letter="d")
        world.fill(session, 1, f"q{place}")
    return world.tick(later_ms=60_000)


@case(commands.Tick, "queues that end unused, with consumers of a get", limits.CONSUMERS_PER_QUEUE)
def _unused(world: World, size: int) -> Entry:
    world.declare(expires_unused_ms=1_000)
    for place in range(size):
        world.do(commands.Get(world.session(place), "q", 1))
    return world.tick(later_ms=1_000)


@case(commands.Tick, "sessions that do not resume, with a consumer each", limits.QUEUES)
def _unresumed(world: World, size: int) -> Entry:
    world.declare()
    for place in range(size):
        world.subscribe(world.session(place))
    world.do(commands.Lead(1))
    return world.tick(later_ms=limits.RESUME_MS)


@case(commands.Tick, "consumers of sessions that end", limits.CONSUMERS_PER_QUEUE)
def _ended(world: World, size: int) -> Entry:
    world.declare()
    for session in _crowd(world, size):
        world.do(commands.Disconnect(session, 1, 0))
    return world.tick(later_ms=bounds.SESSION_TIMEOUT_MS)


@case(commands.Tick, "consumers whose grace ends, with a lock each", limits.CONSUMERS_PER_QUEUE)
def _graces(world: World, size: int) -> Entry:
    world.declare(disconnect_grace_ms=1_000)
    sessions = _crowd(world, size)
    world.fill(sessions[0], size)
    for session in sessions:
        world.do(commands.Disconnect(session, 1, 0))
    return world.tick(later_ms=1_000)


@case(commands.Tick, "named producers that went unused", GROWN)
def _producers(world: World, size: int) -> Entry:
    for place in range(size):
        world.do(commands.OpenProducer(f"p{place}"))
    return world.tick(later_ms=limits.PRODUCER_MS)


@case(commands.Tick, "durable consumers that were not used", limits.DURABLES_PER_QUEUE)
def _durables(world: World, size: int) -> Entry:
    world.declare()
    for place in range(size):
        world.do(commands.OpenDurable("q", f"d{place}"))
    return world.tick(later_ms=limits.DURABLE_MS)
