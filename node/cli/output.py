"""Output of commands: data on stdout as tables or JSON, everything else on stderr.

Owns the layout. A Console is made per use, because a test or a pipe may have replaced the streams.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COLUMN_GAP = 2
_LAST_COLUMN_CHARS_MIN = 20

ROLE_STYLES = {"leader": "bold green", "follower": "", "candidate": "yellow", "down": "red"}


def out() -> Console:
    """Console of stdout; wide in a pipe, so that a table never wraps a path or an address."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=200)


def err() -> Console:
    """Console of stderr, for hints, progress and errors."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def say(line: str) -> None:
    """Print one line of result on stdout."""
    out().print(Text(line), soft_wrap=True)


def note(line: str) -> None:
    """Print one line that is not data on stderr."""
    err().print(Text(line))


def print_json(value: object) -> None:
    """Print one indented JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def json_line(value: object) -> str:
    """Format a JSON document as one line, without the line end."""
    return json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a plain table; a column whose name ends in ``#`` is right-aligned.

    Only the last column is truncated on a narrow terminal: half an address is useless.
    """
    assert columns, "a table needs at least one column"
    cells = [[_cell(value) for value in row] for row in rows]
    titles = [name.rstrip("#") for name in columns]
    widths = [
        max([len(title), *(row[i].cell_len for row in cells)]) for i, title in enumerate(titles)
    ]
    console = out()
    taken = sum(width + _COLUMN_GAP for width in widths[:-1])
    widths[-1] = min(widths[-1], max(console.width - taken, _LAST_COLUMN_CHARS_MIN))
    console.width = max(console.width, taken + widths[-1])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, title, width in zip(columns, titles, widths, strict=True):
        justify: Literal["left", "right"] = "right" if name.endswith("#") else "left"
        table.add_column(title, justify=justify, no_wrap=True, width=width, overflow="ellipsis")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line, never truncated."""
    shown = [(name, _cell(value)) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        out().print(Text(f"{name:<{width}}  ").append_text(value), soft_wrap=True)


def _cell(value: object) -> Text:
    if value is None:
        return Text("-", style="dim")
    text = str(value)
    return Text(text, style=ROLE_STYLES.get(text, ""))
