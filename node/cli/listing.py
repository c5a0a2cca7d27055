"""Lists of the command line: shown once, as JSON, or repeatedly with ``--watch``.

Owns the repetition and its end by Ctrl-C. Must not know what is listed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.live import Live
from rich.text import Text

import fifo
from node.cli import output
from node.cli.errors import CliError
from node.cli.limits import WATCH_S
from node.cli.session import choose_url, cli_error, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import TypeAlias

    Paint: TypeAlias = Callable[[Callable[[], None]], None]

T = TypeVar("T")

Watch = Annotated[bool, typer.Option("--watch", "-w", help="Refresh every second until Ctrl-C.")]


def print_list(
    url: str | None,
    fetch: Callable[[fifo.Client], Awaitable[T]],
    draw: Callable[[T], None],
    *,
    plain: Callable[[T], Any] = lambda found: found,
    as_json: bool,
    watch: bool,
) -> None:
    """Fetch a list from the cluster and print it: `draw` for people, `plain` gives its JSON.

    With `watch` again every second, over changes of leader, until Ctrl-C.
    """
    if not watch:
        found = run(url, fetch)
        if as_json:
            output.print_json(plain(found))
        else:
            draw(found)
        return

    async def work(client: fifo.Client) -> None:
        await repeat(lambda: fetch(client), draw, plain=plain, as_json=as_json, url=url)

    run(url, work)


async def repeat(
    fetch: Callable[[], Awaitable[T]],
    draw: Callable[[T], None],
    *,
    plain: Callable[[T], Any],
    as_json: bool,
    url: str | None = None,
) -> None:
    """Fetch and print again and again; a failure is shown in its turn. Ctrl-C is the orderly end.

    At a terminal each picture takes the place of the one before; elsewhere they follow one
    another, and JSON is one line each.
    """
    with contextlib.suppress(asyncio.CancelledError), _pictures() as paint:
        while True:
            try:
                found = await fetch()
            except fifo.FifoError as error:
                _report(str(cli_error(error, choose_url(url))), paint, as_json=as_json)
            except CliError as error:
                _report(str(error), paint, as_json=as_json)
            else:
                if as_json:
                    sys.stdout.write(output.json_line(plain(found)) + "\n")
                    sys.stdout.flush()
                else:
                    paint(partial(draw, found))
            await asyncio.sleep(WATCH_S)


def _report(problem: str, paint: Paint, *, as_json: bool) -> None:
    """Show a failure in the place of the list; what reads JSON finds it on stderr."""
    if as_json:
        output.note(f"fifo: {problem}")
    else:
        paint(partial(output.note, problem))


@contextlib.contextmanager
def _pictures() -> Iterator[Paint]:
    """Give a function that shows what a drawing function prints."""
    terminal = output.out()
    with contextlib.ExitStack() as stack:
        live = None
        if terminal.is_terminal:
            live = stack.enter_context(Live(console=terminal, screen=True, auto_refresh=False))

        def paint(draw: Callable[[], None]) -> None:
            with output.framed(terminal) as text:
                output.say(f"{datetime.now():%H:%M:%S}, every {WATCH_S:.0f} s until Ctrl-C")
                draw()
            if live is None:
                sys.stdout.write(text.getvalue() + "\n")
                sys.stdout.flush()
            else:
                live.update(Text.from_ansi(text.getvalue()), refresh=True)

        yield paint
