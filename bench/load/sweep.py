"""Sweeps: one workload at several values of one setting, and the curves that this gives.

Owns which settings can be swept, what is drawn, and the page.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from bench.check import charts
from bench.check.page import STYLE
from bench.hardware import describe
from bench.load.medians import cell, medians
from bench.load.workload import Workload, WorkloadWrong, checked

FIELDS = ("size", "producers", "consumers", "prefetch", "depth", "window")
"""Settings that can be swept; `prefetch` bounds the locks that each consumer holds."""

CURVES = (
    "published per second",
    "acked per second",
    "confirm p99, ms",
    "end to end p99, ms",
)
"""Figures of `medians`, one picture each."""

Reports = dict[int, list[dict[str, Any]]]
"""By value: a report per run."""


class Sweep(NamedTuple):
    """The setting and its values, in order."""

    field: str
    values: tuple[int, ...]


def parse(text: str) -> Sweep:
    """`size=256,1024`. Raises WorkloadWrong."""
    field, _, values = text.partition("=")
    if field not in FIELDS:
        raise WorkloadWrong(f"--sweep {text}: {field!r} is none of {', '.join(FIELDS)}")
    try:
        found = tuple(sorted({int(value) for value in values.split(",")}))
    except ValueError:
        raise WorkloadWrong(f"--sweep {text}: whole numbers, separated by commas") from None
    return Sweep(field, found)


def variants(workload: Workload, sweep: Sweep) -> list[tuple[int, Workload]]:
    """The workload at each value. Raises WorkloadWrong."""
    return [(value, checked(_with(workload, sweep.field, value))) for value in sweep.values]


def _with(workload: Workload, field: str, value: int) -> Workload:
    if field == "size":
        return replace(workload, body=replace(workload.body, bytes=value))
    if field == "prefetch":
        return replace(workload, consuming=replace(workload.consuming, prefetch=value))
    changes: dict[str, Any] = {field: value}
    return replace(workload, **changes)


def show(field: str, reports: Reports, options: argparse.Namespace, console: Console) -> None:
    """A table, or JSON; and the page with the curves, where one is wanted."""
    if options.json:
        print(json.dumps({"field": field, "runs": reports}, indent=2))
    else:
        table = Table(field, *CURVES)
        for value, runs in reports.items():
            found = medians(runs)
            cells = (cell(found[name], len(runs)) if name in found else "" for name in CURVES)
            table.add_row(f"{value:,}", *cells)
        console.print(table)
        console.print(describe())
    if options.report is not None:
        options.report.write_text(page(field, reports), encoding="utf-8")


def page(field: str, reports: Reports) -> str:
    """A picture of medians per figure, as HTML that needs nothing else."""
    found = {value: medians(runs) for value, runs in reports.items()}
    pictures = "".join(
        f"<figure>{charts.curve(points, field, name)}</figure>"
        for name in CURVES
        if (points := {value: of[name].median for value, of in found.items() if name in of})
    )
    runs = max(map(len, reports.values()))
    how = f"medians of {runs} runs; " if runs > 1 else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>fifo: {field}</title><style>{STYLE}</style></head>"
        f"<body><h1>fifo: figures by {field}</h1>{pictures}<p>{how}{describe()}</p></body></html>\n"
    )
