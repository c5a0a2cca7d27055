"""Users of the log: list and change them on a running cluster (semantics.md 15).

Owns these methods of the client. A password or a token never leaves the program: what is sent are
their hashes. Must not know what a permission allows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fifo.client import checks
from fifo.client.connection.session import Session
from fifo.client.durations import Duration
from fifo.client.errors import ProtocolError
from fifo.wire.messages import Ok
from fifo.wire.operating import ManageUser

UserAction = Literal["add", "set", "remove", "add_token", "revoke_token", "import", "password"]


class UserVerbs:
    """The methods of a client about users."""

    _session: Session

    async def log_users(self, *, timeout: Duration | None = None) -> list[dict[str, Any]]:
        """List the users of the log with permissions, shares, names and ends of tokens; empty while
        users are those of the nodes' files. Needs `operate`."""
        found: list[dict[str, Any]] = []
        after: str | None = None
        while True:
            values = None if after is None else {"after": after}
            page = await self._manage(ManageUser("list", None, values), timeout, safe=True)
            found += page["users"]
            after = page.get("next")
            if after is None:
                return found

    async def manage_user(
        self,
        action: UserAction,
        name: str | None = None,
        values: Mapping[str, Any] | None = None,
        *,
        timeout: Duration | None = None,
    ) -> dict[str, Any] | None:
        """Change a user of the log; its new properties, None where it is gone. Needs `operate`, but
        for `password`, by which a user who logged in by its password replaces that.

        `add` and `set` take `password` (a hash that `fifo user hash` prints), `monitor`, `operate`,
        `loopback`, lists of patterns `declare`, `publish`, `consume`, `manage`, `subjects` and
        `shares`; `add_token` takes `token` (its name), `digest` (SHA-256 of its text) and
        `ends_ms`; `revoke_token` takes `token`; `password` takes `password` alone, and no name.
        `import` takes over the users of the leader's file, once. With `revision`, as `log_users`
        shows it, only the user as it was seen is changed. Raises InvalidArgument where another
        change came first.
        """
        checks.one_of(action, "action", *UserAction.__args__)  # type: ignore[attr-defined]
        if action not in ("import", "password") or name is not None:
            checks.name(name, "user")
        request = ManageUser(action, name, None if values is None else dict(values))
        found: dict[str, Any] | None = await self._manage(request, timeout, safe=False)
        return found

    async def _manage(self, request: ManageUser, timeout: Duration | None, *, safe: bool) -> Any:
        frame = await self._session.call(request, timeout, safe=safe)
        if not isinstance(frame.message, Ok):
            raise ProtocolError(f"expected Ok, got {type(frame.message).__name__}")
        return frame.message.result
