"""The report of a run: on the terminal, and as one HTML file that needs nothing else.

Owns the words and the layout. Counts come from `check`, rates from `figures`, the picture from
`picture`; nothing is computed here.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from bench.demo.picture import draw

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from bench.demo.check import Line, Verdict
    from bench.demo.figures import Event, Figures
    from bench.statistics import Percentiles


@dataclass(frozen=True, slots=True)
class Report:
    """All that there is to say about one run. Seconds are None where they could not be seen."""

    verdict: Verdict
    figures: Figures
    events: tuple[Event, ...]
    leaderless_s: float | None
    caught_up_s: float | None
    upgrade_s: float | None
    grow_s: float | None
    total_s: float
    settings: tuple[tuple[str, str], ...]

    @property
    def headline(self) -> str:
        """The one sentence that matters."""
        lost, count = self.verdict["lost"], self.verdict["published"]
        if self.verdict.ok:
            return f"Nothing was lost: {count:,} messages, every one accounted for."
        if lost:
            return f"{lost:,} messages were LOST."
        return "Nothing was lost, but not every count is as expected."


def measured(report: Report) -> Iterator[tuple[str, str]]:
    """Rates, latencies and pauses, as (name, value)."""
    figures = report.figures
    yield "published, confirmed", f"{figures.confirmed_per_second:,.0f} per second"
    yield "consumed, acked", f"{figures.acked_per_second:,.0f} per second"
    yield "publish to confirm", _latency(figures.confirm_ms)
    yield "publish to delivery, in all", _latency(figures.delivery_ms)
    if report.upgrade_s is not None:
        yield "upgrade of all nodes, finish included", _seconds(report.upgrade_s)
    elif report.grow_s is not None:
        yield "growth from three nodes to five", _seconds(report.grow_s)
    else:
        yield "without a leader", _seconds(report.leaderless_s)
    yield "longest pause of confirms then", _seconds(figures.confirm_pause_s)
    yield "longest pause of deliveries then", _seconds(figures.delivery_pause_s)
    if report.upgrade_s is None and report.grow_s is None:
        yield "killed node, start to caught up", _seconds(report.caught_up_s)
    yield "the whole run, with JVM start", _seconds(report.total_s)


def print_report(report: Report, console: Console) -> None:
    """Write it to a terminal, or to whatever the console writes to."""
    console.print()
    console.print(_counts_table(report.verdict.lines))
    console.print(_measured_table(measured(report)))
    for event in report.events:
        seconds = (event.at_ms - report.figures.start_ms) / 1000
        console.print(f"  at {seconds:6.2f} s  {event.text}", highlight=False)
    for problem in report.verdict.problems:
        console.print(Text(f"  {problem}", style="bold red"))
    console.print()
    console.print(Text(report.headline, style="bold green" if report.verdict.ok else "bold red"))


def _counts_table(lines: Sequence[Line]) -> Table:
    table = Table(title="Rows, from the consumers' own records", title_justify="left")
    table.add_column("")
    table.add_column("actual", justify="right")
    table.add_column("expected", justify="right")
    table.add_column("what it counts")
    for line in lines:
        wanted = "" if line.wanted is None else f"{line.wanted:,}"
        style = "" if line.ok else "bold red"
        table.add_row(line.name, f"{line.actual:,}", wanted, line.meaning, style=style)
    return table


def _measured_table(rows: Iterator[tuple[str, str]]) -> Table:
    table = Table(title="Measured", title_justify="left", show_header=False)
    for name, value in rows:
        table.add_row(name, value)
    return table


def render_html(report: Report) -> str:
    """The whole page, picture and style inside."""
    ok = "ok" if report.verdict.ok else "bad"
    counts = "".join(_count_row(line) for line in report.verdict.lines)
    figures = "".join(_row(name, value) for name, value in measured(report))
    settings = "".join(_row(name, value) for name, value in report.settings)
    start = report.figures.start_ms
    events = "".join(
        _row(f"{(event.at_ms - start) / 1000:.2f} s", event.text) for event in report.events
    )
    problems = "".join(f"<li>{html.escape(problem)}</li>" for problem in report.verdict.problems)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fifo demo: {report.verdict["lost"]:,} lost</title>
<style>{STYLE}</style>
</head>
<body>
<h1>fifo: the demo's report</h1>
<p class="headline {ok}">{html.escape(report.headline)}</p>
{f'<ul class="bad">{problems}</ul>' if problems else ""}
<figure>{draw(report.figures, report.events)}
<figcaption>Throughput over time. Shaded: no leader.</figcaption></figure>
<h2>Rows, from the consumers&#8217; own records</h2>
<table><thead><tr><th></th><th>actual</th><th>expected</th><th>what it counts</th></tr></thead>
<tbody>{counts}</tbody></table>
<h2>Measured</h2>
<table><tbody>{figures}</tbody></table>
<h2>What happened</h2>
<table><tbody>{events}</tbody></table>
<h2>Settings</h2>
<table><tbody>{settings}</tbody></table>
</body>
</html>
"""


def _count_row(line: Line) -> str:
    wanted = "" if line.wanted is None else f"{line.wanted:,}"
    return (
        f'<tr class="{"ok" if line.ok else "bad"}"><th>{html.escape(line.name)}</th>'
        f'<td class="number">{line.actual:,}</td><td class="number">{wanted}</td>'
        f"<td>{html.escape(line.meaning)}</td></tr>\n"
    )


def _row(name: str, value: str) -> str:
    return f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>\n"


def _latency(values: Percentiles) -> str:
    return (
        f"p50 {values.p50:,.0f} ms, p95 {values.p95:,.0f}, p99 {values.p99:,.0f},"
        f" max {values.max:,.0f}"
    )


def _seconds(value: float | None) -> str:
    return "not seen" if value is None else f"{value:.2f} s"


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.headline { font-size: 1.2rem; font-weight: 600; padding: .6rem 1rem; border-radius: .4rem; }
.headline.ok { background: #e3f4e6; color: #14532d; }
.headline.bad { background: #fbe4e2; color: #7f1d1d; }
ul.bad, tr.bad * { color: #b91c1c; font-weight: 600; }
table { border-collapse: collapse; } th { text-align: left; font-weight: 500; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #e5e5e5; vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; } figure svg { width: 100%; height: auto; } figcaption { color: #666; }
"""
