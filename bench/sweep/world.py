"""A machine that the cases of the sweep fill, and the ticks that a leader would give it.

Owns entries, their areas and cluster time. Must not know any case.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fifo.machine import Machine, Meta, commands, limits, replies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

R = TypeVar("R", bound=replies.Reply)

LOCK_MS = 300_000
"""The longest lock: none ends before its case wants it."""

FILL_MESSAGES = 5_000
"""Messages of a publish that fills a queue; a `drop_oldest` queue takes fewer."""


class Entry(NamedTuple):
    """An entry of the log with one command, and `more` behind it, `later_ms` after the one
    before."""

    command: commands.Command
    area: bytes = b""
    later_ms: int = 0
    more: tuple[commands.Command, ...] = ()


class World:
    """A machine that is driven as a leader does."""

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        """`look` is called between entries while it is filled: as a node's own collector is."""
        self.machine = Machine()
        self.look = look
        self._index = 0
        self._numbers: dict[tuple[int, str], int] = {}

    def apply(self, entry: Entry) -> replies.Reply:
        """Apply an entry. A refusal is fast, and no figure of anything: it ends the sweep."""
        self._index += 1
        stamp_ms = self.machine.cluster_time_ms + entry.later_ms
        meta = Meta(self._index, stamp_ms, 0, memoryview(entry.area))
        outcome = self.machine.apply_batch(meta, (entry.command, *entry.more))
        for reply in outcome.replies:
            assert not isinstance(reply, replies.Refused), reply
            if isinstance(reply, replies.Published):
                assert reply.refused is None, reply
        return outcome.replies[0]

    def do(self, command: commands.Command, *, later_ms: int = 0) -> replies.Reply:
        """Apply a command that needs no area."""
        self.look()
        return self.apply(Entry(command, later_ms=later_ms))

    def expect(self, kind: type[R], command: commands.Command) -> R:
        """The same where the answer matters."""
        reply = self.do(command)
        assert isinstance(reply, kind), reply
        return reply

    # --- filling ----------------------------------------------------------------------------------

    def declare(self, name: str = "q", **spec: Any) -> None:
        """Declare a queue."""
        self.do(commands.Declare(name, spec))

    def session(self, number: int = 0, *, incarnation: int = 0) -> int:
        """Attach this session with its data connection, for the first time or again."""
        return self.expect(replies.Attached, attach(number, incarnation=incarnation)).session

    def subscribe(
        self, session: int, queue: str = "q", tag: str = "t", *, prefetch: int = 1, **options: Any
    ) -> int:
        """Subscribe with the longest lock; the consumer."""
        options = {"prefetch": prefetch, "lock_ms": LOCK_MS, "max_lock_ms": LOCK_MS} | options
        command = commands.Subscribe(session, tag, queue, options)
        return self.expect(replies.Subscribed, command).consumer

    def publishing(
        self,
        session: int,
        count: int,
        queue: str = "q",
        *,
        size: int = 0,
        keys: Sequence[bytes] | None = None,
        dedup: Sequence[bytes] | None = None,
        delays: Sequence[int] | None = None,
        ttl_ms: int | None = None,
        priorities: bytes | None = None,
    ) -> Entry:
        """A publish of so many bodies of `size` bytes, with these columns."""
        data = bytearray(array("I", [size] * count).tobytes())
        columns: dict[str, Any] = {}
        for name, texts in (("keys", keys), ("dedup", dedup)):
            if texts is not None:
                lengths = array("I", [len(text) for text in texts]).tobytes()
                columns[name] = (len(data), len(data) + len(lengths))
                data += lengths + b"".join(texts)
        for name, numbers in (("delays_at", delays), ("ttls_at", ttl_ms and [ttl_ms] * count)):
            if numbers:
                columns[name] = len(data)
                data += array("Q", numbers).tobytes()
        if priorities is not None:
            columns["priorities_at"] = len(data)
            data += priorities
        bodies_at = len(data)
        data += bytes(size * count)
        before = self._numbers.get((session, queue), 0)
        self._numbers[session, queue] = before + count
        command = commands.Publish(
            session, 0, queue, before, before + 1, count, 0, bodies_at, **columns
        )
        return Entry(command, bytes(data))

    def fill(self, session: int, count: int, queue: str = "q", **columns: Any) -> None:
        """Publish so many messages in large batches."""
        for first in range(0, count, FILL_MESSAGES):
            self.look()
            batch = min(FILL_MESSAGES, count - first)
            self.apply(self.publishing(session, batch, queue, **columns))

    def fill_keys(self, session: int, keys: Sequence[bytes], queue: str = "q") -> None:
        """Publish a message for each of the keys."""
        for first in range(0, len(keys), FILL_MESSAGES):
            self.look()
            batch = keys[first : first + FILL_MESSAGES]
            self.apply(self.publishing(session, len(batch), queue, keys=batch))

    def fill_singly(self, session: int, count: int, queue: str = "q") -> None:
        """Publish one by one, each at a time of its own: a lock of its own for each."""
        for _ in range(count):
            self.look()
            self.apply(self.publishing(session, 1, queue)._replace(later_ms=1))

    # --- time -------------------------------------------------------------------------------------

    def tick(self, *, later_ms: int = 0) -> Entry:
        """The tick that a leader would propose `later_ms` from now, with all that has expired."""
        machine = self.machine
        now_ms = machine.cluster_time_ms + later_ms
        named: list[tuple[int, int, int]] = []
        messages = limits.STEP_MESSAGES
        for bound_ms, consumer in machine.lock_consumers():
            if bound_ms > now_ms or messages <= 0 or len(named) >= limits.EVAL_RANGES:
                break
            for first, last in machine.expired(consumer, now_ms)[0]:
                last = min(last, first + messages - 1)
                if last >= first and len(named) < limits.EVAL_RANGES:
                    named.append((consumer, first, last))
                    messages -= last - first + 1
        return Entry(commands.Tick(tuple(named)), later_ms=later_ms)

    def next_tick(self) -> Entry | None:
        """The tick that is due at once; None where nothing is."""
        machine = self.machine
        due_ms = machine.next_due_ms()
        entry = self.tick()
        is_due = due_ms is not None and due_ms <= machine.cluster_time_ms
        assert isinstance(entry.command, commands.Tick), entry
        return entry if is_due or entry.command.eval_consumer_timeouts else None


def attach(number: int, role: int = 0, *, incarnation: int = 0) -> commands.Attach:
    """The attachment of a session by its id."""
    key = number.to_bytes(16, "big")
    return commands.Attach(key, role, incarnation.to_bytes(16, "big"), bytes(16))
