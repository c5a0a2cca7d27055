"""The throughput of a run over time, as an SVG to be put into the report.

Owns how the picture looks. Matplotlib is imported late: it takes a second, and only a finished run
needs it.
"""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from bench.demo.figures import Event, Figures

COLOURS = ("#1b6ca8", "#2a9d4a")
KILL_COLOUR = "#c0392b"
SIZE_INCHES = (10.0, 4.4)
ROOM_FOR_LABELS = 1.3
"""The events' names stand above the curves."""

LABEL_HEIGHTS = (0.98, 0.92, 0.86, 0.80, 0.74)
"""Of the axes, one per event in turn: events follow closely, and their names are long."""

KILLED = "leader killed"
ELECTED = "new leader"
BACK = "started again"
CAUGHT_UP = "caught up"
UPGRADING = "upgrading"
UPGRADED = "upgraded"
FINISHED = "finished"
GROWING = "growing"
GREW = "grew"
"""Kinds of events; between the first two there was no leader, and the picture shades it."""


def draw(figures: Figures, events: Sequence[Event]) -> str:
    """The picture as the text of one `<svg>` element."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # Text stays text, so that it can be searched; a fixed salt gives equal runs equal files.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fifo", "font.size": 9}):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for series, colour in zip(figures.series, COLOURS, strict=True):
            axes.plot(series.times_s, series.rates, color=colour, linewidth=1.6, label=series.name)
            axes.fill_between(series.times_s, series.rates, color=colour, alpha=0.12)
        _mark(axes, figures.start_ms, events)
        axes.set(xlabel="seconds since the first message", ylabel="messages per second")
        axes.set_ylim(0, axes.get_ylim()[1] * ROOM_FOR_LABELS)
        axes.set_xlim(left=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _mark(axes: Axes, start_ms: int, events: Sequence[Event]) -> None:
    """A line per event, and the time without a leader shaded."""
    times = {event.kind: (event.at_ms - start_ms) / 1000 for event in events}
    if KILLED in times and ELECTED in times:
        axes.axvspan(times[KILLED], times[ELECTED], color=KILL_COLOUR, alpha=0.15, linewidth=0)
    for height, event in zip(itertools.cycle(LABEL_HEIGHTS), events, strict=False):
        at = (event.at_ms - start_ms) / 1000
        killed = event.kind == KILLED
        axes.axvline(
            at, color=KILL_COLOUR if killed else "#555", linewidth=1.4 if killed else 0.8, ls="--"
        )
        axes.annotate(
            event.text,
            (at, height),
            xycoords=("data", "axes fraction"),
            xytext=(4, 0),
            textcoords="offset points",
            va="top",
            color=KILL_COLOUR if killed else "#333",
        )
