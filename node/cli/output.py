"""Output of commands: data on stdout as tables or JSON, everything else on stderr.

Owns the streams and what reaches them: no control character of a name, a key or a body gets to a
terminal raw. A Console is made per use, because a test or a pipe may have replaced the streams.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from node.cli.tables import cell, fitted
from node.cli.text import UNPRINTABLE, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from node.cli.tables import Column

_PIPE_COLUMNS: Final = 10_000
"""Width of what is no terminal, in characters: a table in a pipe hides and truncates nothing."""

_frame: Console | None = None
"""Where the output goes while a frame of a watched list is drawn."""


def out() -> Console:
    """Console of stdout; wide in a pipe, so that a table never wraps a path or an address."""
    if _frame is not None:
        return _frame
    console = Console(highlight=False, markup=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, markup=False, width=_PIPE_COLUMNS)


def err() -> Console:
    """Console of stderr, for hints, progress and errors."""
    if _frame is not None:
        return _frame
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


@contextlib.contextmanager
def framed(terminal: Console) -> Iterator[io.StringIO]:
    """Collect everything that is printed, as `terminal` would show it."""
    global _frame
    text = io.StringIO()
    _frame = Console(
        file=text,
        force_terminal=terminal.is_terminal,
        width=terminal.width,
        highlight=False,
        markup=False,
        color_system="standard" if terminal.is_terminal else None,
    )
    try:
        yield text
    finally:
        _frame = None


def say(line: str) -> None:
    """Print one line of result on stdout."""
    out().print(Text(printable(line)), soft_wrap=True)


def note(line: str) -> None:
    """Print one line that is not data on stderr."""
    err().print(Text(printable(line)), soft_wrap=True)


def print_json(value: object) -> None:
    """Print one indented JSON document on stdout."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    sys.stdout.write(_escaped(text) + "\n")
    sys.stdout.flush()


def json_line(value: object) -> str:
    """Format a JSON document as one line, without the line end."""
    text = json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))
    return _escaped(text)


def _escaped(document: str) -> str:
    """Escape what JSON allows raw in a string and a terminal obeys: DEL, C1, bidirectional marks.

    The line ends of an indented document stay: inside of strings JSON has escaped them.
    """
    return UNPRINTABLE.sub(_escape, document)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character == "\n":
        return character
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2))


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[object]]) -> None:
    """Print a plain table; columns that do not fit the terminal are named on stderr."""
    console = out()
    found = fitted(columns, rows, console.width)
    console.width = max(console.width, found.width)
    console.print(found.table)
    if found.hidden:
        note(f"hidden, the terminal is too narrow: {', '.join(found.hidden)}; --json has all")


def print_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values, one pair per line, never truncated; a text keeps its line ends."""
    shown = [(printable(name), value) for name, value in pairs]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        lines = str(value).split("\n") if isinstance(value, str) else [value]
        for place, line in enumerate(lines):
            head = name if place == 0 else ""
            out().print(Text(f"{head:<{width}}  ").append_text(cell(line)), soft_wrap=True)
