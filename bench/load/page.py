"""The report of one load job as an HTML page that needs nothing else.

Owns the words and the layout. Everything is computed elsewhere.
"""

from __future__ import annotations

import html
from itertools import pairwise
from typing import Any

from bench.check import charts
from bench.check.page import STYLE
from bench.check.settings import flat
from bench.hardware import describe

_FIGURES = (
    ("published, confirmed", "published", "published_per_second", "confirm_ms"),
    ("consumed, acked", "acked", "acked_per_second", "end_to_end_ms"),
)


def headline(report: dict[str, Any]) -> str:
    """The one sentence that matters."""
    rates = (
        f"{report['published_per_second']:,.0f} published and {report['acked_per_second']:,.0f}"
        " acked per second"
    )
    if "failed" in report:
        return f"The job failed, and this is what it did until then: {rates}"
    if "left" not in report:
        return f"The job was interrupted: {rates} until then"
    return rates


def render(report: dict[str, Any]) -> str:
    """The whole page, pictures and style inside."""
    good = "left" in report
    settings = [*flat(report["workload"]), ("machine", describe())]
    outcomes = {**report["outcomes"], "redelivered": report["redelivered"]}
    left = report.get("left", {})
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fifo: load {html.escape(report["workload"]["name"])}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>fifo: load job {html.escape(report["workload"]["name"])}</h1>
<p class="headline {"ok" if good else "bad"}">{html.escape(headline(report))}</p>
{_list([report["failed"]] if "failed" in report else [])}
<table><thead><tr><th></th><th>messages</th><th>per second</th><th>p50 ms</th><th>p95 ms</th>
<th>p99 ms</th></tr></thead><tbody>
{"".join(_line(name, report[n], report[r], report[ms]) for name, n, r, ms in _FIGURES)}
{"".join(_partition(at, one) for at, one in enumerate(report["partitions"]))}</tbody></table>
{_pictures(report)}
<h2>Outcomes</h2>
<table><tbody>{_counts(outcomes)}</tbody></table>
<h2>Left in the queues</h2>
<table><tbody>{_counts(left)}</tbody></table>
<h2>Clocks</h2>
<p>All times are those of the driver's monotonic clock, known on every host to
{report["clock_error_ms"]:,.3f} ms.</p>
<h2>Settings</h2>
<table id="settings"><tbody>{"".join(_row(name, value) for name, value in settings)}</tbody></table>
</body>
</html>
"""


def _pictures(report: dict[str, Any]) -> str:
    """Curves of what was confirmed and delivered, second by second as it was reported."""
    seen = report["progress"]
    shown = ""
    for name in ("confirmed", "delivered"):
        points = {
            at: float(now[name] - before[name])
            for at, (before, now) in enumerate(pairwise(seen), 1)
        }
        if any(points.values()):
            curve = charts.curve(points, "seconds", f"{name} per second")
            shown += f"<figure>{curve}</figure>"
    return shown


def _partition(number: int, one: dict[str, Any]) -> str:
    name = f"{one['role']} {number} on {one['host']}"
    return _line(name, one["messages"], one["per_second"], one["latency_ms"])


def _line(name: str, messages: int, rate: float, latency: dict[str, float | None]) -> str:
    cells = (f"{messages:,}", f"{rate:,.0f}", *(_ms(value) for value in latency.values()))
    numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    return f"<tr><th>{html.escape(name)}</th>{numbers}</tr>\n"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def _list(lines: list[str]) -> str:
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f'<ul class="bad">{items}</ul>' if items else ""


def _counts(counts: dict[str, int]) -> str:
    return "".join(_row(name, f"{count:,}") for name, count in counts.items())


def _row(name: str, value: str) -> str:
    return f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>\n"
