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
from bench.load.workload import Workload, WorkloadWrong, checked

FIELDS = ("size", "producers", "consumers", "prefetch", "depth", "window")
"""What can be swept; `prefetch` bounds the locks that each consumer holds."""

CURVES = (
    ("published per second", ("published_per_second",)),
    ("acked per second", ("acked_per_second",)),
    ("confirm p99, ms", ("confirm_ms", "p99")),
    ("end to end p99, ms", ("end_to_end_ms", "p99")),
)


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


def _figure(report: dict[str, Any], path: tuple[str, ...]) -> float:
    value: Any = report
    for part in path:
        value = value[part]
    return float(value or 0.0)


def show(
    field: str, reports: dict[int, dict[str, Any]], options: argparse.Namespace, console: Console
) -> None:
    """A table, or JSON; and the page with the curves, where one is wanted."""
    if options.json:
        print(json.dumps({"field": field, "runs": reports}, indent=2))
    else:
        table = Table(field, *(name for name, _ in CURVES))
        for value, report in reports.items():
            cells = (f"{_figure(report, path):,.1f}" for _, path in CURVES)
            table.add_row(f"{value:,}", *cells)
        console.print(table)
        console.print(describe())
    if options.report is not None:
        options.report.write_text(page(field, reports), encoding="utf-8")


def page(field: str, reports: dict[int, dict[str, Any]]) -> str:
    """One picture per figure, as HTML that needs nothing else."""
    pictures = "".join(
        f"<figure>{charts.curve({v: _figure(r, path) for v, r in reports.items()}, field, name)}"
        "</figure>"
        for name, path in CURVES
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>fifo: {field}</title><style>{STYLE}</style></head>"
        f"<body><h1>fifo: figures by {field}</h1>{pictures}<p>{describe()}</p></body></html>\n"
    )
