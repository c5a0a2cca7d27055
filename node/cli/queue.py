"""``fifo queue``: declare, look at and change queues.

Owns the options that stand for the fields of a QueueSpec, one each and under the same name; what
they mean is the machine's business. Update with `fifo.QueueSpec`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

import fifo
from node.cli import output
from node.cli.errors import UsageProblem
from node.cli.session import Json, Url, run
from node.cli.text import count, duration, messages, size

if TYPE_CHECKING:
    from collections.abc import Mapping

app = typer.Typer(
    no_args_is_help=True,
    help="Declare, show and change queues.",
    epilog="Example: fifo queue declare orders --lock 30s",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The queue.")]


def _option(help_text: str, metavar: str | None = None) -> Any:
    # typer types what it gives as Any, because it stands in place of the option's value.
    return typer.Option(help=help_text, metavar=metavar, show_default=False)


Lock = Annotated[str | None, _option("How long a delivery is locked, 1s to 5m; 30s.", "TIME")]
MaxLock = Annotated[str | None, _option("At most, renewals included; 30m.", "TIME")]
MaxDeliveries = Annotated[str | None, _option("Failures until it is a dead letter.", "N")]
DeadLetter = Annotated[str | None, _option("Where dead letters go; made if missing.", "QUEUE")]
DeadLetterExpired = Annotated[
    bool | None,
    typer.Option("--dead-letter-expired/--drop-expired", help="What to do with expired messages."),
]
DeadLetterOverflow = Annotated[
    bool | None,
    typer.Option("--dead-letter-overflow/--drop-overflow", help="And with those pushed out."),
]
Ordering = Annotated[str | None, _option("none, key or single_active.", "ORDER")]
Priorities = Annotated[
    bool | None, typer.Option("--priorities/--no-priorities", help="Keep them in an ordered queue.")
]
OnDelay = Annotated[str | None, _option("Ordered: a delayed return should block or skip.", "WHAT")]
OnExhausted = Annotated[str | None, _option("dead_letter, or drop at the limit.", "WHAT")]
CountTimeouts = Annotated[
    bool | None,
    typer.Option("--count-timeouts/--no-count-timeouts", help="Whether a lost lock is a failure."),
]
NackBackoff = Annotated[
    str | None, _option("fixed:1s, exponential:1s..60s*2 or table:1s,5s,30s.", "BACKOFF")
]
TimeoutBackoff = Annotated[str | None, _option("The same, after a lost lock.", "BACKOFF")]
MaxLength = Annotated[str | None, _option("Messages at most.", "N")]
MaxBytes = Annotated[str | None, _option("Bytes of bodies at most, as in 64MiB.", "SIZE")]
Overflow = Annotated[str | None, _option("reject publishers, or drop_oldest.", "WHAT")]
Ttl = Annotated[str | None, _option("Messages expire after this.", "TIME")]
ExpiresUnused = Annotated[str | None, _option("Delete the queue when unused so long.", "TIME")]
DisconnectGrace = Annotated[
    str | None, _option("Return what a lost client holds after this.", "TIME")
]
DedupWindow = Annotated[str | None, _option("Remember dedup ids so long.", "TIME")]
DedupMax = Annotated[int | None, _option("And so many at most.", "N")]

_DURATIONS = ("lock", "max_lock", "ttl", "expires_unused", "disconnect_grace", "dedup_window")
_COUNTS = ("max_deliveries", "max_length")
_CLEARED = "none"


@app.command(
    epilog="\b\nExample: fifo queue declare orders --lock 30s --max-deliveries 5 \\\n"
    "           --dead-letter orders.dlq --nack-backoff exponential:1s..60s*2"
)
def declare(
    name: Name,
    lock: Lock = None,
    max_lock: MaxLock = None,
    max_deliveries: MaxDeliveries = None,
    dead_letter: DeadLetter = None,
    ordering: Ordering = None,
    nack_backoff: NackBackoff = None,
    timeout_backoff: TimeoutBackoff = None,
    count_timeouts: CountTimeouts = None,
    on_exhausted: OnExhausted = None,
    dead_letter_expired: DeadLetterExpired = None,
    dead_letter_overflow: DeadLetterOverflow = None,
    max_length: MaxLength = None,
    max_bytes: MaxBytes = None,
    overflow: Overflow = None,
    ttl: Ttl = None,
    expires_unused: ExpiresUnused = None,
    priorities: Priorities = None,
    on_delay: OnDelay = None,
    disconnect_grace: DisconnectGrace = None,
    dedup_window: DedupWindow = None,
    dedup_max: DedupMax = None,
    url: Url = None,
) -> None:
    """Create a queue. The same spec again is fine; another one is refused with the difference."""
    options = spec_options(locals())

    async def work(client: fifo.Client) -> None:
        await client.declare(fifo.QueueSpec(name, **options))

    run(url, work)
    output.say(f"queue {name} is declared")


@app.command(epilog="Example: fifo queue update orders --max-deliveries 10 --ttl none")
def update(
    name: Name,
    lock: Lock = None,
    max_lock: MaxLock = None,
    max_deliveries: MaxDeliveries = None,
    dead_letter: DeadLetter = None,
    nack_backoff: NackBackoff = None,
    timeout_backoff: TimeoutBackoff = None,
    count_timeouts: CountTimeouts = None,
    on_exhausted: OnExhausted = None,
    dead_letter_expired: DeadLetterExpired = None,
    dead_letter_overflow: DeadLetterOverflow = None,
    max_length: MaxLength = None,
    max_bytes: MaxBytes = None,
    overflow: Overflow = None,
    ttl: Ttl = None,
    expires_unused: ExpiresUnused = None,
    on_delay: OnDelay = None,
    disconnect_grace: DisconnectGrace = None,
    dedup_window: DedupWindow = None,
    dedup_max: DedupMax = None,
    url: Url = None,
) -> None:
    """Change a live queue.

    What is not named stays, and `none` takes a time, a limit or a name away.
    """
    changes = spec_options(locals())
    if not changes:
        raise UsageProblem("nothing to change: name at least one option, as in --ttl 1h")

    async def work(client: fifo.Client) -> None:
        await client.update(name, **changes)

    run(url, work)
    output.say(f"queue {name} is updated")


@app.command("list", epilog="Example: fifo queue list --json")
def list_queues(url: Url = None, as_json: Json = False) -> None:
    """Show all queues with their depth."""

    async def work(client: fifo.Client) -> list[dict[str, Any]]:
        return [dict(queue) for queue in await client.queues()]

    queues = run(url, work)
    if as_json:
        output.print_json(queues)
        return
    output.print_table(
        ("queue", "ready#", "locked#", "delayed#", "bytes#", "consumers#", "state"),
        ([queue.get(key) for key in _LIST_KEYS] + [_queue_state(queue)] for queue in queues),
    )


_LIST_KEYS = ("name", "ready", "locked", "delayed", "bytes", "consumers")


@app.command(epilog="Example: fifo queue show orders")
def show(name: Name, url: Url = None, as_json: Json = False) -> None:
    """Show everything about one queue."""

    async def work(client: fifo.Client) -> dict[str, Any]:
        return dict(await client.queue(name))

    queue = run(url, work)
    if as_json:
        output.print_json(queue)
    else:
        output.print_pairs(_flat(queue))


@app.command(epilog="Example: fifo queue purge orders")
def purge(name: Name, url: Url = None) -> None:
    """Delete all messages that are not locked."""

    async def work(client: fifo.Client) -> int | None:
        return await client.purge(name)

    purged = run(url, work)
    output.say(f"queue {name} is purged" + ("" if purged is None else f": {messages(purged)}"))


@app.command(epilog="Example: fifo queue delete orders")
def delete(name: Name, url: Url = None) -> None:
    """Delete a queue with its messages."""

    async def work(client: fifo.Client) -> None:
        await client.delete(name)

    run(url, work)
    output.say(f"queue {name} is deleted")


@app.command(epilog="Example: fifo queue pause orders")
def pause(name: Name, url: Url = None) -> None:
    """Stop deliveries; publishing and settling go on."""

    async def work(client: fifo.Client) -> None:
        await client.pause(name)

    run(url, work)
    output.say(f"queue {name} is paused; let it go on: fifo queue resume {name}")


@app.command(epilog="Example: fifo queue resume orders")
def resume(name: Name, url: Url = None) -> None:
    """Deliver again."""

    async def work(client: fifo.Client) -> None:
        await client.resume(name)

    run(url, work)
    output.say(f"queue {name} is resumed")


def spec_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of a QueueSpec from the options that were given; times become seconds."""
    options: dict[str, Any] = {}
    for key, value in given.items():
        if value is None or key in ("name", "url"):
            continue
        if isinstance(value, str) and value.lower() == _CLEARED and key != "ordering":
            options[key] = None
        elif key in _DURATIONS:
            options[key] = duration(value)
        elif key in _COUNTS:
            options[key] = count(value)
        elif key == "max_bytes":
            options[key] = size(value)
        else:
            options[key] = value
    return options


def _queue_state(queue: Mapping[str, Any]) -> str:
    return "paused" if queue.get("paused") else "running"


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    """Nested fields as dotted names, in their order."""
    rows: list[tuple[str, object]] = []
    for key, field in value.items():
        if isinstance(field, dict) and field:
            rows += _flat(field, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", field))
    return rows
