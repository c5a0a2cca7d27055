"""Pictures of the curves: small panels side by side, one for each thing that grows.

Owns how they look. Written by hand, because a panel of a library that draws takes ten times the
bytes: lines, dots and words, in ink that follows the scheme of the page. Knows figures only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from bench.drawing import DATA, SCHEMES, SECOND
from bench.growth.curves import BATCHES, LONE, LONGEST, MEMORY, STALL
from bench.growth.report import measured_curves, sizes_of
from bench.statistics import Spread, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.growth.curves import Curve
    from bench.growth.report import Found

PICTURES: Final = {"cost": (BATCHES, LONE), "memory": (MEMORY,), "longest": (LONGEST, STALL)}
"""Name of a file to the figures that its panels show, in one scale."""

_COLUMNS: Final = 2
_WIDE, _HIGH = 380, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 30, 26
_LEGEND: Final = 26
_TICKS: Final = 3
_FAR: Final = 30
"""Values that differ by more than this are shown by powers of ten."""

_COLOURS: Final = (DATA, SECOND)

_STYLE: Final = (
    "text{font:11px sans-serif;fill:currentColor}.t{font-size:12px;font-weight:600}"
    ".e{text-anchor:end}.m{text-anchor:middle}.a{stroke:currentColor;opacity:.25}"
)


def draw(found: Found, folder: Path) -> list[Path]:
    """Write each picture of which there is a curve into the folder; the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, figures in PICTURES.items():
        curves = [
            curve
            for curve in measured_curves(found)
            if any(_points(found, curve, figure) for figure in figures)
        ]
        if curves:
            path = folder / f"growth-{name}.svg"
            path.write_text(_picture(found, curves, figures))
            written.append(path)
    return written


def _picture(found: Found, curves: Sequence[Curve], figures: Sequence[str]) -> str:
    lines = -(-len(curves) // _COLUMNS)
    wide, high = _COLUMNS * _WIDE, lines * _HIGH + _LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}">',
        SCHEMES,
        f"<style>{_STYLE}</style>",
    ]
    for place, curve in enumerate(curves):
        x, y = place % _COLUMNS * _WIDE, place // _COLUMNS * _HIGH
        parts.append(f'<g transform="translate({x} {y})">')
        parts += _panel(found, curve, figures)
        parts.append("</g>")
    for place, (figure, colour) in enumerate(zip(figures, _COLOURS, strict=False)):
        x, y = _LEFT + place * _WIDE, high - 9
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 10}" y="{y}">{escape(figure)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(found: Found, curve: Curve, figures: Sequence[str]) -> list[str]:
    lines = [(_points(found, curve, figure), _COLOURS[at]) for at, figure in enumerate(figures)]
    sizes = sizes_of(found, curve)
    up = _Upwards([value for points, _ in lines for _, value in points])
    across = _across(sizes)
    parts = [f'<text class="t" x="{_LEFT}" y="18">{escape(curve.axis)}</text>']
    for tick in up.ticks:
        y = up(tick)
        parts.append(f'<path class="a" d="M{_LEFT} {y}H{_WIDE - _RIGHT}"/>')
        parts.append(f'<text class="e" x="{_LEFT - 5}" y="{y + 4}">{_number(tick)}</text>')
    parts += [
        f'<text class="m" x="{across(size)}" y="{_HIGH - 8}">{_short(size)}</text>'
        for size in sizes
    ]
    for points, colour in lines:
        parts += _line(points, colour, across, up)
    return parts


def _line(
    points: Sequence[tuple[int, Spread]], colour: str, across: Callable[[int], float], up: _Upwards
) -> list[str]:
    """The medians with dots, and a stroke from lowest to highest at each."""
    if not points:
        return []
    places = [(across(size), up(value.median)) for size, value in points]
    way = "L".join(f"{x} {y}" for x, y in places)
    spans = "".join(
        f"M{across(size)} {up(value.lowest)}V{up(value.highest)}" for size, value in points
    )
    look = f'stroke="{colour}" fill="none"'
    return [
        f'<path {look} stroke-width="2" d="M{way}"/>',
        f'<path {look} stroke-width="5" opacity=".35" d="{spans}"/>',
        *(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places),
    ]


def _points(found: Found, curve: Curve, figure: str) -> list[tuple[int, Spread]]:
    return [
        (size, spread(found[curve.name, figure, size]))
        for size in sizes_of(found, curve)
        if (curve.name, figure, size) in found
    ]


def _across(sizes: Sequence[int]) -> Callable[[int], float]:
    """Where a size lies: as many steps apart as powers."""
    low, high = math.log10(sizes[0]), math.log10(sizes[-1])
    room = _WIDE - _LEFT - _RIGHT - 20
    steps = max(high - low, 1e-9)
    return lambda size: round(_LEFT + 10 + room * (math.log10(size) - low) / steps, 1)


class _Upwards:
    """Where a value lies: in a linear scale from zero, or by powers of ten where values are far
    apart."""

    def __init__(self, values: Sequence[Spread]) -> None:
        most, least = max(one.highest for one in values), min(one.lowest for one in values)
        self._by_powers = least > 0 and most / least > _FAR
        if self._by_powers:
            self._low: float = math.floor(math.log10(least))
            self._high: float = math.ceil(math.log10(most))
            self.ticks = [10.0**power for power in range(int(self._low), int(self._high) + 1)]
        else:
            self._low, self._high = 0.0, _round_up(most)
            self.ticks = [self._high * tick / _TICKS for tick in range(_TICKS + 1)]

    def __call__(self, value: float) -> float:
        place = math.log10(value) if self._by_powers else value
        part = (place - self._low) / (self._high - self._low)
        return round(_HIGH - _BOTTOM - (_HIGH - _TOP - _BOTTOM) * part, 1)


def _round_up(value: float) -> float:
    """The next number that a third of is short."""
    unit = 10.0 ** math.floor(math.log10(max(value, 1e-6)))
    steps = (1.2, 1.5, 1.8, 2.4, 3, 4.5, 6, 7.5, 9, 12)
    return next((step * unit for step in steps if step * unit >= value), 12 * unit)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def _short(size: int) -> str:
    """A size as people say it."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if size >= unit:
            return f"{round(size / unit)}{name}"
    return str(size)
