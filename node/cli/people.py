"""``fifo users``, ``fifo sessions`` and ``fifo session end``: who uses the cluster, and how much.

Owns the columns of these tables. Must not know quotas: the node says what each user may have.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from node.cli import output
from node.cli.completion import session_ids
from node.cli.confirmation import Yes, confirm
from node.cli.listing import Watch, print_list
from node.cli.look import draw_rows
from node.cli.session import Json, Url, run
from node.cli.tables import Column, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    import fifo

app = typer.Typer(
    no_args_is_help=True,
    help="End sessions.",
    epilog="Example: fifo session end 00c0ffee",
)

QUOTAS: Final = ("connections", "sessions", "producers", "queues", "consumers", "stored_bytes")
"""Quotas in the order of the table; those of rates have no part that is in use."""

_SESSIONS: Final = ("session client user status", "consumers held", "use ends_in_ms", "address")


def users(watch: Watch = False, url: Url = None, as_json: Json = False) -> None:
    """Show users and their shares of each quota."""

    async def fetch(client: fifo.Client) -> list[dict[str, Any]]:
        return [user.as_dict() for user in await client.users()]

    print_list(url, fetch, _draw_users, as_json=as_json, watch=watch)


def _draw_users(found: list[dict[str, Any]]) -> None:
    if not found:
        output.note("no users: every client of this cluster may do everything")
        return
    columns = [Column("user"), *(number(name.replace("_", " ")) for name in QUOTAS)]
    output.print_table(
        columns, ([user["name"], *map(partial(_part, user), QUOTAS)] for user in found)
    )


def _part(user: dict[str, Any], quota: str) -> str:
    share = user["shares"].get(quota)
    return str(user[quota]) if share is None else f"{user[quota]}/{share}"


class SessionOrder(StrEnum):
    """Orders of `fifo sessions`, each an attribute of `fifo.SessionView`."""

    NUMBER = "number"
    USER = "user"
    CONSUMERS = "consumers"
    HELD = "held"


def in_order(found: Iterable[fifo.SessionView], sort: SessionOrder) -> list[fifo.SessionView]:
    """Sort sessions: what is counted in descending order, and equals by number."""
    falling = sort in (SessionOrder.CONSUMERS, SessionOrder.HELD)
    return sorted(
        sorted(found, key=attrgetter(SessionOrder.NUMBER)), key=attrgetter(sort), reverse=falling
    )


def sessions(
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Only sessions of this user.")
    ] = None,
    disconnected: Annotated[
        bool, typer.Option("--disconnected", help="Only sessions without a connection.")
    ] = False,
    sort: Annotated[
        SessionOrder,
        typer.Option(
            help="Sort by number or user, or by consumers or held in descending order.",
            metavar="FIELD",
        ),
    ] = SessionOrder.NUMBER,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of sessions shown.", metavar="N")
    ] = None,
    watch: Watch = False,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show sessions, their clients and what they hold."""

    def wanted(session: fifo.SessionView) -> bool:
        return (user is None or session.user == user) and not (
            disconnected and session.status != "disconnected"
        )

    async def fetch(client: fifo.Client) -> list[dict[str, Any]]:
        found = in_order(filter(wanted, await client.sessions()), sort)
        return [session.as_dict() for session in found[:limit]]

    print_list(url, fetch, partial(draw_rows, _SESSIONS), as_json=as_json, watch=watch)


@app.command("end", epilog="Example: fifo session end 00c0ffee --yes")
def end(
    session: Annotated[
        str,
        typer.Argument(
            metavar="SESSION",
            autocompletion=session_ids,
            help="Beginning of its id, as shown by `fifo sessions`.",
        ),
    ],
    yes: Yes = False,
    url: Url = None,
) -> None:
    """End a session.

    Its connections close, its consumers are gone, and what they held is returned, uncounted. A
    program that still runs comes back.
    """
    if not yes:
        confirm(f"what session {session} holds will be returned", "End it?")

    async def work(client: fifo.Client) -> None:
        await client.end_session(session)

    run(url, work)
    output.say(f"session {session} is ended")
