"""``fifo doctor``: what is wrong with a cluster, what soon will be, and what could be better.

Owns the command, the questions to the nodes and the output. Changes nothing. Must not know the
checks: `diagnosis` judges what the nodes say, `config_checks` this machine.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fifo
from fifo.client import Connecting
from node.cli import findings, output
from node.cli.config_checks import check_file, check_node
from node.cli.diagnosis import CHECKS, Seen, diagnose
from node.cli.findings import Finding
from node.cli.limits import CALL_TIMEOUT_S
from node.cli.observe import observe_members
from node.cli.session import Json, Url, choose_url, node_options
from node.cli.tables import Column
from node.config import examine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fifo.client.connection.options import Options


def doctor(
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Check this cluster.toml as well."),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", metavar="NAME", help="With --config: check this machine for this node."
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings, too.")] = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Look for trouble, now and soon.

    Looks at quorum, disks, clocks, descriptors, versions, certificates, users and queues; with
    --config also where the file has other members than the log.

    Exit code 1 where something is wrong now, with --strict also where it soon may be.
    """
    options = node_options(choose_url(url))
    seen = asyncio.run(_look(options))
    found = diagnose(seen)
    if config is not None:
        settings, problems = examine(config)
        found += check_file(config, settings, problems)
        if settings is not None:
            from node.cli import logged  # A part of a node, which nothing else here needs.

            own = [settings.node(node)] if node is not None else []
            members = logged.members_said(seen.up) or logged.members_noted(own)
            found += logged.compared(config, settings, members)
        if settings is not None and node is not None:
            found += check_node(config, settings, node)
    found = findings.ordered(found)
    if as_json:
        listed = [one.as_dict() for one in found]
        code = findings.exit_code(found, strict=strict)
        output.print_json({"url": options.shown, "ok": not code, "findings": listed})
    else:
        _draw(found)
    raise typer.Exit(findings.exit_code(found, strict=strict))


async def _look(options: Options) -> Seen:
    """Ask every node for its status, and the leader for users and queues."""
    began_s = time.time()
    found = await observe_members(options)
    users, queues, refused = await _ask_leader(options)
    return Seen(
        addresses=list(found),
        nodes=list(found.values()),
        users=users,
        queues=queues,
        refused=refused,
        asked_s=(began_s, time.time()),
        has_secret=options.has_secret,
        tls=options.tls,
    )


async def _ask_leader(
    options: Options,
) -> tuple[list[dict[str, Any]], list[fifo.QueueView], tuple[str, ...]]:
    """Users of the log and queues, and why some of them could not be had."""
    refused: list[str] = []
    users: list[dict[str, Any]] = []
    queues: list[fifo.QueueView] = []
    try:
        async with asyncio.timeout(2 * CALL_TIMEOUT_S), Connecting(options) as client:
            try:
                users = await client.log_users()
            except fifo.PermissionDenied as error:
                refused.append(f"users: {error}")
            queues = await client.queues()
    except (fifo.FifoError, TimeoutError) as error:
        refused.append(f"queues: {error or 'no answer in time'}")
    return users, queues, tuple(refused)


def _draw(found: Sequence[Finding]) -> None:
    worst = {}
    for one in reversed(found):  # ordered: the first of a check is its worst
        worst[one.check] = one.severity.value
    names = dict.fromkeys([*CHECKS, *(one.check for one in found)])
    rows = [(name, worst.get(name, "ok"), CHECKS.get(name, "")) for name in names]
    output.print_table([Column("check"), Column("result"), Column("about")], rows)
    if found:
        output.say("")
    findings.say(found)
    output.say(findings.counted(found))
