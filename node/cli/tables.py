"""Tables that fit their terminal: which columns are shown, and how a cell is written.

Owns the choice of columns by importance. Must not print, and must not know where its rows come
from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.table import Table
from rich.text import Text

from node.cli.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COLUMN_GAP = 2
_LAST_COLUMN_CHARS_MIN = 20

_STYLES = {"leader": "bold green", "follower": "", "candidate": "yellow", "down": "red"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    `rank`: 0 is always shown; of the others the highest is hidden first where the terminal is too
    narrow for all. `number`: aligned to the right.
    """

    title: str
    rank: int = 0
    number: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table for a width, the columns that it shows, and the titles that did not fit."""

    table: Table
    width: int
    hidden: tuple[str, ...]


def number(title: str, rank: int = 0) -> Column:
    """A column of numbers."""
    return Column(title, rank, number=True)


def fitted(columns: Sequence[Column], rows: Iterable[Sequence[object]], width: int) -> Fitted:
    """Lay out a plain table for a width in characters.

    The least important columns are hidden, then the last one is truncated: half an address is
    useless, half a body is not. What is always shown may be wider than the terminal.
    """
    assert columns, "a table needs at least one column"
    cells = [[cell(value) for value in row] for row in rows]
    widths = [
        max([len(column.title), *(row[i].cell_len for row in cells)])
        for i, column in enumerate(columns)
    ]
    shown = _chosen(columns, widths, width)
    taken = sum(widths[i] + _COLUMN_GAP for i in shown[:-1])
    last = shown[-1]
    widths[last] = min(widths[last], max(width - taken, _LAST_COLUMN_CHARS_MIN))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i in shown:
        justify: Literal["left", "right"] = "right" if columns[i].number else "left"
        table.add_column(
            columns[i].title, justify=justify, no_wrap=True, width=widths[i], overflow="ellipsis"
        )
    for row in cells:
        table.add_row(*(row[i] for i in shown))
    hidden = tuple(column.title for i, column in enumerate(columns) if i not in shown)
    return Fitted(table, taken + widths[last], hidden)


def _chosen(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Places of the columns that fit: the least important is left out first, of equals the last."""
    shown = list(range(len(columns)))

    def needed() -> int:
        last = min(widths[shown[-1]], _LAST_COLUMN_CHARS_MIN)
        return sum(widths[i] + _COLUMN_GAP for i in shown[:-1]) + last

    while needed() > width:
        least = max(shown, key=lambda i: (columns[i].rank, i))
        if columns[least].rank == 0:
            break
        shown.remove(least)
    return shown


def cell(value: object) -> Text:
    """A value as text on one line: None is a dash, control characters are made visible."""
    if value is None:
        return Text("-", style="dim")
    text = printable(str(value))
    return Text(text, style=_STYLES.get(text, ""))
