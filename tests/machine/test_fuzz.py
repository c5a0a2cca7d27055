"""Random commands of every kind against every kind of queue: nothing raises, all invariants hold.

No model here: what is looked for are crashes, broken invariants, loops without an end, and
snapshots that differ from having gone on. Long logs come from one seed each.
"""

import random
from typing import Any

import pytest

from fifo.machine import Machine, commands
from fifo.machine.commands import Command
from fifo.machine.effects import Deliver
from fifo.machine.limits import BLOCK_BITS
from fifo.machine.snapshot import format
from fifo.machine.state import locks, ready
from fifo.words.actions import Action
from tests.support.machine import Area, Bench, key_of, messages_of, publish_command, sixteen

pytestmark = pytest.mark.slow


SPECS: dict[str, dict[str, Any]] = {
    "plain": {"lock_ms": 2_000, "max_deliveries": 2, "dead_letter": "dead"},
    "ttl": {"ttl_ms": 4_000, "lock_ms": 2_000, "dead_letter": "dead", "nack_backoff": "fixed:3s"},
    "drops": {"max_length": 6, "overflow": "drop_oldest", "lock_ms": 3_000, "dead_letter": "dead"}
    | {"dead_letter_overflow": True, "max_bytes": 40},
    "rejects": {"max_length": 8, "max_bytes": 60, "on_exhausted": "drop", "max_deliveries": 2},
    "active": {"ordering": "single_active", "lock_ms": 2_000, "disconnect_grace_ms": 500},
    "skips": {"ordering": "single_active", "on_delay": "skip", "priorities": True},
    "keys": {"ordering": "key", "lock_ms": 2_000, "timeout_backoff": "table:1s,3s"},
    "keys2": {"ordering": "key", "on_delay": "skip", "priorities": True, "dead_letter": "dead"},
    "dedup": {"dedup_window_ms": 5_000, "dedup_max": 4, "expires_unused_ms": 9_000},
    "dead": {"max_length": 20, "overflow": "drop_oldest"},
}


class Fuzz:
    """A random log."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.bench = Bench()
        self.tokens: list[tuple[int, int, int]] = []
        self.bench.do(commands.SetVersion(1 + seed % 2))
        for name, spec in SPECS.items():
            if name != "dead":
                self.bench.do(commands.Declare(name, spec))
        self.bench.do(commands.UpdateQueue("dead", SPECS["dead"]))
        for label in "abc":
            self.bench.attach(label)

    def run(self, steps: int) -> None:
        """Apply that many entries, each of a few commands."""
        for _ in range(steps):
            self.bench.advance(self.rng.choice((0, 0, 1, 100, 700, 1_500, 12_000)))
            if self.rng.random() < 0.3:
                self.bench.tick()
            else:
                area = Area()
                batch = [self.command(area) for _ in range(self.rng.choice((1, 1, 1, 2, 4)))]
                self.bench.apply(*batch, area=area)
            self.gather()

    def gather(self) -> None:
        """Remember what was delivered, to settle it."""
        for effect in self.bench.effects:
            if isinstance(effect, Deliver):
                for message in messages_of(effect, self.bench.areas):
                    self.tokens.append((effect.session, message.consumer, message.token))
        del self.tokens[:-60]

    def command(self, area: Area) -> Command:
        """A random command that a broker could have let through."""
        rng, state = self.rng, self.bench.machine.state
        queue = rng.choice(list(SPECS))
        session = rng.choice([*state.sessions, 1])
        kind = rng.randrange(36)
        if kind < 8:
            return self.publish(area, queue, session)
        if kind < 16 and self.tokens:
            return self.settle()
        if kind < 19:
            options = {
                "prefetch": rng.choice((1, 2, 5)),
                "priority": rng.choice((0, 0, 1)),
                "lock_ms": rng.choice((None, 1_000, 4_000)),
                "renewals": rng.choice((None, None, 2)),
                "pull": rng.choice((False, False, True)),
            }
            return commands.Subscribe(session, rng.choice("xy"), queue, options)
        consumer = rng.choice([*state.consumers, 1])
        owner = state.consumers[consumer].session if consumer in state.consumers else session
        if kind == 19:
            return commands.Cancel(max(owner, 1), consumer, ((1, rng.randint(1, 9)),))
        if kind == 20:
            drain, automatic = rng.random() < 0.3, rng.random() < 0.3
            return commands.Credit(max(owner, 1), consumer, rng.randrange(5), drain, automatic)
        if kind == 21:
            return commands.Get(session, queue, rng.randint(1, 4), rng.choice((None, 1_000)))
        if kind == 22:
            return commands.Alive(max(owner, 1), consumer, rng.choice((None, 0, 1, 3)))
        if kind < 26:
            return self.session_command(session)
        if kind > 33:
            return self.message_action(area, queue)
        if kind == 26:
            return commands.Lead(state.term + rng.choice((0, 1)))
        return self.queue_command(queue) if kind < 31 else self.rare_command(queue)

    def publish(self, area: Area, queue: str, session: int) -> Command:
        """A publish with random columns, most of the time with the right numbers."""
        rng, state = self.rng, self.bench.machine.state
        count = rng.randint(1, 5)
        found = state.sessions.get(session)
        number = state.queue_names.get(queue)
        last = 0
        if found is not None and number is not None:
            last = state.queues[number].last_numbers.get(found.producer, 0)
        previous = max(last + rng.choice((0, 0, 0, 0, -1, 1)), 0)
        columns: dict[str, Any] = {}
        if rng.random() < 0.5:
            columns["keys"] = [rng.choice((b"", b"k", b"l")) for _ in range(count)]
        if rng.random() < 0.3:
            columns["headers"] = [rng.choice((b"", b"h")) for _ in range(count)]
        if rng.random() < 0.4:
            columns["priorities"] = [rng.choice((0, 4, 9)) for _ in range(count)]
        if rng.random() < 0.3:
            columns["delays"] = [rng.choice((0, 800, 5_000)) for _ in range(count)]
        if rng.random() < 0.3:
            columns["ttls"] = [rng.choice((0, 900, 6_000)) for _ in range(count)]
        if rng.random() < 0.4:
            columns["dedup"] = [rng.choice((b"", b"1", b"2", b"3")) for _ in range(count)]
        if rng.random() < 0.3:
            columns["numbers"] = [previous + 1 + 2 * place for place in range(count)]
        bodies = [bytes(rng.randrange(12)) for _ in range(count)]
        return publish_command(
            area, queue, bodies, session=session, previous=previous, number=previous + 1, **columns
        )

    def settle(self) -> Command:
        """A settlement of something that was delivered, perhaps long ago."""
        rng = self.rng
        session, consumer, token = rng.choice(self.tokens)
        ranges = ((token, token + rng.choice((0, 0, 1, 5))),)
        verb = rng.choice((0, 0, 0, 1, 1, 2, 3))
        below = rng.choice((0, 0, max(token - 3, 0)))
        return commands.Settle(
            max(session, 1),
            consumer,
            verb,
            ranges,
            rng.choice((None, 0, 900)),
            resolved_below=below,
        )

    def session_command(self, session: int) -> Command:
        """Something that happens to a connection."""
        rng, found = self.rng, self.bench.machine.state.sessions.get(session)
        label = rng.choice("abcd")
        if found is None or rng.random() < 0.5:
            incarnation = sixteen(rng.choice(("i", "i", "i", "j")))
            role = rng.randrange(2)
            return commands.Attach(
                sixteen(label), role, incarnation, key_of(label), "u", "host:1",
                resume=rng.random() < 0.3,
            )  # fmt: skip
        if rng.random() < 0.4:
            return commands.Detach(session, rng.randrange(2), max(found.epochs[0], 1))
        if rng.random() < 0.2:
            return commands.EndSession(session, rng.randrange(2))
        if rng.random() < 0.2:
            return commands.NoticeAck(session, rng.randint(1, 5))
        floors = tuple((number, self.bench.now + 3_000) for number in list(found.consumers)[:2])
        return commands.Disconnect(session, found.epochs[0], found.epochs[1], floors)

    def queue_command(self, queue: str) -> Command:
        """A command of a queue's own."""
        choices: list[Command] = [
            commands.Declare(queue, SPECS[queue]),
            commands.Purge(queue),
            commands.PauseQueue(queue),
            commands.ResumeQueue(queue),
            commands.ResumeQueue(queue),
            commands.DeleteQueue(queue),
            commands.UpdateQueue(queue, {"max_length": self.rng.choice((3, 9, None))}),
            commands.UpdateQueue(queue, {"on_delay": self.rng.choice(("block", "skip"))}),
            commands.OpenProducer("p"),
        ]
        return self.rng.choice(choices)

    def message_action(self, area: Area, name: str) -> Command:
        """An action on a message, mostly where one stands, seldom in no place at all."""
        rng, state = self.rng, self.bench.machine.state
        queue = state.queues[state.queue_names.get(name, min(state.queues))]
        places = [
            (held.position + ahead, number, held.first + ahead)
            for number in queue.consumers
            for held, _ in locks.all_holds(state.consumers[number])
            for ahead in range(held.count)
        ]
        for key, block in queue.blocks.items():
            here = range(key << BLOCK_BITS, (key << BLOCK_BITS) + len(block.sizes))
            places += [(position, 0, 0) for position in here if ready.stands(queue, position)]
        place = rng.choice(places or [(1, 0, 0)])
        message = ready.message_id(queue, place[0]) if places else (1, 1, 1)
        if rng.random() < 0.1:
            place = rng.choice((place[0] + 1, 0, 1 << 62)), place[1], place[2] + rng.randrange(2)
        content = None
        if rng.random() < 0.4:
            body, key_at = area.put(bytes(rng.randrange(12))), area.put(b"k")
            content = (body, 1 if rng.random() < 0.1 else 0), (key_at, rng.randrange(2)), (0, 0)
        return commands.MessageAction(
            queue.name,
            int(rng.choice(list(Action))),
            message,
            *place,
            target=rng.choice((None, rng.choice(list(SPECS)))),
            delay_ms=rng.choice((None, 0, 900)),
            content=content,
        )

    def rare_command(self, queue: str) -> Command:
        """Redrive, move and durable consumers."""
        rng, machine = self.rng, self.bench.machine
        durables = [c for c in machine.state.consumers.values() if c.durable]
        kind = rng.randrange(5)
        if kind == 0:
            other = rng.choice(list(SPECS))
            return commands.Move(queue, other, rng.randint(1, 4))
        if kind == 1:
            return commands.Redrive(
                "dead", rng.choice((None, "plain")), limit=rng.choice((None, 2))
            )
        if kind == 2 and (view := machine.redrive_of("dead")) is not None:
            found, until = machine.redrive_candidates("dead", 2)
            positions = tuple(position for position, _ in found)
            return commands.RedriveStep("dead", view["cursor"], until, positions)
        if kind == 3 or not durables:
            return commands.OpenDurable(queue, rng.choice("de"))
        return self.durable_command(rng.choice(durables).number)

    def durable_command(self, number: int) -> Command:
        """A verb of a durable consumer."""
        rng, consumer = self.rng, self.bench.machine.state.consumers[number]
        generation = consumer.durable
        choices: list[Command] = [
            commands.Reserve(number, generation, rng.randint(1, 4)),
            commands.Reserve(number, generation, rng.randint(1, 4), 0, rng.randint(1, 20)),
            commands.Reserve(number, generation, rng.randint(1, 9), runs=True),
            commands.Fetch(number, generation, 1, consumer.next_token),
            commands.AckUpto(number, generation, rng.randint(0, consumer.next_token)),
            commands.RenewDurable(number, generation),
            commands.Forget(number, max(generation - rng.randrange(2), 1)),
        ]
        return rng.choice(choices)


@pytest.mark.parametrize("seed", range(12))
def test_random_logs_keep_every_invariant(seed: int) -> None:
    fuzz = Fuzz(seed)
    fuzz.run(150)
    assert len(fuzz.bench.log) > 150


@pytest.mark.parametrize("seed", range(100, 104))
def test_a_machine_restored_at_any_index_goes_on_as_if_it_had_never_stopped(seed: int) -> None:
    fuzz = Fuzz(seed)
    fuzz.run(60)
    whole = Machine()
    for place, (meta, batch) in enumerate(fuzz.bench.log):
        data = whole.snapshot()
        restored = Machine.restore(data)
        assert restored.snapshot() == data
        outcome = whole.apply_batch(meta, batch)
        assert restored.apply_batch(meta, batch) == outcome, f"entry {place} differs"
        assert restored.snapshot() == whole.snapshot(), f"the state after entry {place} differs"
        if place % 2:
            whole = restored
    assert whole.snapshot() == fuzz.bench.machine.snapshot()


@pytest.mark.parametrize("seed", range(500, 508))
def test_a_frozen_view_does_not_see_what_happens_after_it(seed: int) -> None:
    fuzz = Fuzz(seed)
    fuzz.bench.check = False
    fuzz.run(40)
    for _ in range(6):
        state = fuzz.bench.machine.state
        then = format.encode(state)
        frozen = fuzz.bench.machine.freeze()
        fuzz.run(25)
        assert format.encode(frozen) == then
        assert format.encode(state) != then
        frozen.release()
