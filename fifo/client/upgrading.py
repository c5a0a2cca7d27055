"""Finish an upgrade: a method of the client for operators (docs/operating.md, "Upgrading").

Owns that method. Must not know what a version turns on.
"""

from __future__ import annotations

from fifo.client.connection.session import Session
from fifo.client.durations import Duration
from fifo.client.errors import ProtocolError
from fifo.wire.messages import Ok
from fifo.wire.upgrading import FinishUpgrade


class UpgradeVerbs:
    """The method of a client about upgrades."""

    _session: Session

    async def finish_upgrade(self, *, timeout: Duration | None = None) -> int:
        """Raise the version of the cluster to the newest that all nodes know, and return it.

        Older releases cannot go on with its data from then on. Needs `operate`. Raises
        InvalidArgument, naming them, where nodes are down or too old; Unsupported where the leader
        is too old.
        """
        frame = await self._session.call(FinishUpgrade(), timeout)
        if not isinstance(frame.message, Ok):
            raise ProtocolError(f"expected Ok, got {type(frame.message).__name__}")
        return int(frame.message.result["version"])
