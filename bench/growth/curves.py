"""The curves: what grows, up to which sizes, and which figures are taken at each.

Owns the list. Must not know how a figure is measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.growth import states

if TYPE_CHECKING:
    from collections.abc import Sequence

BATCHES = "CPU per message, batches of 1,000, us"
LONE = "CPU per message, one at a time, us"
IDLE = "CPU while nothing happens, ms a second"
MEMORY = "memory of the leader for each, bytes"
LONGEST = "longest work in one go so far, ms of CPU"
STALL = "longest confirm meanwhile, ms"
CALM = "longest confirm before, ms"
HASHED = "CPU of a digest, ms"
SLICE = "longest slice of it, ms of CPU"
LASTED = "from its beginning to its end, s"

FIGURES: Final = (BATCHES, LONE, IDLE, MEMORY, LONGEST, HASHED, SLICE, LASTED, CALM, STALL)
"""In the order of a table. CPU is that of all three nodes, and beyond what they take while idle."""

_MILLIONS: Final = tuple(10**power for power in range(3, 8))
_ALL: Final = (BATCHES, LONE, IDLE, MEMORY, LONGEST)

MEMORY_FROM: Final = 500
"""Things of which the memory of one can be seen: fewer drown in what a process takes anyway."""

SNAPSHOT_BYTES: Final = 16 << 20
"""Journal between two snapshots where these are what is looked at: they come when they are wanted,
and while the state is filled."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A thing that grows. `snapshot`, `digest`: what counts is one of it."""

    name: str
    axis: str
    sizes: Sequence[int]
    state: type[states.State]
    figures: Sequence[str] = _ALL
    snapshot: bool = False
    digest: bool = False

    def upto(self, most: int) -> list[int]:
        """The sizes up to a bound; the first one at any rate."""
        return [size for size in self.sizes if size <= most] or [self.sizes[0]]


CURVES: Final = (
    Curve("depth", "messages that wait", _MILLIONS, states.Depth),
    Curve("locks", "messages that others hold", _MILLIONS[:-1], states.Locks),
    Curve("keys", "keys, a message of each waits", (1, 10, 100, *_MILLIONS[:-1]), states.Keys),
    Curve("consumers", "consumers of the queue", (1, 10, 100, 1_000, 10_000), states.Consumers),
    Curve("queues", "other queues", (1, 10, 100, 1_000, 9_999), states.Queues),
    Curve("sessions", "idle sessions", (1, 10, 100, 1_000, 5_000), states.Sessions),
    Curve(
        "bytes",
        "bytes of a body",
        (10, 100, 1_000, 10_000, 100_000, 1_000_000),
        states.Bytes,
        (BATCHES, LONE, LONGEST),
    ),
    Curve(
        "snapshot",
        "messages in the state while a snapshot is taken",
        _MILLIONS,
        states.Depth,
        (LONGEST, STALL),
        snapshot=True,
    ),
    Curve(
        "digest",
        "messages in the state while it is hashed",
        _MILLIONS,
        states.Depth,
        (HASHED, SLICE, LASTED, CALM, STALL),
        digest=True,
    ),
    Curve(
        "digest-keys",
        "keys in the state while it is hashed, a message of each",
        _MILLIONS[:-1],
        states.Keys,
        (HASHED, SLICE, LASTED, CALM, STALL),
        digest=True,
    ),
)
"""Queues end at 10,000 and consumers of a queue at as many: bounds of the machine (semantics.md).
Holders' locks end at a million because each is an object of the client that holds them."""
