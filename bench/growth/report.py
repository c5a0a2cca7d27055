"""Tables of what was measured, and the same as JSON and back.

Owns the form. Knows the names of curves and figures, not how they came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.growth.curves import (
    BATCHES,
    CALM,
    CURVES,
    FIGURES,
    HASHED,
    IDLE,
    LASTED,
    LONE,
    LONGEST,
    MEMORY,
    SLICE,
    STALL,
)
from bench.statistics import spread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.growth.curves import Curve

Found = dict[tuple[str, str, int], list[float]]
"""By curve, figure and size: one value of each repeat."""


HEADS = {
    BATCHES: "batches, us",
    LONE: "one at a time, us",
    IDLE: "idle, ms a second",
    MEMORY: "bytes each",
    LONGEST: "longest work, ms",
    HASHED: "a digest, ms",
    SLICE: "longest slice, ms",
    LASTED: "its end after, s",
    CALM: "longest confirm before, ms",
    STALL: "longest confirm, ms",
}
"""Figures as the head of a page's table names them: a page explains them above."""


def measured_curves(found: Found) -> list[Curve]:
    """Those of which there is anything."""
    there = {curve for curve, _, _ in found}
    return [curve for curve in CURVES if curve.name in there]


def sizes_of(found: Found, curve: Curve) -> list[int]:
    """Sizes of a curve that were measured, in order."""
    return sorted({size for name, _, size in found if name == curve.name})


def table_of(found: Found, curve: Curve) -> list[list[str]]:
    """A head, a line for each size, and how many times the first the last one is."""
    sizes = sizes_of(found, curve)
    there = {figure for name, figure, _ in found if name == curve.name}
    figures = [figure for figure in FIGURES if figure in there]
    rows = [[curve.axis, *figures]]
    for size in sizes:
        cells = [_cell(found.get((curve.name, figure, size))) for figure in figures]
        rows.append([f"{size:,}", *cells])
    if len(sizes) > 1:
        rises = [rise(found, curve, figure) for figure in figures]
        rows.append(["last to first", *("" if one is None else f"x {one:.2f}" for one in rises)])
    return rows


def rise(found: Found, curve: Curve, figure: str) -> float | None:
    """The last value of a figure divided by its first; None where there are no two."""
    values = [
        spread(found[curve.name, figure, size]).median
        for size in sizes_of(found, curve)
        if (curve.name, figure, size) in found
    ]
    return values[-1] / values[0] if len(values) > 1 and values[0] > 0 else None


def _cell(values: Sequence[float] | None) -> str:
    if not values:
        return ""
    digits = 0 if max(values) >= 100 else 1
    median, lowest, highest = (f"{value:,.{digits}f}" for value in spread(values))
    return median if len(values) == 1 else f"{median} ({lowest} to {highest})"


def markdown(found: Found) -> str:
    """The table of a page: a line for each curve, with each figure at its first and last size."""
    figures = [figure for figure in FIGURES if any(figure == key[1] for key in found)]
    table = [["what there is more of", "from / to", *(HEADS[figure] for figure in figures)]]
    table.append(["--"] * len(table[0]))
    for curve in measured_curves(found):
        sizes = sizes_of(found, curve)
        ends = f"{sizes[0]:,} / {sizes[-1]:,}"
        table.append([curve.axis, ends, *(_ends(found, curve, figure) for figure in figures)])
    return "\n".join(
        "|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in table
    )


def _ends(found: Found, curve: Curve, figure: str) -> str:
    """The medians of the first and the last size; of memory only the last, which is the thing's own
    and not that of a process which has just begun."""
    there = [size for size in sizes_of(found, curve) if (curve.name, figure, size) in found]
    if not there:
        return ""
    ends = (spread(found[curve.name, figure, size]).median for size in (there[0], there[-1]))
    first, last = (f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" for value in ends)
    return last if figure == MEMORY or len(there) == 1 else f"{first} / {last}"


def as_json(found: Found) -> list[dict[str, Any]]:
    """Plain data."""
    return [
        {"curve": curve, "figure": figure, "size": size, "values": values}
        for (curve, figure, size), values in found.items()
    ]


def from_json(figures: Sequence[Mapping[str, Any]]) -> Found:
    """The same back."""
    return {
        (str(one["curve"]), str(one["figure"]), int(one["size"])): [float(v) for v in one["values"]]
        for one in figures
    }
