"""Counters of a node for its operators: totals and histograms that begin at zero.

Owns their form. Noting costs an addition or a bisection, for some of it happens for every entry.
Counters of the replicated state are not repeated here. Must not know how counters
are shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

COMMIT_BUCKET_SECONDS: Final = (
    *(0.000_25, 0.000_5, 0.001, 0.002, 0.005, 0.01),
    *(0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
"""From one round on a fast network to a group that has nearly lost its majority."""

REQUEST_BUCKET_SECONDS: Final = (
    *(0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
"""From one round on a fast network to the patience of a client."""

LATENESS_BUCKET_SECONDS: Final = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5),
    *(1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0, 30.0),
)
"""The aim is 0.25, and 2.0 where a million locks run out at once; a look of the lock clock comes
every 0.05."""


class Histogram:
    """Counts values by upper bounds; `buckets` has one more at the end, and is not cumulative."""

    __slots__ = ("bounds", "buckets", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.buckets = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def note(self, value: float, count: int = 1) -> None:
        """A value was seen, or seen so often."""
        self.buckets[bisect_left(self.bounds, value)] += count
        self.total += value * count

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.buckets)


class Counters:
    """Counters of the broker of one node, across terms.

    `refused_messages`: of publishes, by the code of the refusal; `requests`: times, by verb;
    `over_quotas`: refused requests, by the name of the quota.
    """

    def __init__(self) -> None:
        self.confirmed_messages = 0
        self.refused_messages: dict[str, int] = {}
        self.requests: dict[str, Histogram] = {}
        self.over_quotas: dict[str, int] = {}
        self.renewed_locks = 0
        self.commit = Histogram(COMMIT_BUCKET_SECONDS)
        self.lateness = Histogram(LATENESS_BUCKET_SECONDS)

    def refused(self, code: str, messages: int) -> None:
        """Count messages whose publish was refused."""
        self.refused_messages[code] = self.refused_messages.get(code, 0) + messages

    def over_quota(self, quota: str) -> None:
        """Count a request that was refused for a quota."""
        self.over_quotas[quota] = self.over_quotas.get(quota, 0) + 1

    def answered(self, verb: str, seconds: float) -> None:
        """Note the time that a request took."""
        times = self.requests.get(verb)
        if times is None:
            times = self.requests[verb] = Histogram(REQUEST_BUCKET_SECONDS)
        times.note(seconds)
