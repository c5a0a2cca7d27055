"""``fifo message scan``: a whole queue, or a choice of it, as it is at one index of the log.

Owns the command and the form of its rows. The messages come from a pinned view on a follower; a
page is printed when it has come, so a queue of any depth takes no more memory than a page.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import fifo
from fifo.client.json_forms import scanned_view
from fifo.client.scanning import cursor_parts
from node.cli import output
from node.cli.conditions import OlderThan, StackLine
from node.cli.messages import MESSAGE_COLUMNS, message_row
from node.cli.session import Json, Url, run
from node.cli.tables import Column
from node.cli.text import duration
from node.cli.text import headers as read_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fifo.client.scanning import ScanState


def scan(
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Queue to look through.")],
    state: Annotated[
        str | None,
        typer.Option(help="Only what is ready, locked, delayed or dead.", metavar="STATE"),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Only with this key.", metavar="KEY")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="Only with this header; repeatable.", metavar="NAME=VALUE"),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Only dead letters of this reason.", metavar="REASON")
    ] = None,
    exception: Annotated[
        str | None, typer.Option(help="Only dead letters of this exception.", metavar="TYPE")
    ] = None,
    stack_line: StackLine = None,
    older_than: OlderThan = None,
    limit: Annotated[
        int, typer.Option(min=0, help="Maximum number of messages; 0: all.", metavar="N")
    ] = 100,
    cursor: Annotated[
        str | None, typer.Option(help="Go on where a scan ended.", metavar="CURSOR")
    ] = None,
    lease: Annotated[
        int, typer.Option(min=1, max=600, help="Seconds that a cursor is good for.", metavar="S")
    ] = 60,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Read a whole queue, and take nothing.

    It is read as it is at one index of the log, whatever its depth.

    With --json a line for each message; the last one has the cursor, where there is more.
    """
    wanted: dict[str, Any] = {
        "state": cast("ScanState | None", state),
        "key": key,
        "headers": read_headers(header or []),
        "reason": reason,
        "exception_type": exception,
        "stack_line": stack_line,
        "older_than": None if older_than is None else duration(older_than),
    }
    given = {name: value for name, value in wanted.items() if value}

    async def work(client: fifo.Client) -> str | None:
        return await _scan(client, queue, cursor, limit, lease, given, as_json=as_json)

    more = run(url, work)
    if more is not None:
        if as_json:
            sys.stdout.write(output.json_line({"cursor": more}) + "\n")
        else:
            output.note(f"more: --cursor {more}")


async def _scan(
    client: fifo.Client,
    queue: str,
    cursor: str | None,
    limit: int,
    lease: int,
    wanted: dict[str, Any],
    *,
    as_json: bool,
) -> str | None:
    """Print what is wanted; the cursor to go on with, if there may be more."""
    if cursor is None:
        view, after = await client.pin(lease=lease), 0
    else:
        ref, after = cursor_parts(cursor)
        view = await client.pinned(ref)
    shown = 0
    at: int | None = after
    try:
        while at is not None and not (limit and shown >= limit):
            size = min(limit - shown, 1_000) if limit else 1_000
            page = await view.page(queue, after=at, limit=size, **wanted)
            _print(page.messages, as_json=as_json)
            shown += len(page.messages)
            at = page.after or None
        if not shown and not as_json:
            output.note("none")
    except BaseException:
        view.leave()
        raise
    if at is None:
        await view.close()
        return None
    view.leave()
    return f"{view.ref}/{at}"


def _print(messages: Sequence[fifo.ScannedMessage], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write("".join(output.json_line(scanned_view(one)) + "\n" for one in messages))
    elif messages:
        rows = ([one.state, *message_row(one)] for one in messages)
        output.print_table([Column("state"), *MESSAGE_COLUMNS], rows)
