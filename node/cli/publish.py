"""``fifo publish``: one message, or a file of any size with one message per line.

Owns the sources of bodies and the window of a stream. A message counts as published once it is
confirmed; when a stream fails, the error names the number of confirmed lines.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fifo.client import FifoError, PublishError
from node.cli import output
from node.cli.completion import queue_names
from node.cli.errors import CliError, UsageProblem
from node.cli.limits import (
    BODY_BYTES_MAX,
    PUBLISH_BATCH,
    PUBLISH_BATCH_BYTES,
    PUBLISH_WINDOW,
)
from node.cli.session import Json, Url, choose_url, run
from node.cli.text import headers, messages, optional_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import fifo


def publish(
    queue: Annotated[
        str,
        typer.Argument(metavar="QUEUE", autocompletion=queue_names, help="Queue to publish to."),
    ],
    body: Annotated[str | None, typer.Option(help="Message body, as text.", metavar="TEXT")] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="File whose content is one body; - for stdin.", metavar="FILE"),
    ] = None,
    lines: Annotated[
        Path | None, typer.Option(help="File with one body per line; - for stdin.", metavar="FILE")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Ordering key.", metavar="KEY")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="Header of the message; repeatable.", metavar="NAME=VALUE"),
    ] = None,
    delay: Annotated[
        str | None, typer.Option(help="Delay before the first delivery, as in 5s.", metavar="TIME")
    ] = None,
    ttl: Annotated[str | None, typer.Option(help="Time to live, as in 1h.", metavar="TIME")] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            min=0, max=9, help="Priority 0-9; 9 is delivered first (default 4).", metavar="N"
        ),
    ] = None,
    dedup_id: Annotated[
        str | None,
        typer.Option(
            help="Deduplication id; repeats within the queue's window are dropped.", metavar="ID"
        ),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Publish messages and wait for the confirms.

    A message is confirmed once a majority of nodes has it on disk.
    """
    if sum(source is not None for source in (body, file, lines)) != 1:
        raise UsageProblem(
            "no body or several: give exactly one of --body TEXT, --file F and --lines F"
        )
    if lines is not None and dedup_id is not None:
        raise UsageProblem(
            "--dedup-id names one message: use it with --body or --file, not with --lines"
        )
    options = _options(key, header or [], optional_duration(delay), optional_duration(ttl))
    if priority is not None:
        options["priority"] = priority
    if dedup_id is not None:
        options["dedup_id"] = dedup_id
    if lines is not None:
        _publish_lines(queue, lines, options, url, as_json=as_json)
    else:
        _publish_one(queue, one_body(body, file), options, url, as_json=as_json)


def _options(
    key: str | None, header: list[str], delay: float | None, ttl: float | None
) -> dict[str, Any]:
    given: dict[str, Any] = {
        "key": key,
        "headers": headers(header) or None,
        "delay": delay,
        "ttl": ttl,
    }
    return {name: value for name, value in given.items() if value is not None}


def one_body(text: str | None, path: Path | None) -> bytes:
    if text is not None:
        # Bytes of an argument that are no UTF-8 arrive as surrogates; restore them.
        return text.encode("utf-8", errors="surrogateescape")
    assert path is not None
    with _opened(path) as source:
        content = source.read(BODY_BYTES_MAX + 1)
    if len(content) > BODY_BYTES_MAX:
        raise CliError(f"{path} is too large for a message: at most {BODY_BYTES_MAX} bytes")
    return content


def _publish_one(
    queue: str, body: bytes, options: Mapping[str, Any], url: str | None, *, as_json: bool
) -> None:
    async def work(client: fifo.Client) -> tuple[fifo.Confirm, bool]:
        confirm = await client.publish(queue, body, **options)
        asked = "dedup_id" in options and not confirm.duplicate
        return confirm, asked and await _forgets_ids(client, queue)

    confirm, forgets = run(url, work)
    if forgets:
        output.note(
            f"--dedup-id has no effect: queue {queue} has no deduplication window; "
            f"set one: fifo queue update {queue} --dedup-window 1h"
        )
    if as_json:
        output.print_json({"id": str(confirm.id), "duplicate": confirm.duplicate})
    else:
        outcome = "is a duplicate" if confirm.duplicate else "is published"
        output.say(f"message {confirm.id} {outcome}")


async def _forgets_ids(client: fifo.Client, queue: str) -> bool:
    """Whether the queue has no deduplication window; False where this user may not see it."""
    try:
        return (await client.queue(queue)).spec["dedup_window_ms"] is None
    except FifoError:
        return False


def _publish_lines(
    queue: str, path: Path, options: Mapping[str, Any], url: str | None, *, as_json: bool
) -> None:
    stream = LineStream(queue, options)
    address = choose_url(url)
    with _opened(path) as source, _progress(source) as progress:
        task = progress.add_task(queue, total=_size_of(source), count=0)

        def show() -> None:
            progress.update(task, completed=stream.bytes_read, count=stream.confirmed)

        async def work(client: fifo.Client) -> None:
            await stream.publish(client, batches(source, path), show)

        try:
            run(address, work)
        except KeyboardInterrupt:
            output.note(f"confirmed {stream.confirmed} lines")
            raise
        except CliError as error:
            raise CliError(f"{error} (confirmed {stream.confirmed} lines)") from error
    if as_json:
        output.print_json({"published": stream.confirmed, "duplicates": stream.duplicates})
    else:
        output.say(f"{messages(stream.confirmed)} published")


_COLUMNS = {
    "key": "keys",
    "headers": "headers",
    "delay": "delays",
    "ttl": "ttls",
    "priority": "priorities",
}
"""Arguments of `publish`, and the names of their per-message lists in `publish_many`."""


class LineStream:
    """Publish batches with a window of a few in flight, and count what was confirmed."""

    def __init__(self, queue: str, options: Mapping[str, Any]) -> None:
        self._queue = queue
        self._columns = {_COLUMNS[name]: value for name, value in options.items()}
        self._under_way: deque[asyncio.Task[fifo.Confirms]] = deque()
        self.confirmed = 0
        self.duplicates = 0
        self.bytes_read = 0

    async def publish(
        self, client: fifo.Client, source: Iterator[list[bytes]], show: Callable[[], None]
    ) -> None:
        """Publish every batch; on the client's error, cancel what is in flight and raise it."""
        try:
            for batch in source:
                if len(self._under_way) >= PUBLISH_WINDOW:
                    await self._oldest()
                columns: dict[str, Any] = {
                    name: [value] * len(batch) for name, value in self._columns.items()
                }
                call = client.publish_many(self._queue, batch, **columns)
                self._under_way.append(asyncio.ensure_future(call))
                # The line ends count as read bytes too.
                self.bytes_read += sum(map(len, batch)) + len(batch)
                show()
                # Reading a file never yields to the event loop; this lets it send the batch.
                await asyncio.sleep(0)
            while self._under_way:
                await self._oldest()
                show()
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def _oldest(self) -> None:
        """Wait for the oldest batch; the confirmed part of a failed one counts too."""
        try:
            confirms = await self._under_way.popleft()
        except PublishError as error:
            self.confirmed += len(error.confirms)
            raise
        self.confirmed += len(confirms)
        self.duplicates += confirms.duplicates


def batches(source: BinaryIO, path: Path) -> Iterator[list[bytes]]:
    """Yield the lines of a file without their ends, in batches bounded in count and bytes."""
    batch: list[bytes] = []
    held = 0
    number = 0
    while line := source.readline(BODY_BYTES_MAX + 2):
        number += 1
        body = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(body) > BODY_BYTES_MAX:
            raise CliError(
                f"{path}: line {number} is too large for a message: at most {BODY_BYTES_MAX} bytes"
            )
        if batch and (len(batch) >= PUBLISH_BATCH or held + len(body) > PUBLISH_BATCH_BYTES):
            yield batch
            batch, held = [], 0
        batch.append(body)
        held += len(body)
    if batch:
        yield batch


def _opened(path: Path) -> BinaryIO:
    if str(path) == "-":
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    try:
        return path.open("rb")
    except OSError as error:
        raise CliError(f"{path} cannot be read: {error.strerror}") from None


def _size_of(source: BinaryIO) -> int | None:
    """Size of the file in bytes; None for a pipe."""
    return os.fstat(source.fileno()).st_size or None


def _progress(source: BinaryIO) -> Progress:
    """A bar where the size is known, else a count; on stderr, and only on a terminal."""
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]} confirmed"),
        TimeElapsedColumn(),
    ]
    if _size_of(source) is None:
        del columns[1]
    console = output.err()
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
