"""Completion by the shell of what a cluster knows: names of queues, ids of sessions.

Owns asking the cluster that the typed command would use, for a short time. Whatever fails offers
nothing and says nothing: a line that is being typed is no place for an error. Must not know the
commands.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import typer

import fifo
from fifo.client import Connecting, from_keywords
from node.cli.errors import CliError
from node.cli.limits import COMPLETION_TIMEOUT_S
from node.cli.session import choose_url, node_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ASKS: Final = "fifo completion"
"""The name of the client that asks: its own session is offered to no command."""


def queue_names(context: typer.Context, incomplete: str) -> list[str]:
    """List the queues whose names begin with what was typed."""

    async def work(client: fifo.Client) -> list[str]:
        return sorted(queue.name for queue in await client.queues(incomplete))

    return _asked(context, work)


def session_ids(context: typer.Context, incomplete: str) -> list[str]:
    """List the ids of sessions that begin with what was typed, but for the one that asks."""

    async def work(client: fifo.Client) -> list[str]:
        others = (one.session for one in await client.sessions() if one.client != ASKS)
        return sorted(session for session in others if session.startswith(incomplete))

    return _asked(context, work)


def _asked(
    context: typer.Context, work: Callable[[fifo.Client], Awaitable[list[str]]]
) -> list[str]:
    """The answer of the cluster that the command would ask; nothing where there is none in time."""
    logging.disable(logging.CRITICAL)  # This process only completes.
    limit = COMPLETION_TIMEOUT_S

    async def ask() -> list[str]:
        given = from_keywords({"timeout": limit, "connect_timeout": limit, "name": ASKS})
        options = node_options(choose_url(context.params.get("url")), given)
        async with asyncio.timeout(limit), Connecting(options) as client:
            return await work(client)

    try:
        return asyncio.run(ask())
    except (fifo.FifoError, CliError, OSError, TimeoutError):
        return []
