"""``fifo verify``: whether the nodes of a cluster have the same state, at one index of the log.

Owns the command, the choice of the index, and the verdict. Each node freezes its state at that very
index and hashes it in slices, one node after the other, while the cluster serves. Must not know
what a state means.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import typer

import fifo
from fifo.client.connection.options import Options
from fifo.client.copying import STATE, NodeReader, WholeView, confirmed_index_of
from node.cli import output
from node.cli.backup import Progress, nodes_of
from node.cli.errors import FAILED, CliError, one_line
from node.cli.limits import (
    COPY_LEASE_MS,
    VERIFY_AHEAD_MAX_S,
    VERIFY_AHEAD_S,
    VERIFY_LOOK_S,
    VERIFY_PINS_MAX,
)
from node.cli.session import Json, Url, choose_url, node_options, run
from node.cli.tables import Column, number
from node.cli.text import undecided_text

EQUAL: Final = "equal"
DIFFERS: Final = "differs"
UNKNOWN: Final = "not compared"


@dataclass(slots=True)
class Member:
    """A node, and what is known of its state."""

    node: str
    address: str
    version: str
    reader: NodeReader | None = None
    view: WholeView | None = None
    state_bytes: int = 0
    digest: bytes = b""
    problem: str = ""
    verdict: str = field(default=UNKNOWN)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "node": self.node,
            "address": self.address,
            "verdict": self.verdict,
            "index": None if self.view is None else self.view.index,
            "state_bytes": self.state_bytes,
            "digest": self.digest.hex(),
            "problem": self.problem or None,
        }


def verify(url: Url = None, as_json: Json = False) -> None:
    """Compare the states of all nodes.

    Each freezes its own at one index of the log, and serves meanwhile. Exit code 1 where one
    differs, or could not be compared. Needs the permission `operate`.
    """
    options = node_options(choose_url(url))

    members = asyncio.run(_members(options))

    async def work(client: fifo.Client) -> None:
        await _verify(client, members, options)

    run(url, work)
    index = next((one.view.index for one in members if one.view is not None), None)
    if as_json:
        output.print_json({"index": index, "nodes": [one.plain() for one in members]})
    else:
        output.print_table(_COLUMNS, map(_row, members))
        for one in members:
            if one.verdict == DIFFERS:
                output.note(_remedy(one))
    if any(one.verdict != EQUAL for one in members):
        raise typer.Exit(FAILED)


_COLUMNS: Final = (
    Column("node"),
    Column("verdict"),
    number("index"),
    number("state bytes"),
    Column("digest"),
    Column("problem"),
)


def _row(one: Member) -> tuple[object, ...]:
    index = None if one.view is None else one.view.index
    return one.node, one.verdict, index, one.state_bytes, one.digest.hex()[:16], one.problem


def _remedy(one: Member) -> str:
    return (
        f"the state of {one.node} is not that of the majority: look at its memory, its disk and its"
        " version, stop it, move its data folder away, and start it with --recover while all other"
        " nodes are up"
    )


async def _members(options: Options) -> list[Member]:
    """All nodes. Raises CliError where their states were compared already, without an outcome."""
    nodes = await nodes_of(options)
    stopped = undecided_text(nodes)
    if stopped is not None:
        raise CliError(stopped)
    members = []
    for seen in nodes:
        member = Member(seen["node"], seen["address"], seen.get("version") or "")
        if seen["role"] == "down":
            member.problem = f"does not answer: {seen['error']}"
        members.append(member)
    return members


async def _verify(client: fifo.Client, members: Sequence[Member], options: Options) -> None:
    try:
        await asyncio.gather(*(_open(one, options) for one in members))
        await _pin_all(client, [one for one in members if one.reader is not None])
        await _digest_all([one for one in members if one.view is not None])
    finally:
        for one in members:
            await _close(one)
    judge(members)


async def _open(member: Member, options: Options) -> None:
    if member.problem:
        return
    try:
        member.reader = await NodeReader.open(member.address, options)
    except fifo.FifoError as error:
        member.problem = one_line(error)


async def _close(member: Member) -> None:
    if member.reader is None:
        return
    try:
        if member.view is not None:
            await member.reader.unpin(member.view)
    finally:
        member.reader.close()


# --- one index ------------------------------------------------------------------------------------


async def _pin_all(client: fifo.Client, members: Sequence[Member]) -> None:
    """Pin the state of all of them at one index: a little ahead of the log where that moves, so
    that it is past on none of them when they hear of it."""
    ahead_s = VERIFY_AHEAD_S
    for _ in range(VERIFY_PINS_MAX):
        first, at = await confirmed_index_of(client), time.monotonic()
        await asyncio.sleep(VERIFY_LOOK_S)
        last = await confirmed_index_of(client)
        per_second = (last - first) / (time.monotonic() - at)
        index = last + int(per_second * ahead_s)
        answers = await asyncio.gather(*(_pin(one, index) for one in members))
        if all(answers):
            return
        ahead_s = min(2 * ahead_s, VERIFY_AHEAD_MAX_S)
        for one in members:
            if one.reader is not None and one.view is not None:
                await one.reader.unpin(one.view)
                one.view = None
    raise CliError(
        f"the nodes could not freeze their states at one index in {VERIFY_PINS_MAX} attempts:"
        f" {'; '.join(f'{one.node}: {one.problem}' for one in members if one.problem)}"
    )


async def _pin(member: Member, index: int) -> bool:
    """Whether the node is pinned there, or never will be."""
    assert member.reader is not None, "connected before"
    member.problem = ""
    try:
        view = await member.reader.pin(index, exactly=True, lease_ms=COPY_LEASE_MS)
    except fifo.Overloaded as error:
        member.problem = one_line(error)
        sound = "recovers" not in member.problem and "differs" not in member.problem
        return not sound
    except fifo.FifoError as error:
        member.problem = one_line(error)
        return True
    if view.index != index:
        await member.reader.unpin(view)
        member.problem = f"runs {member.version or 'an older version'}, which cannot be compared"
        return True
    member.view = view
    return True


# --- digests --------------------------------------------------------------------------------------


async def _digest_all(members: Sequence[Member]) -> None:
    """Hash one state after the other; the leases of those that wait are begun anew meanwhile."""
    renewed_at = time.monotonic()
    for member in members:
        progress = Progress(member.node)
        try:
            while not member.digest:
                await _digest(member)
                progress.show(member.state_bytes, "hashed")
                if time.monotonic() - renewed_at > COPY_LEASE_MS / 4000:
                    renewed_at = time.monotonic()
                    await _renew([one for one in members if not one.digest])
        except fifo.Unsupported:
            member.problem = f"runs {member.version or 'an older version'}: it cannot be compared"
        except fifo.FifoError as error:
            member.problem = one_line(error)


async def _digest(member: Member) -> None:
    assert member.reader is not None, "connected before"
    assert member.view is not None, "pinned before"
    piece = await member.reader.piece(member.view, STATE, member.state_bytes, content=False)
    member.state_bytes, member.digest = piece.after, piece.digest


async def _renew(members: Sequence[Member]) -> None:
    for one in members:
        if one.reader is not None and one.view is not None and not one.problem:
            try:
                await one.reader.renew(one.view)
            except fifo.FifoError as error:
                one.problem = one_line(error)


def judge(members: Sequence[Member]) -> None:
    """Equal is what a majority of all members has; where none does, no member is."""
    counted = Counter(one.digest for one in members if one.digest)
    if not counted:
        return
    digest, count = counted.most_common(1)[0]
    agreed = 2 * count > len(members)
    for one in members:
        if not one.digest:
            continue
        if agreed:
            one.verdict = EQUAL if one.digest == digest else DIFFERS
        elif len(counted) > 1:
            one.verdict, one.problem = DIFFERS, "no majority has one state"
        elif count > 1:
            one.verdict = EQUAL
        else:
            one.problem = "no other state to compare with"
