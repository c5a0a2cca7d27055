"""Requests about users and their sessions: what they have, and the end of a session.

Owns who may see whom: an operator or a monitor everybody, any other user only itself; a session is
ended by its own user or an operator. Must not know how a session ends: the machine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgpack

from fifo.machine.contract import EndCause, Machine, commands
from fifo.wire import Code, Frame
from fifo.wire.messages import EndSession, Ok, QueueQuery
from node.broker import limits
from node.broker.connections.connection import Binding, Connection
from node.broker.permissions import Rights
from node.broker.quotas import Quotas
from node.broker.requests.proposer import Proposer, message_of, ok
from node.users import Quota


@dataclass(slots=True)
class Known:
    """The users of a node: all that are configured, and the connections of each."""

    users: Callable[[], Sequence[Rights]]
    connections: Callable[[str], int]


class People:
    """Handler of `EndSession`, and of the queries `sessions` and `users`."""

    def __init__(
        self,
        machine: Machine,
        proposer: Proposer,
        quotas: Quotas,
        known: Known,
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms`: cluster time."""
        self._machine = machine
        self._proposer = proposer
        self._quotas = quotas
        self._known = known
        self._now_ms = now_ms

    def listed(self, connection: Connection, frame: Frame) -> Iterator[None]:
        """Answer one of the queries, in pieces."""
        query = message_of(frame, QueueQuery)
        rows = self.sessions if query.query == "sessions" else self._users
        found: list[dict[str, Any]] = []
        left_bytes = limits.LIST_BYTES_MAX
        for count, row in enumerate(islice(rows(connection.rights), query.limit), 1):
            found.append(row)
            left_bytes -= len(msgpack.packb(row))
            if left_bytes < 0:
                text = f"the answer exceeds {limits.LIST_BYTES_MAX} bytes: ask with a lower limit"
                connection.refuse(frame.correlation, Code.TOO_LARGE, text)
                return
            if count % limits.LIST_PIECE == 0:
                yield
        connection.send(Ok(found), frame.correlation)

    def sessions(self, rights: Rights | None, after: int = 0) -> Iterator[dict[str, Any]]:
        """The sessions that a user may see, above a number, in the order of their numbers."""
        now_ms = self._now_ms()
        for number in sorted(one for one in self._machine.session_numbers() if one > after):
            found = self._machine.session_summary(number)
            if found is None or not (_sees_all(rights) or _is_own(rights, found["user"])):
                continue
            ends_ms = found.pop("ends_ms")
            left_ms = None if ends_ms is None else max(0, ends_ms - now_ms)
            session = found.pop("session_id")[: limits.SESSION_SHOWN_BYTES].hex()
            yield {"session": session, **found, "ends_in_ms": left_ms}

    def _users(self, rights: Rights | None) -> Iterator[dict[str, Any]]:
        for user in self._known.users():
            name = user.user.name
            if _sees_all(rights) or _is_own(rights, name):
                used = {Quota.CONNECTIONS.value: self._known.connections(name)}
                used |= self._quotas.usage(user)
                yield {"name": name, **used, "shares": self._quotas.shares(user)}

    def end_session(self, connection: Connection, session: Binding, frame: Frame) -> None:
        """End the session whose id begins so: everything that it holds is returned."""
        begin = message_of(frame, EndSession).session
        found = self._machine.sessions_like(begin)
        rights = connection.rights
        mine = [number for number, user in found if rights is None or _may_end(rights, user)]
        if len(mine) == 1:
            command = commands.EndSession(mine[0], int(EndCause.OPERATOR))
            self._proposer.ask(connection, frame, command, ok(connection, frame))
        elif mine:
            text = f"{len(mine)} sessions begin with {begin!r}: give more of its id"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)
        elif found and _sees_all(rights):
            text = "only its own user, or one with operate = true, may end this session"
            connection.refuse(frame.correlation, Code.PERMISSION_DENIED, text)
        else:
            text = f"there is no session that begins with {begin!r}: see `fifo sessions`"
            connection.refuse(frame.correlation, Code.INVALID_ARGUMENT, text)


def _sees_all(rights: Rights | None) -> bool:
    return rights is None or rights.may_monitor


def _is_own(rights: Rights | None, user: str) -> bool:
    return rights is not None and rights.user.name == user


def _may_end(rights: Rights, user: str) -> bool:
    return rights.user.operate or rights.user.name == user
