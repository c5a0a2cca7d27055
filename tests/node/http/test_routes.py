"""Every command has its route: what an operator can do, any program with HTTP can."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from node.cli.main import app
from node.http.api.table import ROUTES

_USER = ("add", "set", "remove", "add-token", "revoke-token")
_MESSAGE = ("retry", "unlock", "delay", "cancel", "delete", "terminate", "move", "resend")

_MEMBER = ("add", "remove", "replace", "move", "undo")

ROUTES_OF = {
    "status": "nodes",
    "publish": "publish publish_batch",
    "consume": "get settle",
    "peek": "peek",
    "locks": "locks",
    "delayed": "delayed",
    "dead-letters": "dead_letters",
    "consumers": "consumers",
    "producers": "producers",
    "users": "users",
    "sessions": "sessions",
    "session end": "end_session",
    "audit": "audit",
    "redrive": "redrive cancel_redrive",
    "move": "move",
    "forget-producer": "forget_producer",
    "transfer-leadership": "transfer_leadership",
    "upgrade status": "nodes",
    "upgrade finish": "finish_upgrade",
    "member list": "members",
    **{f"member {action}": "change_members" for action in _MEMBER},
    "queue declare": "declare",
    "queue update": "update",
    "queue list": "queues",
    "queue show": "queue",
    "queue purge": "purge",
    "queue delete": "delete",
    "queue pause": "pause",
    "queue resume": "resume",
    "message show": "message",
    "message find": "find",
    "message copy": "copy",
    "message scan": "pin pinned unpin pinned_queues pinned_consumers pinned_messages",
    **{f"message {action}": "act" for action in _MESSAGE},
    "user list": "log_users",
    "user import": "import_users",
    "user password": "own_password",
    **{f"user {action}": "manage_user" for action in _USER},
}
"""The routes that do what a command does."""

NOT_FOR_HTTP = {
    "serve": "starts a node on this machine",
    "worker": "runs tasks on this machine",
    "bench": "measures from a process of its own",
    "cluster": "processes of a cluster on this machine",
    "config": "reads a file of this machine",
    "doctor": "looks at every node from outside",
    "apply": "reads a file of this machine, and is made of queues, declare and update",
    "export": "writes a file of this machine, and is made of queues",
    "entry": "reads and orders in the folder of a node that is stopped",
    "restore": "makes the data folders of nodes on this machine",
    "verify": "looks at every node from outside",
    "backup": "writes and reads a file of this machine",
    "user hash": "computes on this machine, so that no password travels",
    "user token": "computes on this machine, so that no token travels",
}
"""Commands, and groups of them, without a route, and why."""

ONLY_HTTP = {
    "status": "the leader's part of nodes",
    "events": "a stream; the command line has --watch",
}
"""Routes without a command, and why."""


def commands(group: Any, before: str = "") -> Iterator[str]:
    """The names of all commands, with those of their groups."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_every_command_has_its_route_or_a_reason_for_none() -> None:
    names = list(commands(get_command(app)))
    unknown = [
        name
        for name in names
        if name not in ROUTES_OF
        and not any(name == one or name.startswith(f"{one} ") for one in NOT_FOR_HTTP)
    ]
    assert not unknown, "give these a route, or say why there is none"
    assert not set(ROUTES_OF) - set(names), "no such command"


def test_every_route_has_its_command_or_a_reason_for_none() -> None:
    routes = {route.name for route in ROUTES}
    named = {name for of in ROUTES_OF.values() for name in of.split()} | set(ONLY_HTTP)
    assert routes == named
