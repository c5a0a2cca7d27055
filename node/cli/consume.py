"""``fifo consume``: receive, print and settle.

Owns when a command ends: after --count messages, when the queue has nothing more, or with --follow
on Ctrl-C. What was received and not printed goes back uncounted when the consumer closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from node.cli import output
from node.cli.errors import CliError, UsageProblem
from node.cli.limits import CONSUME_BATCH, CONSUME_IDLE_S
from node.cli.messages import message_view
from node.cli.session import Url, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Iterator

    import fifo


_SETTLED = ("ok", "dead_lettered")
"""Statuses of a settlement that did what was asked; a nack at the limit makes a dead letter."""


def consume(
    queue: Annotated[str, typer.Argument(metavar="QUEUE")],
    count: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    prefetch: Annotated[int, typer.Option(min=1, max=65_535, help="Held at once.")] = 100,
    ack: Annotated[bool, typer.Option("--ack", help="Done with each; unless told else.")] = False,
    nack: Annotated[bool, typer.Option("--nack", help="Each has failed; it comes again.")] = False,
    release: Annotated[bool, typer.Option("--release", help="Put each back, uncounted.")] = False,
    terminate: Annotated[
        str | None, typer.Option(help="Make each a dead letter.", metavar="REASON")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more until Ctrl-C.")
    ] = False,
    url: Url = None,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object per line.")] = False,
) -> None:
    """Receive, print and settle messages.

    One body per line; acked unless an option says else.
    """
    if sum((ack, nack, release, terminate is not None)) > 1:
        raise UsageProblem("give one of --ack, --nack, --release and --terminate REASON")
    if (nack or release) and count is None:
        raise UsageProblem("--nack and --release need --count N, for the messages come again")
    unsettled: list[str] = []
    received_any = False

    async def work(client: fifo.Client) -> None:
        nonlocal received_any
        client.on_unsettled = lambda message, error: unsettled.append(f"{message!r}: {error}")
        held = prefetch if count is None else min(prefetch, count)
        async with client.consume(queue, prefetch=held) as messages:
            idle = None if follow else CONSUME_IDLE_S
            async for batch in received(messages, count=count, idle=idle):
                received_any = True
                for message in batch:
                    _print(message, as_json=as_json)
                # What is acked must have been seen, whatever becomes of this process.
                sys.stdout.flush()
                if nack or release or terminate is not None:
                    unsettled.extend(await _return(batch, release=release, terminate=terminate))
                else:
                    messages.ack_many(batch)

    run(url, work)
    if not received_any:
        output.note(f"nothing came from queue {queue}; fifo queue show {queue}")
    if unsettled:
        raise CliError(f"{len(unsettled)} settlements failed, the first of {unsettled[0]}")


async def received(
    messages: fifo.Consumer[fifo.Message], *, count: int | None, idle: float | None
) -> AsyncIterator[list[fifo.Message]]:
    """Messages until the count is reached, nothing comes for ``idle`` seconds, or a signal."""
    left = count
    with _cancelled_by_signals(messages):
        while left is None or left > 0:
            most = CONSUME_BATCH if left is None else min(CONSUME_BATCH, left)
            batch = await messages.next_batch(most, idle)
            if not batch:
                return
            left = None if left is None else left - len(batch)
            if left == 0:
                # First of all, so that a returned message is not delivered here once more.
                await messages.cancel()
            yield batch


@contextlib.contextmanager
def _cancelled_by_signals(messages: fifo.Consumer[fifo.Message]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end it in order: what was printed gets settled, the rest goes back."""
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
    """Nack, release or terminate all, and wait for the receipts; gives what did not work."""

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
    """One line per message, bodies as the bytes they are."""
    if as_json:
        line = output.json_line(message_view(message)).encode("utf-8", errors="surrogateescape")
    else:
        line = bytes(message.body)
    sys.stdout.buffer.write(line + b"\n")
