"""Options that choose among messages: for ``fifo message find`` and ``fifo move``.

Owns their names and how the client takes them. Must not know what is done with what is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from node.cli.text import duration
from node.cli.text import headers as read_headers

if TYPE_CHECKING:
    from fifo.client.matching import MatchKeywords

ExceptionType = Annotated[
    str | None,
    typer.Option("--exception", help="Only dead letters of this exception type.", metavar="TYPE"),
]
StackLine = Annotated[
    str | None,
    typer.Option(help="Only dead letters with this line, as `fifo dead-letters` shows it.",
                 metavar="LINE"),
]  # fmt: skip
WithHeader = Annotated[
    list[str] | None,
    typer.Option("--header", help="Only with this header; repeatable.", metavar="NAME=VALUE"),
]
OlderThan = Annotated[
    str | None, typer.Option(help="Only what was published longer ago.", metavar="TIME")
]


def conditions(
    exception: str | None, stack_line: str | None, header: list[str] | None, older: str | None
) -> MatchKeywords:
    """The keywords of the client for what was given."""
    found: MatchKeywords = {}
    if exception is not None:
        found["exception_type"] = exception
    if stack_line is not None:
        found["stack_line"] = stack_line
    if header:
        found["headers"] = read_headers(header)
    if older is not None:
        found["older_than"] = duration(older)
    return found
