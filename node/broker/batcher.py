"""Commands gathered into as few Raft entries as possible.

Owns the policy (decisions.md, "The batching policy"): flush at once when no entry is in flight;
otherwise when an entry commits, when 2 ms have passed, or when 1 MiB has gathered. A batch of
nothing but patient commands leaves only for the last two reasons. Commands with a raw part behind
an entry of such wait until as many have gathered as that one answered and left behind, or one comes
that may wait for nothing. Commands are packed as they arrive, so that the size of an entry is
exact, and their weights are added up, so that no entry takes long to apply. Must not know
connections, Raft or what a command means: a caller passes its weight and an opaque context, and the
context comes back with the batch.
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
    """The commands of one entry, packed, each with the context of the waiter for its reply."""

    opened_at: float
    packed: list[bytes] = field(default_factory=list)
    contexts: list[C] = field(default_factory=list)
    area: list[Buffer] = field(default_factory=list)
    area_bytes: int = 0
    size_bytes: int = entry.OVERHEAD_BYTES
    weight: int = 0
    version: int = 0
    """The highest machine version that one of the commands needs, above the one in use."""
    urgent: bool = False
    """Whether one of the commands may wait for nothing."""
    with_raw: int = 0
    """Commands among them with a raw part, which wait for their like behind an entry of them."""

    def parts(self, *, version: int, stamp_ms: int, wall_ms: int) -> list[Buffer]:
        """Return the entry as parts for a single join; `version`: the one in use."""
        needed = self.version if self.version > version else version
        return entry.pack(
            self.packed, self.area, version=needed, stamp_ms=stamp_ms, wall_ms=wall_ms
        )


class Batcher(Generic[C]):
    """Gathers commands, decides when a batch is due, and returns batches oldest first."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: monotonic seconds; read when a batch is opened, not for each command."""
        self._now = now
        self._full: deque[Batch[C]] = deque()
        self._open: Batch[C] | None = None
        self._company = 1
        """Commands with a raw part that make a batch which waits for no more."""
        self._company_until = 0.0
        self.gathered_bytes = 0
        """Bytes of all commands that have not been taken; 0 only while there is none."""

    def add(
        self,
        build: Callable[[int], Sequence[Any]],
        context: C,
        raw: Buffer = b"",
        *,
        weight: int,
        version: int = 0,
        patient: bool = False,
    ) -> None:
        """Gather one command with its raw part.

        `build` returns the command's plain form, given the offset of `raw` in the entry's area.
        `weight`: microseconds that applying the command may take; `version`: the machine version
        that it needs, where that is not in use yet; `patient`: it may wait for company though no
        entry is in flight. One with a raw part is not.
        """
        raw_bytes = len(raw)
        batch = self._open
        if batch is not None and (
            batch.size_bytes + raw_bytes > limits.GATHER_BYTES
            or batch.weight + weight > limits.GATHER_MICROSECONDS_MAX
            or len(batch.packed) >= limits.GATHER_COMMANDS_MAX
        ):
            self._full.append(batch)
            batch = self._open = None
        # Packed before a batch is opened: an empty one must not look as if a command waited.
        packed = entry.pack_command(build(0 if batch is None else batch.area_bytes))
        if batch is None:
            batch = self._open = Batch(self._now())
        batch.packed.append(packed)
        batch.contexts.append(context)
        size = len(packed) + raw_bytes
        if raw_bytes:
            batch.area.append(raw)
            batch.area_bytes += raw_bytes
        batch.size_bytes += size
        batch.weight += weight
        if version > batch.version:
            batch.version = version
        if raw_bytes:
            batch.with_raw += 1
        elif not patient:
            batch.urgent = True
        self.gathered_bytes += size

    def committed(self, size_bytes: int, with_raw: int, until: float) -> None:
        """Expect company until then, behind an entry of that size with so many raw parts.

        Programs that were answered together are likely to ask again together, with those that
        asked meanwhile. Behind a small entry nothing is expected: there is too little to save.
        """
        self._company = 1
        if size_bytes > limits.COMPANY_BYTES_MIN:
            gathered = 0 if self._open is None else self._open.with_raw
            self._company = max(1, with_raw + gathered)
            self._company_until = until

    def in_company(self) -> bool:
        """Whether what is gathered need not wait: it is urgent, or as much as is expected."""
        batch = self._open
        return bool(self._full) or (
            batch is not None and (batch.urgent or batch.with_raw >= self._company)
        )

    def may_leave(self, now: float) -> bool:
        """Whether what is gathered need not wait any more, with nothing on its way."""
        batch = self._open
        return self.in_company() or (
            batch is not None and batch.with_raw > 0 and now >= self._company_until
        )

    def due(self, now: float, *, in_flight: int) -> bool:
        """Whether a batch should go out now; `in_flight`: entries without an outcome."""
        if self._full:
            return True
        if self._open is None:
            return False
        return (
            (in_flight == 0 and self.may_leave(now))
            or now - self._open.opened_at >= limits.GATHER_SECONDS
            or self._open.size_bytes >= limits.GATHER_BYTES
            or self._open.weight >= limits.GATHER_MICROSECONDS_MAX
        )

    def wait(self, now: float, *, in_flight: int) -> float | None:
        """Seconds until the open batch is due whatever happens; None without one."""
        if self._full:
            return 0.0
        if self._open is None:
            return None
        until = self._open.opened_at + limits.GATHER_SECONDS
        if in_flight == 0 and (self._open.urgent or self._open.with_raw):
            until = now if self.in_company() else min(until, self._company_until)
        return max(0.0, until - now)

    def take(self) -> Batch[C] | None:
        """Remove and return the oldest batch; None if no command is gathered."""
        batch: Batch[C] | None
        if self._full:
            batch = self._full.popleft()
        else:
            batch, self._open = self._open, None
        if batch is not None:
            self.gathered_bytes -= batch.size_bytes - entry.OVERHEAD_BYTES
        return batch
