"""Change the members of a cluster: a method of the client (docs/operating.md, "Members").

Owns that method. Must not know how a change is made, nor how long it takes.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from fifo.client.connection.session import Session
from fifo.client.durations import Duration
from fifo.client.errors import ProtocolError
from fifo.wire.membership import ChangeMembers
from fifo.wire.messages import Ok

MemberAction: TypeAlias = Literal["add", "remove", "replace", "move", "undo"]
"""The changes of members that there are."""


class MemberVerbs:
    """The method of a client about members."""

    _session: Session

    async def change_members(
        self,
        action: MemberAction,
        member: str | None = None,
        *,
        replaces: str | None = None,
        peer: str | None = None,
        client: str | None = None,
        http: str | None = None,
        timeout: Duration | None = None,
    ) -> dict[str, Any]:
        """Begin a change of the members, and return its configuration: `number`, `wanted`, the
        members in which it ends, and `term` and `index`, by which `status().membership` shows how
        far it is (`change`), and what became of it (`ended`).

        `add` takes in a node that waits to join; `remove` ends a membership for ever; `replace`
        adds `member` and removes the member that it `replaces`; `move` gives a member other
        addresses (`peer`, `client`, `http`: host and port); `undo` gives up the change under way.
        Needs `operate`. Raises InvalidArgument where it cannot begin, and then nothing has changed;
        Unsupported where the leader is too old.
        """
        request = ChangeMembers(action, member, replaces, peer, client, http)
        frame = await self._session.call(request, timeout)
        if not isinstance(frame.message, Ok):
            raise ProtocolError(f"expected Ok, got {type(frame.message).__name__}")
        return dict(frame.message.result)
