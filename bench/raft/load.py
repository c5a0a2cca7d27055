"""A closed loop of commands inside the process that leads, and what it measured.

Owns the payloads, the window and the figures. Must not know what replicates them: the leader
calls `pump` in every turn, and `settled` once for each command that it was given.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from bench.statistics import percentiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WARM_UP_S = 1.0
"""Connections, caches and the batch policy settle in less; nothing is counted meanwhile."""

PAYLOADS = 16
"""Different contents in turn, so that no layer can profit from equal ones."""

COMPRESSIBLE_BYTES_MAX = 4096
"""Small commands are text-like, as orders and events are, and large ones like pictures: the stock
transport packs all that it sends with zlib, which random bytes make several times slower."""


def payload(number: int, size: int) -> bytes:
    """The content of a command."""
    rng = random.Random(number)
    if size > COMPRESSIBLE_BYTES_MAX:
        return rng.randbytes(size)
    return (rng.randbytes(32).hex().encode() * (size // 64 + 1))[:size]


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """`window` commands of `size` bytes are outstanding at any time, for `seconds`."""

    size: int
    window: int
    seconds: float


class Load:
    """The loop of one leader. Times are seconds of `clock`."""

    def __init__(
        self,
        spec: LoadSpec,
        submit: Callable[[Iterable[bytes], Callable[[bool], None]], None],
        clock: Callable[[], float],
    ) -> None:
        """`submit(payloads, done)` starts a command of each; `done(committed)` is called for each
        later, once."""
        self._spec = spec
        self._submit = submit
        self._clock = clock
        self._payloads = cycle([payload(number, spec.size) for number in range(PAYLOADS)])
        self._outstanding = 0
        self._failed = 0
        self._measured_from = clock() + WARM_UP_S
        self._measured_until = self._measured_from + spec.seconds
        self._latencies_ms: list[float] = []

    @property
    def over(self) -> bool:
        """The measured time is over."""
        return self._clock() >= self._measured_until

    def pump(self) -> None:
        """Fill the window; nothing after the end."""
        missing = self._spec.window - self._outstanding
        started = self._clock()
        if missing and started < self._measured_until:
            self._outstanding += missing
            self._submit(islice(self._payloads, missing), partial(self._settled, started))

    def _settled(self, started: float, committed: bool) -> None:
        self._outstanding -= 1
        now = self._clock()
        if not self._measured_from <= now < self._measured_until:
            return
        if committed:
            self._latencies_ms.append((now - started) * 1000)
        else:
            self._failed += 1

    def figures(self) -> dict[str, Any]:
        """Commands and megabytes per second, latencies in ms, and how many were not committed."""
        count = len(self._latencies_ms)
        per_second = count / self._spec.seconds
        return {
            "per_second": per_second,
            "mb_per_second": per_second * self._spec.size / 1e6,
            "ms": percentiles(self._latencies_ms)._asdict(),
            "failed": float(self._failed),
        }
