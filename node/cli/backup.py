"""``fifo backup``: one consistent copy of a cluster while it serves, and what is in such a file.

Owns the commands, the choice of the node that is read, and progress. The copy is a pinned view of
that node, read piece by piece; a connection that breaks is made again while the view lasts. Must
not know the format of the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fifo
from fifo.client.connection.options import Options
from fifo.client.consuming.delivery import Delivery
from fifo.client.copying import (
    CONFIGURATION,
    ENTRIES,
    STATE,
    NodeReader,
    Piece,
    WholeView,
    confirmed_index_of,
)
from fifo.client.json_forms import scanned_view
from fifo.client.scanning import ScannedMessage, scanned_page
from node.backup.errors import BackupError
from node.cli import output
from node.cli.errors import CliError, UsageProblem, one_line
from node.cli.limits import BACKUP_RECONNECTS_MAX, BACKUP_WAIT_S, COPY_LEASE_MS, PROGRESS_S
from node.cli.messages import MESSAGE_COLUMNS, message_row
from node.cli.observe import View, observe_members
from node.cli.session import Json, Url, choose_url, node_options, run
from node.cli.tables import Column, number
from node.cli.text import bytes_text, size
from node.config import cluster_id_of

if TYPE_CHECKING:
    from node.backup.contents import Contents
    from node.backup.file import Backup, BackupWriter

app = typer.Typer(help="Copy a cluster into a file.")

_BROKEN = (fifo.ConnectionLost, fifo.Timeout)


@app.callback(invoke_without_command=True)
def backup(
    context: typer.Context,
    to: Annotated[
        Path | None, typer.Option("--to", help="File to write; it must not exist.", metavar="FILE")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", help="Node to read (default: a follower).", metavar="NODE"),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option("--rate", help="Most bytes per second to read, as in 8MiB.", metavar="BYTES"),
    ] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Copy the state, the bodies, the configuration and the users into one file.

    The copy is of one index of the log: everything that was confirmed before, and nothing after.
    Needs the permission `operate`. What is in a file: fifo backup inspect FILE.
    """
    if context.invoked_subcommand is not None:
        return
    if to is None:
        raise UsageProblem("name the file to write: fifo backup --to FILE")
    if to.exists():
        raise CliError(f"{to} exists already: name another file, or remove it")
    options = node_options(choose_url(url))
    per_second = None if limit is None else size(limit)

    async def work(client: fifo.Client) -> Backup:
        return await _backup(client, options, to, source, per_second)

    began = time.monotonic()
    try:
        made = run(url, work)
    except BackupError as error:
        raise CliError(str(error)) from error
    if as_json:
        output.print_json({**_head(made), "seconds": round(time.monotonic() - began, 3)})
    else:
        output.say(
            f"{to}: index {made.index} of {made.about.cluster}, read from {made.about.node}:"
            f" {bytes_text(made.size)}, {made.entries} entries, checked; it holds hashes of"
            " passwords and all messages: keep it as you keep those"
        )


# --- the source -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Source:
    node: str
    address: str
    version: str


async def _backup(
    client: fifo.Client,
    options: Options,
    to: Path,
    wanted: str | None,
    per_second: float | None,
) -> Backup:
    """Copy from the first node that can: followers before the leader."""
    index = await confirmed_index_of(client)
    refusals = []
    for source in _sources(await nodes_of(options), wanted):
        try:
            return await _copy(source, options, to, index, per_second)
        except (*_BROKEN, fifo.PinGone, fifo.Overloaded) as error:
            refusals.append(f"{source.node}: {one_line(error)}")
        except fifo.Unsupported:
            refusals.append(
                f"{source.node} runs {source.version or 'an older version'} and cannot back up:"
                " upgrade it to 0.2.0 or later"
            )
    raise CliError(f"no backup was taken; {'; '.join(refusals)}")


async def nodes_of(options: Options) -> list[View]:
    """The status of every member, those that the address does not name too."""
    known = await observe_members(options)
    members = {
        address: name
        for one in known.values()
        for name, address in (one.get("members") or {}).items()
    }
    nodes = []
    for address, one in known.items():
        if one["role"] == "down" and members and address not in members:
            continue  # Another name of a member: it is in the list under its own.
        nodes.append({"node": members.get(address, address), **one, "address": address})
    return nodes


def _sources(nodes: Sequence[View], wanted: str | None) -> list[_Source]:
    """The nodes to try, in turn. Raises CliError where there is none."""
    up = [one for one in nodes if one["role"] != "down"]
    if wanted is not None:
        named = [one for one in nodes if wanted in (one["node"], one["address"])]
        if not named:
            names = ", ".join(sorted({one["node"] for one in nodes}))
            raise CliError(f"no node {wanted!r} in this cluster; there are: {names}")
        if named[0]["role"] == "down":
            raise CliError(f"{wanted} does not answer: {named[0]['error']}")
        up = named
    if not up:
        why = nodes[0]["error"] if nodes else "no address"
        raise CliError(f"no node answers: {why}")
    up = sorted(up, key=lambda one: one["role"] == "leader")
    return [_Source(one["node"], one["address"], one.get("version") or "") for one in up]


# --- the copy -------------------------------------------------------------------------------------


async def _copy(
    source: _Source, options: Options, to: Path, index: int, per_second: float | None
) -> Backup:
    """Pin the state of one node and write all of it."""
    from node.backup.file import About, BackupWriter

    reading = _Reading(source.address, options, per_second)
    writer: BackupWriter | None = None
    try:
        view = await reading.pin(index)
        text = (await reading.piece(CONFIGURATION, 0)).data.decode()
        about = About(
            cluster=tomllib.loads(text)["cluster"]["name"],
            node=view.node,
            version=source.version,
            cluster_ms=view.cluster_ms,
            wall_ms=view.wall_ms,
            configuration=text,
        )
        writer = BackupWriter(to, cluster_id_of(about.cluster), view.index, about)
        progress = Progress(f"index {view.index} from {view.node}")
        await _write(reading, writer, progress)
        made = await asyncio.to_thread(writer.publish)
        writer = None
        return made
    finally:
        if writer is not None:
            writer.abort()
        await reading.close()


async def _write(reading: _Reading, writer: BackupWriter, progress: Progress) -> None:
    at, last = 0, False
    digest = b""
    while not last:
        piece = await reading.piece(STATE, at)
        await asyncio.to_thread(writer.add_state, piece.data)
        at, last, digest = piece.after, piece.last, piece.digest
        progress.show(writer.size, f"{bytes_text(writer.state_bytes)} of state")
    if digest != writer.state_digest():
        raise CliError(
            "the state that arrived is not the one that was sent: its digest differs; take the"
            " backup again, and look at the memory of both machines"
        )
    at, last = 0, False
    while not last:
        piece = await reading.piece(ENTRIES, at)

        def add(entries: Sequence[tuple[int, bytes]] = piece.entries) -> None:
            for index, payload in entries:
                writer.add_entry(index, payload)

        await asyncio.to_thread(add)
        at, last = piece.after, piece.last
        progress.show(writer.size, f"{writer.entries} entries with bodies")


class _Reading:
    """A pinned view of one node, on a connection that is made again where it breaks."""

    def __init__(self, address: str, options: Options, per_second: float | None) -> None:
        self._address = address
        self._options = options
        self._per_second = per_second
        self._reader: NodeReader | None = None
        self._view: WholeView | None = None
        self._paid_until = time.monotonic()

    async def pin(self, index: int) -> WholeView:
        """Pin the state once the node has applied this index."""
        self._reader = await NodeReader.open(self._address, self._options)
        self._view = await self._reader.pin(index, lease_ms=COPY_LEASE_MS)
        return self._view

    async def piece(self, part: str, at: int) -> Piece:
        """The piece that begins at `at`. Raises what the last of several attempts raised."""
        assert self._view is not None, "pinned before"
        await self._wait()
        for left in range(BACKUP_RECONNECTS_MAX, -1, -1):
            try:
                if self._reader is None:
                    self._reader = await NodeReader.open(self._address, self._options)
                piece = await self._reader.piece(self._view, part, at)
            except _BROKEN:
                self._drop()
                if not left:
                    raise
                await asyncio.sleep(BACKUP_WAIT_S)
            else:
                self._paid(len(piece.data) + sum([len(one) for _, one in piece.entries]))
                return piece
        raise AssertionError("the last attempt returns or raises")

    async def _wait(self) -> None:
        wait_s = self._paid_until - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def _paid(self, size: int) -> None:
        if self._per_second:
            now = time.monotonic()
            self._paid_until = max(now, self._paid_until) + size / self._per_second

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    async def close(self) -> None:
        """End the view, and the connection."""
        if self._reader is not None and self._view is not None:
            with contextlib.suppress(fifo.FifoError):
                await self._reader.unpin(self._view)
        self._drop()


class Progress:
    """Lines on stderr, some seconds apart: what was done, and how fast."""

    def __init__(self, what: str, now: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._now = now
        self._began = self._shown = now()

    def show(self, size: int, said: str) -> None:
        """Say it, if the last line is old enough."""
        now = self._now()
        if now - self._shown < PROGRESS_S:
            return
        self._shown = now
        per_second = bytes_text(int(size / (now - self._began)))
        output.note(f"{self._what}: {said}, {bytes_text(size)} in all, {per_second}/s")


# --- inspect --------------------------------------------------------------------------------------


@app.command(epilog="Example: fifo backup inspect orders.backup --queue orders --limit 20")
def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")],
    queue: Annotated[
        str | None, typer.Option(help="Show the messages of this queue.", metavar="QUEUE")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(help="Only what is ready, locked, delayed or dead.", metavar="STATE"),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="Maximum number of messages.", metavar="N")
    ] = 100,
    after: Annotated[
        int, typer.Option(min=0, help="Go on where a list ended.", metavar="POSITION")
    ] = 0,
    config: Annotated[
        bool, typer.Option("--config", help="Print the configuration of the node that was read.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a backup, and show what is in it.

    Every byte is read; no cluster is needed. With --json and --queue a line for each message; the
    last one says where to go on.
    """
    from node.backup.contents import Contents

    try:
        found = open_backup(file)
        if config:
            sys.stdout.write(found.about.configuration)
        elif queue is None:
            _print_head(found, Contents(found), as_json=as_json)
        else:
            _print_messages(Contents(found), queue, state, limit, after, as_json=as_json)
    except BackupError as error:
        raise CliError(str(error)) from error


def open_backup(file: Path) -> Backup:
    """Read and check a backup, with progress. Raises `BackupDamaged`, or CliError."""
    from node.backup.file import Backup

    progress = Progress(str(file))
    try:
        return Backup.open(file, lambda done: progress.show(done, "checked"))
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}") from error


def _head(found: Backup) -> dict[str, Any]:
    about = found.about
    return {
        "file": str(found.path),
        "bytes": found.size,
        "cluster": about.cluster,
        "cluster_id": found.cluster_id.hex(),
        "index": found.index,
        "node": about.node,
        "version": about.version,
        "taken_at": _time(about.wall_ms),
        "state_bytes": found.state_bytes,
        "entries": found.entries,
        "state_digest": found.state_digest.hex(),
        "digest": found.digest.hex(),
    }


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="seconds")


def _print_head(found: Backup, contents: Contents, *, as_json: bool) -> None:
    queues = contents.queues()
    head = {**_head(found), "sessions": contents.sessions, "users_in_log": contents.users}
    if as_json:
        output.print_json({**head, "queues": queues})
        return
    output.print_pairs([(name.replace("_", " "), value) for name, value in head.items()])
    output.say("")
    output.print_table(_QUEUE_COLUMNS, (tuple(one[name] for name in _COUNTS) for one in queues))


_COUNTS = ("name", "ready", "locked", "delayed", "messages", "bytes", "consumers")
_QUEUE_COLUMNS = (Column("queue"), *(number(name) for name in _COUNTS[1:]))


def _print_messages(
    contents: Contents, queue: str, state: str | None, limit: int, after: int, *, as_json: bool
) -> None:
    if state not in (None, "ready", "locked", "delayed", "dead"):
        raise UsageProblem(f"unknown state {state!r}: use one of ready, locked, delayed, dead")
    if not contents.has_queue(queue):
        names = ", ".join(sorted(one["name"] for one in contents.queues())) or "none"
        raise CliError(f"no queue {queue!r} in the backup; there are: {names}")
    shown = 0
    at: int | None = after
    while at is not None and shown < limit:
        page, raw = contents.page(queue, state, at, limit - shown)
        found = scanned_page(page, Delivery(page, memoryview(raw), 0.0, 0.0), contents)
        _print_page(found.messages, as_json=as_json)
        shown += len(found.messages)
        at = page.after or None
    if at is not None and as_json:
        sys.stdout.write(output.json_line({"after": at}) + "\n")
    elif at is not None:
        output.note(f"more: --after {at}")
    elif not shown and not as_json:
        output.note("none")


def _print_page(messages: Sequence[ScannedMessage], *, as_json: bool) -> None:
    if as_json:
        for one in messages:
            sys.stdout.write(output.json_line(scanned_view(one)) + "\n")
    elif messages:
        rows = ([one.state, *message_row(one)] for one in messages)
        output.print_table([Column("state"), *MESSAGE_COLUMNS], rows)
