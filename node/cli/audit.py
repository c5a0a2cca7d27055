"""``fifo audit``: who changed what, from where, with what outcome.

Owns the command and how a line is shown. Must not know where the nodes keep the lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from node.cli import output
from node.cli.limits import WATCH_S
from node.cli.session import Json, Url, run
from node.cli.tables import Column
from node.cli.text import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    import fifo


def audit(
    queue: Annotated[
        str | None, typer.Option(help="Only changes of this queue.", metavar="QUEUE")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only by this user.", metavar="NAME")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only since then: a time (ISO 8601), or one ago (1h).", metavar="TIME"),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, help="Maximum number of changes, the newest.", metavar="N")
    ] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new changes until Ctrl-C.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show who changed what, the newest change last. Needs the permission `operate`.

    With --json one line for each change.
    """  # fmt: skip
    begin = None if since is None else _time(since)

    async def work(client: fifo.Client) -> None:
        found = await _newest(client, limit, queue=queue, user=user, since=begin)
        _print(found, as_json=as_json)
        with contextlib.suppress(asyncio.CancelledError):
            while follow:
                await asyncio.sleep(WATCH_S)
                last = found[-1] if found else None
                newer = await _after(client, last, queue=queue, user=user, since=begin)
                _print(newer, as_json=as_json)
                found = newer or found

    run(url, work)


async def _newest(client: fifo.Client, limit: int, **wanted: Any) -> list[fifo.AuditView]:
    """The newest lines, the oldest of them first; page by page, for an answer may be short."""
    found: list[fifo.AuditView] = []
    while len(found) < limit:
        before = found[-1].id if found else None
        page = await client.audit(before=before, limit=limit - len(found), **wanted)
        if not page:
            break
        found += page
    return found[::-1]


async def _after(
    client: fifo.Client, last: fifo.AuditView | None, **wanted: Any
) -> list[fifo.AuditView]:
    """The lines after one, the oldest first."""
    found: list[fifo.AuditView] = []
    before = None
    while page := await client.audit(before=before, **wanted):
        newer = [line for line in page if last is None or _place(line) > _place(last)]
        found += newer
        if len(newer) < len(page):
            break
        before = page[-1].id
    return found[::-1]


def _place(line: fifo.AuditView) -> tuple[int, ...]:
    return tuple(map(int, line.id.split(".")))


def _time(text: str) -> datetime:
    """The time that a text names: a duration ago, or a point in time."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        return datetime.fromtimestamp(datetime.now().timestamp() - duration(text)).astimezone()


_COLUMNS: Final = (
    Column("time"),
    Column("user"),
    Column("from"),
    Column("verb"),
    Column("queue"),
    Column("outcome"),
    Column("change"),
)


def _print(lines: Sequence[fifo.AuditView], *, as_json: bool) -> None:
    if as_json:
        for line in lines:
            sys.stdout.write(output.json_line(line.as_dict()) + "\n")
        sys.stdout.flush()
    elif lines:
        output.print_table(_COLUMNS, map(_row, lines))


def _row(line: fifo.AuditView) -> tuple[object, ...]:
    who = f"{line.client} {line.address}".strip()
    outcome = line.outcome if line.reason is None else f"{line.outcome}: {line.reason}"
    return line.time, line.user, who, line.verb, line.queue, outcome, _change(line)


def _change(line: fifo.AuditView) -> str:
    """The request's details, and what differs after it."""
    said = [f"{key}={_short(value)}" for key, value in line.what.items() if key != "action"]
    if line.before is not None and line.after is not None:
        said += [
            f"{key}: {_short(value)} -> {_short(line.after.get(key))}"
            for key, value in line.before.items()
        ]
    return ", ".join(said)


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
