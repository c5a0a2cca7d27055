"""Everything that may be done in a run of the model: each draws what it needs, and does it.

Owns the list, by which Hypothesis and the seeded runs choose alike. Must not know what has to hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import fifo
from fifo.client.consuming.consumer import Consumer
from fifo.words.settlement import Verb
from tests.client.model.acting import GET_LOCK_S, Actor
from tests.client.model.heard import Letter
from tests.client.model.playing import QUEUES, SESSION_MS, Scene
from tests.client.model.sending import LARGE_BYTES
from tests.machine.model.generating import Chooser

BUSY = ("work", "small", "solo")
TAGS = (None, "same", "other")
PREFETCHES: tuple[int | Literal["auto"], ...] = (1, 3, 20, "auto", "auto")
PAUSES_S = (0.01, 0.05, 0.3, 1.0)
LONG_PAUSES_S = (1.5, 3.0, 6.0)
AWAY_S = SESSION_MS / 1000 + 6.0
"""Longer than a session lasts from the moment that its connections are missed."""
LOCKS_S = (1.0, 2.0)
ENDS = ("well", "error", "terminal", "cancelled")

LARGE_COUNT = 5
"""Messages that fill more than a window."""

PROGRAMS_MAX = 6
CONSUMERS_MAX = 4
LETTERS_MAX = 40


class Action(NamedTuple):
    """A thing to do: whether it can be done now, and doing it."""

    weight: int
    can: Callable[[Scene], object]
    do: Callable[[Scene, Chooser], None]


def _up(scene: Scene) -> list[Actor]:
    """The programs that can make a call."""
    return [actor for actor in scene.actors if actor.is_up and not actor.program.paused]


def _several_up(scene: Scene) -> bool:
    return len(_up(scene)) > 1


def _waiters(scene: Scene) -> list[Actor]:
    """Those whose calls can be cancelled: no thread can be."""
    return [actor for actor in _up(scene) if not actor.blocks]


def _consumers(scene: Scene) -> list[tuple[Actor, Consumer[fifo.Message]]]:
    return [(one, consumer) for one in _up(scene) for consumer in one.consumers]


def _idle(scene: Scene) -> list[tuple[Actor, Consumer[fifo.Message]]]:
    """Consumers that no task waits for."""
    return [
        (actor, one)
        for actor, one in _consumers(scene)
        if not actor.asking.get(one) and one.number is not None and not one.cancelled
    ]


def _letters(scene: Scene) -> list[Letter]:
    """The messages that programs have in hand, the newest last."""
    return [letter for one in _up(scene) for letter in one.letters[-LETTERS_MAX:]]


def _fresh(scene: Scene) -> list[Letter]:
    return [letter for letter in _letters(scene) if not letter.asked and not letter.in_block]


def _asked(scene: Scene) -> list[Letter]:
    return [letter for letter in _letters(scene) if letter.asked]


# Programs.


def publish(scene: Scene, choose: Chooser) -> None:
    """Publish one message, or a few at once beside each other."""
    actor, queue = choose.one(_up(scene)), choose.one(BUSY)
    for _ in range(choose.one((1, 1, 3))):
        actor.run(actor.publish(queue, choose.one((None, None, None, "d1", "d2"))))


def publish_large(scene: Scene, choose: Chooser) -> None:
    """Publish messages beside each other that are larger together than a window."""
    actor, queue = choose.one(_up(scene)), choose.one(BUSY)
    for _ in range(LARGE_COUNT):
        actor.run(actor.publish(queue, None, LARGE_BYTES))


def publish_many(scene: Scene, choose: Chooser) -> None:
    """A list of messages."""
    actor = choose.one(_up(scene))
    actor.run(actor.publish_many(choose.one(BUSY), choose.one((2, 4, 8))))


def publish_numbered(scene: Scene, choose: Chooser) -> None:
    """The last number of a named producer again, from any program; the next once that is stored."""
    actor = choose.one(_up(scene))
    numbered = [one for one in scene.heard.publishings if one.number is not None]
    last = max((one.number or 0 for one in numbered), default=1)
    is_stored = any(one.number == last and one.confirm is not None for one in numbered)
    number = last + 1 if is_stored and choose.chance(50) else last
    actor.run(actor.publish_numbered("numbered", "work", number))


def consume(scene: Scene, choose: Chooser) -> None:
    """A consumer; several of one program may ask for one tag."""
    actor, queue = choose.one(_up(scene)), choose.one(BUSY)
    if sum(not one.cancelled for one in actor.consumers) < CONSUMERS_MAX:
        tag, prefetch, lock_s = choose.one(TAGS), choose.one(PREFETCHES), choose.one(LOCKS_S)
        actor.run(actor.consume(queue, tag, prefetch, lock_s))


def consume_twice(scene: Scene, choose: Chooser) -> None:
    """Two consumers of a program that ask for one tag at once."""
    actor, queue = choose.one(_up(scene)), choose.one(BUSY)
    if sum(not one.cancelled for one in actor.consumers) < CONSUMERS_MAX - 1:
        for _ in range(2):
            actor.run(actor.consume(queue, "same", choose.one(PREFETCHES), choose.one(LOCKS_S)))


def take(scene: Scene, choose: Chooser) -> None:
    """The next message, or a few of them."""
    actor, consumer = choose.one(_consumers(scene))
    count = choose.one((1, 1, 2, 4))
    if actor.blocks:  # a thread that waits for another one's turn does so in real time
        count = 0 if actor.asking.get(consumer) else 1
    for _ in range(count):
        actor.run(actor.take(consumer, choose.one((0.5, 0.05, 1.5))))


def get(scene: Scene, choose: Chooser) -> None:
    """Messages without a consumer."""
    actor = choose.one(_up(scene))
    queue, count = choose.one(("work", "small", "dead")), choose.one((1, 3))
    wait_s = choose.one((0.0, 0.5))
    actor.run(actor.get(queue, count, wait_s, renew=choose.chance(50)))


def give_up(scene: Scene, choose: Chooser) -> None:
    """Get messages and wait no more: before they come, as they come, or while nothing does."""
    actor, queue = choose.one(_waiters(scene)), choose.one(("work", "small", "dead"))
    if choose.chance(50):
        actor.run(actor.publish(queue, None))
    actor.run(actor.give_up(queue, choose.one((1, 3)), choose.one((0.0005, 0.003, 0.02, 0.5))))


def outlast(scene: Scene, choose: Chooser) -> None:
    """Hold what is never renewed, cut off, until another program gets it: no word of a node says
    that its lock has ended."""
    holder, other, queue = _held(scene, choose, renew=False)
    other.run(other.get(queue, 1, GET_LOCK_S + 0.5, renew=choose.chance(50)))
    scene.log(f"{holder} is cut off")
    _cut_off(scene, holder, both=True)
    scene.pass_by(GET_LOCK_S + 0.2)
    _let_back(scene, holder)


def outlive(scene: Scene, choose: Chooser) -> None:
    """Hold by renewals alone what another program waits for, while the leader changes."""
    _, other, queue = _held(scene, choose, renew=True)
    scene.pass_by(GET_LOCK_S)
    other.run(other.get(queue, 1, 1.5, renew=choose.chance(50)))
    hit_leader(scene, choose)
    scene.pass_by(1.5)


def _held(scene: Scene, choose: Chooser, *, renew: bool) -> tuple[Actor, Actor, str]:
    """Have a program get a message that it has published; return it, another one, and the queue."""
    holder = choose.one(_up(scene))
    other = choose.one([one for one in _up(scene) if one is not holder])
    queue = choose.one(("small", "dead"))
    holder.run(holder.publish(queue, None))
    holder.run(holder.get(queue, 1, 0.5, renew=renew))
    scene.pass_by(0.3)
    return holder, other, queue


def cancel(scene: Scene, choose: Chooser) -> None:
    """Leave a consumer, whose messages in hand stay locked."""
    actor, consumer = choose.one(_consumers(scene))
    actor.run(actor.cancel(consumer))


def settle(scene: Scene, choose: Chooser) -> None:
    """Settle a message that is in hand."""
    _settle(choose.one(_fresh(scene)), choose)


def settle_again(scene: Scene, choose: Chooser) -> None:
    """Settle a message once more, in the same or another way."""
    _settle(choose.one(_asked(scene)), choose)


def settle_twice(scene: Scene, choose: Chooser) -> None:
    """Settle a message twice at once."""
    letter = choose.one(_fresh(scene))
    _settle(letter, choose)
    _settle(letter, choose)


def _settle(letter: Letter, choose: Chooser) -> None:
    verb = choose.one((Verb.ACK, Verb.ACK, Verb.NACK, Verb.RELEASE, Verb.TERMINATE))
    delay_s, wait = choose.one((None, 0.0, 0.3)), choose.chance(60)
    letter.actor.run(letter.actor.settle(letter, verb, delay_s, wait=wait))


def settle_elsewhere(scene: Scene, choose: Chooser) -> None:
    """Settle a message from another program, by its number and handle."""
    letter, actor = choose.one(_fresh(scene)), choose.one(_up(scene))
    actor.run(actor.settle_elsewhere(letter, choose.one((Verb.ACK, Verb.NACK, Verb.RELEASE))))


def let_go(scene: Scene, choose: Chooser) -> None:
    """Drop a consumer without leaving it."""
    actor, consumer = choose.one(_idle(scene))
    scene.log(f"{actor} drops {consumer.number}")
    actor.run(actor.let_go(consumer))


def reserve(scene: Scene, choose: Chooser) -> None:
    """Use a durable consumer that all programs share."""
    actor = choose.one(_up(scene))
    actor.run(actor.reserve(choose.one(("work", "small")), choose.one((1, 3))))


def renew(scene: Scene, choose: Chooser) -> None:
    """Renew a lock by the program's own word."""
    letter = choose.one(_letters(scene))
    letter.actor.run(letter.actor.renew(letter))


def process(scene: Scene, choose: Chooser) -> None:
    """Handle a message in a block."""
    letter = choose.one(_fresh(scene))
    seconds, end = choose.one((0.1, 0.0, 1.0, 4.0)), choose.one(ENDS)
    letter.actor.run(letter.actor.process(letter, seconds, end, cancels=choose.chance(30)))


# Queues.


def delete(scene: Scene, choose: Chooser) -> None:
    """Delete a queue."""
    actor, queue = choose.one(_up(scene)), choose.one(BUSY)
    actor.run(actor.delete(queue))


def declare(scene: Scene, choose: Chooser) -> None:
    """Declare a queue, maybe anew."""
    actor, queue = choose.one(_up(scene)), choose.one(BUSY)
    actor.run(actor.declare(QUEUES[queue]))


def declare_anew(scene: Scene, choose: Chooser) -> None:
    """Delete a queue and declare it at once."""
    actor, queue = choose.one(_up(scene)), choose.one(BUSY)

    async def both() -> None:
        await actor.delete(queue)
        await actor.declare(QUEUES[queue])

    actor.run(both())


def purge(scene: Scene, choose: Chooser) -> None:
    """Purge a queue."""
    actor = choose.one(_up(scene))
    actor.run(actor.purge(choose.one(BUSY)))


# Time and faults.


def wait(scene: Scene, choose: Chooser) -> None:
    """Pass some time."""
    scene.pass_by(choose.one(PAUSES_S))


def wait_long(scene: Scene, choose: Chooser) -> None:
    """Pass so much time that locks and calls run out."""
    scene.pass_by(choose.one(LONG_PAUSES_S))


def blip(scene: Scene, choose: Chooser) -> None:
    """Reset a program's connections: it resumes at once."""
    actor = choose.one(_up(scene))
    scene.log(f"the connections of {actor} are reset")
    for name in scene.world.hosts:
        scene.world.network.break_between(actor.name, name)


def cut_off(scene: Scene, choose: Chooser) -> None:
    """Cut a program off: from the cluster, or only what the cluster says to it."""
    actor = choose.one(_up(scene))
    both = choose.chance(50)
    scene.log(f"{actor} is cut off{'' if both else ', one way'}")
    _cut_off(scene, actor, both=both)


def _cut_off(scene: Scene, actor: Actor, *, both: bool) -> None:
    for name in scene.world.hosts:
        scene.world.network.cut(name, actor.name)
        if both:
            scene.world.network.cut(actor.name, name)


def _let_back(scene: Scene, actor: Actor) -> None:
    """Reset what was stalled, and let a program reach the cluster again."""
    for name in scene.world.hosts:
        scene.world.network.break_between(actor.name, name)
        for link in ((name, actor.name), (actor.name, name)):
            scene.world.network.cuts.pop(link, None)


def lose_answers(scene: Scene, choose: Chooser) -> None:
    """Have a program say something, and reset its connections with the answer on its way."""
    actor = choose.one(_up(scene))
    scene.log(f"the answers to {actor} are lost")
    _cut_off(scene, actor, both=False)
    fresh = [letter for letter in _fresh(scene) if letter.actor is actor]
    if fresh and choose.chance(60):
        _settle(choose.one(fresh), choose)
    else:
        actor.run(actor.publish(choose.one(BUSY), None))
    scene.pass_by(choose.one((0.03, 0.3)))
    _let_back(scene, actor)


def stay_away(scene: Scene, choose: Chooser) -> None:
    """Cut a program off until its session has ended."""
    actor = choose.one(_up(scene))
    scene.log(f"{actor} is away")
    _cut_off(scene, actor, both=True)
    scene.pass_by(AWAY_S)
    scene.heal()


def pause(scene: Scene, choose: Chooser) -> None:
    """Stop a program as SIGSTOP does."""
    actor = choose.one(_up(scene))
    scene.log(f"{actor} is paused")
    actor.program.pause()


def kill(scene: Scene, choose: Chooser) -> None:
    """End a program as SIGKILL does, and start another."""
    actor = choose.one(_up(scene))
    scene.log(f"{actor} is killed")
    scene.world.network.kill(actor.program, power=False)
    actor.program.die()
    scene.join(f"{actor.name}x")


def take_session(scene: Scene, choose: Chooser) -> None:
    """A second program with the session of the first."""
    actor = choose.one(_up(scene))
    scene.log(f"the session of {actor} is taken")
    scene.join(f"{actor.name}t", actor.session_id)


def hit_leader(scene: Scene, choose: Chooser) -> None:
    """Kill or pause the leader, cut it off from the other nodes, or hand its office over."""
    leader = scene.world.leader()
    if leader is None or leader.program is None:
        return
    how = choose.one(("pause", "kill", "power", "cut", "transfer"))
    scene.log(f"the leader {leader.name}: {how}")
    scene.is_faulty = how != "transfer"
    if how == "pause":
        leader.program.pause()
    elif how == "kill":
        leader.kill()
    elif how == "power":
        leader.lose_power(scene.world.rng)
    elif how == "transfer":
        leader.transfer()
    else:
        for name in scene.world.hosts:
            if name != leader.name:
                scene.world.network.cut(name, leader.name)
                scene.world.network.cut(leader.name, name)


def heal(scene: Scene, choose: Chooser) -> None:
    """End all faults."""
    scene.log("all faults end")
    scene.heal()


def _few_programs(scene: Scene) -> bool:
    return len(scene.actors) < PROGRAMS_MAX and bool(_up(scene))


def _is_whole(scene: Scene) -> bool:
    return not scene.is_faulty


ACTIONS: dict[str, Action] = {
    "publish": Action(10, _up, publish),
    "publish_large": Action(1, _up, publish_large),
    "publish_many": Action(4, _up, publish_many),
    "publish_numbered": Action(4, _up, publish_numbered),
    "consume": Action(6, _up, consume),
    "consume_twice": Action(2, _up, consume_twice),
    "take": Action(14, _consumers, take),
    "get": Action(3, _up, get),
    "give_up": Action(2, _waiters, give_up),
    "outlast": Action(3, _several_up, outlast),
    "outlive": Action(3, lambda scene: _several_up(scene) and _is_whole(scene), outlive),
    "cancel": Action(2, _consumers, cancel),
    "settle": Action(12, _fresh, settle),
    "settle_again": Action(4, _asked, settle_again),
    "settle_twice": Action(3, _fresh, settle_twice),
    "settle_elsewhere": Action(2, _fresh, settle_elsewhere),
    "let_go": Action(1, _idle, let_go),
    "reserve": Action(2, _up, reserve),
    "renew": Action(3, _letters, renew),
    "process": Action(5, _fresh, process),
    "delete": Action(1, _up, delete),
    "declare": Action(2, _up, declare),
    "declare_anew": Action(2, _up, declare_anew),
    "purge": Action(1, _up, purge),
    "wait": Action(10, lambda _: True, wait),
    "wait_long": Action(5, lambda _: True, wait_long),
    "blip": Action(4, _up, blip),
    "cut_off": Action(3, _up, cut_off),
    "lose_answers": Action(4, _up, lose_answers),
    "stay_away": Action(1, _up, stay_away),
    "pause": Action(2, _up, pause),
    "kill": Action(1, _few_programs, kill),
    "take_session": Action(1, _few_programs, take_session),
    "hit_leader": Action(3, _is_whole, hit_leader),
    "heal": Action(5, lambda _: True, heal),
}


def step(scene: Scene, choose: Chooser, name: str) -> None:
    """Do it, and let a moment pass."""
    ACTIONS[name].do(scene, choose)
    scene.pass_by(choose.one((0.0003, 0.002, 0.02, 0.1)))
