"""Rates, latencies and pauses of a run, from its records.

Owns what is measured and over which span. Pure: records in, figures out. Whether the run was right
is for `check` to say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.statistics import Percentiles, longest_gap, percentiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.demo.records import Chunk, Delivery

BIN_MS = 250
"""Width of a bar of the picture: fine enough to see a change of leader of half a second."""

MARGIN_MS = 1000
"""Publishes under way when the leader died are confirmed a little later or never: a pause may begin
this long before its death, or after the next one is seen."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the cluster, for the picture and the report."""

    at_ms: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Series:
    """Messages per second over time; `times_s` are the middles of the bins, from the start."""

    name: str
    times_s: tuple[float, ...]
    rates: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """Measured on the machine's one wall clock. Latencies in ms, pauses in seconds."""

    start_ms: int
    confirmed_per_second: float
    acked_per_second: float
    confirm_ms: Percentiles
    delivery_ms: Percentiles
    confirm_pause_s: float
    delivery_pause_s: float
    series: tuple[Series, ...]


def measure(
    chunks: Sequence[Chunk],
    deliveries: Sequence[Delivery],
    leaderless_ms: tuple[float, float] | None = None,
) -> Figures:
    """All figures of a run; `leaderless_ms` is when the leader died and when the next was seen.

    Rates count from the first row sent to the last one confirmed or acked. The confirm latency is
    a row's: from the call that sent its chunk to the chunk's confirm. The delivery latency is from
    the time that the leader wrote into the message to its first arrival, waiting in the queue
    included. Pauses are the longest stretches without any confirm, or any delivery, before all was
    done.
    """
    confirms = sorted(chunk.confirmed_ms for chunk in chunks)
    arrivals = sorted(delivery.received_ms for delivery in deliveries)
    acks = sorted(d.settled_ms for d in deliveries if d.outcome == "acked")
    start = min((chunk.sent_ms for chunk in chunks), default=0)
    rows = sum(chunk.last - chunk.first + 1 for chunk in chunks)
    latencies = [
        chunk.confirmed_ms - chunk.sent_ms
        for chunk in chunks
        for _ in range(chunk.last - chunk.first + 1)
    ]
    waits = [d.received_ms - d.published_ms for d in deliveries if d.attempt == 1]
    died_ms, elected_ms = leaderless_ms or (-math.inf, math.inf)
    window = (died_ms - MARGIN_MS, elected_ms + MARGIN_MS)
    weights = [(c.confirmed_ms, c.last - c.first + 1) for c in chunks]
    return Figures(
        start_ms=start,
        confirmed_per_second=_rate(rows, start, confirms),
        acked_per_second=_rate(len(acks), start, acks),
        confirm_ms=percentiles(latencies),
        delivery_ms=percentiles(waits),
        confirm_pause_s=longest_gap(confirms, *window) / 1000,
        delivery_pause_s=longest_gap(arrivals, *window) / 1000,
        series=(
            _series("confirmed to publishers", weights, start),
            _series("acked by consumers", [(at, 1) for at in acks], start),
        ),
    )


def _rate(count: int, start_ms: int, ordered_ms: Sequence[int]) -> float:
    seconds = (ordered_ms[-1] - start_ms) / 1000 if ordered_ms else 0.0
    return count / seconds if seconds > 0 else 0.0


def _series(name: str, weights: Sequence[tuple[int, int]], start_ms: int) -> Series:
    bins: dict[int, int] = {}
    for at_ms, count in weights:
        place = (at_ms - start_ms) // BIN_MS
        bins[place] = bins.get(place, 0) + count
    places = range(max(bins, default=-2) + 2)  # Down to zero at the end.
    return Series(
        name,
        tuple((place + 0.5) * BIN_MS / 1000 for place in places),
        tuple(bins.get(place, 0) * 1000 / BIN_MS for place in places),
    )
