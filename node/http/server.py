"""The http port of a node: is it alive, is it ready.

Owns the two health addresses and their answers. Must not know Raft or queues: why a node is not
ready comes in as a call. Listens only on the address that the configuration names.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from node.config import Address


class HealthServer:
    """Serves `/health/live` and `/health/ready`."""

    def __init__(self, address: Address, unready: Callable[[], str | None]) -> None:
        """`unready()`: why this node should get no traffic, or None where it should."""
        self._address = address
        self._unready = unready
        app = web.Application(client_max_size=1024)
        app.router.add_get("/health/live", self._live)
        app.router.add_get("/health/ready", self._ready)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._address.host, self._address.port)
        await site.start()

    async def stop(self) -> None:
        """Close the port; harmless where it was never open."""
        await self._runner.cleanup()

    async def _live(self, _request: web.Request) -> web.Response:
        """The process runs its loop: that is all that being alive means."""
        return web.json_response({"status": "live"})

    async def _ready(self, _request: web.Request) -> web.Response:
        """Knows a leader, and has applied nearly all that it knows to be committed."""
        reason = self._unready()
        if reason is None:
            return web.json_response({"status": "ready"})
        return web.json_response({"status": "not ready", "reason": reason}, status=503)
