"""A histogram of latencies: cheap to feed, small to send and exact to about one percent.

Owns the bucket arithmetic: 128 linear steps per power of two, so a bucket is never wider than
1/128 of its value. Pure. Part of the client, because load jobs record on Spark's executors, where
the client alone is installed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_STEP_BITS: Final = 7
_STEPS: Final = 1 << _STEP_BITS


class Histogram:
    """Counts of durations in nanoseconds, by bucket."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts: dict[int, int] = dict(counts or {})

    def record(self, nanoseconds: int, count: int = 1) -> None:
        """Count a duration; a negative one counts as zero."""
        value = max(nanoseconds, 0)
        shift = max(value.bit_length() - _STEP_BITS - 1, 0)
        # Below 2 * _STEPS every value has its own bucket; above, each shift adds _STEPS of them.
        bucket = shift * _STEPS + (value >> shift)
        self._counts[bucket] = self._counts.get(bucket, 0) + count

    @property
    def count(self) -> int:
        """Number of recorded durations."""
        return sum(self._counts.values())

    def percentile_ms(self, percent: float) -> float | None:
        """Duration in milliseconds that `percent` of all do not exceed; None if empty."""
        rank = max(math.ceil(self.count * percent / 100), 1)
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                return _middle(bucket) / 1e6
        return None

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    def to_pairs(self) -> list[tuple[int, int]]:
        """Plain data for JSON; `from_pairs` reads it back."""
        return sorted(self._counts.items())

    @classmethod
    def from_pairs(cls, pairs: list[tuple[int, int]]) -> Histogram:
        """Rebuild the histogram from `to_pairs`."""
        return cls(dict(pairs))


def _middle(bucket: int) -> float:
    """The middle of a bucket's range, in nanoseconds."""
    shift = max(bucket // _STEPS - 1, 0)
    low = (bucket - shift * _STEPS) << shift
    return low + ((1 << shift) - 1) / 2
