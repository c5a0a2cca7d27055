"""``fifo peek``, ``locks``, ``delayed``, ``consumers``, ``producers``: read-only views.

Owns the columns of their tables. Update with the client's methods of the same names.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from fifo.client.json_forms import message_view
from node.cli import output
from node.cli.completion import queue_names
from node.cli.limits import LIST_COUNT
from node.cli.listing import Watch, print_list
from node.cli.messages import MESSAGE_COLUMNS, message_lines, message_row
from node.cli.session import Json, Url
from node.cli.tables import Column
from node.cli.text import seconds_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import fifo

Queue = Annotated[
    str, typer.Argument(metavar="QUEUE", autocompletion=queue_names, help="Queue to inspect.")
]
Count = Annotated[
    int, typer.Option(min=1, max=1000, help="Maximum number of messages shown.", metavar="N")
]
Details = Annotated[
    bool, typer.Option("--details", help="Show every field, dead-letter details included.")
]


def peek(
    queue: Queue,
    count: Count = 10,
    details: Details = False,
    watch: Watch = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show the next messages without locking them."""

    async def fetch(client: fifo.Client) -> list[fifo.StoredMessage]:
        return list(await client.peek(queue, count))

    def draw(messages: Sequence[fifo.StoredMessage]) -> None:
        if not details:
            output.print_table(MESSAGE_COLUMNS, map(message_row, messages))
            return
        for place, message in enumerate(messages):
            if place:
                output.say("")
            output.print_pairs(message_lines(message))

    def plain(messages: Sequence[fifo.StoredMessage]) -> list[dict[str, Any]]:
        return [message_view(message) for message in messages]

    print_list(url, fetch, draw, plain=plain, as_json=as_json, watch=watch)


def locks(queue: Queue, watch: Watch = False, url: Url = None, as_json: Json = False) -> None:
    """Show locked messages, holders and deadlines."""

    async def fetch(client: fifo.Client) -> Rows:
        return [row.as_dict() for row in await client.locks(queue)]

    print_list(url, fetch, partial(draw_rows, _LOCKS), as_json=as_json, watch=watch)


def delayed(queue: Queue, watch: Watch = False, url: Url = None, as_json: Json = False) -> None:
    """Show delayed messages, reasons and due times."""

    async def fetch(client: fifo.Client) -> Rows:
        return [row.as_dict() for row in await client.delayed(queue)]

    print_list(url, fetch, partial(draw_rows, _DELAYED), as_json=as_json, watch=watch)


def consumers(queue: Queue, watch: Watch = False, url: Url = None, as_json: Json = False) -> None:
    """Show the consumers, their states and their locks."""

    async def fetch(client: fifo.Client) -> Rows:
        return [row.as_dict() for row in await client.consumers(queue)]

    print_list(url, fetch, partial(draw_rows, _CONSUMERS), as_json=as_json, watch=watch)


def producers(queue: Queue, watch: Watch = False, url: Url = None, as_json: Json = False) -> None:
    """Show named producers.

    Includes the last message number of each in this queue.
    """

    async def fetch(client: fifo.Client) -> Rows:
        return [row.as_dict() for row in await client.producers(queue)]

    print_list(url, fetch, partial(draw_rows, _PRODUCERS), as_json=as_json, watch=watch)


def dead_letters(
    queue: Queue, watch: Watch = False, url: Url = None, as_json: Json = False
) -> None:
    """Show dead letters in groups that are alike.

    By reason, source queue, exception type and the line of the stack that names the place; redrive
    a group: fifo redrive QUEUE --exception TYPE --stack-line LINE.
    """

    async def fetch(client: fifo.Client) -> Rows:
        return [row.as_dict() for row in await client.dead_letters(queue)]

    print_list(url, fetch, partial(_draw_groups, _DEAD_LETTERS), as_json=as_json, watch=watch)


Rows: TypeAlias = list[dict[str, Any]]

# Keys of a row by importance: all of the first string are always shown, then the fewer the later.
_LOCKS: Final = (
    "id client",
    "remaining_ms attempt",
    "user label renewals",
    "failures checkout_ms_ago",
)
_DELAYED: Final = ("id cause due_in_ms", "attempt failures")
_CONSUMERS: Final = (
    *("client status flags held", "tag label user suspected_why"),
    "prefetch lost_running lock_ms",
)
_DEAD_LETTERS: Final = ("messages reason exception_type", "stack_line source id", "last_died")
_PRODUCERS: Final = ("name last", "unused_ms", "queues")


def _draw_groups(important: Sequence[str], rows: Rows) -> None:
    """Print groups of dead letters; the times of deaths are times of the day, not durations."""
    for row in rows:
        del row["first_died_ms"]
        died = datetime.fromtimestamp(row.pop("last_died_ms") / 1000, UTC)
        row["last_died"] = died.isoformat(" ", "seconds")
    draw_rows(important, rows)


def draw_rows(important: Sequence[str], rows: Rows) -> None:
    """Print the rows of the reply; their keys are the columns."""
    if not rows:
        output.note("none")
        return
    ranks = {key: rank for rank, keys in enumerate(important) for key in keys.split()}
    shown = rows[:LIST_COUNT]
    keys = list(dict.fromkeys(key for row in shown for key in row))
    output.print_table(
        [_column(key, shown, ranks.get(key, len(important))) for key in keys],
        ([_cell(key, row.get(key)) for key in keys] for row in shown),
    )
    if len(rows) > len(shown):
        output.note(f"{len(rows) - len(shown)} more; --json prints all")


def _column(key: str, rows: Rows, rank: int) -> Column:
    values = [row.get(key) for row in rows]
    numbers = all(isinstance(v, int | float | None) and not isinstance(v, bool) for v in values)
    return Column(key.replace("_ms", "").replace("_", " "), rank, numbers)


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
