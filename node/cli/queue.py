"""``fifo queue``: declare, inspect and change queues.

Owns the commands; the options of a queue are rows of `fifo.words.queue_options`. Must not know the
behaviour behind them, which is the machine's.
"""

from __future__ import annotations

import inspect
import logging
import re
import shlex
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import fifo
from fifo.client.spec import expiry_warning
from fifo.words.queue_options import BY_NAME
from node.cli import output
from node.cli.completion import queue_names
from node.cli.confirmation import Yes, confirm
from node.cli.errors import CliError, UsageProblem, one_line
from node.cli.listing import Watch, print_list
from node.cli.options import as_typed, takes_options
from node.cli.session import Json, Url, run
from node.cli.tables import Column, number
from node.cli.text import alarm_text, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# What the client warns of, these commands say in their own way: not once more on stderr.
logging.getLogger("fifo.client.queues").addHandler(logging.NullHandler())

app = typer.Typer(
    no_args_is_help=True,
    help="Declare, show and change queues.",
    epilog="Example: fifo queue declare orders --lock 30s",
)

Name = Annotated[
    str, typer.Argument(metavar="NAME", autocompletion=queue_names, help="Name of the queue.")
]

_OPTIONS: Final = tuple(
    BY_NAME[name] for name in inspect.signature(fifo.QueueSpec).parameters if name in BY_NAME
)
"""The rows in the order of `fifo.QueueSpec`: what is asked for most comes first."""


class Sort(StrEnum):
    """Orders of `fifo queue list`, each an attribute of `fifo.QueueView`."""

    NAME = "name"
    READY = "ready"
    LOCKED = "locked"
    DELAYED = "delayed"
    MESSAGES = "messages"
    BYTES = "bytes"
    CONSUMERS = "consumers"


@app.command(
    epilog="\b\nExample: fifo queue declare orders --lock 30s --max-deliveries 5 \\\n"
    "           --dead-letter orders.dlq --nack-backoff exponential:1s..60s*2"
)
@takes_options(_OPTIONS)
def declare(name: Name, options: dict[str, Any], url: Url = None) -> None:
    """Create a queue.

    Idempotent; fails with a diff if the queue exists with different options.
    """

    async def work(client: fifo.Client) -> None:
        try:
            await client.declare(fifo.QueueSpec(name, **options))
        except fifo.QueueExists as error:
            raise CliError(f"{one_line(error)}; {_remedy(name, error.difference)}") from error

    run(url, work)
    output.say(f"queue {name} is declared")
    _warn_of_expiry(name, options.get("expires_unused"))


def _remedy(name: str, difference: Mapping[str, tuple[Any, Any]]) -> str:
    """The command that makes an existing queue as it was declared now, where there is one."""
    rows = {option.wire_name: option for option in _OPTIONS}
    fixed = [rows[key].name for key in difference if key in rows and not rows[key].changeable]
    if fixed:
        return f"{', '.join(fixed)} cannot be changed: delete the queue, or use another name"
    typed = [as_typed(rows[key], new) for key, (_, new) in difference.items() if key in rows]
    return f"change it: fifo queue update {shlex.quote(name)} {' '.join(typed)}"


@app.command(epilog="Example: fifo queue update orders --max-deliveries 10 --ttl none")
@takes_options(option for option in _OPTIONS if option.changeable)
def update(name: Name, options: dict[str, Any], url: Url = None) -> None:
    """Change the options of an existing queue.

    Options that are not given keep their values; `none` clears a time, a limit or a name.
    """
    if not options:
        raise UsageProblem("nothing to change: give at least one option, as in --ttl 1h")

    async def work(client: fifo.Client) -> None:
        await client.update(name, **options)

    run(url, work)
    output.say(f"queue {name} is updated")
    _warn_of_expiry(name, options.get("expires_unused"))


def _warn_of_expiry(name: str, expires_unused: object) -> None:
    """Warn of messages that go with a queue that no consumer uses."""
    if expires_unused:
        output.note(f"warning: {expiry_warning(name)}")


@app.command("list", epilog="Example: fifo queue list 'shop.*' --not-empty --sort locked --watch")
def list_queues(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN",
            autocompletion=queue_names,
            help="Glob pattern of queue names: *, ?, [a-z].",
        ),
    ] = "*",
    sort: Annotated[
        Sort,
        typer.Option(help="Sort by name, or by a number in descending order.", metavar="FIELD"),
    ] = Sort.NAME,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of queues shown.", metavar="N")
    ] = None,
    not_empty: Annotated[
        bool, typer.Option("--not-empty", help="Only queues with messages.")
    ] = False,
    paused: Annotated[bool, typer.Option("--paused", help="Only paused queues.")] = False,
    unconsumed: Annotated[
        bool, typer.Option("--unconsumed", help="Only queues without a consumer.")
    ] = False,
    watch: Watch = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """List queues with their depth."""

    def wanted(queue: fifo.QueueView) -> bool:
        return (
            fnmatchcase(queue.name, pattern)
            and not (not_empty and not queue.messages)
            and not (paused and not queue.paused)
            and not (unconsumed and queue.consumers)
        )

    async def fetch(client: fifo.Client) -> list[dict[str, Any]]:
        prefix = _SPECIAL.split(pattern, 1)[0]
        found = sorted(filter(wanted, await client.queues(prefix)), key=_KEYS[sort])
        return [queue.as_dict() for queue in found[:limit]]

    print_list(url, fetch, _draw_queues, as_json=as_json, watch=watch)


def _by(number: str) -> Callable[[fifo.QueueView], tuple[Any, ...]]:
    return lambda queue: (-getattr(queue, number), queue.name)


_KEYS: Final[Mapping[Sort, Callable[[fifo.QueueView], tuple[Any, ...]]]] = {
    Sort.NAME: lambda queue: (queue.name,),
    **{sort: _by(sort.value) for sort in Sort if sort is not Sort.NAME},
}
_SPECIAL: Final = re.compile(r"[*?[]")
"""The characters with a meaning in a glob pattern: before the first is a prefix of the names."""

_COLUMNS: Final = (
    Column("queue"),
    number("ready"),
    number("locked", 1),
    number("delayed", 2),
    number("bytes", 4),
    number("consumers", 3),
    Column("state", 1),
)
_LIST_KEYS: Final = ("name", "ready", "locked", "delayed", "bytes", "consumers")


def _draw_queues(queues: list[dict[str, Any]]) -> None:
    output.print_table(
        _COLUMNS,
        ([queue.get(key) for key in _LIST_KEYS] + [_queue_state(queue)] for queue in queues),
    )
    for alarm in queues[0].get("alarms") or () if queues else ():
        output.note(f"the leader refuses publishes for {alarm['node']}: {alarm_text(alarm)}")


@app.command(epilog="Example: fifo queue show orders")
def show(name: Name, url: Url = None, as_json: Json = False) -> None:
    """Show all fields of one queue."""

    async def work(client: fifo.Client) -> dict[str, Any]:
        return (await client.queue(name)).as_dict()

    queue = run(url, work)
    if as_json:
        output.print_json(queue)
    else:
        output.print_pairs(_flat(queue))
        _warn_of_expiry(name, queue["spec"].get("expires_unused_ms"))


@app.command(epilog="Example: fifo queue purge orders --yes")
def purge(name: Name, yes: Yes = False, url: Url = None) -> None:
    """Delete all messages of a queue that are not locked.

    Prompts for confirmation on a terminal; elsewhere it needs --yes, unless there is nothing to
    delete.
    """

    async def count(client: fifo.Client) -> int:
        queue = await client.queue(name)
        return queue.ready + queue.delayed

    async def work(client: fifo.Client) -> int | None:
        return await client.purge(name)

    if not yes:
        _confirm_loss(run(url, count), f"of queue {name}", "Purge it?")
    purged = run(url, work)
    output.say(f"queue {name} is purged" + ("" if purged is None else f": {messages(purged)}"))


@app.command(epilog="Example: fifo queue delete orders --yes")
def delete(name: Name, yes: Yes = False, url: Url = None) -> None:
    """Delete a queue and its messages.

    Prompts for confirmation on a terminal; elsewhere it needs --yes, unless the queue is empty.
    """

    async def count(client: fifo.Client) -> int:
        queue = await client.queue(name)
        return queue.ready + queue.locked + queue.delayed

    async def work(client: fifo.Client) -> None:
        await client.delete(name)

    if not yes:
        _confirm_loss(run(url, count), f"of queue {name}", "Delete it?")
    run(url, work)
    output.say(f"queue {name} is deleted")


def _confirm_loss(count: int, place: str, question: str) -> None:
    """Have the loss of `count` messages confirmed; an empty queue loses nothing."""
    if count:
        confirm(f"{messages(count)} {place} will be deleted", question)


@app.command(epilog="Example: fifo queue pause orders")
def pause(name: Name, url: Url = None) -> None:
    """Stop deliveries from a queue; publishing and settling continue."""

    async def work(client: fifo.Client) -> None:
        await client.pause(name)

    run(url, work)
    output.say(f"queue {name} is paused; resume it: fifo queue resume {name}")


@app.command(epilog="Example: fifo queue resume orders")
def resume(name: Name, url: Url = None) -> None:
    """Resume the deliveries of a paused queue."""

    async def work(client: fifo.Client) -> None:
        await client.resume(name)

    run(url, work)
    output.say(f"queue {name} is resumed")


def _queue_state(queue: Mapping[str, Any]) -> str:
    return "paused" if queue.get("paused") else "running"


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """Flatten nested fields to dotted names, in their order."""
    rows: list[tuple[str, object]] = []
    for key, field in value.items():
        if isinstance(field, dict) and field:
            rows += _flat(field, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", field))
    return rows
