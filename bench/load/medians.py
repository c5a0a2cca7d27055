"""Several runs of one workload as one: each figure's median, lowest and highest.

Owns which figures of a report are put together, and how that is shown. Knows no Spark.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.table import Table

from bench.hardware import describe, machine
from bench.statistics import Spread, spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

FIGURES: dict[str, tuple[str, ...]] = {
    "published per second": ("published_per_second",),
    "acked per second": ("acked_per_second",),
    "confirm p50, ms": ("confirm_ms", "p50"),
    "confirm p99, ms": ("confirm_ms", "p99"),
    "end to end p50, ms": ("end_to_end_ms", "p50"),
    "end to end p99, ms": ("end_to_end_ms", "p99"),
    "redelivered": ("redelivered",),
}
"""By name, where in a report they are."""


def medians(reports: Sequence[dict[str, Any]]) -> dict[str, Spread]:
    """By name; without those that a run has not, such as confirms without a producer."""
    found = {}
    for name, path in FIGURES.items():
        values = [_figure(report, path) for report in reports]
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            found[name] = spread(known)
    return found


def _figure(report: dict[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = report
    for part in path:
        value = value[part]
    return None if value is None else float(value)


def cell(values: Spread, runs: int) -> str:
    """A median with lowest and highest, where there is more than one run."""
    median, lowest, highest = (f"{value:,.{1 if value < 1000 else 0}f}" for value in values)
    return median if runs == 1 else f"{median} ({lowest} to {highest})"


def print_medians(reports: Sequence[dict[str, Any]], console: Console) -> None:
    """For people."""
    table = Table("figure", "median", "lowest", "highest")
    for name, values in medians(reports).items():
        table.add_row(name, *(f"{value:,.{2 if value < 1000 else 0}f}" for value in values))
    console.print(table)
    messages = ", ".join(f"{report['acked']:,}" for report in reports)
    console.print(f"{len(reports)} runs of {reports[0]['workload']['name']}; acked: {messages}")
    console.print(describe())


def as_json(reports: Sequence[dict[str, Any]]) -> str:
    """For programs: the medians, and every run's whole report."""
    figures = {name: values._asdict() for name, values in medians(reports).items()}
    return json.dumps({"figures": figures, "runs": list(reports), "machine": machine()}, indent=2)
