"""Pictures of the queue machine's curves: one file per curve, for people.

Owns how they look. Knows a figure only by its fields; matplotlib is asked for only here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class Point(Protocol):
    """What is drawn of a figure."""

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


def draw(figures: Sequence[Point], folder: Path) -> None:
    """Write `<curve>.svg` for each curve into the folder, which is made where it is missing."""
    import matplotlib as mpl  # an extra: only who draws needs it

    mpl.use("Agg")
    from matplotlib import pyplot  # after the choice of what draws

    folder.mkdir(parents=True, exist_ok=True)
    for curve, title in (_LINES | _BARS).items():
        points = [figure for figure in figures if figure.curve == curve]
        picture, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
        axes.set_title(title)
        (_line if curve in _LINES else _bars)(axes, points)
        picture.savefig(folder / f"machine_{curve}.svg")
        pyplot.close(picture)


def _line(axes: Any, points: Sequence[Point]) -> None:
    """A curve with its spread; its left end may be at none, so the scale is linear up to 1000."""
    places = [point.at for point in points]
    medians = [point.median for point in points]
    axes.fill_between(
        places,
        [point.lowest for point in points],
        [point.highest for point in points],
        alpha=0.2,
    )
    axes.plot(places, medians, marker="o")
    axes.set_xscale("symlog", linthresh=1_000)
    axes.set_ylim(0, 1.3 * max(point.highest for point in points))
    axes.set_xlabel("messages")
    axes.set_ylabel(points[0].unit)


def _bars(axes: Any, points: Sequence[Point]) -> None:
    """A bar for each figure, with its aim as a mark."""
    names = [point.name for point in points]
    axes.barh(names, [point.median for point in points])
    for place, point in enumerate(points):
        if point.most is not None:
            axes.plot([point.most] * 2, [place - 0.4, place + 0.4], color="black")
    axes.invert_yaxis()
    axes.set_xlabel(points[0].unit)
