"""``fifo member``: who is a member, and changes of that while the cluster runs.

Owns the commands and how a change is followed to its end. What a change has to meet is the
leader's (`node/broker/members.py`). Must not know how a change is made.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

import fifo
from node.cli import output
from node.cli.confirmation import Yes, confirm
from node.cli.errors import CliError
from node.cli.limits import POLL_S
from node.cli.session import Json, Url, run
from node.cli.tables import Column

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from fifo.client.membership import MemberAction

app = typer.Typer(
    no_args_is_help=True,
    help="Look at the members, and change them.",
    epilog="Example: fifo member list",
)

JOINING_S: Final = 30.0
"""Patience of `add` and `replace` with a node that has not said yet that it wants to join: it may
be about to start."""

Peer = Annotated[
    str | None, typer.Option("--peer", metavar="HOST:PORT", help="Address for other nodes.")
]
Client = Annotated[
    str | None, typer.Option("--client", metavar="HOST:PORT", help="Address for clients.")
]
Http = Annotated[str | None, typer.Option("--http", metavar="HOST:PORT", help="Address for HTTP.")]
NoWait = Annotated[
    bool, typer.Option("--no-wait", help="Return when the change has begun, not when it is done.")
]


@app.command("list", epilog="Example: fifo member list --json")
def listing(url: Url = None, as_json: Json = False) -> None:
    """Show the members and the change under way.

    Nodes that wait to join are named, too.
    """
    found = run(url, _membership)
    if as_json:
        output.print_json(found)
    else:
        _draw(found)


@app.command(epilog="Example: fifo member add n4")
def add(
    name: Annotated[str, typer.Argument(help="Name of the node, as in its cluster.toml.")],
    peer: Peer = None,
    client: Client = None,
    http: Http = None,
    no_wait: NoWait = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Make a node a member. It runs already, started with `fifo serve --join`.

    It gets all data first, and votes and counts when it is level with the leader. The addresses are
    those of its cluster.toml; given here, they have to be the same. Typed again, it follows the
    change that is under way. Needs the permission `operate`.
    """

    async def work(leader: fifo.Client) -> Mapping[str, Any] | None:
        found = await _joining(leader, name)
        if is_made(found, name) and not (peer or client or http):
            return _made_before(found, name)
        return await _begin(leader, "add", name, peer=peer, client=client, http=http)

    _change(url, work, f"{name} is a member", wait=not no_wait, as_json=as_json)


@app.command(epilog="Example: fifo member remove n3")
def remove(
    name: Annotated[str, typer.Argument(help="Name of the member.")],
    yes: Yes = False,
    no_wait: NoWait = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """End a membership for ever.

    Its folder is of no use to this cluster any more. A leader that is removed hands over first.
    Needs the permission `operate`.
    """
    if not yes:
        confirm(f"{name} would be removed for ever", f"Remove {name}?")

    async def work(leader: fifo.Client) -> dict[str, Any]:
        return await _begin(leader, "remove", name)

    _change(url, work, f"{name} is no member any more", wait=not no_wait, as_json=as_json)


@app.command(epilog="Example: fifo member replace n2 n4")
def replace(
    old: Annotated[str, typer.Argument(help="The member that goes, up or down.")],
    new: Annotated[str, typer.Argument(help="The node that comes, started with --join.")],
    yes: Yes = False,
    no_wait: NoWait = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Put a node in the place of a member, which may be dead.

    The new one gets all data, then the old one is removed, and then the new one votes and counts.
    Needs the permission `operate`.
    """
    if not yes:
        confirm(f"{old} would be removed for ever", f"Put {new} in its place?")

    async def work(leader: fifo.Client) -> Mapping[str, Any] | None:
        found = await _joining(leader, new)
        if is_made(found, new, old):
            return _made_before(found, new)
        return await _begin(leader, "replace", new, replaces=old)

    text = f"{new} is a member in the place of {old}"
    _change(url, work, text, wait=not no_wait, as_json=as_json)


@app.command(epilog="Example: fifo member move n2 --peer 10.0.0.9:7102 --client 10.0.0.9:7101")
def move(
    name: Annotated[str, typer.Argument(help="Name of the member.")],
    peer: Peer = None,
    client: Client = None,
    http: Http = None,
    no_wait: NoWait = False,
    as_json: Json = False,
    url: Url = None,
) -> None:
    """Give a member other addresses. What is left out stays as it is.

    The others and clients go by them at once; the node listens where its own cluster.toml says.
    Needs the permission `operate`.
    """

    async def work(leader: fifo.Client) -> dict[str, Any]:
        return await _begin(leader, "move", name, peer=peer, client=client, http=http)

    _change(url, work, f"{name} has moved", wait=not no_wait, as_json=as_json)


@app.command(epilog="Example: fifo member undo")
def undo(no_wait: NoWait = False, as_json: Json = False, url: Url = None) -> None:
    """Give up the change under way.

    Members that there are by now stay, and those that were not level yet go. Needs the permission
    `operate`.
    """

    async def work(leader: fifo.Client) -> dict[str, Any]:
        return await _begin(leader, "undo")

    _change(url, work, "the change is undone", wait=not no_wait, as_json=as_json)


# --- a change ---


async def _membership(client: fifo.Client) -> dict[str, Any]:
    """The view of the leader. Raises CliError where that is too old to have one."""
    status = await client.status()
    if not status.membership:
        raise CliError(f"the leader {status.node} runs an older release; upgrade it first")
    return dict(status.membership)


async def _joining(leader: fifo.Client, name: str) -> dict[str, Any]:
    """Wait for a node to say that it wants to join, and return the view of the leader, which
    refuses where the node does not come."""
    until = time.monotonic() + JOINING_S
    noted = False
    while True:
        found = await _membership(leader)
        known = (*found["waiting"], *found["members"])
        if any(one["name"] == name for one in known) or time.monotonic() > until:
            return found
        if not noted:
            noted = True
            output.note(f"waiting for {name}, {_missing(found, name)}")
        await asyncio.sleep(POLL_S)


def _missing(found: Mapping[str, Any], name: str) -> str:
    if name in found["removed"]:
        return "which was removed: it has to be started with --join and an empty folder"
    return "which has to be started with --join"


def is_made(found: Mapping[str, Any], name: str, gone: str | None = None) -> bool:
    """Whether a change that makes `name` a member, in the place of `gone`, is done or under way: a
    command that was interrupted is typed again, and so is one of a playbook."""
    members = {one["name"] for one in found["members"]}
    end = found["wanted"] or [one["name"] for one in found["members"] if not one["learner"]]
    return name in members and name in end and gone not in end


def _made_before(found: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """The change under way; None where it is done."""
    change: Mapping[str, Any] | None = found["change"]
    output.note(
        f"{name} is a member already; no change is made"
        if change is None
        else "this change is under way already"
    )
    return change


async def _begin(
    leader: fifo.Client,
    action: MemberAction,
    name: str | None = None,
    *,
    replaces: str | None = None,
    peer: str | None = None,
    client: str | None = None,
    http: str | None = None,
) -> dict[str, Any]:
    try:
        return await leader.change_members(
            action, name, replaces=replaces, peer=peer, client=client, http=http
        )
    except fifo.Unsupported:
        status = await leader.status()
        raise CliError(
            f"the leader {status.node} runs {status.version or 'an older release'}, which does not"
            " know how to change members; upgrade it first"
        ) from None


def _change(
    url: str | None,
    work: Callable[[fifo.Client], Awaitable[Mapping[str, Any] | None]],
    done: str,
    *,
    wait: bool,
    as_json: bool,
) -> None:
    """Begin a change, and follow it to its end."""
    begun: Mapping[str, Any] | None = None

    async def whole(leader: fifo.Client) -> dict[str, Any]:
        nonlocal begun
        begun = await work(leader)
        if wait and begun is not None:
            return await _end(leader, begun)
        return await _membership(leader)

    try:
        found = run(url, whole)
    except KeyboardInterrupt:
        output.note(
            "no change has begun"
            if begun is None
            else "the change goes on: fifo member list shows it, fifo member undo gives it up"
        )
        raise
    if as_json:
        output.print_json(found)
    elif wait or begun is None:
        output.say(f"{done}: {_names(found)}")
    else:
        end = ", ".join(found["wanted"]) or _names(found)
        output.say(f"the change has begun, and ends in {end}")


async def _end(leader: fifo.Client, begun: Mapping[str, Any]) -> dict[str, Any]:
    """Follow a change until it is done, and say how far it is. Raises CliError where it was not."""
    said = ""
    while True:
        found = await _membership(leader)
        if is_done(found, begun):
            return found
        now = _progress(found)
        if now != said:
            said = now
            output.note(now)
        await asyncio.sleep(POLL_S)


def is_done(found: Mapping[str, Any], begun: Mapping[str, Any]) -> bool:
    """Whether this very change is done, by the place of its entry in the log: others may have come
    after it. Raises CliError where it was given up, or taken back: its leader was lost before a
    majority knew of it."""
    own = begun["term"], begun["index"]
    ended = {(one["term"], one["index"]): one["done"] for one in found["ended"]}
    under_way = found["change"] or {"term": 0, "index": 0}
    if own in ended:
        committed = bool(found["committed"])
        if committed and not ended[own]:
            raise CliError(
                f"the change was given up (fifo member undo); the members are: {_names(found)}"
            )
        return committed
    if own == (under_way["term"], under_way["index"]) or found["committed_term"] <= own[0]:
        return False
    if ended and min(ended) > own:
        raise CliError(
            f"the {len(ended)} newest changes have begun after this one, which was lost with its"
            " leader, or has ended before them; look: fifo member list"
        )
    raise CliError("the change was lost with its leader, and nothing of it is left; again")


def _progress(found: Mapping[str, Any]) -> str:
    learners = [
        f"{one['name']} is level"
        if one["level"]
        else f"{one['name']} is {one['behind']} entries behind"
        if one["connected"]
        else f"{one['name']} is not connected"
        for one in found["learners"]
    ]
    return "; ".join((*learners, f"waits for {found['waits_for'] or 'a majority'}"))


# --- how it is shown ---

_COLUMNS: Final = (
    Column("member"),
    Column("part"),
    Column("peer"),
    Column("client"),
    Column("http"),
)


def _names(found: Mapping[str, Any]) -> str:
    return ", ".join(one["name"] for one in found["members"])


def _draw(found: Mapping[str, Any]) -> None:
    rows = (
        (
            one["name"],
            "learner" if one["learner"] else "voter",
            one["peer"],
            one["client"],
            one["http"],
        )
        for one in found["members"]
    )
    output.print_table(_COLUMNS, rows)
    if found["wanted"]:
        output.say("")
        output.say(f"a change is under way, and ends in {', '.join(found['wanted'])}")
        output.say(f"  {_progress(found)}")
    for one in found["waiting"]:
        output.note(f"{one['name']} at {one['peer']} waits: fifo member add {one['name']}")
