"""``fifo redrive``, ``move``, ``forget-producer``, ``transfer-leadership``: now and then.

Owns their options, and the waiting for a redrive, which the cluster carries on by itself.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fifo
from node.cli import output
from node.cli.errors import CliError, UsageProblem, one_line
from node.cli.limits import MOVE_MESSAGES, REDRIVE_LOOK_S, TELL_S
from node.cli.session import Json, Url, run
from node.cli.text import duration, messages
from node.cli.text import headers as read_headers
from node.cli.text import rate as read_rate

if TYPE_CHECKING:
    from collections.abc import Mapping


def redrive(
    dead_letter_queue: Annotated[str, typer.Argument(metavar="DLQ")],
    target: Annotated[
        str | None, typer.Option(help="Where to; else where each came from.", metavar="QUEUE")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Only those that died of this.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Only those from this queue.", metavar="QUEUE")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="Only those with this header.", metavar="NAME=VALUE")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only those that died so long ago.", metavar="TIME")
    ] = None,
    min_attempts: Annotated[
        int | None, typer.Option(min=0, help="Only those delivered so often.", metavar="N")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="So many at most.", metavar="N")] = None,
    rate: Annotated[
        str | None, typer.Option(help="As in 100/s, at least 1/s.", metavar="N/s")
    ] = None,
    keep_counts: Annotated[
        bool, typer.Option("--keep-counts", help="Do not start their attempts again.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End the one that is running.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Send dead letters back, each once and in order. Ctrl-C ends the waiting, not the redrive."""
    options: dict[str, Any] = {
        "reason": reason,
        "source": source,
        "headers": read_headers(header) if header else None,
        "older_than": None if older_than is None else duration(older_than),
        "min_attempts": min_attempts,
        "limit": limit,
        "rate": None if rate is None else _whole_rate(rate),
        "reset_counts": not keep_counts,
        "dry_run": dry_run,
    }

    async def work(client: fifo.Client) -> dict[str, Any]:
        if cancel:
            return await client.cancel_redrive(dead_letter_queue)
        view = await client.redrive(dead_letter_queue, target, **options)
        return view if dry_run else await _until_ended(client, dead_letter_queue, view)

    result = run(url, work)
    if as_json:
        output.print_json(result)
    elif dry_run and not cancel:
        output.say(f"{messages(result['messages'])} of {dead_letter_queue} would be moved")
        for name, count in sorted(result["sources"].items()):
            output.say(f"  {count} of queue {name}")
    else:
        output.say(f"redrive of {dead_letter_queue} {result['status']}: {_moved(result)}")
    if result.get("status") == "paused":
        raise CliError(
            f"the redrive waits: {result['reason']}; it goes on by itself when that is over,"
            f" or end it: fifo redrive {dead_letter_queue} --cancel"
        )


async def _until_ended(client: fifo.Client, queue: str, view: dict[str, Any]) -> dict[str, Any]:
    """Watch a redrive until it is over, or waits for somebody; says how far it is."""
    told = asyncio.get_running_loop().time()
    while view["status"] == "running":
        try:
            await asyncio.sleep(REDRIVE_LOOK_S)
        except asyncio.CancelledError:
            output.note(f"the redrive goes on by itself; end it: fifo redrive {queue} --cancel")
            raise
        view = (await client.queue(queue))["redrive"]
        now = asyncio.get_running_loop().time()
        if view["status"] == "running" and now - told >= TELL_S:
            told = now
            output.note(f"redrive of {queue}: {_moved(view)}")
    return view


def _moved(view: Mapping[str, Any]) -> str:
    skipped = f", {view['skipped']} without a source left" if view.get("skipped") else ""
    return f"{messages(view['moved'])} moved{skipped}"


def _whole_rate(text: str) -> int:
    found = read_rate(text)
    if found < 1 or found != int(found):
        raise UsageProblem(f"--rate {text!r}: must be a whole number of messages per second")
    return int(found)


def move(
    source: Annotated[str, typer.Argument(metavar="SOURCE")],
    target: Annotated[str, typer.Argument(metavar="TARGET")],
    limit: Annotated[int | None, typer.Option(min=1, help="So many at most.", metavar="N")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Move what is ready now to another queue.

    From the front, counts kept; what is locked or delayed stays. After Ctrl-C each message is in
    one of the two queues.
    """

    async def work(client: fifo.Client) -> tuple[int, int]:
        await client.queue(target)  # it has to exist, also for a count
        ready = (await client.queue(source))["ready"]
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
            f"{wanted - moved} of {wanted} messages were not moved: {target} takes no more"
            f" (fifo queue show {target}), or somebody else got them"
        )


async def _moving(client: fifo.Client, source: str, target: str, wanted: int) -> int:
    """Move so many in steps; says how far it is. What an error leaves moved is told."""
    moved = 0
    told = asyncio.get_running_loop().time()
    while moved < wanted:
        step = min(wanted - moved, MOVE_MESSAGES)
        try:
            done = await client.move(source, target, step)
        except fifo.QueueFull:
            return moved
        except fifo.FifoError as error:
            raise CliError(f"{one_line(error)} ({messages(moved)} moved for certain)") from error
        moved += done
        if done < step:
            break
        now = asyncio.get_running_loop().time()
        if moved < wanted and now - told >= TELL_S:
            told = now
            output.note(f"{moved} of {wanted} messages moved to {target}")
    return moved


def forget_producer(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As fifo producers QUEUE shows it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = None,
) -> None:
    """Forget a named producer: its numbers start anew. What it has published stays.

    A publish that it repeats, because an answer was lost, may then be stored twice; and who still
    publishes as it is refused until it opens the name again. Unused ones are forgotten by
    themselves after 7 days.
    """
    meaning = f"the numbers of producer {name} start anew: what it sends again may be stored twice"
    if not yes:
        if not sys.stdin.isatty():
            raise UsageProblem(f"{meaning}; if that is meant, add --yes")
        typer.confirm(f"{meaning}. Forget it?", abort=True, err=True)

    async def work(client: fifo.Client) -> None:
        await client.forget_producer(name)

    run(url, work)
    output.say(f"producer {name} is forgotten")


def transfer_leadership(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node that is to lead.")],
    url: Url = None,
) -> None:
    """Let another node lead. Nothing is lost or refused."""

    async def work(client: fifo.Client) -> str:
        leader: str = (await client.status())["node"]  # Sessions are the leader's.
        if leader != node:
            await client.transfer_leadership(node)
        return leader

    before = run(url, work)
    output.say(f"{node} leads already" if before == node else f"{node} leads, after {before}")
