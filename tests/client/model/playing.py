"""A run of the model: a simulated cluster, programs on it, what is done, and the comparison.

Owns the order of a run: begin, steps, healing, rest, end. Must not know what a step may be
(`actions`), nor what has to hold (`promises`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import fifo
from fifo.client import limits
from fifo.words import bounds
from node.raft import RaftError
from node.server import NodeStopped
from tests.client.model.acting import Actor
from tests.client.model.heard import Heard
from tests.client.model.promises import Promises
from tests.client.model.truth import Truth
from tests.client.model.waiting import abandon_all
from tests.sim.plan import Plan
from tests.sim.world import World

START_S = 10.0
"""Longest wait for the first leader and the first clients."""

CALLS_S = 15.0
"""After healing, until no program waits for an answer: the longest call, and an election."""

REST_S = 8.0
"""After that, until nothing is on its way: longer than a lock, a renewal, and a settlement that
goes unanswered."""

DRAIN_S = 40.0
"""Until what is left has reached those who ask for it: several locks, and redelivery delays."""

LOOK_S = 0.05

SESSION_MS = 12_000
"""A session that is away for this long ends: still longer than every lock, and far less than the
five minutes of a real one, most of which would be idle."""

NODES = 3
PROGRAMS = ("c1", "c2", "c3")

QUEUES: dict[str, fifo.QueueSpec] = {
    "work": fifo.QueueSpec(
        "work", dead_letter="dead", max_deliveries=3, nack_backoff="fixed:300ms"
    ),
    "small": fifo.QueueSpec("small", max_length=5),
    "solo": fifo.QueueSpec("solo", ordering="single_active", lock=1),
    "dead": fifo.QueueSpec("dead"),
}
"""Three kinds: with a dead-letter queue, soon full and without one, with one active consumer."""


@contextmanager
def small_bounds() -> Iterator[None]:
    """End sessions after SESSION_MS, those that only wrote as well, and keep one idle consumer of
    `get`."""
    with (
        patch.object(bounds, "SESSION_TIMEOUT_MS", SESSION_MS),
        patch.object(bounds, "WRITING_SESSION_MS", SESSION_MS // 2),
        patch.object(limits, "GETS_IDLE_MAX", 1),
    ):
        yield


class Scene:
    """A run. `seed` decides the network, the clocks and the elections, not what is done.

    `blocking`: every second program has the blocking client.
    """

    def __init__(self, seed: int, *, blocking: bool = False) -> None:
        self.blocking = blocking
        self.world = World(Plan(seed, NODES, (), (), 3, ()))
        self.truth = Truth(lambda: self.world.loop.now)
        self.heard = Heard()
        self.promises = Promises(self.truth, self.heard, lambda: self.world.loop.now)
        self.world.on_first_applied = self.truth.applied
        self.numbers = itertools.count()
        self.lines: list[str] = []
        self.actors: list[Actor] = []
        self.is_faulty = False
        """Whether a node is not what it should be: then the others are left alone."""

    # --- what happens -----------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The world's time."""
        return self.world.loop.now

    def log(self, line: str) -> None:
        """Keep what happened, for the report of a failure."""
        self.lines.append(f"{self.now:9.4f} {line}")

    def begin(self) -> None:
        """A cluster with its queues, and the first programs."""
        for host in self.world.hosts.values():
            host.start()
        self.until(self.world.leader, START_S, "there is no leader at the start")
        for name in PROGRAMS:
            self.join(name)
        self.until(lambda: all(one.is_up for one in self.actors), START_S, "a program is not up")
        for spec in (QUEUES["dead"], QUEUES["work"], QUEUES["small"], QUEUES["solo"]):
            self.actors[0].run(self.actors[0].declare(spec))
            self.until(lambda name=spec.name: self.truth.life(name), START_S, "no queue")  # type: ignore[misc]  # mypy knows no default in a lambda
        for actor in self.actors:
            actor.run(actor.consume("work", None, 3, 1.0))
            actor.run(actor.publish_many("work", 3))
        self.pass_by(LOOK_S)

    def join(self, name: str, session: bytes | None = None) -> Actor:
        """Start a program more; under a longer name where another has this one."""
        while any(name == actor.name for actor in self.actors):
            name += "'"
        actor = Actor(self, name, len(self.actors), session)
        self.actors.append(actor)
        return actor

    def pass_by(self, seconds: float) -> None:
        """Pass this time, and look at all flags now and then."""
        until = self.now + seconds
        while self.now < until:
            self._run(min(LOOK_S, until - self.now))
            self.promises.flags()

    def until(self, true: Callable[[], object], seconds: float, what: str) -> None:
        """Pass time until something is so."""
        deadline = self.now + seconds
        while not true():
            assert self.now < deadline, f"{self.now:.3f} s: {what} ({seconds:g} s)"
            self.pass_by(LOOK_S)

    def _run(self, seconds: float) -> None:
        # Sleeps may be cut short by rounding: time has to advance all the same.
        self.world.loop.run_until_complete(asyncio.sleep(max(seconds, 1e-6)))

    # --- the end ----------------------------------------------------------------------------------

    def rest(self) -> None:
        """End every fault, wait until all is quiet, and compare everything."""
        self.log("all faults end")
        self.heal()
        self.until(self.world.leader, START_S, "there is no leader after healing")
        self.until(lambda: not self._waiting(), CALLS_S, "calls without an end")
        self.pass_by(REST_S)
        self.promises.published_at_rest()
        self.promises.settled_at_rest()
        self.promises.locks_at_rest()
        self.promises.gets_at_rest()
        self._get_once_more()
        for actor in self.actors:
            if actor.is_connected:
                living = [one for one in actor.consumers if not one.cancelled]
                self.promises.activity_at_rest(living)
        self._drain()
        self._leave()

    def _get_once_more(self) -> None:
        """Each get leaves the idle consumers of those before it."""
        actors = [actor for actor in self.actors if actor.is_connected]
        for queue in ("work", "small", "dead"):
            for actor in actors:
                actor.run(actor.get(queue, 1, 0.0, renew=True))
            self.until(lambda: not self._waiting(), CALLS_S, "calls without an end")
            self.pass_by(LOOK_S)
        self.promises.idle_gets(actors)

    def heal(self) -> None:
        """End every fault."""
        self.is_faulty = False
        self.world.network.heal()
        for host in self.world.hosts.values():
            if host.program is not None:
                host.program.resume()
            host.start()
        for actor in self.actors:
            actor.program.resume()

    def _waiting(self) -> list[str]:
        alive = [actor.name for actor in self.actors if actor.is_alive]
        return [what for what in self.heard.open_calls.values() if what.split()[0] in alive]

    def _drain(self) -> None:
        """Have programs ask until all that is in the queues has reached them."""
        for actor in self.actors:
            if actor.is_up:
                actor.drains = True
                actor.run(actor.settle_all())
                for consumer in actor.consumers:
                    if not consumer.cancelled:
                        actor.run(actor.drain(consumer))
        self.until(lambda: not self._undrained(), DRAIN_S, "a consumer is starved")
        for actor in self.actors:
            actor.drains = False
        self.until(lambda: not self._waiting(), CALLS_S, "calls without an end")
        self.promises.holds("what is asked for comes", not self._undrained(), "")
        self.promises.settled_at_rest()

    def _undrained(self) -> list[str]:
        """Queues that hold messages though a program asks for them."""
        asked = {
            consumer.queue
            for actor in self.actors
            if actor.is_up
            for consumer in actor.consumers
            if not consumer.cancelled and consumer.number is not None
        }
        found = []
        for name in asked:
            view = self.truth.machine.queue_overview(name)
            if view is not None and view["messages"]:
                found.append(name)
        return found

    def _leave(self) -> None:
        """Every program closes its client, which leaves nothing behind."""
        leaving = [actor for actor in self.actors if actor.is_up]
        for actor in leaving:
            actor.run(actor.close())
        self.until(lambda: not any(one.is_alive for one in leaving), CALLS_S, "a close has no end")
        for actor in leaving:
            gone = not self.truth.knows(actor.session_id)
            self.promises.holds("a closed client leaves nothing", gone, f"{actor}")

    def finish(self) -> None:
        """Nothing runs any more."""
        abandon_all()
        self.world.loop.finish()

    def report(self, error: BaseException) -> str:
        """Tell what was done and heard before it failed."""
        return "\n".join([*self.lines, "", f"{type(error).__name__}: {error}"])


@contextmanager
def played(seed: int, *, blocking: bool = False) -> Iterator[Scene]:
    """A scene from its beginning to its rest; a failure comes with what led to it."""
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    with small_bounds():
        scene = Scene(seed, blocking=blocking)
        try:
            scene.begin()
            yield scene
            scene.rest()
        except (AssertionError, NodeStopped, RaftError) as error:
            raise AssertionError(scene.report(error)) from error
        finally:
            scene.finish()
            logging.disable(logged)
