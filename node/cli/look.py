"""``fifo peek``, ``locks``, ``delayed``, ``consumers``, ``producers``: read-only views.

Owns the columns of their tables. Update with the client's methods of the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from node.cli import output
from node.cli.limits import LIST_COUNT
from node.cli.messages import MESSAGE_COLUMNS, message_lines, message_row, message_view
from node.cli.session import Json, Url, run
from node.cli.text import seconds_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import fifo

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="Queue to inspect.")]
Count = Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of messages shown.")]
Details = Annotated[
    bool, typer.Option("--details", help="Show every field, dead-letter details included.")
]


def peek(
    queue: Queue,
    count: Count = 10,
    details: Details = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the next messages without locking them."""

    async def work(client: fifo.Client) -> list[fifo.StoredMessage]:
        return list(await client.peek(queue, count))

    messages = run(url, work)
    if as_json:
        output.print_json([message_view(message) for message in messages])
    elif details:
        for place, message in enumerate(messages):
            if place:
                output.say("")
            output.print_pairs(message_lines(message))
    else:
        output.print_table(MESSAGE_COLUMNS, map(message_row, messages))


def locks(queue: Queue, url: Url = None, as_json: Json = False) -> None:
    """Show locked messages, holders and deadlines."""

    async def work(client: fifo.Client) -> list[dict[str, Any]]:
        return [row.as_dict() for row in await client.locks(queue)]

    _print_rows(run(url, work), as_json=as_json)


def delayed(queue: Queue, url: Url = None, as_json: Json = False) -> None:
    """Show delayed messages, reasons and due times."""

    async def work(client: fifo.Client) -> list[dict[str, Any]]:
        return [row.as_dict() for row in await client.delayed(queue)]

    _print_rows(run(url, work), as_json=as_json)


def consumers(queue: Queue, url: Url = None, as_json: Json = False) -> None:
    """Show the consumers, their states and their locks."""

    async def work(client: fifo.Client) -> list[dict[str, Any]]:
        return [row.as_dict() for row in await client.consumers(queue)]

    _print_rows(run(url, work), as_json=as_json)


def producers(queue: Queue, url: Url = None, as_json: Json = False) -> None:
    """Show named producers.

    With the last message of each in this queue.
    """

    async def work(client: fifo.Client) -> list[dict[str, Any]]:
        return [row.as_dict() for row in await client.producers(queue)]

    _print_rows(run(url, work), as_json=as_json)


def _print_rows(rows: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    """Print the rows of the reply; their keys are the columns."""
    if as_json:
        output.print_json(rows)
        return
    if not rows:
        output.note("none")
        return
    shown = rows[:LIST_COUNT]
    keys = list(dict.fromkeys(key for row in shown for key in row))
    output.print_table(
        [_column(key, shown) for key in keys],
        ([_cell(key, row.get(key)) for key in keys] for row in shown),
    )
    if len(rows) > len(shown):
        output.note(f"{len(rows) - len(shown)} more; --json prints all")


def _column(key: str, rows: Iterable[dict[str, Any]]) -> str:
    values = [row.get(key) for row in rows]
    numbers = all(isinstance(v, int | float | None) and not isinstance(v, bool) for v in values)
    return key.replace("_ms", "").replace("_", " ") + ("#" if numbers else "")


def _cell(key: str, value: object) -> object:
    """Format milliseconds, booleans and lists for a reader."""
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float() if "_ms" in key:
            return seconds_text(value / 1000)
        case list() | tuple():
            return ", ".join(map(str, value)) or None
        case _:
            return value
