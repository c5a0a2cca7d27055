"""What clients asked for in the last moments, gathered into as few Raft entries as possible.

Owns the policy (decisions.md, "The batching policy"): flush at once when nothing is on its
way; else when an entry commits, or 2 ms have passed, or 1 MiB has gathered. Packs each command as
it comes, so that the size of an entry is exact, and adds up their weights, so that no entry takes
long to be applied. Must not know connections, Raft or what a command means: whoever adds one hands
in its weight and an opaque context, and gets that back with the batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from fifo.wire import Buffer
from node.broker import entry, limits

C = TypeVar("C")


@dataclass(slots=True)
class Batch(Generic[C]):
    """The commands of one entry, packed, each with the context of who waits for its reply."""

    opened_at: float
    packed: list[bytes] = field(default_factory=list)
    contexts: list[C] = field(default_factory=list)
    area: list[Buffer] = field(default_factory=list)
    area_bytes: int = 0
    size_bytes: int = entry.OVERHEAD_BYTES
    weight: int = 0

    def parts(self, *, stamp_ms: int, wall_ms: int) -> list[Buffer]:
        """The entry, ready to be joined once."""
        return entry.pack(self.packed, self.area, stamp_ms=stamp_ms, wall_ms=wall_ms)


class Batcher(Generic[C]):
    """Gathers commands; says when it is time and hands out whole batches, oldest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds, monotonic; read when a batch is opened, not for each command."""
        self._now = now
        self._full: deque[Batch[C]] = deque()
        self._open: Batch[C] | None = None
        self._bytes = 0

    @property
    def gathered_bytes(self) -> int:
        """Bytes of everything that waits here."""
        return self._bytes

    @property
    def empty(self) -> bool:
        """True where nothing waits."""
        return self._open is None and not self._full

    def place(self, raw_bytes: int, weight: int) -> int:
        """Where in its entry's area a raw part of this size will begin, if a command of this weight
        is added with it next."""
        batch = self._open
        if batch is not None and (
            batch.size_bytes + raw_bytes > limits.GATHER_BYTES
            or batch.weight + weight > limits.GATHER_MICROSECONDS_MAX
            or len(batch.packed) >= limits.GATHER_COMMANDS_MAX
        ):
            self._full.append(batch)
            batch = self._open = None
        # Opens none: what holds no command yet must not look as if something waited.
        return 0 if batch is None else batch.area_bytes

    def add(self, plain: Sequence[Any], context: C, raw: Buffer = b"", *, weight: int = 0) -> None:
        """Gather one command; with a raw part only right after `place` for it."""
        raw_bytes = len(raw)
        if not raw_bytes:
            self.place(0, weight)
        batch = self._open
        if batch is None:
            batch = self._open = Batch(self._now())
        packed = entry.pack_command(plain)
        batch.packed.append(packed)
        batch.contexts.append(context)
        size = len(packed) + raw_bytes
        if raw_bytes:
            batch.area.append(raw)
            batch.area_bytes += raw_bytes
        batch.size_bytes += size
        batch.weight += weight
        self._bytes += size

    def due(self, now: float, *, in_flight: int) -> bool:
        """Whether a batch should go out now, with so many entries on their way."""
        if self._full:
            return True
        if self._open is None:
            return False
        return (
            in_flight == 0
            or now - self._open.opened_at >= limits.GATHER_SECONDS
            or self._open.size_bytes >= limits.GATHER_BYTES
            or self._open.weight >= limits.GATHER_MICROSECONDS_MAX
        )

    def wait(self, now: float) -> float | None:
        """Seconds until what is gathered must go out even in company; None where nothing is."""
        if self._full:
            return 0.0
        if self._open is None:
            return None
        return max(0.0, self._open.opened_at + limits.GATHER_SECONDS - now)

    def take(self) -> Batch[C] | None:
        """The oldest batch, or None where nothing is gathered."""
        batch: Batch[C] | None
        if self._full:
            batch = self._full.popleft()
        else:
            batch, self._open = self._open, None
        if batch is not None:
            self._bytes -= batch.size_bytes - entry.OVERHEAD_BYTES
        return batch

    def clear(self) -> list[C]:
        """Forget everything (leadership is lost); the contexts of those who waited."""
        contexts: list[C] = []
        while (batch := self.take()) is not None:
            contexts += batch.contexts
        return contexts
