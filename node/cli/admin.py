"""``fifo redrive`` and ``fifo transfer-leadership``: what an operator does now and then.

Owns their options. What the cluster cannot do yet it says itself, and that is passed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from node.cli import output
from node.cli.session import Json, Url, run
from node.cli.text import rate as read_rate

if TYPE_CHECKING:
    import fifo


def redrive(
    dead_letter_queue: Annotated[str, typer.Argument(metavar="DLQ")],
    target: Annotated[
        str | None, typer.Option(help="Where to; else where each came from.", metavar="QUEUE")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Only those that died of this.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many at most.", metavar="N")] = None,
    rate: Annotated[str | None, typer.Option(help="As in 100/s.", metavar="N/s")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send dead letters back, each once and in order."""
    options: dict[str, Any] = {"dry_run": dry_run}
    if target is not None:
        options["target"] = target
    if reason is not None:
        options["filter"] = {"reason": reason}
    if limit is not None:
        options["limit"] = limit
    if rate is not None:
        options["rate"] = read_rate(rate)

    async def work(client: fifo.Client) -> object:
        return await client.redrive(dead_letter_queue, **options)

    result = run(url, work)
    if as_json:
        output.print_json(result)
    else:
        output.say(f"redrive of {dead_letter_queue}: {result}")


def transfer_leadership(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node that is to lead.")],
    url: Url = None,
) -> None:
    """Let another node lead, without losing or refusing anything."""

    async def work(client: fifo.Client) -> None:
        await client.transfer_leadership(node)

    run(url, work)
    output.say(f"{node} leads")
