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
from node.cli.limits import CONSUME_IDLE_S
from node.cli.messages import message_view
from node.cli.session import Url, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    import fifo


_SETTLED = ("ok", "sent", "dead_lettered")
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
    """Receive messages, print their bodies one per line, and settle them (ack)."""
    if sum((ack, nack, release, terminate is not None)) > 1:
        raise UsageProblem("give one of --ack, --nack, --release and --terminate REASON")
    if (nack or release) and count is None:
        raise UsageProblem("--nack and --release need --count N, for the messages come again")
    settle = _settlement(nack=nack, release=release, terminate=terminate)
    unsettled: list[str] = []

    async def work(client: fifo.Client) -> None:
        client.on_unsettled = lambda message, error: unsettled.append(str(error))
        held = prefetch if count is None else min(prefetch, count)
        async with client.consume(queue, prefetch=held) as messages:
            idle = None if follow else CONSUME_IDLE_S
            async for message in received(messages, count=count, idle=idle):
                _print(message, as_json=as_json)
                result = await settle(message)
                if result.status not in _SETTLED:
                    unsettled.append(f"message {message.id}: {result.status}")

    run(url, work)
    if unsettled:
        raise CliError(f"{len(unsettled)} settlements failed, the first: {unsettled[0]}")


async def received(
    messages: fifo.Consumer, *, count: int | None, idle: float | None
) -> AsyncIterator[fifo.Message]:
    """Messages until the count is reached, nothing comes for ``idle`` seconds, or a signal."""
    stop = asyncio.Event()
    stopped = asyncio.ensure_future(stop.wait())
    taken = 0
    with _signals_set(stop):
        while not stop.is_set() and (count is None or taken < count):
            coming = asyncio.ensure_future(anext(messages, None))
            await asyncio.wait((coming, stopped), timeout=idle, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await coming
                break
            message = coming.result()
            if message is None:
                break
            taken += 1
            yield message
    stopped.cancel()


@contextlib.contextmanager
def _signals_set(event: asyncio.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the loop in order: printed messages get settled, others go back."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, event.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def _settlement(
    *, nack: bool, release: bool, terminate: str | None
) -> Callable[[fifo.Message], Awaitable[fifo.SettleResult]]:
    async def settle(message: fifo.Message) -> fifo.SettleResult:
        if nack:
            return await message.nack()
        if release:
            return await message.release()
        if terminate is not None:
            return await message.terminate(terminate)
        return await message.ack()

    return settle


def _print(message: fifo.Message, *, as_json: bool) -> None:
    """One line per message; flushed, because what is acked must have been seen."""
    if as_json:
        sys.stdout.write(output.json_line(message_view(message)) + "\n")
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(bytes(message.body) + b"\n")
    sys.stdout.flush()
