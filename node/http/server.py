"""The http port of a node: is it alive and ready, what does it count, how are its queues.

Owns the addresses, who may ask, and where a follower sends those who ask about queues. Everything
but the API is read-only. The port listens only on the address that the configuration names; with
TLS where that is not on this machine and the client port has a certificate.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp import web

from fifo.wire import Code
from node.broker import views
from node.broker.connections.authentication import PASSWORD, TOKEN, Denied, Verdict
from node.broker.connections.listener import Listener
from node.certificates import subject_of
from node.http import limits
from node.http.api.callers import Credentials
from node.http.api.serving import PREFIX, Api
from node.http.console import feed
from node.http.console.feed import Feed
from node.http.console.pages import Pages
from node.http.doors import Doors
from node.http.exposition import CONTENT_TYPE
from node.http.log import request_logger
from node.http.metrics import Metrics
from node.http.pieces import in_pieces

if TYPE_CHECKING:
    from node.server import Node

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_OPEN_TO_ALL: Final = "/health/"
"""Whether a node is alive is no secret, and probes have no credentials."""

_ASK_THEMSELVES: Final = (f"{PREFIX}/", feed.PREFIX)
"""Paths whose handlers ask for permissions of their own."""

_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="fifo", charset="UTF-8"'}


class HttpServer:
    """Serves `/health`, `/metrics`, `/api` and the console of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._metrics = Metrics(node)
        self._api = Api(node, self._verdict, _credentials, self)
        app = web.Application(
            client_max_size=limits.API_BODY_BYTES_MAX, middlewares=[self._bounded, self._who]
        )
        self._api.add_to(app)
        Pages().add_to(app)
        self.console = Feed(node, self._api, self)
        self.console.add_to(app)
        app.router.add_get("/health/live", self._live)
        app.router.add_get("/health/ready", self._ready)
        app.router.add_get("/metrics", self._page)
        app.router.add_get("/api/status", self._status)
        app.router.add_get("/api/queues", self._queues)
        app.router.add_get("/api/queues/{name}", self._queue)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            logger=request_logger(),
            # A few bytes could unpack to a gigabyte: bodies come as they are.
            auto_decompress=False,
        )
        self._listener: Listener | None = None

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""
        address = self._node.me.http
        context = None if address.is_loopback else self._node.client_context(asks=True)
        await self._runner.setup()
        assert self._runner.server is not None, "it was set up"
        # Not a site of aiohttp: a socket that it has just accepted when it stops is never closed.
        self._doors = Doors(self._runner.server)
        self._listener = Listener(
            context,
            self._doors,
            self._node.config.balancers,
            handshakes_max=limits.CONNECTIONS_MAX,
        )
        await self._listener.start(address.host, address.port)
        self.console.start()

    async def stop(self) -> None:
        """Close the port; harmless where it was never open."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self.console.close()
        await self._api.close()
        await self._runner.cleanup()

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._doors)

    def goes_on(self, request: web.Request) -> None:
        """Give an answer that goes on more time."""
        self._doors.goes_on(request.protocol)

    def allow(self, request: web.Request, count: int) -> None:
        """Take `count` bytes of a body from the peer."""
        self._doors.allow(request.protocol, count)

    def lost(self, request: web.Request) -> asyncio.Future[None]:
        """A future that is done when the connection has ended."""
        return self._doors.lost(request.protocol)

    # --- who asks ---------------------------------------------------------------------------------

    @web.middleware
    async def _bounded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Each request waits for its turn, however many a peer sends at once."""
        await self._doors.begun(request.protocol)
        source = self._doors.source(request.protocol)
        if source is not None:  # The client's own address, which a balancer has named.
            request = request.clone(remote=source.host)
        try:
            return await handler(request)
        finally:
            self._doors.answered(request.protocol)

    @web.middleware
    async def _who(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Where there are users, only those who may see the state of nodes are answered."""
        authentication = self._node.authentication
        if request.path.startswith(_OPEN_TO_ALL) or not authentication.required:
            return await handler(request)
        if request.path.startswith(_ASK_THEMSELVES) or Pages.serves(request.path):
            return await handler(request)
        verdict = await self._verdict(request)
        if isinstance(verdict, Denied):
            busy = verdict.code == Code.OVERLOADED
            return web.json_response(
                {"error": verdict.text},
                status=503 if busy else 401,
                headers={} if busy else _CHALLENGE,
            )
        if not verdict.may_monitor:
            name = verdict.user.name
            text = f"user {name} has no permission to see the state of nodes; set monitor = true"
            return web.json_response({"error": text}, status=403)
        return await handler(request)

    async def _verdict(self, request: web.Request) -> Verdict:
        """Authenticate by `Basic` or `Bearer` credentials, by a certificate, or by an address of
        this machine."""
        host = request.remote or ""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        subject = _subject(request)
        if not scheme and subject is not None:
            return self._node.authentication.by_certificate(host, subject)
        if not scheme:
            # A loopback address that a balancer names is of its machine, not of this one.
            proxied = self._doors.proxied(request.protocol)
            return self._node.authentication.without_credentials("" if proxied else host)
        decided: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

        def decide(verdict: Verdict) -> None:
            if not decided.done():
                decided.set_result(verdict)

        if scheme.lower() == "bearer":
            self._node.authentication.check(host, TOKEN, "", given.strip().encode(), decide)
        else:
            name, secret = _basic(given)
            self._node.authentication.check(host, PASSWORD, name, secret, decide)
        return await decided

    # --- answers ----------------------------------------------------------------------------------

    async def _live(self, _request: web.Request) -> web.Response:
        """The process runs its loop: that is all that being alive means."""
        return web.json_response({"status": "live"})

    async def _ready(self, _request: web.Request) -> web.Response:
        """Knows a leader, and has applied nearly all that it knows to be committed."""
        reason = self._node.unready()
        alarms = views.alarms_of(self._node.broker.alarms)
        if reason is None:
            return web.json_response({"status": "ready", "alarms": alarms})
        said = {"status": "not ready", "reason": reason, "alarms": alarms}
        return web.json_response(said, status=503)

    async def _page(self, _request: web.Request) -> web.Response:
        """The metrics of this node."""
        text = await self._metrics.page()
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _status(self, _request: web.Request) -> web.Response:
        """This node's own record of `fifo status --json`."""
        status = self._node.broker.status()
        lag = status["last"] - status["applied"]
        return web.json_response({"address": str(self._node.me.client), **status, "lag": lag})

    async def _queues(self, request: web.Request) -> web.Response:
        """Answer with the output of `fifo queue list --json`."""
        elsewhere = await self._elsewhere(request)
        if elsewhere is not None:
            return elsewhere
        broker = self._node.broker
        listed = views.overviews(broker.host.machine, broker.alarms, limits.QUEUES_LISTED_MAX)
        found = [view async for view in in_pieces(listed, limits.QUEUES_LISTED_PIECE)]
        return web.json_response(found)

    async def _queue(self, request: web.Request) -> web.Response:
        """Answer with the output of `fifo queue show NAME --json`."""
        elsewhere = await self._elsewhere(request)
        if elsewhere is not None:
            return elsewhere
        name = request.match_info["name"]
        broker = self._node.broker
        found = views.overview(broker.host.machine, broker.alarms, name)
        if found is None:
            return web.json_response({"error": f"there is no queue {name!r}"}, status=404)
        return web.json_response(found)

    async def _elsewhere(self, request: web.Request) -> web.Response | None:
        """Only a leader that is sure to be one knows its queues: others name it."""
        if await self._node.broker.current():
            return None
        leader = self._node.leader()
        if leader is None or leader.name == self._node.me.name:
            return web.json_response({"error": "no leader is known; retry shortly"}, status=503)
        location = f"{request.scheme}://{leader.http}{request.rel_url}"
        text = f"this node does not lead; ask {leader.name}"
        return web.json_response({"error": text}, status=307, headers={"Location": location})


def _credentials(request: web.Request) -> Credentials:
    """The credentials of a request, for a connection in its name; empty where it has none."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if not scheme:
        return Credentials(subject=_subject(request))
    if scheme.lower() == "bearer":
        return Credentials(token=given.strip())
    name, secret = _basic(given)
    return Credentials(name, secret.decode(errors="replace"))


def _subject(request: web.Request) -> str | None:
    """The subject of the certificate that the caller has shown; None for none."""
    certificate = (
        None if request.transport is None else request.transport.get_extra_info("peercert")
    )
    return subject_of(certificate) if certificate else None


def _basic(given: str) -> tuple[str, bytes]:
    """User and password of a `Basic` header; empty where it is none."""
    try:
        name, _, secret = base64.b64decode(given.strip(), validate=True).partition(b":")
        return name.decode(), secret
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return "", b""
