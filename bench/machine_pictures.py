"""Pictures of the queue machine's curves: one file per curve, for people.

Owns how they look: small files whose bytes depend on the figures alone, in the reader's own fonts,
and ink that follows a page's light or dark scheme. Knows a figure only by its fields; matplotlib is
asked for only here.
"""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Point(Protocol):
    """Curve of a figure."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def median(self) -> float: ...
    @property
    def lowest(self) -> float: ...
    @property
    def highest(self) -> float: ...
    @property
    def most(self) -> float | None: ...
    @property
    def curve(self) -> str | None: ...
    @property
    def at(self) -> int: ...


_LINES = {
    "ready": "publish + checkout + ack by messages ready",
    "locked": "publish + checkout + ack by messages locked",
    "expiring": "10 000 locks that expire together, by other locks",
}
_BARS = {
    "memory": "memory per message, without its body",
    "longest": "longest apply with 1 000 000 messages held",
    "held": "longest apply by where 1 000 000 messages are held",
}


_INK: Final = "#010203"
"""Stands for the colour of text and lines until the picture is written: nothing else has it."""

_DATA: Final = "#3b82d0"
"""Of curves and bars: far enough from white and from black."""

_SCHEMES: Final = (
    "<style>:root{color:#24292f}@media(prefers-color-scheme:dark){:root{color:#e6edf3}}</style>"
)

_STYLE: Final[Any] = {
    "svg.fonttype": "none",  # text stays text: outlines would be most of the file
    "svg.hashsalt": "fifo",  # ids are the same in every run
    "font.family": "sans-serif",
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK
    ),
}

_WIDTH_INCHES: Final = 8.0
_HEIGHT_INCHES: Final = 4.0
_BAR_INCHES: Final = 0.24


def draw(figures: Sequence[Point], folder: Path) -> list[Path]:
    """Write `machine_<curve>.svg` for each curve into the folder, which is made where it is
    missing; the files."""
    import matplotlib as mpl  # an extra: only who draws needs it

    mpl.use("Agg")
    from matplotlib import pyplot  # after the choice of what draws

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for curve, title in (_LINES | _BARS).items():
        points = [figure for figure in figures if figure.curve == curve]
        is_line = curve in _LINES
        height = _HEIGHT_INCHES if is_line else 1 + _BAR_INCHES * len(points)
        with mpl.rc_context(_STYLE):
            size = (_WIDTH_INCHES, height)
            picture, axes = pyplot.subplots(figsize=size, layout="constrained")
            axes.set_title(title)
            (_line if is_line else _bars)(axes, points)
            path = folder / f"machine_{curve}.svg"
            _write(picture, path)
        pyplot.close(picture)
        written.append(path)
    return written


def _write(picture: Any, path: Path) -> None:
    """As SVG without date or version, on no ground, with ink that follows the reader's scheme."""
    drawn = StringIO()
    unsaid = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    picture.savefig(drawn, format="svg", transparent=True, metadata=unsaid)
    text = drawn.getvalue().replace(_INK, "currentColor")
    head, separator, body = text.partition("<defs>")
    lines = (head + _SCHEMES + separator + body).splitlines()
    path.write_text("\n".join(line.strip() for line in lines) + "\n")


def _line(axes: Any, points: Sequence[Point]) -> None:
    """A curve with its spread; its left end may be at none, so the scale is linear up to 1000."""
    places = [point.at for point in points]
    medians = [point.median for point in points]
    axes.fill_between(
        places,
        [point.lowest for point in points],
        [point.highest for point in points],
        alpha=0.25,
        color=_DATA,
        linewidth=0,
    )
    axes.plot(places, medians, marker="o", color=_DATA)
    axes.set_xscale("symlog", linthresh=1_000)
    axes.set_ylim(0, 1.3 * max(point.highest for point in points))
    axes.set_xlabel("messages")
    axes.set_ylabel(points[0].unit)


def _bars(axes: Any, points: Sequence[Point]) -> None:
    """A bar for each figure, with its aim as a mark."""
    names = [point.name.removeprefix("longest apply: ") for point in points]
    axes.barh(names, [point.median for point in points], color=_DATA)
    aims = [point.most for point in points]
    if None not in aims and len(set(aims)) == 1:
        axes.axvline(aims[0], color=_INK)
    else:
        for place, aim in enumerate(aims):
            if aim is not None:
                axes.plot([aim] * 2, [place - 0.4, place + 0.4], color=_INK)
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.set_xlabel(points[0].unit)
