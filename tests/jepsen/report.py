"""The result of a suite, for people: one HTML page, and the table of docs/faults.md as Markdown.

Owns how it looks: verdict, violations with the command that runs each again, faults by workload,
"sometimes" counters, a timeline of each run, the memory of its nodes. Judges nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from html import escape

from tests.jepsen.checkers.sometimes import WANTED
from tests.jepsen.history import Event
from tests.jepsen.run import Result
from tests.jepsen.suite import Suite

WIDTH, ROW, LEFT = 940, 16, 150
RATE_HEIGHT = 60

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;font-size:13px}td,th{border:1px solid #ccc;padding:2px 7px}
td.n{text-align:right}.bad{color:#b00020;font-weight:600}.good{color:#1b6e2e;font-weight:600}
pre{background:#f6f6f4;padding:.7em;overflow:auto;font-size:12px}svg text{font:11px system-ui}
details{margin:.6em 0}
"""


def table(suite: Suite) -> tuple[list[str], dict[str, Counter[str]]]:
    """Count the faults begun in each workload: (faults, workload to counts)."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for result in suite.results:
        for event in _nemeses(result.events):
            if event["type"] == "invoke":
                counts[event["value"]["fault"]][result.plan.workload] += 1
    workloads = sorted({result.plan.workload for result in suite.results})
    return workloads, dict(sorted(counts.items()))


def markdown(suite: Suite) -> str:
    """Faults by workload, and the counters, as tables for the docs."""
    workloads, counts = table(suite)
    lines = [
        f"| fault | {' | '.join(workloads)} |",
        "|--|" + "--|" * len(workloads),
    ]
    lines += [
        f"| {fault} | {' | '.join(str(found[one] or '') for one in workloads)} |"
        for fault, found in counts.items()
    ]
    runs = Counter(result.plan.workload for result in suite.results)
    lines.append(f"| runs | {' | '.join(str(runs[one]) for one in workloads)} |")
    lines += ["", "| sometimes | times |", "|--|--|"]
    lines += [f"| {name} | {count} |" for name, count in sorted(suite.seen.items())]
    return "\n".join(lines) + "\n"


def html(suite: Suite) -> str:
    """The whole report."""
    bad = [result for result in suite.results if not result.good]
    events = sum(len(result.events) for result in suite.results)
    verdict = (
        f'<p class="bad">{len(bad)} of {len(suite.results)} runs broke a rule.</p>'
        if bad
        else f'<p class="good">{len(suite.results)} runs, no violation.</p>'
    )
    unseen = "".join(f"<li>{escape(name)}</li>" for name in suite.unseen)
    parts = [
        f"<!doctype html><meta charset=utf-8><title>fault suite</title><style>{_STYLE}</style>",
        "<h1>Fault suite</h1>",
        verdict,
        f"<p>seed {suite.seed}, {suite.took:.0f} s, {events} events. "
        f"Again: <code>python -m tests.jepsen --seed {suite.seed}</code></p>",
        *map(_failure, bad),
        f"<h2>Faults by workload</h2>{_table(suite)}",
        f"<h2>Sometimes</h2>{_counters(suite)}",
        f"<p class=bad>Never seen:</p><ul>{unseen}</ul>" if unseen else "",
        f"<h2>Memory of the nodes</h2>{_memory(suite)}",
        "<h2>Runs</h2>",
        *map(_run, suite.results),
    ]
    return "\n".join(parts)


def _failure(result: Result) -> str:
    return f"<pre class=bad>{escape(result.text())}</pre>"


def _table(suite: Suite) -> str:
    workloads, counts = table(suite)
    head = "".join(f"<th>{escape(one)}</th>" for one in workloads)
    rows = "".join(
        f"<tr><td>{escape(fault)}</td>"
        + "".join(f'<td class="n">{found[one] or ""}</td>' for one in workloads)
        + "</tr>"
        for fault, found in counts.items()
    )
    return f"<table><tr><th></th>{head}</tr>{rows}</table>"


def _counters(suite: Suite) -> str:
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{suite.seen[name]}</td></tr>'
        for name in sorted({*WANTED, *suite.seen})
    )
    return f"<table>{rows}</table>"


def _nemeses(events: list[Event]) -> list[Event]:
    return [one for one in events if one["f"] == "nemesis" and one["value"]["fault"] != "heal"]


def _run(result: Result) -> str:
    state = "good" if result.good else "bad"
    title = f"{result.plan.workload}: {', '.join(result.plan.faults) or result.plan.lasting}"
    return (
        f'<details {"" if result.good else "open"}><summary class="{state}">{escape(title)}, seed'
        f" {result.plan.seed}</summary><pre>{escape(result.plan.again)}</pre>"
        f"{timeline(result.events)}</details>"
    )


def timeline(events: list[Event]) -> str:
    """A picture: what was confirmed and acked over time, leaders, and the faults as bars."""
    if not events:
        return ""
    start, end = float(events[0]["time"]), float(events[-1]["time"])
    scale = (WIDTH - LEFT) / max(end - start, 0.001)

    def at(time: float) -> float:
        return LEFT + (time - start) * scale

    faults = _bars(events, end)
    height = RATE_HEIGHT + ROW * (len(faults) + 2)
    parts = [f'<svg width="{WIDTH}" height="{height}" role="img">']
    for f, colour in (("publish", "#2b6cb0"), ("settle", "#38a169")):
        parts.append(_rate(events, f, colour, start, end))
    for one in events:
        if one["f"] == "leader":
            x, label = at(one["time"]), f"{one['value']['node']} leads"
            parts.append(f'<path d="M{x:.1f} 0V{height}" stroke="#bbb" stroke-dasharray="2 3"/>')
            parts.append(f'<text x="{x + 2:.1f}" y="{height - 4}" fill="#777">{label}</text>')
    for row, (name, spans) in enumerate(faults.items()):
        y = RATE_HEIGHT + ROW * (row + 1)
        parts.append(f'<text x="0" y="{y}">{escape(name)}</text>')
        parts += [
            f'<rect x="{at(a):.1f}" y="{y - 10}" width="{max(2.0, (b - a) * scale):.1f}"'
            f' height="11" fill="#c53030" opacity=".55"><title>{escape(nodes)}</title></rect>'
            for a, b, nodes in spans
        ]
    parts.append('<text x="0" y="12" fill="#2b6cb0">confirmed</text>')
    parts.append('<text x="0" y="26" fill="#38a169">settled</text></svg>')
    return "".join(parts)


def _bars(events: list[Event], end: float) -> dict[str, list[tuple[float, float, str]]]:
    open_: dict[str, float] = {}
    found: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for one in _nemeses(events):
        name = one["value"]["fault"]
        if one["type"] == "invoke":
            open_[name] = one["time"]
        elif one["type"] == "ok" and name in open_:
            found[name].append((open_.pop(name), one["time"], " ".join(one["value"]["nodes"])))
    for name, begun in open_.items():
        found[name].append((begun, end, ""))
    return dict(found)


def _rate(events: list[Event], f: str, colour: str, start: float, end: float) -> str:
    """Number of events that ended ok in each piece of time, as a line."""
    pieces = 120
    counts = [0] * pieces
    for one in events:
        if one["f"] == f and one["type"] == "ok":
            place = int((one["time"] - start) / max(end - start, 0.001) * pieces)
            counts[min(pieces - 1, place)] += 1
    top = max(counts) or 1
    points = " ".join(
        f"{LEFT + place * (WIDTH - LEFT) / pieces:.1f},{RATE_HEIGHT * (1 - count / top) + 2:.1f}"
        for place, count in enumerate(counts)
    )
    return f'<polyline points="{points}" fill="none" stroke="{colour}"/>'


def _memory(suite: Suite) -> str:
    by_node: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for result in suite.results:
        for time, node, size in result.memory:
            by_node[node].append((time, size))
    if not by_node:
        return "<p>not sampled here</p>"
    every = [sample for samples in by_node.values() for sample in samples]
    start, end = min(time for time, _ in every), max(time for time, _ in every)
    top = max(size for _, size in every)
    lines = []
    for node, samples in sorted(by_node.items()):
        points = " ".join(
            f"{LEFT + (time - start) / max(end - start, 1) * (WIDTH - LEFT):.1f},"
            f"{MEMORY_HEIGHT * (1 - size / top) + 2:.1f}"
            for time, size in samples
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{_COLOURS[node[-1:]]}"/>')
    words = f"up to {top >> 20} MiB; {escape(suite.growth_text())}"
    picture = f'<svg width="{WIDTH}" height="{MEMORY_HEIGHT + 4}">{"".join(lines)}</svg>'
    return f"<p>{words}</p>{picture}"


MEMORY_HEIGHT = 120
_COLOURS = defaultdict(lambda: "#718096", {"1": "#2b6cb0", "2": "#38a169", "3": "#b7791f"})
