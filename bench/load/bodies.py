"""Bodies: what is published, and what a consumer reads from it.

Owns the layout: a check sum over the rest (4 bytes), the time of the call in nanoseconds of the
driver's clock (8), the length of the name (2), the name, and the content. Sizes, keys and think
times are drawn here, from a generator that the workload and the partition seed.
"""

from __future__ import annotations

import bisect
import itertools
import os
import random
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from bench.load.workload import SIZE_LEAST, Messages, Workload

HEAD = struct.Struct("<IQH")
PADDING = os.urandom(1 << 20)
PRIORITIES = 10


class Content(NamedTuple):
    """Content of a message besides its name: bytes, its key if any, its priority if any."""

    data: bytes
    key: str | None
    priority: int | None


class Seen(NamedTuple):
    """Content read from a body. `sent_ns`: when it was published, by the driver's clock."""

    name: str
    sent_ns: int
    intact: bool


def body_of(name: str, sent_ns: int, data: bytes) -> bytes:
    """A body."""
    label = name.encode()
    rest = HEAD.pack(0, sent_ns, len(label))[4:] + label + data
    return zlib.crc32(rest).to_bytes(4, "little") + rest


def read(body: bytes | memoryview) -> Seen:
    """Read a body; a name of question marks where it cannot be read."""
    if len(body) < HEAD.size:
        return Seen("?", 0, intact=False)
    total, sent_ns, length = HEAD.unpack_from(body)
    name = bytes(body[HEAD.size : HEAD.size + length]).decode(errors="replace")
    return Seen(name, sent_ns, intact=zlib.crc32(body[4:]) == total)


def contents(workload: Workload, producer: int) -> Iterator[Content]:
    """Messages that this producer publishes, for ever (flights: its share, once)."""
    what = workload.body
    chance = random.Random(f"{workload.name} {producer}")
    if what.sizes == "flights":
        yield from _flights(workload, producer)
        return
    key = _keys(what, chance)
    while True:
        size = _size(what, chance) - SIZE_LEAST // 2
        priority = chance.randrange(PRIORITIES) if what.priorities else None
        yield Content(PADDING[:size], next(key), priority)


def _flights(workload: Workload, producer: int) -> Iterator[Content]:
    from bench.demo.flights import flights

    first = 1 + workload.messages * producer // workload.producers
    for flight in flights(first, first + workload.share(producer) - 1):
        yield Content(flight.body, flight.key, None)


def _size(what: Messages, chance: random.Random) -> int:
    size = what.bytes
    if what.sizes == "uniform":
        size = chance.randint(what.bytes, what.most)
    elif what.sizes == "lognormal":
        size = round(what.bytes * chance.lognormvariate(0, what.spread))
    return max(SIZE_LEAST, min(size, len(PADDING)))


def _keys(what: Messages, chance: random.Random) -> Iterator[str | None]:
    if not what.keys:
        yield from itertools.repeat(None)
    weights = list(
        itertools.accumulate(1 / number**what.skew for number in range(1, what.keys + 1))
    )
    while True:
        yield f"k{bisect.bisect(weights, chance.random() * weights[-1])}"


def think_seconds(kind: str, milliseconds: float, chance: random.Random) -> float:
    """Duration of a handler; `milliseconds` is the mean, or the median of a lognormal one."""
    if kind == "exponential":
        return chance.expovariate(1000 / milliseconds)
    if kind == "lognormal":
        return milliseconds / 1000 * chance.lognormvariate(0, 0.5)
    return milliseconds / 1000 if kind == "fixed" else 0.0
