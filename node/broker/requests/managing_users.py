"""Requests of operators about the users of the log: list, import, add, set, remove, tokens.

Owns the actions. A change is made of the user as the leader knows it, and carries its revision: the
machine refuses it where another one came first. Must not know how a secret is compared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgpack

from fifo.machine.contract import Command, Machine, Reply, commands
from fifo.wire import Code, Frame
from fifo.wire.messages import Ok
from fifo.wire.operating import ManageUser
from node.broker import limits, log_users
from node.broker.connections.connection import Binding, Connection
from node.broker.log_users import Fields
from node.broker.permissions import OWN_PASSWORD, Rights
from node.broker.reads import WhenCurrent, at_once
from node.broker.requests.proposer import Proposer, message_of, user_of

logger = logging.getLogger(__name__)

_CHANGES: Final[dict[str, Callable[[Fields, dict[str, Any]], Fields]]] = {
    "set": log_users.changed,
    "add_token": log_users.with_token,
    "revoke_token": log_users.without_token,
}
REVISION: Final = "revision"
"""Beside the values of a change: only of the user as it was seen. A node of 0.1.0 refuses it."""

_ACTIONS: Final = ("list", "import", "add", "remove", OWN_PASSWORD, *_CHANGES)


class ManagingUsers:
    """Handler of `ManageUser`."""

    def __init__(
        self,
        machine: Machine,
        proposer: Proposer,
        when_current: WhenCurrent,
        users: Callable[[], Sequence[Rights]],
    ) -> None:
        """`users`: those that hold on this node, of its file before they are in the log."""
        self._machine = machine
        self._proposer = proposer
        self._when_current = when_current
        self._users = users

    def manage(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """Answer a list, or propose a change."""
        message = message_of(frame, ManageUser)
        if message.action == "list":
            answer = at_once(partial(self._list, connection, frame))
            self._when_current(connection, frame, answer)
            return
        try:
            command = self._command(message, user_of(connection))
        except ValueError as error:
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, str(error))
            return

        def answered(reply: Reply) -> None:
            logger.info(
                "event=user_changed action=%s user=%s by=%s",
                *(message.action, message.user or "-", user_of(connection) or "-"),
            )
            record = self._machine.users().get(message.user or "")
            result = None if record is None else log_users.shown(message.user or "", record)
            connection.send(Ok(result), frame.correlation)

        self._proposer.ask(connection, frame, command, answered)

    def _list(self, connection: Connection, frame: Frame) -> None:
        """A page of the users of the log, by name."""
        after = (message_of(frame, ManageUser).values or {}).get("after", "")
        names = sorted(name for name in self._machine.users() if name > str(after))
        found: list[dict[str, Any]] = []
        size = 0
        for name in names:
            found.append(log_users.shown(name, self._machine.users()[name]))
            size += len(msgpack.packb(found[-1]))
            if size > limits.USERS_PAGE_BYTES:
                break
        more = found[-1]["name"] if len(found) < len(names) else None
        connection.send(Ok({"users": found, "next": more}), frame.correlation)

    def _command(self, message: ManageUser, asker: str) -> Command:
        """The command of a change that this user asks for. Raises ValueError."""
        if message.action not in _ACTIONS:
            raise ValueError(f"unknown action {message.action!r}: use one of {', '.join(_ACTIONS)}")
        known, values = self._machine.users(), message.values or {}
        if message.action == "import":
            return self._import()
        if not known and self._users():
            raise ValueError(
                "the users are still in the [[user]] sections of cluster.toml: import them once"
                " by `fifo user import`"
            )
        if message.action == "add":
            name = log_users.check_name(message.user)
            return commands.PutUser(name, log_users.changed({}, values))
        if message.action == OWN_PASSWORD:
            message = _of_oneself(message, asker)
        name = message.user or ""
        record = known.get(name)
        if record is None:
            raise ValueError(f"there is no user {name!r}; there are: {', '.join(known) or 'none'}")
        values, revision = _seen(message.values or {}, record.revision)
        if message.action == "remove":
            return commands.RemoveUser(name, revision)
        fields = _CHANGES[message.action](log_users.fields_now(record), values)
        return commands.PutUser(name, fields, revision)

    def _import(self) -> Command:
        if self._machine.users():
            raise ValueError(
                "the users are in the log already, and a file is imported once: change them by"
                " `fifo user add`, `set` and `remove`"
            )
        users = [rights.user for rights in self._users()]
        if not users:
            raise ValueError("the leader's file has no [[user]] section: add a user instead")
        return commands.ImportUsers(tuple((one.name, log_users.fields_of(one)) for one in users))


def _seen(values: Mapping[str, Any], now: int) -> tuple[dict[str, Any], int]:
    """The values of a change, and the revision of the user that it is of: by default that of now.
    Raises ValueError."""
    found = dict(values)
    revision = found.pop(REVISION, now)
    if type(revision) is not int or revision < 1:
        raise ValueError(f"{REVISION}: must be that of the user as it was seen, not {revision!r}")
    return found, revision


def _of_oneself(message: ManageUser, asker: str) -> ManageUser:
    """The change of a user's own password, as an operator would ask for it. Raises ValueError."""
    values = message.values or {}
    if not asker:
        raise ValueError("password: this cluster has no users: add one by `fifo user add`")
    if message.user not in (None, asker) or list(values) != ["password"]:
        raise ValueError("password: takes no user, and the value password alone: the new hash")
    if values["password"] is None:
        raise ValueError("password: an operator alone takes a password away")
    return replace(message, action="set", user=asker)
