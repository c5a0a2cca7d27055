"""The next command: weighted, and drawn against the state that really exists.

Owns the weights and the shapes of arguments. The weights are those of rabbit_fifo's property suite:
publishing 20, settling 40, of which acks are most, the rest rare. Draws come through `Draw`, so
that one generator serves Hypothesis, which shrinks, and a plain seeded generator, which is quick.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from fifo.machine import commands
from fifo.words.actions import Action
from fifo.words.options import Kind, Option
from fifo.words.queue_options import QUEUE_OPTIONS
from tests.machine.model.acting import Acted
from tests.machine.model.comparing import Pair, Step
from tests.machine.model.records import LOCKED, READY, Consumer, Message, Session
from tests.machine.model.verbs import Letter, Post, Posts, handle
from tests.support.machine import place_of, sixteen

T = TypeVar("T")

QUEUES = ("q1", "q2", "dead", "deader")
BACKOFFS = (
    None,
    "fixed:0ms",
    "fixed:2s",
    "exponential:1s..60s*2",
    "exponential:500ms..10s*1.5",
    "table:1s,5s,30s",
    "exponential:1s..60s*5",
)
ADVANCES = (0, 0, 0, 1, 10, 250, 999, 1_000, 1_001, 5_000, 10_000, 30_000, 60_000, 300_000)


Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A spec so far, and the name of its queue. `tight` runs keep their queues small."""

    name: str
    tight: bool
    spec: Spec

    @property
    def works(self) -> bool:
        """Whether the queue is one that is worked off, not one of the dead-letter queues."""
        return self.name.startswith("q")


@dataclass(frozen=True, slots=True)
class Weight:
    """The percentage of specs that have an option, and its values; only `where` it makes sense."""

    option: str
    percent: int
    values: Sequence[Any]
    where: Callable[[Drawn], bool] = lambda _: True


WEIGHTS = (
    Weight(
        "ordering",
        100,
        ("none", "none", "single_active", "key", "single_active"),
        where=lambda drawn: drawn.works,
    ),
    Weight("ordering", 100, ("none", "none", "single_active"), where=lambda drawn: not drawn.works),
    Weight("priorities", 30, (True, False)),
    Weight("on_delay", 30, ("skip",)),
    Weight("dead_letter", 60, ("dead", "deader"), where=lambda drawn: drawn.works),
    Weight("dead_letter", 20, ("deader",), where=lambda drawn: drawn.name == "dead"),
    Weight("max_deliveries", 30, (1, 2, 3)),
    Weight("on_exhausted", 30, ("drop",), where=lambda drawn: "max_deliveries" in drawn.spec),
    Weight("count_timeouts", 20, (False,)),
    Weight("dead_letter_expired", 20, (False,)),
    Weight("max_length", 20, (2, 4, 7), where=lambda drawn: drawn.tight or drawn.works),
    Weight("max_bytes", 15, (20, 40), where=lambda drawn: drawn.tight or drawn.works),
    Weight("overflow", 50, ("drop_oldest",)),
    Weight("dead_letter_overflow", 50, (True,), where=lambda drawn: "overflow" in drawn.spec),
    Weight("lock_ms", 30, (1_000, 5_000, 60_000)),
    Weight("max_lock_ms", 15, (60_000, 60_001, 65_000, 120_000)),
    Weight("nack_backoff", 30, BACKOFFS),
    Weight("timeout_backoff", 30, BACKOFFS),
    Weight("ttl_ms", 15, (1_000, 30_000, 45_000), where=lambda drawn: not drawn.tight),
    Weight("disconnect_grace_ms", 25, (0, 1_000, 20_000)),
    Weight("expires_unused_ms", 10, (60_000, 1_000, 300_000)),
    Weight("dedup_window_ms", 50, (60_000, 1_000, 600_000)),
    Weight("dedup_max", 100, (2, 4, 100), where=lambda drawn: "dedup_window_ms" in drawn.spec),
)
"""Options whose values meet each other more often than by chance. The order is that of the draws:
another one is another run of every seed."""

UNWEIGHTED_PERCENT = 30


def samples(option: Option) -> Sequence[Any]:
    """A few values of an option, by its row: the bounds, and what lies near the lower one."""
    match option.kind:
        case Kind.FLAG:
            return (True, False)
        case Kind.CHOICE:
            return option.choices
        case Kind.QUEUE:
            return QUEUES
        case Kind.TEXT | Kind.SECRET:
            return ("a", "b")
        case Kind.BACKOFF:
            return BACKOFFS
        case Kind.DURATION | Kind.COUNT | Kind.SIZE:
            near = (option.low, option.low + 1, option.low + 4, option.high)
            return tuple(value for value in near if value <= option.high)


_NAMED = frozenset(weight.option for weight in WEIGHTS)

ALL_WEIGHTS = (
    *WEIGHTS,
    *[
        Weight(option.wire_name, UNWEIGHTED_PERCENT, samples(option))
        for option in QUEUE_OPTIONS
        if option.wire_name not in _NAMED
    ],
)
"""WEIGHTS, and every row of the table that has none: a new option is drawn too."""


class Draw(Protocol):
    """The source of choices."""

    def below(self, limit: int) -> int:
        """An integer from 0 up to, not including, `limit`."""


@dataclass
class Chooser:
    """Choices in the words of the generator."""

    draw: Draw

    def one(self, choices: Sequence[T]) -> T:
        """Choose an item; the first is the simplest."""
        return choices[self.draw.below(len(choices))]

    def chance(self, percent: int) -> bool:
        """True with this probability, in percent."""
        return self.draw.below(100) >= 100 - percent

    def some(self, choices: Sequence[T], percent: int = 50) -> list[T]:
        """A selection of the items, in their order."""
        return [choice for choice in choices if self.chance(percent)]


@dataclass
class Generator:
    """Draws the next entry for a pair."""

    pair: Pair
    choose: Chooser
    stamp_ms: int = 0
    numbers: dict[tuple[int, str], int] = field(default_factory=dict)
    bodies: int = 0
    tight: bool = False  # small dead-letter queues and no ttls; else it is the other way round

    def entry(self) -> list[Step]:
        """The commands of the next entry, most often one."""
        if self.choose.chance(25):
            self.stamp_ms += self.choose.one(ADVANCES)
        elif self.choose.chance(8):
            self.to_the_next_end()
        count = 1 if self.choose.chance(85) else 2 + self.choose.draw.below(3)
        steps: list[Step] = []
        for _ in range(count):
            steps.append(self.step())
            if isinstance(steps[-1], commands.RedriveStep | Acted):
                return steps[-1:]  # what it names is read from the machine as it stands
            if isinstance(steps[-1], commands.Credit):
                break  # it delivers before the next command runs: easier to follow at the end
        return steps

    def to_the_next_end(self) -> None:
        """Advance the clock to the millisecond of the next deadline, or to just before."""
        world = self.pair.world
        ends = [world.deadline_ms(m) for m in world.messages if m.where == LOCKED]
        ends += [m.expires_ms for m in world.messages if m.expires_ms is not None]
        ends += [self.pair.machine.next_due_ms() or 0]
        soon = sorted({end for end in ends if end > self.stamp_ms})[:3]
        if soon:
            self.stamp_ms = self.choose.one(soon) - (1 if self.choose.chance(10) else 0)

    def stamp(self) -> int:
        """The entry's stamp: a former leader's may lie behind."""
        return max(0, self.stamp_ms - 500) if self.choose.chance(3) else self.stamp_ms

    def step(self) -> Step:
        """A command of a kind that is applicable now."""
        if len(self.pair.world.messages) > 60:
            return self.choose.one((self.purge, self.ack_all))()
        return self.fenced(self.choose.one(self._weighted())())

    def fenced(self, step: Step) -> Step:
        """Stamp some commands with their connection, a few with an older one."""
        session = self.pair.world.sessions.get(getattr(step, "session", 0))
        if session is None or not hasattr(step, "fence") or not self.choose.chance(15):
            return step
        role = 1 if self.choose.chance(20) else 0
        epoch = max(session.epochs[role] - (1 if self.choose.chance(20) else 0), 1)
        found: Any = step
        return replace(found, fence=(role, epoch))  # type: ignore[no-any-return]  # the same kind

    def _weighted(self) -> list[Callable[[], Step]]:
        weights: tuple[tuple[Callable[[], Step], int], ...] = (
            (self.publish, 20),
            (self.publish_across, 4),
            (self.subscribe, 8),
            (self.settle, 30),
            (self.tick, 18),
            (self.attach, 8),
            (self.detach, 2),
            (self.disconnect, 4),
            (self.get, 4),
            (self.cancel, 3),
            (self.credit, 3),
            (self.alive, 3),
            (self.lead, 2),
            (self.update, 3),
            (self.notice_ack, 1),
            (self.end_session, 1),
            (self.declare, 3),
            (self.pause, 1),
            (self.resume, 2),
            (self.purge, 1),
            (self.delete, 1),
            (self.open_producer, 1),
            (self.move, 2),
            (self.durable, 7),
            (self.redrive, 4),
            (self.act, 5),
            (self.set_version, 1),
        )
        return [verb for verb, weight in weights for _ in range(weight)]

    # -- queues --

    def first_entries(self) -> list[list[Step]]:
        """The queues that a run starts with, a first session, and its first consumer.

        In which order one tick expires messages is open, and in a dead-letter queue that drops its
        oldest that decides what is left: so a run has either ttls or tight dead-letter queues.
        """
        self.tight = self.choose.chance(40)
        self._user = "" if self.tight else "u"  # a cluster without users, or one with
        entries: list[list[Step]] = [
            [commands.Declare("dead", self.spec_of("dead"))],
            [commands.Declare("q1", self.spec_of("q1"))],
            [commands.Declare("q2", self.spec_of("q2"))],
            [commands.Attach(sixteen("s0"), 0, sixteen("i0"), sixteen("k0s0"), self._user)],
        ]
        if self.choose.chance(30):
            # The machine keeps messages in blocks of 1024: this run starts near the end of one.
            count = self.choose.one((1_015, 1_020, 1_023))
            post = Post(1, 0, "q1", 0, [Letter(1 + n, b"") for n in range(count)])
            entries.append([post, commands.Purge("q1")])
        return [*entries, [self.subscribe()]]

    def spec_of(self, name: str) -> Spec:
        """A spec; dead letters go one way only, mostly."""
        spec: Spec = {}
        drawn = Drawn(name, self.tight, spec)
        for weight in ALL_WEIGHTS:
            if weight.where(drawn) and self._hit(weight.percent):
                one_value = len(weight.values) == 1
                spec[weight.option] = (
                    weight.values[0] if one_value else self.choose.one(weight.values)
                )
        if "dead_letter" not in spec:
            # What is refused without a dead-letter queue.
            spec.pop("dead_letter_overflow", None)
            if "max_deliveries" in spec:
                spec["on_exhausted"] = "drop"
        return spec

    def _hit(self, percent: int) -> bool:
        return percent == 100 or self.choose.chance(percent)

    def declare(self) -> Step:
        """A new queue, the same again, or a difference."""
        name = self.choose.one(QUEUES)
        there = self.pair.world.queues.get(name)
        if there is not None and self.choose.chance(50):
            spec = self.pair.machine.queue_overview(name)
            return commands.Declare(name, dict(spec["spec"]) if spec else {}, "v")
        return commands.Declare(name, self.spec_of(name), self.choose.one(("u", "v")))

    def update(self) -> Step:
        """A few changes to a live queue."""
        name = self.queue()
        spec = self.spec_of(name)
        for option in QUEUE_OPTIONS:
            if not option.changeable:
                spec.pop(option.wire_name, None)
        fields = self.choose.some(sorted(spec), 40)
        changes = {option: spec[option] for option in fields}
        if self.choose.chance(20):
            changes[self.choose.one(("max_length", "max_bytes", "ttl_ms", "dead_letter"))] = None
        return commands.UpdateQueue(name, changes, "v")

    def queue(self) -> str:
        """A queue's name, seldom a missing one."""
        there = sorted(self.pair.world.queues)
        if self.choose.chance(97) and there:
            return self.choose.one([*(n for n in there if n.startswith("q")), *there])
        return self.choose.one(QUEUES)

    def pause(self) -> Step:
        """Pause a queue."""
        return commands.PauseQueue(self.queue())

    def resume(self) -> Step:
        """Resume a paused queue."""
        paused = [n for n, q in sorted(self.pair.world.queues.items()) if q.paused]
        return commands.ResumeQueue(self.choose.one(paused) if paused else self.queue())

    def purge(self) -> Step:
        """Purge a queue of the messages that no consumer holds."""
        return commands.Purge(self.queue())

    def move(self) -> Step:
        """Some messages to another queue."""
        source, target = self.queue(), self.queue()
        return commands.Move(source, target, self.choose.one((1, 2, 10)))

    def redrive(self) -> Step:
        """Begin one, go on with one, seldom with another cursor, or cancel it."""
        choose, world = self.choose, self.pair.world
        running = [
            name
            for name, queue in sorted(world.queues.items())
            if queue.redrive is not None and queue.redrive.status in ("running", "paused")
        ]
        if not running or choose.chance(10):
            target = self.queue() if choose.chance(30) else None
            limit = choose.one((1, 3)) if choose.chance(30) else None
            rate = choose.one((1, 1_000)) if choose.chance(20) else None
            source = self.queue() if choose.chance(30) else choose.one(("dead", "deader"))
            return commands.Redrive(source, target, {}, limit, rate, not choose.chance(40))
        name = choose.one(running)
        if choose.chance(5):
            return commands.RedriveStop(name)
        found, until = self.pair.machine.redrive_candidates(name, choose.one((2, 10)))
        positions = choose.some([position for position, _ in found], 80)
        view = self.pair.machine.redrive_of(name)
        cursor = 0 if view is None or choose.chance(5) else view["cursor"]
        return commands.RedriveStep(name, cursor, until, tuple(positions))

    def act(self) -> Step:
        """An action on one message, seldom where it does not stand any more."""
        choose, world = self.choose, self.pair.world
        if not world.messages:
            return self.publish()
        held = [m for m in world.messages if m.where == LOCKED]
        message = choose.one(held if held and choose.chance(40) else world.messages)
        place = place_of(self.pair.machine, message.queue, message.message_id)
        position, consumer, token = place if place is not None else (0, 0, 0)
        if choose.chance(5):
            token = choose.one((0, token + 1))
            position += choose.one((0, 1))
        action = Action(choose.draw.below(len(Action)))
        texts = {"reason": "wrong", "description": "by hand"} if choose.chance(50) else {}
        command = commands.MessageAction(
            message.queue,
            int(action),
            message.message_id,
            position,
            consumer,
            token,
            target=self.queue() if action == Action.MOVE or choose.chance(20) else None,
            delay_ms=choose.one((1_000, 300, 20_000, 0)) if choose.chance(60) else None,
            **texts,  # type: ignore[arg-type]  # texts only
        )
        if action == Action.RESEND and choose.chance(60):
            body, key = self.body(), choose.one((b"", b"k1", b"k2", b"k" * 1_025))
            return Acted(command, True, body, key, b"h" * choose.draw.below(3))
        return Acted(command, True)

    def set_version(self) -> Step:
        """The version that all nodes know."""
        return commands.SetVersion(1)

    def delete(self) -> Step:
        """Delete a queue that no other queue names."""
        return commands.DeleteQueue(self.queue())

    # -- publishing --

    def publish(self) -> Step:
        """A few messages, numbered as a producer does; sometimes sent again, or too early."""
        return self.post(*self.producer())

    def publish_across(self) -> Step:
        """Publishes of one producer to a few queues in one command, perhaps twice to one."""
        session, producer = self.producer()
        posts = [self.post(session, producer) for _ in range(1 + self.choose.draw.below(3))]
        return Posts(session, [dense(post) for post in posts])

    def post(self, session: int, producer: int) -> Post:
        """The messages of a producer for one queue."""
        world, queue, choose = self.pair.world, self.queue(), self.choose
        owner = producer or (world.sessions[session].producer if session in world.sessions else 0)
        last = world.producers[owner].last.get(queue, 0) if owner in world.producers else 0
        previous, number = last, last + 1
        if choose.chance(10):
            previous = choose.draw.below(last + 1)
            number = previous + 1 + choose.draw.below(2)
        elif choose.chance(5):
            previous, number = last + 1, last + 2
        count = 1 + choose.draw.below(4)
        letters = []
        plain = choose.chance(40)
        for _ in range(count):
            letters.append(Letter(number, self.body()) if plain else self.letter(number))
            number += 1 + (choose.draw.below(3) if choose.chance(5) else 0)
        # Some as if sent again, for the queue that had the name then: this one or another.
        there = world.queues.get(queue)
        below = 0 if there is None or number % 8 else there.number + (number // 8) % 2
        return Post(session, producer, queue, previous, letters, queue_below=below)

    def producer(self) -> tuple[int, int]:
        """(session, named producer or 0)."""
        named = [p.number for p in self.pair.world.producers.values() if p.name]
        if named and self.choose.chance(15):
            return (0, self.choose.one(named))
        session = self.session()
        return (session.number if session else 99, 0)

    def body(self) -> bytes:
        """A body that no other message has, of changing length."""
        self.bodies += 1
        return b"%d" % self.bodies + b"." * self.choose.one((0, 1, 6))

    def letter(self, number: int) -> Letter:
        """A message with columns."""
        pick, chance = self.choose.one, self.choose.chance
        return Letter(
            number,
            self.body(),
            key=pick((b"", b"k1", b"k2", b"k1", b"k3")),
            headers=b"h" * self.choose.draw.below(3) if chance(20) else b"",
            priority=pick((4, 0, 9, 4)) if chance(50) else 4,
            delay_ms=pick((1, 1_000, 20_000)) if chance(15) else 0,
            ttl_ms=pick((500, 5_000, 31_000, 100_000)) if chance(20) and not self.tight else 0,
            dedup=pick((b"a", b"b", b"c", b"d")) if chance(35) else b"",
        )

    def open_producer(self) -> Step:
        """A named producer, found, made or forgotten."""
        name = self.choose.one(("p1", "p2"))
        return (
            commands.ForgetProducer(name)
            if self.choose.chance(20)
            else commands.OpenProducer(name, self.choose.one(("u", "v")))
        )

    # -- sessions --

    def session(self) -> Session | None:
        """An existing session."""
        there = list(self.pair.world.sessions.values())
        return self.choose.one(there) if there else None

    def attach(self) -> Step:
        """Open or resume; mostly a disconnected session, by its own client."""
        choose, world = self.choose, self.pair.world
        label = choose.one(("s0", "s1", "s2"))
        away = [s for s in world.sessions.values() if not s.attached[0] or s.disconnected]
        incarnation = sixteen("i0")
        if away and choose.chance(80):
            session = choose.one(away)
            label = session.session_id.decode().rstrip(".")
            incarnation = session.incarnation
        if choose.chance(5):
            incarnation = sixteen(choose.one(("i0", "i1")))
        role = 1 if choose.chance(20) else 0
        user = "v" if (label == "s2") != choose.chance(1) else self._user
        # Only the first attach of a session brings its key.
        key = sixteen(f"k{role}{label}")
        resume = choose.chance(30)
        return commands.Attach(
            sixteen(label), role, incarnation, key, user, "host:1", resume=resume
        )

    def detach(self) -> Step:
        """A connection closes, sometimes an old one."""
        session = self.session()
        if session is None:
            return self.attach()
        role = 0 if self.choose.chance(70) else 1
        epoch = session.epochs[role]
        if self.choose.chance(15):
            epoch = max(1, epoch - 1)
        return commands.Detach(session.number, role, max(1, epoch))

    def disconnect(self) -> Step:
        """Disconnect a silent session, with the deadline that its leader had granted."""
        session = self.session()
        if session is None:
            return self.attach()
        epochs = list(session.epochs)
        if self.choose.chance(10):
            epochs[0] = max(0, epochs[0] - 1)
        now_ms = self.pair.world.now_ms
        known = self.choose.some(self.pair.world.of_session(session), 30)
        floors = [(c.number, now_ms + self.choose.one((0, 1_000, 40_000))) for c in known]
        return commands.Disconnect(session.number, epochs[0], epochs[1], tuple(floors))

    def end_session(self) -> Step:
        """A client closes, the leader finds a session long gone, or an operator ends it."""
        session = self.session()
        if session is None:
            return self.attach()
        return commands.EndSession(session.number, self.choose.one((0, 0, 1, 2)))

    def lead(self) -> Step:
        """A new term."""
        return commands.Lead(self.pair.world.term + self.choose.one((1, 1, 1, 3, 0)))

    def notice_ack(self) -> Step:
        """The client's library has a notice."""
        session = self.session()
        if session is None:
            return self.attach()
        known = sorted(session.notices) or [1]
        return commands.NoticeAck(session.number, self.choose.one(known))

    # -- consumers --

    def subscribe(self) -> Step:
        """A new consumer, or one of those again with other options."""
        session = self.session()
        queue = self.queue()
        options = self.options()
        known = self.pair.world.queues.get(queue)
        if known is not None and options.get("lock_ms", 0) > known.spec.max_lock_ms:
            options["max_lock_ms"] = 300_000
        tag = self.choose.one(("a", "b"))
        if tag == "a":
            options["label"] = "mine"
        return commands.Subscribe(session.number if session else 1, tag, queue, options)

    def options(self) -> dict[str, Any]:
        """The options of a subscribe."""
        pick, chance = self.choose.one, self.choose.chance
        options: dict[str, Any] = {"prefetch": pick((1, 2, 3, 10))}
        if chance(30):
            options["lock_ms"] = pick((1_000, 10_000, 30_000, 300_000))
        if chance(20):
            options["max_lock_ms"] = pick((300_000, 310_000))
        if chance(30):
            options["priority"] = pick((1, 2, -1))
        if chance(15):
            options["pull"] = True
        if chance(25):
            options["renewals"] = pick((1, 3))
        for option in ("nack_backoff", "timeout_backoff"):
            if chance(20):
                options[option] = pick(BACKOFFS)
        return options

    def consumer(self, *, implicit: bool = True) -> Consumer | None:
        """An existing consumer."""
        there = [c for c in self.pair.world.consumers.values() if implicit or not c.implicit]
        there = [c for c in there if not c.generation]
        return self.choose.one(there) if there else None

    def cancel(self) -> Step:
        """An iterator is left; some of what it holds was never opened."""
        consumer = self.consumer(implicit=False)
        if consumer is None:
            return self.subscribe()
        held = [m.token for m in self.pair.world.held_by(consumer)]
        unopened = tuple((t, t) for t in self.choose.some(held))
        return commands.Cancel(consumer.session, consumer.number, unopened)

    def credit(self) -> Step:
        """Grant credit, or drain the unused rest; or set a prefetch."""
        there = [c for c in self.pair.world.consumers.values() if c.explicit]
        if self.choose.chance(30):
            there = []
        consumer = self.choose.one(there) if there else self.consumer()
        if consumer is None:
            return self.subscribe()
        amount = self.choose.one((1, 2, 5, 0))
        return commands.Credit(
            consumer.session,
            consumer.number,
            amount,
            drain=self.choose.chance(30),
            automatic=self.choose.chance(30),
        )

    def get(self) -> Step:
        """A few messages now."""
        session = self.session()
        lock_ms = self.choose.one((None, None, 1_000, 40_000))
        count = self.choose.one((1, 2, 5))
        return commands.Get(session.number if session else 1, self.queue(), count, lock_ms)

    def alive(self) -> Step:
        """The program speaks, or asks for more; mostly where it was suspected."""
        there = [c for c in self.pair.world.consumers.values() if not c.generation]
        suspected = [c for c in there if c.suspicion != "none"] or there
        if not suspected:
            return self.subscribe()
        consumer = self.choose.one(suspected)
        lost = self.choose.one((None, None, 0, 1, 1, 2, 5))
        return commands.Alive(consumer.session, consumer.number, lost)

    def durable(self) -> Step:
        """A durable consumer is opened, or goes on; sometimes as an older generation."""
        choose = self.choose
        there = [c for c in self.pair.world.consumers.values() if c.generation]
        if not there or choose.chance(20):
            options = {"lock_ms": choose.one((1_000, 30_000))} if choose.chance(30) else {}
            return commands.OpenDurable(self.queue(), choose.one(("d1", "d2")), options, "u")
        consumer = choose.one(there)
        generation = consumer.generation - (1 if choose.chance(5) else 0) or 1
        number, last = consumer.number, consumer.next_token
        session = self._any_session()
        verb = choose.draw.below(10)
        if verb < 5:
            count, max_bytes = choose.one((1, 2, 5)), choose.one((0, 0, 1, 7, 40))
            return commands.Reserve(number, generation, count, session, max_bytes)
        if verb == 5:
            first = 1 + choose.draw.below(last)
            max_bytes = choose.one((0, 0, 1, 7, 40))
            return commands.Fetch(number, generation, first, last + 1, session, max_bytes)
        if verb < 8:
            upto = choose.draw.below(last + 2)
            begin, answered = (
                choose.draw.below(last + 2) if choose.chance(20) else 0 for _ in range(2)
            )
            return commands.AckUpto(number, generation, upto, begin, answered)
        if verb == 8:
            return commands.RenewDurable(number, generation)
        return commands.Forget(number, generation)

    # -- settling --

    def settle(self) -> Step:
        """Settle what was really delivered; sometimes again, late, or never delivered."""
        choose, world = self.choose, self.pair.world
        held = [m for m in world.messages if m.where == LOCKED]
        if held and choose.chance(75):
            consumer = world.consumers[choose.one(held).consumer]
            tokens = choose.some([m.token for m in world.held_by(consumer)], 60)
        elif self.pair.delivered and choose.chance(90):
            one = choose.one(self.pair.delivered[-12:])
            there = world.consumers.get(one.consumer)
            if there is None:
                return commands.Settle(self._any_session(), one.consumer, 0, ((1, 2),))
            consumer, tokens = there, [one.token]
        else:
            found = self.consumer()
            if found is None:
                return self.publish()
            consumer, tokens = found, []
        if choose.chance(10) or not tokens:
            tokens = sorted({*tokens, 1 + choose.draw.below(consumer.next_token + 1)})
        return self._settlement(consumer, tokens)

    def _any_session(self) -> int:
        session = self.session()
        return session.number if session else 1

    def _settlement(self, consumer: Consumer, tokens: list[int]) -> Step:
        choose = self.choose
        verb = choose.one((0, 0, 0, 1, 1, 2, 3))
        delay_ms = (
            choose.one((0, 1_000, 300, 7_000)) if verb in (1, 2) and choose.chance(30) else None
        )
        texts: dict[str, Any] = {}
        if verb == 3 and choose.chance(50):
            texts = {"exception_type": "E"}
            for name in ("reason", "description", "exception_text", "stack"):
                texts[name] = f"{name} " * choose.one((1, 1, 200))
        world = self.pair.world
        own = consumer.session and not choose.chance(3)
        session = consumer.session if own else self._any_session()
        open_tokens = [m.token for m in world.held_by(consumer)] + sorted(consumer.taken)
        bound = min([consumer.next_token, *open_tokens])
        resolved = choose.one((0, 0, bound, 1 + choose.draw.below(bound)))
        if choose.chance(3):
            resolved = choose.draw.below(consumer.next_token + 1)
        return commands.Settle(
            session,
            consumer.number,
            verb,
            ranges_of(tokens),
            delay_ms,
            resolved_below=resolved,
            automatic=choose.chance(15),
            handles=() if own else self._handles(consumer, tokens),
            generation=self._generation(consumer),
            **texts,
        )

    def _generation(self, consumer: Consumer) -> int:
        """Of a durable consumer mostly its own; sometimes none, or an older one."""
        if not consumer.generation or self.choose.chance(10):
            return 0
        return max(consumer.generation - self.choose.chance(5), 1)

    def _handles(self, consumer: Consumer, tokens: list[int]) -> tuple[bytes, ...]:
        """The handles that came with these messages; none, one that is wrong, or one too few."""
        owner = self.pair.world.sessions.get(consumer.session)
        if owner is None or tokens[0] % 4 == 0:
            return ()
        right = [handle(owner.handle_key, consumer.number, token) for token in tokens]
        if tokens[0] % 4 == 1:
            right[-1] = handle(owner.handle_key, consumer.number, tokens[-1] + 1)
        return tuple(right[1:] if tokens[0] % 16 == 2 else right)

    def ack_all(self) -> Step:
        """Ack everything that some consumer holds."""
        held = [m for m in self.pair.world.messages if m.where == LOCKED]
        if not held:
            return self.purge()
        consumer = self.pair.world.consumers[self.choose.one(held).consumer]
        tokens = [m.token for m in self.pair.world.held_by(consumer)]
        if consumer.generation:
            return commands.AckUpto(consumer.number, consumer.generation, tokens[-1])
        return commands.Settle(consumer.session, consumer.number, 0, ranges_of(tokens))

    # -- time --

    def tick(self) -> Step:
        """Evaluate the locks that the leader finds expired; sometimes more, or exactly on time."""
        machine, choose = self.pair.machine, self.choose
        if choose.chance(50):
            self.to_the_next_end()
        named = []
        for number in sorted(self.pair.world.consumers):
            ranges, _ = machine.expired(number, self.stamp_ms)
            named += [(number, first, last) for first, last in ranges]
        if named and choose.chance(15):
            named = choose.some(named)
        if choose.chance(15):
            named += [(c, 1, n.next_token) for c, n in sorted(self.pair.world.consumers.items())]
        return commands.Tick(tuple(dict.fromkeys(named)))


def dense(post: Post) -> Post:
    """The same with numbers that ascend by one."""
    first = post.letters[0].number
    for place, letter in enumerate(post.letters):
        letter.number = first + place
    return post


def ranges_of(tokens: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Ascending tokens as inclusive ranges."""
    found: list[tuple[int, int]] = []
    for token in tokens:
        if found and found[-1][1] == token - 1:
            found[-1] = (found[-1][0], token)
        else:
            found.append((token, token))
    return tuple(found)


def waiting(pair: Pair, queue: str) -> list[Message]:
    """The ready messages of a queue, for a test's own questions."""
    return pair.world.in_queue(queue, READY)
