"""``fifo queue``: declare, inspect and change queues.

Owns one option for each field of a QueueSpec, under the same name; must not know the behaviour
behind them, which is the machine's. Update with `fifo.QueueSpec`.
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

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.")]


def _option(help_text: str, metavar: str | None = None) -> Any:
    # typer annotates its return value as Any, because it stands in place of the option's value.
    return typer.Option(help=help_text, metavar=metavar, show_default=False)


def _switch(names: str, help_text: str) -> Any:
    return typer.Option(names, help=help_text, show_default=False)


Lock = Annotated[
    str | None, _option("Lock duration of a delivery, 1s to 5m (default 30s).", "TIME")
]
MaxLock = Annotated[
    str | None, _option("Longest total lock, including renewals (default 30m).", "TIME")
]
MaxDeliveries = Annotated[
    str | None,
    _option(
        "Failed deliveries before a message is dead-lettered"
        " (default 20 with a dead-letter queue, else unlimited).",
        "N",
    ),
]
DeadLetter = Annotated[
    str | None, _option("Queue that receives dead letters; created if missing.", "QUEUE")
]
DeadLetterExpired = Annotated[
    bool | None,
    _switch(
        "--dead-letter-expired/--drop-expired",
        "Dead-letter or drop expired messages (default: dead-letter).",
    ),
]
DeadLetterOverflow = Annotated[
    bool | None,
    _switch(
        "--dead-letter-overflow/--drop-overflow",
        "Dead-letter or drop messages evicted by --overflow drop_oldest (default: drop).",
    ),
]
Ordering = Annotated[
    str | None, _option("Delivery order: none, key or single_active (default none).", "ORDER")
]
Priorities = Annotated[
    bool | None,
    _switch(
        "--priorities/--no-priorities",
        "Deliver by priority (default: only with --ordering none).",
    ),
]
OnDelay = Annotated[
    str | None,
    _option(
        "In an ordered queue, whether a delayed return blocks the messages behind it:"
        " block or skip (default block).",
        "ACTION",
    ),
]
OnExhausted = Annotated[
    str | None,
    _option(
        "Fate of a message that reaches --max-deliveries: dead_letter or drop"
        " (default dead_letter).",
        "ACTION",
    ),
]
CountTimeouts = Annotated[
    bool | None,
    _switch(
        "--count-timeouts/--no-count-timeouts",
        "Count an expired lock as a failed delivery (default: count).",
    ),
]
NackBackoff = Annotated[
    str | None,
    _option(
        "Redelivery delay after a nack: fixed:1s, exponential:1s..60s*2 or table:1s,5s,30s"
        " (default fixed:1s).",
        "BACKOFF",
    ),
]
TimeoutBackoff = Annotated[
    str | None,
    _option("Redelivery delay after an expired lock, in the same form (default none).", "BACKOFF"),
]
MaxLength = Annotated[str | None, _option("Maximum number of messages in the queue.", "N")]
MaxBytes = Annotated[
    str | None, _option("Maximum total size of message bodies, as in 64MiB.", "SIZE")
]
Overflow = Annotated[
    str | None,
    _option("Policy of a full queue: reject publishes or drop_oldest (default reject).", "POLICY"),
]
Ttl = Annotated[str | None, _option("Time to live of a message (default unlimited).", "TIME")]
ExpiresUnused = Annotated[
    str | None, _option("Delete the queue after it has been unused for this long.", "TIME")
]
DisconnectGrace = Annotated[
    str | None,
    _option(
        "Return a disconnected client's messages after this long"
        " (default: when their locks expire).",
        "TIME",
    ),
]
DedupWindow = Annotated[
    str | None, _option("How long deduplication ids are remembered (default: not at all).", "TIME")
]
DedupMax = Annotated[
    int | None, _option("Maximum number of deduplication ids remembered (default 1000000).", "N")
]

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
    """Create a queue.

    Idempotent; fails with a diff if the queue exists with different options.
    """
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
    """Change the options of an existing queue.

    Options that are not given keep their values; `none` clears a time, a limit or a name.
    """
    changes = spec_options(locals())
    if not changes:
        raise UsageProblem("nothing to change: give at least one option, as in --ttl 1h")

    async def work(client: fifo.Client) -> None:
        await client.update(name, **changes)

    run(url, work)
    output.say(f"queue {name} is updated")


@app.command("list", epilog="Example: fifo queue list --json")
def list_queues(url: Url = None, as_json: Json = False) -> None:
    """List all queues with their depth."""

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
    """Show all fields of one queue."""

    async def work(client: fifo.Client) -> dict[str, Any]:
        return dict(await client.queue(name))

    queue = run(url, work)
    if as_json:
        output.print_json(queue)
    else:
        output.print_pairs(_flat(queue))


@app.command(epilog="Example: fifo queue purge orders")
def purge(name: Name, url: Url = None) -> None:
    """Delete all messages of a queue that are not locked."""

    async def work(client: fifo.Client) -> int | None:
        return await client.purge(name)

    purged = run(url, work)
    output.say(f"queue {name} is purged" + ("" if purged is None else f": {messages(purged)}"))


@app.command(epilog="Example: fifo queue delete orders")
def delete(name: Name, url: Url = None) -> None:
    """Delete a queue and its messages."""

    async def work(client: fifo.Client) -> None:
        await client.delete(name)

    run(url, work)
    output.say(f"queue {name} is deleted")


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


def spec_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the given options to keywords of a QueueSpec; times become seconds."""
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
    """Flatten nested fields to dotted names, in their order."""
    rows: list[tuple[str, object]] = []
    for key, field in value.items():
        if isinstance(field, dict) and field:
            rows += _flat(field, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", field))
    return rows
