"""The pictures of a checked history, each as one `<svg>` element.

Owns how they look. Matplotlib is imported late: it takes a second. Faults are shaded over their
whole time, leaders are thin lines. Knows figures only.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from matplotlib.axes import Axes

    from bench.check.figures import Figures

COLOURS = ("#1b6ca8", "#2a9d4a", "#c77f0a", "#7d4fa8", "#5b6770")
FAULT_COLOUR = "#c0392b"
WIDE = (10.0, 3.6)
SMALL = (4.9, 3.0)
DOTTED_BELOW = 60
"""Points that get a dot each: fewer could stand alone, and a line of one point is none."""

NAMES_MAX = 24
"""Faults beyond these are shaded without a name."""


def throughput(figures: Figures) -> str:
    """Events per second over time."""

    def draw(axes: Axes) -> None:
        for name, colour in zip(figures.rates, COLOURS, strict=False):
            series = figures.rates[name]
            if any(series.values()):
                full = {place: series.get(place, 0.0) for place in range(max(series) + 2)}
                _line(axes, figures, full, label=name, color=colour, drawstyle="steps-mid")
        axes.set(xlabel="seconds", ylabel="per second")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter("{x:,.0f}")
        _mark(axes, figures)

    return _svg(WIDE, draw, legend=True)


def latency(figures: Figures) -> str:
    """Median (thin) and 99th percentile (thick) over time, in milliseconds, logarithmic."""

    def draw(axes: Axes) -> None:
        for (name, series), colour in zip(figures.waits.items(), COLOURS, strict=False):
            if series:
                slow = {place: max(wait.p99, 0.01) for place, wait in series.items()}
                usual = {place: max(wait.p50, 0.01) for place, wait in series.items()}
                look = {"color": colour, "marker": "." if len(series) < DOTTED_BELOW else None}
                _line(axes, figures, slow, label=f"{name}, p99", **look)
                _line(axes, figures, usual, label=f"{name}, p50", linewidth=0.7, **look)
        axes.set(xlabel="seconds", ylabel="milliseconds", yscale="log")
        _plain_numbers(axes)
        _mark(axes, figures)

    return _svg(WIDE, draw, legend=True)


def held(figures: Figures) -> str:
    """Time for which messages were held before they were settled."""
    powers = range(min(figures.held, default=0), max(figures.held, default=-1) + 1)
    bars = {_duration(power): figures.held.get(power, 0) for power in powers}
    return _bars(bars, "held for at least")


def attempts(figures: Figures) -> str:
    """Number of deliveries that were the first, second and so on of their message."""
    bars = {str(number): count for number, count in sorted(figures.attempts.items())}
    return _bars(bars, "attempt")


def curve(points: Mapping[int, float], xlabel: str, ylabel: str, *, line: bool = False) -> str:
    """Measured points; `line`: beside the straight line from zero to the last one."""

    def draw(axes: Axes) -> None:
        places = sorted(points)
        heights = [points[x] for x in places]
        # Whole at the upper edge too, where the highest one may be.
        axes.plot(places, heights, marker="o", color=COLOURS[0], clip_on=False)
        if line:
            last = places[-1]
            axes.plot([0, last], [0, points[last]], color="#999", ls="--", label="a straight line")
            axes.set_xlim(left=0)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_formatter("{x:,g}")

    return _svg(WIDE, draw, legend=line)


def _duration(power: int) -> str:
    milliseconds = 1 << power
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.0f} s"


def _bars(bars: Mapping[str, int], label: str) -> str:
    def draw(axes: Axes) -> None:
        axes.bar(list(bars), list(bars.values()), color=COLOURS[0])
        axes.set(xlabel=label, ylabel="messages", yscale="log" if bars else "linear")
        if bars:
            axes.set_ylim(bottom=0.7)
            _plain_numbers(axes)
        axes.tick_params(axis="x", rotation=45 if len(bars) > 6 else 0)

    return _svg(SMALL, draw, legend=False)


def _line(axes: Axes, figures: Figures, series: Mapping[int, float], **look: Any) -> None:
    """A curve over the bins, with gaps where there is nothing."""
    places = range(min(series), max(series) + 1)
    times = [(place + 0.5) * figures.bin_s for place in places]
    values = [series.get(place, float("nan")) for place in places]
    look.setdefault("linewidth", 1.6)
    axes.plot(times, values, **look)


def _plain_numbers(axes: Axes) -> None:
    """On a logarithmic axis: 1,000 and not a power of ten, at whole powers only."""
    from matplotlib.ticker import NullFormatter

    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _mark(axes: Axes, figures: Figures) -> None:
    axes.set_xlim(0, max(figures.seconds, figures.bin_s))
    for number, fault in enumerate(figures.faults):
        end = figures.seconds if fault.end_s is None else fault.end_s
        axes.axvspan(fault.begin_s, end, color=FAULT_COLOUR, alpha=0.14, linewidth=0)
        if number < NAMES_MAX:
            axes.annotate(
                fault.name,
                (fault.begin_s, 0.98 - 0.07 * (number % 5)),
                xycoords=("data", "axes fraction"),
                xytext=(3, 0),
                textcoords="offset points",
                va="top",
                color=FAULT_COLOUR,
            )
    for at, _ in figures.leaders:
        axes.axvline(at, color="#555", linewidth=0.8, ls=":")


def _svg(size: tuple[float, float], draw: Callable[[Axes], None], *, legend: bool) -> str:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    # Text stays text, so that it can be searched; a fixed salt gives equal runs equal files.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fifo", "font.size": 9}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        draw(axes)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if legend and axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower center", ncols=3, frameon=False)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
