"""The report on a history as one HTML page that needs nothing else.

Owns the words and the layout. Everything is computed elsewhere.
"""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

from bench.check import charts
from bench.check.legend import LEGEND
from bench.check.verdict import RULES, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from bench.check.figures import Figures, Wait
    from bench.check.verdict import Broken, Verdict


def headline(verdict: Verdict) -> str:
    """The one sentence that matters."""
    if verdict.complaints:
        return f"The history is not whole: {verdict.complaints[0]}"
    if verdict.broken:
        names = ", ".join(one.rule for one in verdict.broken)
        return f"{len(verdict.broken)} of {len(RULES)} rules are broken: {names}."
    return f"Every rule holds over {verdict.events:,} events."


def render(verdict: Verdict, figures: Figures, settings: Iterable[tuple[str, str]]) -> str:
    """The whole page, pictures and style inside."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>fifo: {"every rule holds" if verdict.ok else "rules are broken"}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>fifo: a checked history</h1>
<p class="headline {"ok" if verdict.ok else "bad"}">{html.escape(headline(verdict))}</p>
{_list("bad", verdict.complaints)}
{_list("note", verdict.notes)}
<figure>{charts.throughput(figures)}<figcaption>Throughput. Shaded: faults. Dotted: a new
leader.</figcaption></figure>
<figure>{charts.latency(figures)}<figcaption>Latency per second: thick p99, thin
median.</figcaption></figure>
<div class="pair">
<figure>{charts.held(figures)}<figcaption>From delivery to settlement.</figcaption></figure>
<figure>{charts.attempts(figures)}<figcaption>Deliveries by attempt.</figcaption></figure>
</div>
<h2>Rules</h2>
<table id="rules"><thead><tr><th>rule</th><th></th><th></th></tr></thead>
<tbody>{"".join(_rule(name, words, verdict) for name, words in RULES.items())}</tbody></table>
{"".join(_examples(one) for one in verdict.broken)}
{_events(verdict)}
<h2>Latency, in all</h2>
<table><thead><tr><th></th><th>count</th><th>p50 ms</th><th>p95 ms</th><th>p99 ms</th><th>max
ms</th></tr></thead><tbody>
{"".join(_wait(name, wait) for name, wait in figures.totals.items())}</tbody></table>
<h2>Settlements</h2>
<table><tbody>{_counts(figures.outcomes.items())}</tbody></table>
<h2>Faults</h2>
<table><tbody>{_faults(figures)}</tbody></table>
<h2>Events</h2>
<table><tbody>{_counts(verdict.counts.items())}</tbody></table>
<h2>Settings</h2>
<table id="settings"><tbody>{"".join(_row(name, value) for name, value in settings)}</tbody></table>
<h2>What breaks a rule</h2>
<p class="note">The words are those of docs/history.md, of which these are the sentences.</p>
<table id="legend"><tbody>{"".join(_meaning(name, text) for name, text in LEGEND.items())}</tbody>
</table>
</body>
</html>
"""


def _list(kind: str, lines: Iterable[str]) -> str:
    items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
    return f'<ul class="{kind}">{items}</ul>' if items else ""


def _rule(name: str, words: str, verdict: Verdict) -> str:
    broken = next((one for one in verdict.broken if one.rule == name), None)
    return (
        f'<tr class="{"bad" if broken else "ok"}"><th><a href="#legend-{name}">{name}</a></th>'
        f"<td>{html.escape(words)}</td>"
        f"<td>{html.escape(state_of(verdict, name))}</td></tr>\n"
    )


def _examples(broken: Broken) -> str:
    shown = "".join(
        f"<li>{html.escape(one.subject)}: {html.escape(one.text)}; events"
        f" {', '.join(_link(event) for event in one.events) or 'none'}</li>\n"
        for one in broken.examples
    )
    more = broken.subjects - len(broken.examples)
    rest = f"<p>and {more:,} more</p>" if more else ""
    return f"<h3>{broken.rule}: {html.escape(RULES[broken.rule])}</h3><ul>{shown}</ul>{rest}"


def _link(event: Mapping[str, Any]) -> str:
    return f'<a href="#event-{event["index"]}">{event["index"]}</a>'


def _events(verdict: Verdict) -> str:
    """Each event that an example names, once, in order."""
    named = {
        event["index"]: event
        for broken in verdict.broken
        for one in broken.examples
        for event in one.events
    }
    rows = "".join(
        f'<tr id="event-{index}"><th class="number">{index}</th>'
        f'<td class="number">{event["time"]:.6f} s</td>'
        f"<td>{html.escape(str(event.get('process', '')))}</td>"
        f"<td>{html.escape(event['type'])} {html.escape(event['f'])}</td>"
        f"<td><code>{html.escape(json.dumps(event['value']))}</code></td></tr>\n"
        for index, event in sorted(named.items())
    )
    return f"<h3>Their events</h3><table><tbody>{rows}</tbody></table>" if rows else ""


def _meaning(name: str, text: str) -> str:
    return f'<tr id="legend-{name}"><th>{name}</th><td>{html.escape(text)}</td></tr>\n'


def _wait(name: str, wait: Wait) -> str:
    numbers = "".join(
        f'<td class="number">{value:,.2f}</td>'
        for value in (wait.p50, wait.p95, wait.p99, wait.most)
    )
    return f'<tr><th>{name}</th><td class="number">{wait.messages:,}</td>{numbers}</tr>\n'


def _counts(counts: Iterable[tuple[str, int]]) -> str:
    return "".join(
        f'<tr><th>{html.escape(name)}</th><td class="number">{count:,}</td></tr>\n'
        for name, count in counts
    )


def _faults(figures: Figures) -> str:
    rows = [(f"{one.begin_s:.2f} s", f"{one.name}, {_until(one.end_s)}") for one in figures.faults]
    rows += [(f"{at:.2f} s", text) for at, text in figures.leaders]
    rows.sort(key=lambda row: float(row[0].split()[0]))
    return "".join(_row(*row) for row in rows) or _row("none", "")


def _until(end_s: float | None) -> str:
    return "to the end" if end_s is None else f"until {end_s:.2f} s"


def _row(name: str, value: str) -> str:
    return f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>\n"


STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.headline { font-size: 1.2rem; font-weight: 600; padding: .6rem 1rem; border-radius: .4rem; }
.headline.ok { background: #e3f4e6; color: #14532d; }
.headline.bad { background: #fbe4e2; color: #7f1d1d; }
ul.bad, tr.bad * { color: #b91c1c; font-weight: 600; } ul.note { color: #666; }
table { border-collapse: collapse; } th { text-align: left; font-weight: 500; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #e5e5e5; vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
figure { margin: 1.5rem 0; } figure svg { width: 100%; height: auto; } figcaption { color: #666; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 1rem; }
code { font-size: 12px; overflow-wrap: anywhere; } tr:target { background: #fff3c4; }
"""
