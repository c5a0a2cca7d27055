"""``fifo consume``: receive, print and settle.

Owns the end of the command: after --count messages, when the queue is empty, or with --follow on
Ctrl-C. Messages received but not printed are released, uncounted, when the consumer closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from fifo.client.json_forms import message_view
from fifo.words.consumer_options import AUTO, BY_NAME, CONSUMER_OPTIONS
from node.cli import output
from node.cli.completion import queue_names
from node.cli.errors import CliError, UsageProblem
from node.cli.limits import CONSUME_BATCH, CONSUME_IDLE_S
from node.cli.options import takes_options
from node.cli.session import Url, run
from node.cli.text import printable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator

    import fifo


_SETTLED = ("ok", "dead_lettered")
"""Statuses of a successful settlement; a nack at the limit makes a dead letter."""

_ROWS: Final = tuple(option for option in CONSUMER_OPTIONS if option.name != "pull")
"""The options of a consumer; this command asks for no credit, so nothing would come with `pull`."""


@takes_options(_ROWS)
def consume(
    queue: Annotated[
        str,
        typer.Argument(metavar="QUEUE", autocompletion=queue_names, help="Queue to consume from."),
    ],
    options: dict[str, Any],
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many messages.", metavar="N")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge each message (default).")] = False,
    nack: Annotated[
        bool, typer.Option("--nack", help="Report each message as failed; it is redelivered.")
    ] = False,
    release: Annotated[
        bool, typer.Option("--release", help="Return each message without counting a failure.")
    ] = False,
    terminate: Annotated[
        str | None,
        typer.Option(help="Dead-letter each message with this reason.", metavar="REASON"),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep waiting for messages until Ctrl-C.")
    ] = False,
    url: Url = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.")
    ] = False,
) -> None:
    """Receive, print and settle messages.

    Prints one body per line. Messages are acknowledged unless another settlement is given. Consumer
    options can also be set in the URL and in the file named by FIFO_CONFIG.
    """
    _check_settlement(count, ack, nack, release, terminate is not None)
    tag = options.pop("tag", None)
    unsettled: list[str] = []
    received_any = False

    async def work(client: fifo.Client) -> None:
        nonlocal received_any
        client.on_unsettled = lambda message, error: unsettled.append(f"{message!r}: {error}")
        held = client.options.consumer.get("prefetch", BY_NAME["prefetch"].default)
        if count is not None:  # lock no more than are wanted
            held = min(CONSUME_BATCH if held == AUTO else held, count)
        async with client.consume(queue, prefetch=held, tag=tag, pull=False) as messages:
            idle = None if follow else CONSUME_IDLE_S
            async for batch in received(messages, count=count, idle=idle):
                received_any = True
                for message in batch:
                    _print(message, as_json=as_json)
                # Flush before the ack: an acknowledged message must have been printed, even if this
                # process dies next.
                sys.stdout.flush()
                if nack or release or terminate is not None:
                    unsettled.extend(await _return(batch, release=release, terminate=terminate))
                else:
                    messages.ack_many(batch)

    run(url, work, options)
    if not received_any:
        output.note(
            f"no message received from queue {queue}; "
            f"inspect it: fifo queue show {shlex.quote(queue)}"
        )
    if unsettled:
        raise CliError(f"{len(unsettled)} settlements failed; the first: {unsettled[0]}")


def _check_settlement(
    count: int | None, ack: bool, nack: bool, release: bool, terminate: bool
) -> None:
    """Raise UsageProblem for more than one settlement, or one that would never end."""
    if sum((ack, nack, release, terminate)) > 1:
        raise UsageProblem(
            "--ack, --nack, --release and --terminate exclude one another: give one of them"
        )
    if (nack or release) and count is None:
        raise UsageProblem(
            "--nack and --release redeliver the messages without end: limit them with --count N"
        )


async def received(
    messages: fifo.Consumer[fifo.Message], *, count: int | None, idle: float | None
) -> AsyncIterator[list[fifo.Message]]:
    """Yield batches until `count` messages came, none came for ``idle`` seconds, or a signal."""
    left = count
    with _cancelled_by_signals(messages):
        while left is None or left > 0:
            most = CONSUME_BATCH if left is None else min(CONSUME_BATCH, left)
            batch = await messages.next_batch(most, idle)
            if not batch:
                return
            left = None if left is None else left - len(batch)
            if left == 0:
                # Cancel before settling, so that a returned message is not redelivered to us.
                await messages.cancel()
            yield batch


@contextlib.contextmanager
def _cancelled_by_signals(messages: fifo.Consumer[fifo.Message]) -> Iterator[None]:
    """On Ctrl-C and SIGTERM, settle what was printed and release the rest."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    cancelling: list[asyncio.Task[None]] = []
    for number in numbers:
        loop.add_signal_handler(
            number, lambda: cancelling.append(asyncio.ensure_future(messages.cancel()))
        )
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _return(batch: list[fifo.Message], *, release: bool, terminate: str | None) -> list[str]:
    """Nack, release or terminate all, wait for the receipts, and return the failures."""

    def settle(message: fifo.Message) -> Awaitable[fifo.SettleResult]:
        if terminate is not None:
            return message.terminate(terminate)
        return message.release() if release else message.nack()

    results = await asyncio.gather(*map(settle, batch))
    return [
        f"{message!r}: {result.status}"
        for message, result in zip(batch, results, strict=True)
        if result.status not in _SETTLED
    ]


def _print(message: fifo.Message, *, as_json: bool) -> None:
    """Print one line per message: bodies byte for byte, but made visible for a terminal, which
    would obey their control characters."""
    if as_json:
        line = output.json_line(message_view(message)).encode("utf-8", errors="surrogateescape")
    elif sys.stdout.isatty():
        text = bytes(message.body).decode("utf-8", errors="backslashreplace")
        line = "\n".join(map(printable, text.split("\n"))).encode()
    else:
        line = bytes(message.body)
    sys.stdout.buffer.write(line + b"\n")
