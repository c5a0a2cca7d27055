"""``fifo message``: one message by its id, looked at and acted on.

Owns the commands and their confirmations. Each looks at the message first, and acts on it only as
it was found then: what was confirmed is what happens. Must not know what an action does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

import fifo
from fifo.client.json_forms import message_view
from node.cli import output
from node.cli.conditions import ExceptionType, OlderThan, StackLine, WithHeader, conditions
from node.cli.confirmation import Yes, confirm
from node.cli.errors import UsageProblem
from node.cli.listing import Watch, print_list
from node.cli.messages import MESSAGE_COLUMNS, message_lines, message_row
from node.cli.publish import one_body
from node.cli.scan import scan
from node.cli.session import Json, Url, run
from node.cli.tables import Column
from node.cli.text import duration, seconds_text
from node.cli.text import headers as read_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fifo.client.messages import Action, Place

app = typer.Typer(
    no_args_is_help=True,
    help="Look at one message by its id, and act on it.",
    epilog="Example: fifo message show orders 3.17.42",
)

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="Queue that the message is in.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the message, as in 3.17.42.")]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="Queue that it goes to.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
Body = Annotated[str | None, typer.Option(help="Another body, as text.", metavar="TEXT")]
File = Annotated[
    Path | None, typer.Option(help="File whose content is another body.", metavar="FILE")
]
Key = Annotated[str | None, typer.Option(help="Another key; empty: none.", metavar="KEY")]
Header = Annotated[
    list[str] | None,
    typer.Option(help="Other headers instead of its own; repeatable.", metavar="NAME=VALUE"),
]


@app.command(epilog="Example: fifo message show orders 3.17.42 --json")
def show(queue: Queue, id: Id, url: Url = None, as_json: Json = False) -> None:
    """Show a message and where it stands.

    Ready, locked or delayed, and who holds it.
    """

    async def work(client: fifo.Client) -> fifo.FoundMessage:
        return await client.message(queue, id)

    found = run(url, work)
    if as_json:
        output.print_json(_view(found))
    else:
        output.print_pairs([*_place_lines(found), *message_lines(found)])


@app.command(epilog="Example: fifo message find orders --key c7 --place locked")
def find(
    queue: Queue,
    key: Annotated[
        str | None, typer.Option(help="Only messages with this key.", metavar="KEY")
    ] = None,
    place: Annotated[
        str | None,
        typer.Option(help="Only what is ready, locked or delayed.", metavar="PLACE"),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100, help="Maximum number of messages.", metavar="N")
    ] = 10,
    after: Annotated[
        int, typer.Option(min=0, help="Go on where a page before ended.", metavar="N")
    ] = 0,
    exception: ExceptionType = None,
    stack_line: StackLine = None,
    with_header: WithHeader = None,
    older_than: OlderThan = None,
    watch: Watch = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Find messages wherever they stand.

    They come in the order of their places.
    """
    wanted = conditions(exception, stack_line, with_header, older_than)

    async def fetch(client: fifo.Client) -> fifo.FoundPage:
        found: list[fifo.FoundMessage] = []
        at = after
        while True:
            page = await client.find(
                queue, key=key, place=cast("Place | None", place), limit=limit, after=at, **wanted
            )
            found += page.messages
            # A page may be empty and not the last: of a queue in which few match.
            if found or not page.after:
                return fifo.FoundPage(tuple(found), page.after)
            at = page.after

    def draw(page: fifo.FoundPage) -> None:
        _draw(page.messages)
        if page.after:
            output.note(f"more: --after {page.after}")

    def plain(page: fifo.FoundPage) -> dict[str, Any]:
        return {"messages": [_view(one) for one in page.messages], "after": page.after}

    print_list(url, fetch, draw, plain=plain, as_json=as_json, watch=watch)


app.command(epilog="Example: fifo message scan orders.dlq --state dead --limit 0 --json")(scan)


def _draw(messages: Sequence[fifo.FoundMessage]) -> None:
    if not messages:
        output.note("none")
        return
    output.print_table(
        [Column("place"), *MESSAGE_COLUMNS],
        ([one.place.place, *message_row(one)] for one in messages),
    )


@app.command(epilog="Example: fifo message retry orders 3.17.42")
def retry(
    queue: Queue,
    id: Id,
    target: Annotated[
        str | None,
        typer.Option(help="Queue that a dead letter goes to (default: its source).", metavar="Q"),
    ] = None,
    dry_run: DryRun = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make a message ready now.

    A delayed one where it is; a dead letter goes back to its source.
    """
    _act(url, queue, id, "retry", dry_run=dry_run, as_json=as_json, target=target)


@app.command(epilog="Example: fifo message unlock orders 3.17.42 --delay 1m --yes")
def unlock(
    queue: Queue,
    id: Id,
    delay: Annotated[
        str | None, typer.Option(help="Time until it is ready again.", metavar="TIME")
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Take a message's lock back from its holder, which is notified.

    The message returns to its place, uncounted, and goes to another consumer first.
    """
    _act(
        url, queue, id, "unlock", dry_run=dry_run, as_json=as_json,
        delay=None if delay is None else duration(delay),
        consequence=None if yes else "{holder} loses it, and may have done the work already",
    )  # fmt: skip


@app.command(epilog="Example: fifo message delay orders 3.17.42 10m")
def delay(
    queue: Queue,
    id: Id,
    time: Annotated[str, typer.Argument(metavar="TIME", help="Time from now, as in 10m.")],
    dry_run: DryRun = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delay a message that is ready or delayed, counted from now."""
    _act(url, queue, id, "delay", dry_run=dry_run, as_json=as_json, delay=duration(time))


@app.command(epilog="Example: fifo message cancel orders 3.17.42 --yes")
def cancel(
    queue: Queue,
    id: Id,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delete a message unless a consumer works on it."""
    _act(
        url, queue, id, "cancel", dry_run=dry_run, as_json=as_json,
        consequence=None if yes else "it will be deleted",
    )  # fmt: skip


@app.command(epilog="Example: fifo message delete orders 3.17.42 --yes")
def delete(
    queue: Queue,
    id: Id,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Delete a message, also one that a consumer works on."""
    _act(
        url, queue, id, "delete", dry_run=dry_run, as_json=as_json,
        consequence=None if yes else "it will be deleted",
    )  # fmt: skip


@app.command(epilog="Example: fifo message terminate orders 3.17.42 --reason poison")
def terminate(
    queue: Queue,
    id: Id,
    reason: Annotated[str, typer.Option(help="Why, for the dead letter.", metavar="TEXT")],
    description: Annotated[str | None, typer.Option(help="More about it.", metavar="TEXT")] = None,
    dry_run: DryRun = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Move a message to the dead-letter queue of its queue."""
    _act(
        url, queue, id, "terminate", dry_run=dry_run, as_json=as_json,
        reason=reason, description=description,
    )  # fmt: skip


@app.command(epilog="Example: fifo message move orders 3.17.42 orders.aside")
def move(
    queue: Queue,
    id: Id,
    target: Target,
    dry_run: DryRun = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Move a message to the end of another queue; its counts stay."""
    _act(url, queue, id, "move", dry_run=dry_run, as_json=as_json, target=target)


@app.command(epilog="Example: fifo message resend orders.dlq 3.17.42 --body fixed")
def resend(
    queue: Queue,
    id: Id,
    target: Annotated[
        str | None,
        typer.Option(help="Queue that it goes to (default: its source, or its own).", metavar="Q"),
    ] = None,
    body: Body = None,
    file: File = None,
    key: Key = None,
    header: Header = None,
    dry_run: DryRun = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Begin a message anew under its id.

    Its body, key and headers may be others.
    """
    edits = _edits(body, file, key, header)
    _act(url, queue, id, "resend", dry_run=dry_run, as_json=as_json, target=target, **edits)


@app.command(epilog="Example: fifo message copy orders 3.17.42 orders.test")
def copy(
    queue: Queue,
    id: Id,
    target: Target,
    body: Body = None,
    file: File = None,
    key: Key = None,
    header: Header = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Publish a copy of a message.

    It may be edited; the message itself stays.
    """
    edits = _edits(body, file, key, header)

    async def work(client: fifo.Client) -> str:
        return (await client.copy(queue, id, target, **edits)).id

    copied = run(url, work)
    if as_json:
        output.print_json({"id": id, "queue": queue, "target": target, "copy": copied})
    else:
        output.say(f"message {id} of {queue} is copied to {target} as {copied}")


def _edits(
    body: str | None, file: Path | None, key: str | None, header: list[str] | None
) -> dict[str, Any]:
    """The keywords of the client for what was given."""
    if body is not None and file is not None:
        raise UsageProblem("two bodies: give one of --body TEXT and --file FILE")
    edits: dict[str, Any] = {}
    if body is not None or file is not None:
        edits["body"] = one_body(body, file)
    if key is not None:
        edits["key"] = key or None
    if header is not None:
        edits["headers"] = read_headers(header)
    return edits


_DONE: Final = {
    "retry": "is retried",
    "unlock": "is taken back from its holder",
    "delay": "is delayed",
    "cancel": "is deleted",
    "delete": "is deleted",
    "terminate": "is a dead letter",
    "move": "is moved",
    "resend": "is resent",
}


def _act(
    url: str | None,
    queue: str,
    id: str,
    action: Action,
    *,
    dry_run: bool,
    as_json: bool,
    consequence: str | None = None,
    **options: Any,
) -> None:
    """Look at the message, have the consequence confirmed, and act on it as it was found."""

    async def look(client: fifo.Client) -> fifo.FoundMessage:
        return await client.message(queue, id)

    async def work(client: fifo.Client, found: fifo.FoundMessage) -> str:
        return await client.act(queue, id, action, version=found.place.version, **options)

    async def both(client: fifo.Client) -> fifo.FoundMessage:
        found = await look(client)
        await work(client, found)
        return found

    # While a person is asked no session waits; otherwise one serves for both.
    at_once = consequence is None and not dry_run
    found = run(url, both if at_once else look)
    standing = f"message {id} of {queue}, {_standing(found)}"
    result = {"id": id, "queue": queue, "action": action, "was": found.place.place}
    result |= {"target": options["target"]} if options.get("target") else {}
    if dry_run:
        if as_json:
            output.print_json({**result, "dry_run": True})
        else:
            output.say(f"{standing}: would be acted on ({action})")
        return
    if consequence is not None:
        holder = f"its holder ({found.place.client})" if found.place.consumer else "its holder"
        confirm(f"{standing}: {consequence.format(holder=holder)}", f"Continue ({action})?")

    if not at_once:
        run(url, lambda client: work(client, found))
    if as_json:
        output.print_json(result)
    else:
        output.say(f"message {id} of {queue} {_DONE[action]}; it was {found.place.place}")


def _standing(found: fifo.FoundMessage) -> str:
    place = found.place
    if place.consumer:
        who = place.client or place.tag or f"consumer {place.consumer}"
        return f"locked by {who} for {seconds_text(place.held_s)}"
    if place.due_in_s or place.cause:
        return f"delayed for {seconds_text(place.due_in_s)} more"
    return place.place


def _view(found: fifo.FoundMessage) -> dict[str, Any]:
    return {**message_view(found), **found.place.as_dict()}


def _place_lines(found: fifo.FoundMessage) -> list[tuple[str, object]]:
    return [
        (name.replace("_ms", "").replace("_", " "), _shown(name, value))
        for name, value in found.place.as_dict().items()
        if name != "version" and value not in ("", None)
    ]


def _shown(name: str, value: Any) -> object:
    return seconds_text(value / 1000) if "_ms" in name else value
