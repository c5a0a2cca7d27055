"""Percentiles, medians and rates of a benchmark.

Owns the arithmetic. Pure; knows nothing of what was measured.
"""

from __future__ import annotations

import itertools
import math
import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Percentiles(NamedTuple):
    """Of one quantity, in its own unit; all zero where nothing was measured."""

    p50: float
    p95: float
    p99: float
    max: float


class Spread(NamedTuple):
    """Of one figure over repeated runs."""

    median: float
    lowest: float
    highest: float


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile of values in ascending order; 0 of none."""
    if not ordered:
        return 0.0
    rank = max(1, math.ceil(len(ordered) * percent / 100))
    return float(ordered[rank - 1])


def percentiles(values: Sequence[float]) -> Percentiles:
    """The ones that a report shows."""
    ordered = sorted(values)
    return Percentiles(*(percentile(ordered, percent) for percent in (50, 95, 99, 100)))


def spread(values: Sequence[float]) -> Spread:
    """Median, lowest and highest of repeated runs; there must be one at least."""
    return Spread(statistics.median(values), min(values), max(values))


def longest_gap(ordered: Sequence[float], begins_after: float, begins_before: float) -> float:
    """The longest stretch between two neighbours that begins in this window; 0 of none."""
    gaps = (
        after - before
        for before, after in itertools.pairwise(ordered)
        if begins_after <= before <= begins_before
    )
    return max(gaps, default=0.0)
