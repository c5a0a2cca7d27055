"""Rows of option tables: what a queue, a consumer and a connection have in common.

Owns the form of a row and the kinds of values. A table is a dataclass whose fields are declared
with `row`; `rows` gives its rows. Must not know which options there are, nor what one does.
"""

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from fifo.words import bounds
from fifo.words.durations import to_text


class Kind(Enum):
    """The kinds of values that an option takes."""

    DURATION = "duration"  # on the wire whole milliseconds, in Python seconds
    COUNT = "count"
    SIZE = "size"  # bytes
    FLAG = "flag"
    CHOICE = "choice"
    QUEUE = "queue"  # the name of a queue
    TEXT = "text"
    SECRET = "secret"  # text that is never shown
    BACKOFF = "backoff"  # its text form


@dataclass(frozen=True, slots=True)
class Option:
    """A row of a table. `low` and `high` bound what is a number, both included."""

    wire_name: str
    kind: Kind
    default: Any
    help: str
    default_text: str
    low: int
    high: int
    choices: tuple[str, ...]
    off: str
    changeable: bool

    @property
    def name(self) -> str:
        """The name that users type: durations carry no unit there."""
        return self.wire_name.removesuffix("_ms")

    def shown(self, number: int) -> str:
        """Format a number of this option for people."""
        return to_text(number) if self.kind is Kind.DURATION else str(number)


def row(
    kind: Kind,
    default: Any,
    help: str,
    *,
    default_text: str | None = None,
    low: int = 0,
    high: int = bounds.DURATION_MS_MAX,
    choices: tuple[str, ...] = (),
    off: str = "",
    changeable: bool = True,
) -> Any:
    """Declare a row as a field of its table, under the name on the wire.

    `default_text` says for people what a default of None means; `off` names the command line's
    opposite of a flag, where it is not `no-` and the flag's name.
    """
    return field(
        default=default,
        metadata={
            "kind": kind,
            "help": help,
            "default_text": default_text,
            "low": low,
            "high": high,
            "choices": choices,
            "off": off,
            "changeable": changeable,
        },
    )


def rows(table: type[Any]) -> tuple[Option, ...]:
    """The rows of a table, in its order."""
    return tuple(_option(item.name, item.default, dict(item.metadata)) for item in fields(table))


def _option(wire_name: str, default: Any, found: dict[str, Any]) -> Option:
    text = found["default_text"]
    if text is None:
        text = to_text(default) if found["kind"] is Kind.DURATION else _word(default)
    return Option(wire_name, default=default, **{**found, "default_text": text})


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
