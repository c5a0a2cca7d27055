"""Pictures for the pages of `docs/`: small SVG files that can be read on light and on dark ground.

Owns how they are written: bytes that depend on the figures alone, in the reader's own fonts, with
ink that follows the scheme of the page. Matplotlib is imported late: it is an extra, and takes a
second. Knows no figure.
"""

from __future__ import annotations

from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INK: Final = "#010203"
"""Stands for the colour of text and lines until the picture is written: nothing else has it."""

DATA: Final = "#3b82d0"
SECOND: Final = "#d9822b"
THIRD: Final = "#2fa36b"
"""Of curves, bars and dots: far enough from white, from black and from each other."""

SCHEMES: Final = (
    "<style>:root{color:#24292f}@media(prefers-color-scheme:dark){:root{color:#e6edf3}}</style>"
)

_STYLE: Final[Any] = {
    "svg.fonttype": "none",  # text stays text: outlines would be most of the file
    "svg.hashsalt": "fifo",  # ids are the same in every run
    "font.family": "sans-serif",
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    ),
}


@contextmanager
def page(
    width_inches: float, height_inches: float, rows: int = 1, columns: int = 1
) -> Iterator[tuple[Any, Any]]:
    """A picture and its axes: one, or an array of them where there are more."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot  # after the choice of what draws

    with mpl.rc_context(_STYLE):
        size = (width_inches, height_inches)
        picture, axes = pyplot.subplots(rows, columns, figsize=size, layout="constrained")
        try:
            yield picture, axes
        finally:
            pyplot.close(picture)


def write(picture: Any, path: Path) -> None:
    """As SVG without date or version, on no ground, with ink that follows the reader's scheme."""
    drawn = StringIO()
    unsaid = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    picture.savefig(drawn, format="svg", transparent=True, metadata=unsaid)
    text = drawn.getvalue().replace(INK, "currentColor")
    head, separator, body = text.partition("<defs>")
    lines = (head + SCHEMES + separator + body).splitlines()
    path.write_text("\n".join(line.strip() for line in lines) + "\n")
