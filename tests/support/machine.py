"""Builders and effect matchers for tests of the queue machine.

`Bench` drives one machine the way a leader does: it packs columns, counts raft indexes, moves
cluster time, remembers what was delivered, and checks every invariant after every command.
"""

import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fifo.client.consuming.ranges import chunks
from fifo.machine import Machine, Meta, commands, effects, invariants, replies
from fifo.machine.commands import Command
from fifo.machine.effects import Deliver, Effect, Notify
from fifo.machine.limits import BLOCK_BITS
from fifo.machine.replies import Refused, Reply
from fifo.machine.state import locks, ready
from fifo.machine.types import Role
from fifo.words import bounds
from fifo.words.settlement import Status, Verb

E = TypeVar("E")

WALL_EPOCH_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Message:
    """A message as a client sees it delivered."""

    session: int
    consumer: int
    queue: str
    token: int
    body: bytes
    key: bytes
    headers: bytes
    priority: int
    attempt: int
    failures: int
    message_id: tuple[int, int, int]
    deadline_ms: int
    repeat: bool
    dead_letter: Any


class Area:
    """The body area of an entry being put together."""

    def __init__(self) -> None:
        self.data = bytearray()

    def put(self, piece: bytes) -> int:
        """Append bytes; their offset."""
        at = len(self.data)
        self.data += piece
        return at

    def column(self, kind: str, values: Sequence[int]) -> int:
        """Append a packed column; its offset."""
        return self.put(array(kind, values).tobytes())

    def blobs(self, pieces: Sequence[bytes]) -> tuple[int, int]:
        """Append a length column and its blob; (lengths_at, blob_at)."""
        return self.column("I", [len(piece) for piece in pieces]), self.put(b"".join(pieces))


def publish_command(
    area: Area,
    queue: str,
    bodies: Sequence[bytes],
    *,
    session: int = 0,
    producer: int = 0,
    previous: int,
    number: int,
    keys: Sequence[bytes] | None = None,
    headers: Sequence[bytes] | None = None,
    priorities: Sequence[int] | None = None,
    delays: Sequence[int] | None = None,
    ttls: Sequence[int] | None = None,
    dedup: Sequence[bytes] | None = None,
    numbers: Sequence[int] | None = None,
    queue_below: int = 0,
    fence: commands.Fence | None = None,
) -> commands.Publish:
    """A publish whose columns lie in `area`."""
    return commands.Publish(
        session,
        producer,
        queue,
        previous,
        number,
        len(bodies),
        area.column("I", [len(body) for body in bodies]),
        area.put(b"".join(bodies)),
        area.blobs(keys) if keys is not None else None,
        area.blobs(headers) if headers is not None else None,
        area.put(bytes(priorities)) if priorities is not None else None,
        area.column("Q", delays) if delays is not None else None,
        area.column("Q", ttls) if ttls is not None else None,
        area.blobs(dedup) if dedup is not None else None,
        area.column("Q", numbers) if numbers is not None else None,
        queue_below,
        fence,
    )


def across_command(
    area: Area,
    parts: Sequence[commands.Publish],
    packed: memoryview,
) -> commands.PublishAcross:
    """The publishes of one producer, whose columns lie in `packed`, as one to several queues whose
    columns lie in `area`."""
    counts = [part.count for part in parts]

    def gathered(kind: str, name: str, neutral: int) -> int | None:
        if all(getattr(part, name) is None for part in parts):
            return None
        found = array(kind)
        for part in parts:
            at = getattr(part, name)
            if at is None:
                found.extend([neutral] * part.count)
            else:
                found.frombytes(packed[at : at + part.count * found.itemsize])
        return area.put(found.tobytes())

    def blobs(name: str) -> tuple[int, int] | None:
        if all(getattr(part, name) is None for part in parts):
            return None
        lengths, blob = array("I"), b""
        for part in parts:
            own = array("I", [0] * part.count)
            place = getattr(part, name)
            if place is not None:
                own = array("I", bytes(packed[place[0] : place[0] + 4 * part.count]))
                blob += bytes(packed[place[1] : place[1] + sum(own)])
            lengths += own
        return area.put(lengths.tobytes()), area.put(blob)

    sizes = array("I")
    bodies = b""
    for part in parts:
        own = array("I", bytes(packed[part.sizes_at : part.sizes_at + 4 * part.count]))
        sizes += own
        bodies += bytes(packed[part.bodies_at : part.bodies_at + sum(own)])
    below = [part.queue_below for part in parts]
    first = parts[0]
    return commands.PublishAcross(
        first.session,
        first.producer,
        tuple(part.queue for part in parts),
        sum(counts),
        area.column("I", counts),
        area.column("Q", [part.previous for part in parts]),
        area.column("Q", [part.number for part in parts]),
        area.put(sizes.tobytes()),
        area.put(bodies),
        area.column("Q", below) if any(below) else None,
        blobs("keys"),
        blobs("headers"),
        gathered("B", "priorities_at", 4),
        gathered("Q", "delays_at", 0),
        gathered("Q", "ttls_at", 0),
        blobs("dedup"),
        first.fence,
    )


class Bench:
    """A machine with the habits of a leader around it."""

    def __init__(self, machine: Machine | None = None, *, check: bool = True) -> None:
        self.machine = machine if machine is not None else Machine()
        self.check = check
        self.now = 0
        self.index = 0
        self.areas: dict[int, bytes] = {}
        self.log: list[tuple[Meta, tuple[Command, ...]]] = []
        self.effects: list[Effect] = []
        self.numbers: dict[tuple[int, str], int] = {}

    def apply(self, *batch: Command, area: Area | None = None) -> list[Reply]:
        """Apply one entry at the present time; its effects are in `effects` until the next."""
        self.index += 1
        held = bytes(area.data) if area is not None else b""
        if held:
            self.areas[self.index] = held
        meta = Meta(self.index, self.now, WALL_EPOCH_MS + self.now, memoryview(held))
        for command in batch:
            plain = commands.to_list(command)
            assert commands.from_list(plain) == command, "a command changes on its way to the log"
        outcome = self.machine.apply_batch(meta, batch)
        self.log.append((meta, batch))
        self.effects = outcome.effects
        if self.check:
            invariants.check(self.machine.state)
        return outcome.replies

    def do(self, command: Command) -> Reply:
        """Apply one command; its reply."""
        return self.apply(command)[0]

    def advance(self, milliseconds: int) -> None:
        """Advance the cluster time; the next entry carries it."""
        self.now += milliseconds

    # -- verbs that succeed --

    def declare(self, name: str, **spec: Any) -> replies.Declared:
        """Declare a queue."""
        return expect(replies.Declared, self.do(commands.Declare(name, spec)))

    def attach(
        self, label: str = "s", role: int = Role.DATA, incarnation: str = "i", user: str = "u"
    ) -> int:
        """Attach or resume the session called `label`; its number."""
        return self.attached(label, role, incarnation, user).session

    def attached(
        self, label: str = "s", role: int = Role.DATA, incarnation: str = "i", user: str = "u"
    ) -> replies.Attached:
        """Attach or resume the session called `label`; the whole reply."""
        command = commands.Attach(
            sixteen(label), int(role), sixteen(incarnation), key_of(label), user, "host:1"
        )
        return expect(replies.Attached, self.do(command))

    def disconnect(self, session: int, floors: tuple[tuple[int, int], ...] = ()) -> Reply:
        """Disconnect a session in the epochs that it has."""
        epochs = self.machine.state.sessions[session].epochs
        return self.do(commands.Disconnect(session, epochs[0], epochs[1], floors))

    def detach(self, session: int, role: int = Role.DATA) -> Reply:
        """Detach a role in the epoch that it has."""
        epoch = self.machine.state.sessions[session].epochs[role]
        return self.do(commands.Detach(session, int(role), epoch))

    def subscribe(
        self, session: int, queue: str, tag: str = "t", **options: Any
    ) -> replies.Subscribed:
        """Subscribe; with a prefetch of 10 unless said."""
        options.setdefault("prefetch", 10)
        command = commands.Subscribe(session, tag, queue, options)
        return expect(replies.Subscribed, self.do(command))

    def publish(self, session: int, queue: str, *bodies: bytes | str, **columns: Any) -> Reply:
        """Publish as the session's own producer, with its next numbers."""
        previous = columns.pop("previous", self.numbers.get((session, queue), 0))
        number = columns.pop("number", previous + 1)
        coded = [body.encode() if isinstance(body, str) else body for body in bodies]
        area = Area()
        command = publish_command(
            area, queue, coded, session=session, previous=previous, number=number, **columns
        )
        reply = self.apply(command, area=area)[0]
        if isinstance(reply, replies.Published):
            sent = columns.get("numbers") or range(number, number + len(coded))
            done = reply.stored + reply.duplicates
            if done:
                last = max(sent[done - 1], self.numbers.get((session, queue), 0))
                self.numbers[(session, queue)] = last
        return reply

    def settle(
        self, consumer: int, verb: Verb, *tokens: int | tuple[int, int], **fields: Any
    ) -> Reply:
        """Settle tokens or ranges, by default from the consumer's own session."""
        session = fields.pop("session", None)
        if session is None:
            held = self.machine.state.consumers.get(consumer)
            session = held.session if held else next(iter(self.machine.state.sessions))
        ranges = tuple((t, t) if isinstance(t, int) else t for t in tokens)
        return self.do(commands.Settle(session, consumer, int(verb), ranges, **fields))

    def _settled(
        self, consumer: int, verb: Verb, *tokens: int | tuple[int, int], **fields: Any
    ) -> list[str]:
        """The statuses by token, of as many commands as a client gives for them."""
        ranges = [(t, t) if isinstance(t, int) else t for t in tokens]
        pieces = list(chunks(ranges, bounds.SETTLE_RANGES_MAX, bounds.SETTLE_MESSAGES_MAX)) or [()]
        receipts = [self.settle(consumer, verb, *piece, **fields) for piece in pieces]
        return [status for receipt in receipts for status in statuses(receipt)]

    def ack(self, consumer: int, *tokens: int | tuple[int, int], **fields: Any) -> list[str]:
        """Ack; the statuses by token."""
        return self._settled(consumer, Verb.ACK, *tokens, **fields)

    def nack(self, consumer: int, *tokens: int | tuple[int, int], **fields: Any) -> list[str]:
        """Nack; the statuses by token."""
        return self._settled(consumer, Verb.NACK, *tokens, **fields)

    def release(self, consumer: int, *tokens: int | tuple[int, int], **fields: Any) -> list[str]:
        """Release; the statuses by token."""
        return self._settled(consumer, Verb.RELEASE, *tokens, **fields)

    def terminate(self, consumer: int, *tokens: int | tuple[int, int], **fields: Any) -> list[str]:
        """Terminate; the statuses by token."""
        return self._settled(consumer, Verb.TERMINATE, *tokens, **fields)

    def tick(self) -> bool:
        """A tick with everything that the leader would find expired; whether more is due."""
        named = []
        for _, consumer in list(self.machine.lock_consumers()):
            ranges, _ = self.machine.expired(consumer, self.now)
            named += [(consumer, first, last) for first, last in ranges]
        command = commands.Tick(tuple(dict.fromkeys(named)))
        return expect(replies.Ticked, self.do(command)).more

    def tick_all(self) -> None:
        """Ticks until nothing more is due; the effects of all of them are kept."""
        gathered: list[Effect] = []
        for _ in range(1_000):
            more = self.tick()
            gathered += self.effects
            if not more:
                self.effects = gathered
                return
        raise AssertionError("ticks do not come to an end")

    # -- what came out --

    def delivered(self) -> list[Message]:
        """The messages that the last entry delivered."""
        return [
            message
            for effect in self.effects
            if isinstance(effect, Deliver)
            for message in messages_of(effect, self.areas)
        ]

    def bodies(self) -> list[str]:
        """The bodies that the last entry delivered."""
        return [message.body.decode() for message in self.delivered()]

    def fresh_bodies(self) -> list[str]:
        """The bodies that the last entry delivered, those sent again left out."""
        return [one.body.decode() for one in self.delivered() if not one.repeat]

    def notices(self) -> list[Notify]:
        """The notices that the last entry sent."""
        return [effect for effect in self.effects if isinstance(effect, Notify)]

    def overview(self, queue: str) -> dict[str, Any]:
        """A queue's overview."""
        found = self.machine.queue_overview(queue)
        assert found is not None, f"no queue {queue}"
        return found

    def counts(self, queue: str) -> tuple[int, int, int]:
        """(ready, locked, delayed) of a queue."""
        found = self.overview(queue)
        return found["ready"], found["locked"], found["delayed"]


def counted(work: Callable[[], object]) -> int:
    """Count the calls: a measure of time that does not depend on the computer."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


def key_of(label: str) -> bytes:
    """The secret of the session called `label`."""
    return sixteen(f"key of {label}")


def sixteen(label: str) -> bytes:
    """A label as the 16 bytes of a session id or incarnation."""
    return label.encode().ljust(16, b".")[:16]


def expect(kind: type[E], reply: object) -> E:
    """The reply, which must be of this kind."""
    assert isinstance(reply, kind), reply
    return reply


def refused(reply: object, code: str) -> Refused:
    """The refusal, which must have this code."""
    assert isinstance(reply, Refused), reply
    assert reply.code == code, reply
    return reply


def statuses(reply: Reply) -> list[str]:
    """A receipt as one word per token, "+late" where it is."""
    receipt = expect(replies.Receipt, reply)
    return [
        Status(status).name.lower() + ("+late" if late else "")
        for first, last, status, late in receipt.ranges
        for _ in range(first, last + 1)
    ]


def place_of(
    machine: Machine, name: str, message: tuple[int, int, int]
) -> tuple[int, int, int] | None:
    """(position, consumer, token) of a message in a queue; None where it is not there."""
    number = machine.state.queue_names.get(name)
    if number is None:
        return None
    queue = machine.state.queues[number]
    for consumer in queue.consumers:
        for held, _ in locks.all_holds(machine.state.consumers[consumer]):
            for ahead in range(held.count):
                if ready.message_id(queue, held.position + ahead) == message:
                    return held.position + ahead, consumer, held.first + ahead
    for key, block in queue.blocks.items():
        for position in range(key << BLOCK_BITS, (key << BLOCK_BITS) + len(block.sizes)):
            if ready.stands(queue, position) and ready.message_id(queue, position) == message:
                return position, 0, 0
    return None


def present(found: Sequence[Effect], kind: type[E]) -> list[E]:
    """The effects of one kind."""
    return [effect for effect in found if isinstance(effect, kind)]


def absent(found: Sequence[Effect], kind: type[Any]) -> bool:
    """Whether there is no effect of this kind."""
    return not present(found, kind)


def messages_of(deliver: effects.Deliver, areas: dict[int, bytes]) -> list[Message]:
    """The messages of a delivery, read out of the entries' areas as the leader does."""
    found = []
    token = deliver.first_token
    for run in deliver.runs:
        area = areas[run.index]
        at = run.bodies_at
        assert run.count == len(run.sizes), "a run whose count is off"
        assert run.bodies_bytes == sum(run.sizes), "a run whose bytes are off"
        keys = _pieces(area, run.keys, run.count)
        headers = _pieces(area, run.headers, run.count)
        for place, size in enumerate(run.sizes):
            found.append(
                Message(
                    deliver.session,
                    deliver.consumer,
                    deliver.queue,
                    token,
                    area[at : at + size],
                    keys[place],
                    headers[place],
                    run.priorities[place] if run.priorities else 4,
                    run.attempts[place] if run.attempts else 1,
                    run.failures[place] if run.failures else 0,
                    (run.queue_number, run.producer, run.number + place),
                    deliver.deadline_ms,
                    deliver.repeat,
                    run.dead_letter,
                )
            )
            at += size
            token += 1
    return found


def _pieces(area: bytes, column: effects.BlobColumn | None, count: int) -> list[bytes]:
    if column is None:
        return [b""] * count
    assert column.blob_bytes == sum(column.lengths), "a column whose bytes are off"
    pieces, at = [], column.blob_at
    for length in column.lengths:
        pieces.append(area[at : at + length])
        at += length
    return pieces
