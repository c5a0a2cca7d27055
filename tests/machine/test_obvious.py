"""The machine against the slow, obvious model: random commands, acks drawn from real deliveries."""

from collections import Counter
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fifo.machine import Machine, commands, replies
from fifo.machine.effects import Activity, Deliver, SessionEnded
from fifo.machine.types import Verb
from tests.machine.obvious import Model, ModelConsumer, ModelQueue, ModelSession
from tests.support.machine import Bench, expect, messages_of, statuses

SEEN: Counter[str] = Counter()
"""Effects and statuses that the runs of this process came to."""

LABELS = ("ann", "bob", "cid")
QUEUES = ("plain", "strict", "keyed", "short", "dead")

SPECS: dict[str, dict[str, Any]] = {
    "plain": {
        "dead_letter": "dead",
        "max_deliveries": 3,
        "nack_backoff": "fixed:2s",
        "timeout_backoff": "fixed:3s",
        "lock_ms": 5_000,
    },
    "strict": {"ordering": "single_active", "lock_ms": 4_000, "dead_letter": "dead"},
    "keyed": {"ordering": "key", "lock_ms": 3_000, "ttl_ms": 60_000, "dead_letter": "dead"},
    "short": {"max_length": 5, "lock_ms": 5_000, "count_timeouts": False},
    "dead": {},
}

VERBS = {"ack": Verb.ACK, "nack": Verb.NACK, "release": Verb.RELEASE, "terminate": Verb.TERMINATE}


class MachineAgainstModel(RuleBasedStateMachine):
    """Every rule is one entry; what comes out is compared at once."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.model = Model()
        self.bodies = 0
        self.sessions: dict[str, int] = {}
        self.incarnations: dict[str, int] = {}
        self.tokens: list[tuple[int, int]] = []

    @initialize()
    def declare(self) -> None:
        for name in QUEUES:
            spec = SPECS[name]
            self.bench.declare(name, **spec)
            dead_letter = spec.get("dead_letter")
            self.model.queues[name] = ModelQueue(
                name,
                spec.get("ordering", "none"),
                dead_letter,
                spec.get("max_deliveries", 20 if dead_letter else None),
                spec.get("count_timeouts", True),
                2_000 if name == "plain" else 1_000,
                3_000 if name == "plain" else 0,
                spec.get("ttl_ms"),
                max_length=spec.get("max_length"),
            )

        for label in LABELS:
            self._open(label)
        for label, name in zip(LABELS * 2, (*QUEUES, "plain"), strict=True):
            self._subscribe(label, name, "x", 2, 0, None)

    def _open(self, label: str) -> ModelSession:
        self.step()
        reply = self.bench.attached(label, 0, f"{label}{self.incarnations.get(label, 0)}")
        self.sessions[label] = reply.session
        self.model.attach(reply.session, 0, taken=False)
        self.compare()
        return self.model.sessions[reply.session]

    # -- what came out --

    def compare(self) -> None:
        """Take the deliveries over into the model, and see that nothing was left."""
        for effect in self.bench.effects:
            SEEN[type(effect).__name__] += 1
            if isinstance(effect, Deliver):
                for message in messages_of(effect, self.bench.areas):
                    if effect.repeat:
                        self._compare_repeat(message.consumer, message.token, message.body)
                        continue
                    note = self.model.deliver(
                        message.consumer, message.token, message.body, effect.lock_ms
                    )
                    assert message.attempt == note.attempts
                    assert message.failures == note.failures
                    self.tokens.append((message.consumer, message.token))
            elif isinstance(effect, SessionEnded):
                assert self.model.sessions[effect.session].ended
            elif isinstance(effect, Activity):
                assert self.model.consumers[effect.consumer].queue == "strict"
        for name in QUEUES:
            assert self.bench.counts(name) == self.model.counts(name), name
            self._compare_idle(self.model.queues[name])

    def _compare_repeat(self, consumer: int, token: int, body: bytes) -> None:
        held = [n for n in self.model.held(consumer) if n.lock and n.lock.token == token]
        assert [note.body for note in held] == [body]

    def _compare_idle(self, queue: ModelQueue) -> None:
        """Nobody who could be served has room while something is there for him."""
        free = [
            consumer
            for consumer in self.model.consumers.values()
            if consumer.queue == queue.name and self.model.eligible(consumer)
        ]
        if queue.ordering == "single_active":
            if not free or any(note.lock for note in queue.notes):
                return
            active = self.bench.machine.state.queues[
                self.bench.machine.state.queue_names[queue.name]
            ].active
            assert active in [consumer.number for consumer in free], "nobody is active"
            free = [consumer for consumer in free if consumer.number == active]
        for consumer in free:
            room = consumer.prefetch - len(self.model.held(consumer.number))
            assert room <= 0 or not self.model.available(consumer), "something was left"

    def step(self) -> None:
        self.model.command += 1

    # -- rules --

    @rule(
        kind=st.sampled_from(
            ["attach"] * 3
            + ["disconnect", "resume"] * 2
            + ["detach", "lead", "cancel", "end", "pause", "purge"]
        ),
        label=st.sampled_from(LABELS),
        name=st.sampled_from(QUEUES),
        role=st.sampled_from((0, 0, 0, 1)),
        granted_ms=st.sampled_from((None, 2_000, 9_000)),
        data=st.data(),
    )
    def trouble(
        self,
        kind: str,
        label: str,
        name: str,
        role: int,
        granted_ms: int | None,
        data: st.DataObject,
    ) -> None:
        """What happens less often than publishing, handing out and settling."""
        if kind == "attach":
            self._attach(label, role, other=data.draw(st.booleans()))
        elif kind == "detach":
            self._detach(label, role)
        elif kind == "disconnect":
            self._disconnect(label, granted_ms)
        elif kind == "lead":
            self._lead()
        elif kind == "end":
            self._end_session(label)
        elif kind in ("pause", "resume"):
            self._pause(name, paused=kind == "pause")
        elif kind == "purge":
            self._purge(name)
        elif self.consumers():
            self._cancel(data)

    @rule(label=st.sampled_from(LABELS), name=st.sampled_from(QUEUES), count=st.integers(1, 6))
    def back_to_work(self, label: str, name: str, count: int) -> None:
        """The program is there again, takes and gets something: most of the time it works."""
        session = self.live(label)
        if not self.model.present(session.number):
            self._attach(label, 0, other=False)
        self._subscribe(label, name, "x", 5, 0, None)
        plain = {"key": b"", "priority": 4, "delay": 0, "ttl": 0}
        self._publish(label, name, [dict(plain) for _ in range(count)])

    def _attach(self, label: str, role: int, *, other: bool) -> None:
        self.step()
        known = label in self.sessions
        if other and known:
            self.incarnations[label] = self.incarnations.get(label, 0) + 1
        incarnation = f"{label}{self.incarnations.get(label, 0)}"
        reply = self.bench.attached(label, role, incarnation)
        assert reply.resumed == known
        if known:
            assert reply.session == self.sessions[label]
        self.sessions[label] = reply.session
        self.model.attach(reply.session, role, taken=other and known)
        self.compare()

    def live(self, label: str) -> ModelSession:
        """The session of this label; opened where it has none."""
        number = self.sessions.get(label)
        return self._open(label) if number is None else self.model.sessions[number]

    def _detach(self, label: str, role: int) -> None:
        session = self.live(label)
        self.step()
        if not self.bench.machine.state.sessions[session.number].epochs[role]:
            return
        self.bench.detach(session.number, role)
        if role == 0:
            session.data = False
        else:
            session.control = False
        self.compare()

    def _disconnect(self, label: str, granted_ms: int | None) -> None:
        session = self.live(label)
        self.step()
        floors = []
        for consumer in self.model.consumers.values():
            if consumer.session == session.number and not consumer.gone and granted_ms:
                floors.append((consumer.number, self.model.now + granted_ms))
                self.model.grant(consumer, self.model.now + granted_ms)
        self.bench.disconnect(session.number, tuple(floors))
        self.model.set_disconnected(session)
        self.compare()

    def _end_session(self, label: str) -> None:
        session = self.live(label)
        self.step()
        reply = self.bench.do(commands.EndSession(session.number, 0))
        assert reply == replies.Done()
        self.model.end(session, "release")
        del self.sessions[label]
        self.compare()

    def _lead(self) -> None:
        self.step()
        term = self.bench.machine.state.term + 1
        expect(replies.Led, self.bench.do(commands.Lead(term)))
        self.model.lead()
        if not self.sessions_alive():
            self.model.resume_by_ms = None
        self.compare()

    def sessions_alive(self) -> bool:
        return any(not session.ended for session in self.model.sessions.values())

    @rule(
        label=st.sampled_from(LABELS),
        name=st.sampled_from(QUEUES),
        tag=st.sampled_from(("x", "y")),
        prefetch=st.sampled_from((1, 2, 5)),
        priority=st.sampled_from((0, 0, 1)),
        lock_ms=st.sampled_from((None, 2_000)),
    )
    def subscribe(
        self, label: str, name: str, tag: str, prefetch: int, priority: int, lock_ms: int | None
    ) -> None:
        self._subscribe(label, name, tag, prefetch, priority, lock_ms)

    def _subscribe(
        self, label: str, name: str, tag: str, prefetch: int, priority: int, lock_ms: int | None
    ) -> None:
        session = self.live(label)
        self.step()
        reply = self.bench.subscribe(
            session.number, name, tag, prefetch=prefetch, priority=priority, lock_ms=lock_ms
        )
        consumer = self.model.consumers.get(reply.consumer)
        if consumer is None:
            consumer = self._add(reply.consumer, session, name, prefetch, reply.lock_ms)
        consumer.prefetch, consumer.lock_ms = prefetch, reply.lock_ms
        consumer.cancelled = consumer.suspected = consumer.suspected_away = False
        self.compare()

    def _add(
        self, number: int, session: ModelSession, name: str, prefetch: int, lock_ms: int
    ) -> ModelConsumer:
        consumer = ModelConsumer(number, session.number, name, prefetch, lock_ms, 1_800_000)
        self.model.consumers[number] = consumer
        return consumer

    def consumers(self) -> list[ModelConsumer]:
        return [
            consumer
            for consumer in self.model.consumers.values()
            if not consumer.gone and not self.model.sessions[consumer.session].ended
        ]

    def _cancel(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers()))
        if consumer.implicit:
            return
        self.step()
        held = [note for note in self.model.held(consumer.number) if note.lock is not None]
        tokens = [note.lock.token for note in held if note.lock is not None]
        unopened = tokens[data.draw(st.integers(0, len(tokens))) :]
        command = commands.Cancel(
            consumer.session, consumer.number, tuple((token, token) for token in unopened)
        )
        assert self.bench.do(command) == replies.Done()
        consumer.cancelled = True
        for note in held:
            if note.lock is not None and note.lock.token in unopened:
                queue = self.model.queues[consumer.queue]
                self.model.give_back(queue, note, "release", own=True)
        self._sweep(consumer)
        self.compare()

    def _sweep(self, consumer: ModelConsumer) -> None:
        """A cancelled consumer is gone when all is settled and resolved: here without tokens."""
        if consumer.cancelled and consumer.number not in self.bench.machine.state.consumers:
            assert not self.model.held(consumer.number)
            consumer.gone = True

    @rule(
        label=st.sampled_from(LABELS),
        name=st.sampled_from(QUEUES),
        items=st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from((b"", b"", b"k1", b"k2")),
                    "priority": st.sampled_from((4, 4, 4, 0, 9)),
                    "delay": st.sampled_from((0, 0, 0, 1_500, 6_000)),
                    "ttl": st.sampled_from((0, 0, 0, 2_500, 8_000)),
                }
            ),
            min_size=1,
            max_size=6,
        ),
    )
    def publish(self, label: str, name: str, items: list[dict[str, Any]]) -> None:
        self._publish(label, name, items)

    @rule(label=st.sampled_from(LABELS), name=st.sampled_from(QUEUES), count=st.integers(1, 6))
    def publish_plain(self, label: str, name: str, count: int) -> None:
        plain = {"key": b"", "priority": 4, "delay": 0, "ttl": 0}
        self._publish(label, name, [dict(plain) for _ in range(count)])

    @rule(label=st.sampled_from(LABELS), count=st.integers(1, 6), data=st.data())
    def publish_keyed(self, label: str, count: int, data: st.DataObject) -> None:
        plain = {"priority": 4, "delay": 0, "ttl": 0}
        keys = data.draw(st.lists(st.sampled_from((b"k", b"l")), min_size=count, max_size=count))
        self._publish(label, "keyed", [{**plain, "key": key} for key in keys])

    def _publish(self, label: str, name: str, items: list[dict[str, Any]]) -> None:
        session = self.live(label)
        self.step()
        for item in items:
            self.bodies += 1
            item["body"] = b"m%d" % self.bodies
        reply = expect(
            replies.Published,
            self.bench.publish(
                session.number,
                name,
                *(item["body"] for item in items),
                keys=[item["key"] for item in items],
                priorities=[item["priority"] for item in items],
                delays=[item["delay"] for item in items],
                ttls=[item["ttl"] for item in items],
            ),
        )
        assert reply.stored == self.model.publish(name, items)
        assert (reply.refused is None) == (reply.stored == len(items))
        self.compare()

    @rule(label=st.sampled_from(LABELS), name=st.sampled_from(QUEUES), count=st.integers(1, 4))
    def get(self, label: str, name: str, count: int) -> None:
        session = self.live(label)
        self.step()
        reply = self.bench.do(commands.Get(session.number, name, count))
        if isinstance(reply, replies.Refused):
            assert name == "strict"
            assert reply.code == "subscribed"
            return
        got = expect(replies.Got, reply)
        consumer = self.model.consumers.get(got.consumer)
        if consumer is None:
            lock_ms = SPECS[name].get("lock_ms", 30_000)
            consumer = self._add(got.consumer, session, name, 65_535, lock_ms)
            consumer.implicit = True
        queue = self.model.queues[name]
        others = any(n.lock and n.lock.consumer != got.consumer for n in queue.notes)
        free = 0 if name == "strict" and others else len(self.model.available(consumer))
        if not self.model.present(session.number):
            free = 0
        if queue.ordering != "key":
            assert got.count == min(count, free), (got, count, free)
        self.compare()

    @precondition(lambda self: self.tokens)
    @rule(
        data=st.data(),
        verb=st.sampled_from(("ack", "ack", "ack", "nack", "nack", "release", "terminate")),
        delay_ms=st.sampled_from((None, None, 0, 4_000)),
        more=st.integers(0, 3),
    )
    def settle(self, data: st.DataObject, verb: str, delay_ms: int | None, more: int) -> None:
        self._settle(data, verb, delay_ms, more)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), verb=st.sampled_from(tuple(VERBS)))
    def settle_one(self, data: st.DataObject, verb: str) -> None:
        self._settle(data, verb, None, 0)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def ack_some(self, data: st.DataObject) -> None:
        self._settle(data, "ack", None, data.draw(st.integers(0, 3)))

    def _settle(self, data: st.DataObject, verb: str, delay_ms: int | None, more: int) -> None:
        number, first = data.draw(st.sampled_from(self.tokens[-40:]))
        consumer = self.model.consumers[number]
        session = self.model.sessions[consumer.session]
        if session.ended:
            return
        self.step()
        last = first + more
        delay = delay_ms if verb in ("nack", "release") else None
        reply = self.bench.settle(
            number, VERBS[verb], (first, last), session=session.number, delay_ms=delay
        )
        if isinstance(reply, replies.Refused):
            assert verb == "terminate"
            assert self.model.queues[consumer.queue].dead_letter is None
            self.model.spoke(number)
            self.compare()
            return
        expected = [
            self.model.settle(number, token, verb, delay) for token in range(first, last + 1)
        ]
        assert statuses(reply) == expected
        SEEN.update(expected)
        self.model.spoke(number)
        self._sweep(consumer)
        self.compare()

    @precondition(lambda self: self.consumers())
    @rule(data=st.data())
    def alive(self, data: st.DataObject) -> None:
        consumer = data.draw(st.sampled_from(self.consumers()))
        self.step()
        assert self.bench.do(commands.Alive(consumer.session, consumer.number)) == replies.Done()
        self.model.spoke(consumer.number)
        self.compare()

    def _pause(self, name: str, *, paused: bool) -> None:
        self.step()
        command = commands.PauseQueue(name) if paused else commands.ResumeQueue(name)
        assert self.bench.do(command) == replies.Done()
        self.model.queues[name].paused = paused
        self.compare()

    def _purge(self, name: str) -> None:
        self.step()
        queue = self.model.queues[name]
        kept = [note for note in queue.notes if note.lock is not None]
        reply = self.bench.do(commands.Purge(name))
        assert reply == replies.Purged(len(queue.notes) - len(kept), more=False)
        queue.notes = kept
        self.compare()

    @rule(milliseconds=st.sampled_from((1, 900, 1_000, 2_000, 3_000)))
    def tick_a_little(self, milliseconds: int) -> None:
        self._tick(milliseconds)

    @rule(milliseconds=st.sampled_from((5_000, 5_000, 11_000, 70_000, 310_000)))
    def tick_a_lot(self, milliseconds: int) -> None:
        self._tick(milliseconds)

    def _tick(self, milliseconds: int) -> None:
        self.step()
        self.bench.advance(milliseconds)
        self.model.now = self.bench.now
        named = [
            (consumer, token)
            for consumer in dict.fromkeys(
                number for _, number in self.bench.machine.lock_consumers()
            )
            for first, last in self.bench.machine.expired(consumer, self.bench.now)[0]
            for token in range(first, last + 1)
        ]
        self.bench.tick()
        self.model.tick(named)
        for label, number in list(self.sessions.items()):
            if self.model.sessions[number].ended:
                del self.sessions[label]
        self.compare()

    @invariant()
    def a_restored_snapshot_is_the_same(self) -> None:
        machine = self.bench.machine
        if self.model.command % 7 == 0:
            data = machine.snapshot()
            self.bench.machine = Machine.restore(data)
            assert self.bench.machine.snapshot() == data


def test_the_machine_does_what_the_model_does() -> None:
    SEEN.clear()
    chosen = settings(
        max_examples=60,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    run_state_machine_as_test(MachineAgainstModel, settings=chosen)
    # A comparison in which nothing happens would agree on everything.
    for kind in ("Deliver", "Notify", "Activity", "ok", "lock_lost", "ok+late"):
        assert SEEN[kind], f"no run ever came to {kind}"
    assert SEEN["Deliver"] > 200
