"""What commands print: data on stdout as tables or JSON, everything else on stderr.

Owns the look. A Console is made per use, because a test or a pipe may have replaced the streams.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROLE_STYLES = {"leader": "bold green", "follower": "", "candidate": "yellow", "down": "red"}


def out() -> Console:
    """Where data goes. Tables never wrap a path or an address into uselessness in a pipe."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=200)


def err() -> Console:
    """Where hints, progress and errors go."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def say(line: str) -> None:
    """One line of result for a person, on stdout."""
    out().print(Text(line), soft_wrap=True)


def note(line: str) -> None:
    """One line that is not data, on stderr."""
    err().print(Text(line))


def print_json(value: object) -> None:
    """One JSON document, indented."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def json_line(value: object) -> str:
    """One JSON document on one line, without the line end."""
    return json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A plain table; a column whose name ends in ``#`` is aligned to the right.

    Where no column has a name, there is no line of names.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for name in columns:
        right = name.endswith("#")
        table.add_column(name.rstrip("#"), justify="right" if right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    out().print(table)


def _cell(value: object) -> Text:
    if value is None:
        return Text("-", style="dim")
    text = str(value)
    return Text(text, style=ROLE_STYLES.get(text, ""))
