"""``fifo redrive``, ``move``, ``forget-producer``, ``transfer-leadership``: administration.

Owns their options, and the waiting for a redrive, which the cluster executes on its own.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fifo
from fifo.wire.limits import FIND_MESSAGES_MAX
from node.cli import output
from node.cli.completion import queue_names
from node.cli.conditions import ExceptionType, OlderThan, StackLine, WithHeader, conditions
from node.cli.confirmation import Yes, confirm
from node.cli.errors import CliError, UsageProblem, one_line
from node.cli.limits import MOVE_MESSAGES, PROGRESS_S, REDRIVE_POLL_S
from node.cli.session import Json, Url, run
from node.cli.text import duration, messages
from node.cli.text import headers as read_headers
from node.cli.text import rate as read_rate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fifo.client.matching import MatchKeywords


def redrive(
    dead_letter_queue: Annotated[
        str,
        typer.Argument(
            metavar="DLQ", autocompletion=queue_names, help="Dead-letter queue to redrive from."
        ),
    ],
    target: Annotated[
        str | None,
        typer.Option(help="Target queue (default: the source queue of each).", metavar="QUEUE"),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(help="Only dead letters with this reason.", metavar="REASON")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Only dead letters from this source queue.", metavar="QUEUE")
    ] = None,
    exception: Annotated[
        str | None, typer.Option(help="Only dead letters of this exception type.", metavar="TYPE")
    ] = None,
    stack_line: Annotated[
        str | None,
        typer.Option(
            help="Only dead letters with this line of the stack (see fifo dead-letters).",
            metavar="LINE",
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="Only dead letters with this header; repeatable.", metavar="NAME=VALUE"),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(help="Only messages dead-lettered longer ago than this.", metavar="TIME"),
    ] = None,
    min_attempts: Annotated[
        int | None,
        typer.Option(min=0, help="Only messages delivered at least this often.", metavar="N"),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of messages to move.", metavar="N")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Rate limit, as in 100/s; at least 1/s.", metavar="N/s")
    ] = None,
    keep_counts: Annotated[
        bool, typer.Option("--keep-counts", help="Keep the attempt and failure counts.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the messages without moving any.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the running redrive of this queue.")
    ] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Redrive dead letters, each once and in order.

    Each returns to its source queue, or to --target. Ctrl-C stops waiting; the redrive continues.
    """
    options: fifo.RedriveKeywords = {
        "reason": reason,
        "source": source,
        "exception_type": exception,
        "stack_line": stack_line,
        "headers": read_headers(header) if header else None,
        "older_than": None if older_than is None else duration(older_than),
        "min_attempts": min_attempts,
        "limit": limit,
        "rate": None if rate is None else _whole_rate(rate),
        "reset_counts": not keep_counts,
    }

    async def work(client: fifo.Client) -> dict[str, Any]:
        if cancel:
            return (await client.cancel_redrive(dead_letter_queue)).as_dict()
        if dry_run:
            count = await client.redrive(dead_letter_queue, target, dry_run=True, **options)
            return count.as_dict()
        begun = await client.redrive(dead_letter_queue, target, **options)
        return await _until_ended(client, dead_letter_queue, begun.as_dict())

    result = run(url, work)
    if as_json:
        output.print_json(result)
    else:
        _print_redrive(dead_letter_queue, result, counted=dry_run and not cancel)
    if result.get("status") == "paused":
        raise CliError(
            f"the redrive is paused: {result['reason']}; it resumes automatically after that;"
            f" cancel it: fifo redrive {dead_letter_queue} --cancel"
        )


def _print_redrive(queue: str, result: Mapping[str, Any], *, counted: bool) -> None:
    """Print the outcome of a redrive, or of a dry run, which only `counted`."""
    if not counted:
        output.say(f"redrive of {queue} {result['status']}: {_moved(result)}")
        return
    output.say(f"{messages(result['messages'])} of {queue} would be moved")
    for name, count in sorted(result["sources"].items()):
        output.say(f"  {count} of queue {name}")


async def _until_ended(client: fifo.Client, queue: str, view: dict[str, Any]) -> dict[str, Any]:
    """Poll a redrive until it ends or is paused; report its progress on stderr."""
    reported = asyncio.get_running_loop().time()
    while view["status"] == "running":
        try:
            await asyncio.sleep(REDRIVE_POLL_S)
        except asyncio.CancelledError:
            output.note(
                f"the redrive continues in the cluster; cancel it: fifo redrive {queue} --cancel"
            )
            raise
        view = (await client.queue(queue)).as_dict()["redrive"]
        now = asyncio.get_running_loop().time()
        if view["status"] == "running" and now - reported >= PROGRESS_S:
            reported = now
            output.note(f"redrive of {queue}: {_moved(view)}")
    return view


def _moved(view: Mapping[str, Any]) -> str:
    skipped = (
        f", {view['skipped']} skipped: no dead letters, or their source queue is gone"
        if view.get("skipped")
        else ""
    )
    return f"{messages(view['moved'])} moved{skipped}"


def _whole_rate(text: str) -> int:
    found = read_rate(text)
    if found < 1 or found != int(found):
        raise UsageProblem(
            f"--rate {text!r} is not a whole number of messages per second; write it as in 100/s"
        )
    return int(found)


def move(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", autocompletion=queue_names, help="Queue to move from."),
    ],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", autocompletion=queue_names, help="Queue to move to.")
    ],
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of messages to move.", metavar="N")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the messages without moving any.")
    ] = False,
    exception: ExceptionType = None,
    stack_line: StackLine = None,
    with_header: WithHeader = None,
    older_than: OlderThan = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Move the ready messages of a queue to another queue.

    Starts at the front and keeps the counts; locked and delayed messages stay. After Ctrl-C each
    message is in exactly one of the two queues. With conditions each message is moved by its id.
    """
    wants = conditions(exception, stack_line, with_header, older_than)
    if wants:
        _move_found(url, source, target, limit, wants, dry_run=dry_run, as_json=as_json)
        return

    async def work(client: fifo.Client) -> tuple[int, int]:
        await client.queue(target)  # fails where the target is missing, also in a dry run
        ready = (await client.queue(source)).ready
        wanted = ready if limit is None else min(ready, limit)
        return wanted, 0 if dry_run else await _moving(client, source, target, wanted)

    wanted, moved = run(url, work)
    if as_json:
        output.print_json({"messages": wanted} if dry_run else {"moved": moved, "asked": wanted})
    elif dry_run:
        output.say(f"{messages(wanted)} of {source} would be moved to {target}")
    else:
        output.say(f"{messages(moved)} moved from {source} to {target}")
    if not dry_run and moved < wanted:
        raise CliError(
            f"{wanted - moved} of {wanted} messages were not moved: {target} is full"
            f" (fifo queue show {target}), or consumers took them from {source}"
        )


def _move_found(
    url: str | None,
    source: str,
    target: str,
    limit: int | None,
    wants: MatchKeywords,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Move the messages that meet conditions, or count them, page by page."""

    async def work(client: fifo.Client) -> int:
        await client.queue(target)
        count = after = 0
        while limit is None or count < limit:
            most = min(FIND_MESSAGES_MAX, FIND_MESSAGES_MAX if limit is None else limit - count)
            if dry_run:
                page = await client.find(source, place="ready", limit=most, after=after, **wants)
                count, after = count + len(page.messages), page.after
            else:
                moved = await client.move_found(source, target, limit=most, after=after, **wants)
                count, after = count + moved.moved, moved.after
            if not after:
                break
        return count

    count = run(url, work)
    if as_json:
        output.print_json({"messages" if dry_run else "moved": count})
    else:
        what = "would be moved" if dry_run else "moved"
        output.say(f"{messages(count)} {what} from {source} to {target}")


async def _moving(client: fifo.Client, source: str, target: str, wanted: int) -> int:
    """Move `wanted` messages in steps; report the progress, and the moved part of a failure."""
    moved = 0
    reported = asyncio.get_running_loop().time()
    while moved < wanted:
        step = min(wanted - moved, MOVE_MESSAGES)
        try:
            done = await client.move(source, target, step)
        except fifo.QueueFull:
            return moved
        except fifo.FifoError as error:
            raise CliError(f"{one_line(error)} (confirmed: {messages(moved)} moved)") from error
        moved += done
        if done < step:
            break
        now = asyncio.get_running_loop().time()
        if moved < wanted and now - reported >= PROGRESS_S:
            reported = now
            output.note(f"{moved} of {wanted} messages moved to {target}")
    return moved


def forget_producer(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name, as shown by `fifo producers QUEUE`.")
    ],
    yes: Yes = False,
    url: Url = None,
) -> None:
    """Forget a named producer.

    Its sequence is reset; its published messages stay. A publish retried after a lost reply may
    then be stored twice, and a client that still publishes under the name is refused until it
    opens the name again. Unused producers are forgotten automatically after 7 days.
    """
    if not yes:
        confirm(
            f"the sequence of producer {name} will be reset: its retries may be stored twice",
            "Forget it?",
        )

    async def work(client: fifo.Client) -> None:
        await client.forget_producer(name)

    run(url, work)
    output.say(f"producer {name} is forgotten")


def transfer_leadership(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Name of the node that becomes leader.")
    ],
    url: Url = None,
) -> None:
    """Transfer leadership to another node.

    No message is lost and no request refused.
    """

    async def work(client: fifo.Client) -> str:
        leader: str = (await client.status()).node  # Only the leader accepts sessions.
        if leader != node:
            await client.transfer_leadership(node)
        return leader

    before = run(url, work)
    output.say(
        f"{node} is already the leader"
        if before == node
        else f"leadership moved from {before} to {node}"
    )
