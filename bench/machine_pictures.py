"""Pictures of the queue machine's curves: one file per curve, for people.

Owns which curves there are and how each is drawn. Knows a figure only by its fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from bench.drawing import DATA, INK, page, write

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

_WIDTH_INCHES: Final = 8.0
_HEIGHT_INCHES: Final = 4.0
_BAR_INCHES: Final = 0.24


def draw(figures: Sequence[Point], folder: Path) -> list[Path]:
    """Write `machine_<curve>.svg` for each curve into the folder, which is made where it is
    missing; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for curve, title in (_LINES | _BARS).items():
        points = [figure for figure in figures if figure.curve == curve]
        is_line = curve in _LINES
        height = _HEIGHT_INCHES if is_line else 1 + _BAR_INCHES * len(points)
        with page(_WIDTH_INCHES, height) as (picture, axes):
            axes.set_title(title)
            (_line if is_line else _bars)(axes, points)
            path = folder / f"machine_{curve}.svg"
            write(picture, path)
        written.append(path)
    return written


def _line(axes: Any, points: Sequence[Point]) -> None:
    """A curve with its spread; its left end may be at none, so the scale is linear up to 1000."""
    places = [point.at for point in points]
    medians = [point.median for point in points]
    axes.fill_between(
        places,
        [point.lowest for point in points],
        [point.highest for point in points],
        alpha=0.25,
        color=DATA,
        linewidth=0,
    )
    axes.plot(places, medians, marker="o", color=DATA)
    axes.set_xscale("symlog", linthresh=1_000)
    axes.set_ylim(0, 1.3 * max(point.highest for point in points))
    axes.set_xlabel("messages")
    axes.set_ylabel(points[0].unit)


def _bars(axes: Any, points: Sequence[Point]) -> None:
    """A bar for each figure, with its aim as a mark."""
    names = [point.name.removeprefix("longest apply: ") for point in points]
    axes.barh(names, [point.median for point in points], color=DATA)
    aims = [point.most for point in points]
    if None not in aims and len(set(aims)) == 1:
        axes.axvline(aims[0], color=INK)
    else:
        for place, aim in enumerate(aims):
            if aim is not None:
                axes.plot([aim] * 2, [place - 0.4, place + 0.4], color=INK)
    axes.margins(y=0.02)
    axes.invert_yaxis()
    axes.set_xlabel(points[0].unit)
