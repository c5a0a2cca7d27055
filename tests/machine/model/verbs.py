"""The requests of consumers and producers: publish, subscribe, get, credit, settle.

Each function is one command and answers in plain words, to be compared with the machine's reply by
`comparing.py`. A refusal is the tuple ("refused", code).
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from typing import Any

from fifo.machine import commands, limits
from fifo.words.consumer_options import ConsumerOptions
from tests.machine.model import moving
from tests.machine.model.handing import hand
from tests.machine.model.records import (
    DELAYED,
    READY,
    Consumer,
    Message,
    Producer,
    Queue,
    Session,
)
from tests.machine.model.world import World

Answer = tuple[Any, ...]
MessageId = tuple[int, int, int]


@dataclass
class Letter:
    """A message of a publish, as the test wrote it."""

    number: int
    body: bytes
    key: bytes = b""
    headers: bytes = b""
    priority: int = 4
    delay_ms: int = 0
    ttl_ms: int = 0
    dedup: bytes = b""


@dataclass
class Post:
    """A publish, decoded."""

    session: int
    producer: int
    queue: str
    previous: int
    letters: list[Letter] = field(default_factory=list)
    fence: tuple[int, int] | None = None
    queue_below: int = 0


@dataclass
class Posts:
    """A publish of one producer to several queues, decoded."""

    session: int
    posts: list[Post]
    fence: tuple[int, int] | None = None


def publish_across(world: World, posts: Posts) -> Answer:
    """Each queue's messages as if they had come alone, but for what refuses the whole."""
    first = posts.posts[0]
    if first.session and first.session not in world.sessions:
        return ("refused", "unknown_session")
    world.note_use(first.session, "writing")
    producer = owner(world, first)
    if producer is None:
        return ("refused", "unknown_producer")
    producer.used_ms = world.now_ms
    return ("across", [publish(world, post) for post in posts.posts])


def owner(world: World, post: Post) -> Producer | None:
    """The producer of a publish, where it may be used."""
    number = post.producer or (post.session and world.sessions[post.session].producer)
    producer = world.producers.get(number)
    if producer is None or (post.producer and producer.name is None):
        return None  # no session may use another one's own producer
    return producer


def publish(world: World, post: Post) -> Answer:
    """Store what may be stored: a prefix of what was sent."""
    if post.session and post.session not in world.sessions:
        return ("refused", "unknown_session")
    world.note_use(post.session, "writing")
    queue = world.queues.get(post.queue)
    if queue is None:
        return ("refused", "queue_not_found")
    if queue.spec.overflow == "drop_oldest" and len(post.letters) > limits.DROPPING_MESSAGES:
        return ("refused", "too_large")
    producer = owner(world, post)
    if producer is None:
        return ("refused", "unknown_producer")
    producer.used_ms = world.now_ms
    confirmed: list[MessageId] = []
    last = producer.last.get(queue.name, 0)
    if post.queue_below and queue.number >= post.queue_below and last < post.letters[0].number:
        return ("published", queue.number, producer.number, [], "queue_replaced", last)
    previous = post.previous
    for letter in post.letters:
        last = producer.last.get(queue.name, 0)
        if letter.number > last:
            if previous > last:
                return ("published", queue.number, producer.number, confirmed, "gap", last)
            refusal = store(world, queue, producer.number, letter)
            if refusal is not None:
                return ("published", queue.number, producer.number, confirmed, refusal, None)
            producer.last[queue.name] = letter.number
        else:
            world.count(queue.name, "duplicates")
        previous = letter.number
        confirmed.append(_confirmed_as(world, queue, producer.number, letter))
    return ("published", queue.number, producer.number, confirmed, None, None)


def _confirmed_as(world: World, queue: Queue, producer: int, letter: Letter) -> MessageId:
    """The id of the message that stands for a confirmed one: its own, or that of the message that
    was stored before it with the same dedup id."""
    own = (queue.number, producer, letter.number)
    if queue.spec.dedup_window_ms is None or letter.dedup not in queue.dedup:
        return own
    until_ms, stored = queue.dedup[letter.dedup]
    later = stored[1] == producer and stored[2] > letter.number
    return own if until_ms <= world.now_ms or later else stored


def store(world: World, queue: Queue, producer: int, letter: Letter) -> str | None:
    """Store one message; the code where it is refused."""
    window = queue.spec.dedup_window_ms
    if letter.dedup and window is not None:
        for known, (until_ms, _) in list(queue.dedup.items()):
            if until_ms <= world.now_ms:
                del queue.dedup[known]
        if letter.dedup in queue.dedup:
            world.count(queue.name, "duplicates")
            return None
        rejects = queue.spec.overflow == "reject"
        if rejects and moving.over_limit(world, queue, 1, len(letter.body)):
            return "queue_full"  # of two reasons at one message the machine tells this one
        if len(queue.dedup) >= queue.spec.dedup_max:
            return "dedup_full"
    message = Message(
        (queue.number, producer, letter.number),
        letter.body,
        letter.key,
        letter.headers,
        letter.priority,
        queue.name,
        queue.ordered + 1,
        world.wall_ms,
        published_at=world.entry,
    )
    if not make_room(world, queue, message):
        return "queue_full"
    if letter.dedup and window is not None:
        queue.dedup[letter.dedup] = world.now_ms + window, message.message_id
    queue.ordered += 1
    world.count(queue.name, "published")
    shortest = [ttl for ttl in (letter.ttl_ms, queue.spec.ttl_ms or 0) if ttl]
    if shortest:
        moving.set_ttl(world, message, min(shortest))
    if letter.delay_ms:
        message.where, message.due_ms = DELAYED, world.now_ms + letter.delay_ms
    world.messages.append(message)
    return None


def make_room(world: World, queue: Queue, message: Message) -> bool:
    """Whether the newcomer may come, after dropping the oldest where the queue says so."""
    size = world.size(message)
    if not moving.over_limit(world, queue, 1, size):
        return True
    widest = queue.spec.max_bytes
    if queue.spec.overflow == "reject" or (widest is not None and size > widest):
        return False
    victims = moving.victims_for(world, queue, world.place(message)[0])
    for count in range(len(victims) + 1):
        gone = sum(world.size(victim) for victim in victims[:count])
        if not moving.over_limit(world, queue, 1 - count, size - gone):
            for victim in victims[:count]:
                moving.drop(world, queue, victim, further=True)
            return True
    return False  # and no message was dropped needlessly


def find(world: World, session: int, consumer: int) -> Consumer | str:
    """The consumer of that session, or the code of a refusal."""
    if session not in world.sessions:
        return "unknown_session"
    found = world.consumers.get(consumer)
    if found is None or found.session != session:
        return "unknown_consumer"
    return found


def new_consumer(
    world: World, session: int, queue: Queue, tag: str, options: ConsumerOptions, implicit: bool
) -> Consumer:
    """A consumer with an unused number."""
    found = Consumer(
        world.number("consumer"),
        session,
        queue.name,
        tag,
        implicit,
        prefetch=limits.HELD_BY_GET if implicit else options.prefetch,
        lock_ms=0,
        max_lock_ms=0,
        priority=0,
        explicit=False,
        credit=0,
        drains=False,
        nack_backoff=None,
        timeout_backoff=None,
    )
    if session:
        found.user = world.sessions[session].user
    world.consumers[found.number] = found
    return found


def subscribe(
    world: World, session: int, tag: str, queue_name: str, options: ConsumerOptions
) -> Answer:
    """Become a consumer, or the same one again."""
    if session not in world.sessions:
        return ("refused", "unknown_session")
    queue = world.queues.get(queue_name)
    if queue is None:
        return ("refused", "queue_not_found")
    owner = world.sessions[session]
    mine = [c for c in world.of_session(owner) if not c.implicit]
    same = [c for c in mine if c.tag == tag and c.queue == queue_name]
    if same:
        consumer = same[0]
        world.renew_last(consumer)
    else:
        consumer = new_consumer(world, owner.number, queue, tag, options, implicit=False)
        consumer.explicit = options.pull
    world.note_use(session, "consuming")
    world.used(queue)
    consumer.cancelled = False
    consumer.grace_held_ms = 0
    spoke(consumer)
    consumer.prefetch = options.prefetch
    consumer.lock_ms = options.lock_ms or queue.spec.lock_ms
    consumer.max_lock_ms = options.max_lock_ms or queue.spec.max_lock_ms
    consumer.renewals = options.renewals or 0
    if consumer.renewals:
        in_all_ms = consumer.lock_ms + consumer.renewals * consumer.lock_ms
        consumer.max_lock_ms = min(consumer.max_lock_ms, in_all_ms)
    consumer.priority = options.priority
    if consumer.explicit != options.pull:
        consumer.credit = 0
    consumer.explicit = options.pull
    consumer.nack_backoff = options.nack_backoff
    consumer.timeout_backoff = options.timeout_backoff
    consumer.label = options.label or ""
    moving.reseat(world, queue)
    active = not world.is_single_active(queue) or queue.active == consumer.number
    return (
        "subscribed",
        consumer.number,
        queue.number,
        consumer.lock_ms,
        consumer.prefetch,
        active,
    )


def cancel(world: World, session: int, number: int, unopened: list[int]) -> Answer:
    """Get nothing more; unopened ones are released, uncounted."""
    consumer = find(world, session, number)
    if isinstance(consumer, str):
        return ("refused", consumer)
    for token in unopened:
        message = world.holder_of(number, token)
        if message is not None:
            if moving.give_back(world, message, moving.RELEASED) == "dead":
                moving.remember_taken(consumer, token, "dead")  # its ttl had passed
            avoid(world, message, consumer, sure=False)
            forget_lock_of(message)
    consumer.cancelled = True
    consumer.grace_held_ms = 0
    queue = world.queues[consumer.queue]
    world.used(queue)
    moving.drop_if_done(world, consumer)
    moving.reseat(world, queue)
    return ("done",)


def forget_lock_of(message: Message) -> None:
    """Given back by its own holder's command: no late settlement reaches it."""
    message.late_ok = False


def avoid(world: World, message: Message, consumer: Consumer, *, sure: bool) -> None:
    """Not to the consumer that released it, for 1 s."""
    if message in world.messages and message.where in (READY, DELAYED):
        message.avoid = consumer.number
        message.avoid_until_ms = world.now_ms + limits.RELEASE_AVOID_MS
        message.avoid_sure = sure


def credit(world: World, command: commands.Credit) -> Answer:
    """Set the explicit credit, or the prefetch of a consumer without; by the program, it clears."""
    consumer = find(world, command.session, command.consumer)
    if isinstance(consumer, str):
        return ("refused", consumer)
    if consumer.explicit:
        consumer.credit, consumer.drains = command.credit, command.drain
    elif consumer.implicit or command.drain or not command.credit:
        return ("refused", "invalid")
    else:
        consumer.prefetch = command.credit
    if not command.automatic:
        spoke(consumer)
        moving.reseat(world, world.queues[consumer.queue])
    return ("credited", consumer.number, command.drain)


def spoke(consumer: Consumer) -> None:
    """Clear the suspicion and free the places of lost messages: a command of the program came."""
    consumer.suspicion, consumer.running = "none", 0


def alive(world: World, session: int, number: int, lost: int | None) -> Answer:
    """The program speaks; or, with `lost`, asks for more while so many lost ones are handled."""
    consumer = find(world, session, number)
    if isinstance(consumer, str):
        return ("refused", consumer)
    if lost is None:
        spoke(consumer)
    elif consumer.suspicion == "none":
        consumer.running = min(consumer.running, lost)  # else a command has freed them since
    else:
        consumer.running = lost
        ordered = world.queues[consumer.queue].spec.ordering in ("key", "single_active")
        free = len(world.held_by(consumer)) + lost < consumer.prefetch
        if lost == 0 or (free and not ordered):
            consumer.suspicion = "none"
    moving.reseat(world, world.queues[consumer.queue])
    return ("done",)


def get(world: World, session: int, queue_name: str, count: int, lock_ms: int | None) -> Answer:
    """Messages now, to the session's implicit consumer."""
    if session not in world.sessions:
        return ("refused", "unknown_session")
    queue = world.queues.get(queue_name)
    if queue is None:
        return ("refused", "queue_not_found")
    single = world.is_single_active(queue)
    others = [c for c in world.consumers_of(queue_name) if not c.implicit and not c.cancelled]
    if single and others:
        return ("refused", "subscribed")
    owner = world.sessions[session]
    mine = [c for c in world.of_session(owner) if c.implicit and c.queue == queue_name]
    consumer = (
        mine[0]
        if mine
        else new_consumer(world, owner.number, queue, "", ConsumerOptions(), implicit=True)
    )
    consumer.lock_ms = lock_ms or queue.spec.lock_ms
    consumer.max_lock_ms = queue.spec.max_lock_ms
    world.note_use(session, "consuming")
    world.used(queue)
    first = consumer.next_token
    if not can_get(world, owner, queue, consumer):
        count = 0
    got = 0
    while got < count:
        found = next_for(world, queue, consumer)
        if found is None:
            break
        hand(world, found, consumer, consumer.lock_ms)
        world.got.add((consumer.number, found.token))
        got += 1
    moving.reseat(world, queue)
    return ("got", consumer.number, first, got)


def can_get(world: World, owner: Session, queue: Queue, consumer: Consumer) -> bool:
    """Whether a get hands anything out now."""
    if queue.paused or not owner.attached[0] or owner.disconnected:
        return False
    if world.is_single_active(queue):
        others = [c for c in world.consumers_of(queue.name) if c is not consumer]
        return not any(world.held_by(c) for c in others)
    return True


def next_for(
    world: World, queue: Queue, consumer: Consumer, *, runs: bool = False
) -> Message | None:
    """The next message that this consumer may have; expired ones on the way expire."""
    for message in world.in_queue(queue.name, READY):
        if world.is_blocked(message, consumer.number if runs else 0):
            continue
        may_be_avoided = world.may_be_avoided(message, consumer)
        if may_be_avoided and message.message_id in world.survivors:
            continue  # a consumer that avoids a message does not see its expiry: a tick does
        if world.has_surely_expired(message):
            moving.expire(world, message)
            continue
        if world.is_avoided(message, consumer) and message.avoid_sure:
            continue
        # The second may be over before a tick says so: then either is right.
        if may_be_avoided and message.message_id not in world.handed:
            continue
        return message
    return None


def settle(world: World, command: Any, texts: dict[str, str | None]) -> Answer:
    """Apply a verb to token ranges; return a receipt per token."""
    if command.session not in world.sessions:
        return ("refused", "unknown_session")
    world.note_use(command.session, "writing")
    tokens = tokens_of(command)
    consumer = world.consumers.get(command.consumer)
    asker = world.sessions[command.session]
    owner = world.sessions.get(consumer.session) if consumer is not None else None
    if consumer is None or owner is None or owner.user != asker.user:
        return ("receipt", command.consumer, [(t, "unknown_consumer", False) for t in tokens])
    # Another session of the same user may settle what it has the handles of: it says nothing of the
    # consumer's handler, and it is not the last holder.
    own = consumer.session == command.session
    if command.handles:
        if len(command.handles) != len(tokens):
            return ("refused", "invalid")
        if list(command.handles) != [handle(owner.handle_key, consumer.number, t) for t in tokens]:
            return ("refused", "forbidden")
    elif not own and owner.user:
        return ("refused", "forbidden")
    if own and not command.automatic:
        spoke(consumer)
    answer = settle_each(world, consumer, command, texts, own=own)
    if answer[0] == "receipt":
        if own:
            mark = min([command.resolved_below, *tokens])  # it asks about those itself
            consumer.resolved_below = max(consumer.resolved_below, mark)
        consumer.taken = {t: b for t, b in consumer.taken.items() if t >= consumer.resolved_below}
        moving.drop_if_done(world, consumer)
    moving.reseat(world, world.queues[consumer.queue])
    return answer


def tokens_of(command: Any) -> list[int]:
    """The tokens that a settlement names."""
    return [t for first, last in command.ranges for t in range(first, last + 1)]


def settle_each(
    world: World, consumer: Consumer, command: Any, texts: dict[str, str | None], *, own: bool
) -> Answer:
    """Settle tokens that the command may settle, one by one."""
    queue = world.queues[consumer.queue]
    verb = ("ack", "nack", "release", "terminate")[command.verb]
    if verb == "terminate" and queue.spec.dead_letter is None:
        return ("refused", "no_dead_letter_queue")
    statuses = []
    for token in tokens_of(command):
        status, late = settle_one(world, consumer, token, verb, command.delay_ms, texts, own=own)
        statuses.append((token, status, late))
    return ("receipt", consumer.number, statuses)


def handle(key: bytes, consumer: int, token: int) -> bytes:
    """The handle of a delivery, which proves in another session that it was seen."""
    return hmac.new(key, struct.pack("<QQ", consumer, token), hashlib.sha256).digest()[:16]


def settle_one(
    world: World,
    consumer: Consumer,
    token: int,
    verb: str,
    delay_ms: int | None,
    texts: dict[str, str | None],
    *,
    own: bool,
) -> tuple[str, bool]:
    """(status, late) of one token."""
    if token < consumer.resolved_below or token >= consumer.next_token:
        return ("lock_lost", False)
    message = world.holder_of(consumer.number, token)
    if message is not None:
        return (settle_held(world, consumer, message, verb, delay_ms, texts), False)
    if token not in consumer.taken:
        return ("already_settled", False)
    if consumer.taken[token] == "dead":
        return ("dead_lettered", False)
    waiting = last_held(world, consumer, token)
    if own and verb in ("ack", "terminate") and waiting is not None:
        finish(world, consumer, waiting, verb, texts)
        world.count(consumer.queue, "late_acks")  # late terminates too
        del consumer.taken[token]
        moving.bound_taken(consumer)
        return ("ok", True)
    return ("lock_lost", False)


def last_held(world: World, consumer: Consumer, token: int) -> Message | None:
    """The message that was taken from this token and stands where it was put then."""
    for message in world.in_queue(consumer.queue, READY, DELAYED):
        if message.late_ok and (message.consumer, message.token) == (consumer.number, token):
            return message
    return None


def settle_held(
    world: World,
    consumer: Consumer,
    message: Message,
    verb: str,
    delay_ms: int | None,
    texts: dict[str, str | None],
) -> str:
    """The verb on a message that is locked under the token; the status."""
    token = message.token
    if verb in ("ack", "terminate"):
        finish(world, consumer, message, verb, texts)
        return "ok"
    cause = moving.NACK if verb == "nack" else moving.RELEASED
    became = moving.give_back(world, message, cause, delay_ms)
    message.late_ok = False
    if became == "dead":
        if not consumer.generation:  # the ack of a durable one names what it did not do itself
            moving.remember_taken(consumer, token, "dead")
        return "dead_lettered"
    if verb == "release":
        keyed = world.queues[consumer.queue].spec.ordering == "key"  # order comes first there
        avoid(world, message, consumer, sure=not consumer.cancelled and not keyed)
    return "ok"


def finish(
    world: World, consumer: Consumer, message: Message, verb: str, texts: dict[str, str | None]
) -> None:
    """The message is done: away, or to the dead-letter queue by the program's word."""
    if verb == "ack":
        world.count(consumer.queue, "acked")
        moving.remove(world, message)
        return
    world.count(consumer.queue, "terms")
    message.history.append((consumer.number, moving.TERMINATED, world.wall_ms))
    moving.dead_letter(world, message, "terminated", **texts)
