"""Figures of a load from the workers' counts, and rounds as medians and ratios.

Owns the names of the figures, which of them are better when more, and the arithmetic: each ratio is
within one round, so that it holds on a machine whose speed changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.peers.servers import Fifo
from bench.peers.worker import CONSUMER, PACER, PUBLISHER, SURVIVOR
from bench.statistics import Spread, spread
from fifo.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

PUBLISHED, ACKED = "published per second", "acked per second"
PAUSE = "pause of confirms s"

FIGURES = (
    PUBLISHED,
    ACKED,
    "confirm p50 ms",
    "confirm p99 ms",
    "end to end p50 ms",
    "end to end p99 ms",
    PAUSE,
)
"""In the order of the table."""

RATES = frozenset({PUBLISHED, ACKED})
"""Of which more is better; of all others, less."""

Measured = dict[tuple[str, str, str], list[float]]
"""(load, figure, system) to one value per round."""


def figures_of(results: Sequence[tuple[str, dict[str, Any]]], seconds: float) -> dict[str, float]:
    """The figures of one load from what its workers counted; those without a worker are absent, and
    so are the rates of a paced load."""
    figures: dict[str, float] = {}
    paced = any(of == PACER for of, _ in results)
    for roles, rate, latency in (
        ((PUBLISHER, PACER), PUBLISHED, "confirm"),
        ((CONSUMER,), ACKED, "end to end"),
    ):
        mine = [result for of, result in results if of in roles]
        if not mine:
            continue
        total = Histogram()
        for result in mine:
            total.merge(Histogram.from_pairs([(a, b) for a, b in result["latency"]]))
        if not paced:
            figures[rate] = sum(result["messages"] for result in mine) / seconds
        for name, percent in (("p50", 50.0), ("p99", 99.0)):
            figures[f"{latency} {name} ms"] = total.percentile_ms(percent) or 0.0
    pauses = [result["pause_s"] for of, result in results if of == SURVIVOR]
    if pauses:
        figures[PAUSE] = max(pauses)
    return figures


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of one system. `ratio`: how many times better this project is, per round."""

    load: str
    figure: str
    system: str
    values: Spread
    ratio: Spread | None


def rows_of(measured: Measured) -> list[Row]:
    """Every figure with its spread, and its ratio to this project's of the same round; loads in the
    order in which they were run."""
    rows = []
    for load, figure, system in measured:
        values = measured[load, figure, system]
        ours = measured.get((load, figure, Fifo.name), [])
        pairs = [(a, b) for a, b in zip(ours, values, strict=False) if a > 0 and b > 0]
        ratio = None
        if system != Fifo.name and pairs:
            better = [a / b if figure in RATES else b / a for a, b in pairs]
            ratio = spread(better)
        rows.append(Row(load, figure, system, spread(values), ratio))
    order = list(dict.fromkeys(load for load, _, _ in measured))
    return sorted(rows, key=lambda row: (order.index(row.load), FIGURES.index(row.figure)))
