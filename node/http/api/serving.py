"""The API over HTTP: routes of the table as handlers of aiohttp.

Owns what is HTTP's own: who asks, the JSON of answers, `ETag` and `If-Match`, callers that go while
they wait. Must not know what a route does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from aiohttp import web

from fifo.client import Client, FifoError, Options
from fifo.wire import Code
from node.broker.connections.authentication import Denied, Verdict
from node.broker.permissions import Rights
from node.config import TlsSettings
from node.http import limits
from node.http.api import bodies, openapi, problems, sites
from node.http.api.callers import Callers, Credentials
from node.http.api.events import Events, Listener
from node.http.api.exchange import Taken
from node.http.api.live import LiveQueues
from node.http.api.params import gathered
from node.http.api.places import Places
from node.http.api.problems import Problem
from node.http.api.provider_tokens import ProviderTokens
from node.http.api.routes import Given, Route, Tagged
from node.http.api.table import ROUTES

if TYPE_CHECKING:
    from node.server import Node

logger = logging.getLogger("fifo.http")

PREFIX: Final = openapi.PREFIX
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="fifo", charset="UTF-8"'}

Check: TypeAlias = Callable[[web.Request], Awaitable[Verdict]]
Read: TypeAlias = Callable[[web.Request], Credentials]


class Port(Protocol):
    """The connections of the http port, as a request sees its own."""

    def goes_on(self, request: web.Request) -> None:
        """Give an answer that goes on more time."""

    def allow(self, request: web.Request, count: int) -> None:
        """Take `count` bytes of a body from the peer."""

    def lost(self, request: web.Request) -> asyncio.Future[None]:
        """A future that is done when the connection has ended."""


class Api:
    """The API of one node. `check` authenticates a request, `read` reads its credentials."""

    def __init__(self, node: Node, check: Check, read: Read, port: Port) -> None:
        self._node = node
        self._check = check
        self._read = read
        self._port = port
        self._large = bodies.Large()
        self._gets = Places(limits.API_GETS_MAX, limits.API_GETS_PER_USER_MAX, "gets under way")
        self._tokens = ProviderTokens(lambda rights: node.authentication.believes(rights))
        self._callers = Callers(self.options, self._tokens.forget)
        live = LiveQueues(lambda: node.broker.host.machine)
        self._events = Events(live, self._callers, self._about_node, node.broker.clock.now_ms)

    @property
    def _hosts(self) -> set[str]:
        """The names under which the nodes are known."""
        return {
            address.host.lower()
            for one in (*self._node.roster.nodes, self._node.me)
            for address in (one.http, one.client, one.peer)
        }

    def add_to(self, app: web.Application) -> None:
        """Serve the routes, and the document that describes them."""
        app.router.add_get(f"{PREFIX}/openapi.json", self._document)
        for route in ROUTES:
            app.router.add_route(route.method, PREFIX + route.path, self._handler(route))

    async def close(self) -> None:
        """End the streams of events, and the sessions on behalf of callers."""
        self._events.close()
        await self._callers.close()

    def _about_node(self) -> dict[str, Any]:
        """Describe this node for a page that is open."""
        leader = self._node.leader()
        return {
            "node": self._node.me.name,
            "leader": None if leader is None else leader.name,
            "unready": self._node.unready(),
        }

    def client(self, credentials: Credentials) -> AbstractAsyncContextManager[Client]:
        """The pooled client of a caller. Raises Problem, FifoError."""
        return self._callers.client(credentials)

    def options(self, credentials: Credentials) -> Options:
        """The options of a connection in a caller's name."""
        tls, subject = self._node.config.tls, credentials.subject
        token: str | Callable[[], str] | None = credentials.token
        if subject is not None:
            # Its key is the caller's alone: the node vouches for what it has seen, at each log-in.
            token = partial(self._node.authentication.ticket, subject)
        if credentials.groups is not None:
            token = partial(self._tokens.token, credentials)
        return Options(
            tuple(str(node.client) for node in self._node.roster.nodes),
            user=credentials.user,
            password=credentials.password,
            token=token,
            tls=tls is not None and tls.client_cert is not None,
            ca=None if tls is None or tls.http_ca is None else str(self._ca(tls)),
            timeout=limits.API_ANSWER_SECONDS,
            connect_timeout=limits.API_ANSWER_SECONDS,
            name=f"http-api@{self._node.me.name}{_for(credentials.remote)}",
        )

    def _ca(self, tls: TlsSettings) -> Path:
        return tls.path("http_ca", self._node.me.name)

    async def _document(self, _request: web.Request) -> web.Response:
        return web.json_response(openapi.document())

    def _handler(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await self._answer(route, request)
            except Problem as problem:
                return refused(problem)
            except FifoError as error:
                conditional = "If-Match" in request.headers
                return refused(problems.of_error(error, conditional=conditional))

        return handle

    async def _answer(self, route: Route, request: web.Request) -> web.StreamResponse:
        sites.check(request, self._hosts, guarded=self._node.authentication.required)
        credentials, rights = await self.caller(request)
        given = await self._given(route, request)
        if request.method != "GET" and route.exchange is None:
            credentials = credentials._replace(remote=request.remote)
        if route.is_stream:
            listener = Listener(credentials, rights, lambda: self._check(request))
            return await self._events.answer(
                request, listener, given, lambda: self._port.goes_on(request)
            )
        if not route.waits:
            return await self._result(route, request, credentials, given)
        with self._gets.taken(None if rights is None else rights.user.name):
            answer = asyncio.ensure_future(self._result(route, request, credentials, given))
            return await _unless_lost(answer, self._port.lost(request))

    async def _given(self, route: Route, request: web.Request) -> Given:
        """Read what the request gives for the route's parameters. Raises Problem."""
        body = await bodies.read(
            request,
            route.body_bytes_max,
            is_raw=route.is_raw,
            allow=lambda count: self._port.allow(request, count),
        )
        await self._large.wait(0 if route.is_raw else len(body))
        given = gathered(
            route.params,
            request.match_info,
            request.query,
            request.headers,
            b"" if route.is_raw else body,
        )
        if route.is_raw:
            given |= {"message": body, "headers": _message_headers(request)}
        if route.conditional and "If-Match" in request.headers:
            given["if_match"] = request.headers["If-Match"].strip().strip('"')
        return given

    async def _result(
        self, route: Route, request: web.Request, credentials: Credentials, given: Given
    ) -> web.Response:
        """Do what the route does, and answer."""
        async with self._callers.caller(credentials) as caller:
            if route.exchange is None:
                assert route.work is not None, "it is no stream"
                result = await route.work(caller.client, given)
            else:
                result = await route.exchange(caller, given)
            if isinstance(result, Taken):
                size = sum(len(message.body) for message in result.messages)
                text = await self._large.dumped(result.result, size)
                if request.transport is None or request.transport.is_closing():
                    caller.give_back(result.messages)
                return web.Response(body=text, content_type=bodies.JSON)
        if isinstance(result, Tagged):
            return web.json_response(result.result, headers={"ETag": f'"{result.etag}"'})
        return web.json_response(result, status=route.status)

    async def caller(self, request: web.Request) -> tuple[Credentials, Rights | None]:
        """Check who asks here, so that a wrong password costs the cluster nothing; the client then
        proves it to the leader. No rights where there are no users: any caller may do all."""
        if not self._node.authentication.required:
            return Credentials(), None
        credentials = self._read(request)
        if credentials == Credentials():
            text = "this cluster has users: send a user and password (Basic) or a token (Bearer)"
            raise Problem(Code.AUTHENTICATION_FAILED, text)
        alone = len(self._node.roster.nodes) == 1
        if credentials.subject is not None and self._node.config.secret is None and not alone:
            text = (
                "a certificate opens nothing here: the nodes need a secret_file in [cluster] to"
                " vouch for it; send a user and password (Basic) or a token (Bearer)"
            )
            raise Problem(Code.AUTHENTICATION_FAILED, text)
        verdict = await self._check(request)
        if isinstance(verdict, Denied):
            raise Problem(verdict.code, verdict.text)
        if verdict.signed is not None and credentials.token is not None:
            credentials = self._tokens.note(credentials.token, verdict)
        return credentials, verdict


def refused(problem: Problem) -> web.Response:
    """The answer to a request that was refused."""
    headers = _CHALLENGE if problem.status == 401 else {}
    return web.json_response(
        problem.as_dict(),
        status=problem.status,
        content_type=problems.CONTENT_TYPE,
        headers=headers,
    )


def _for(remote: str | None) -> str:
    return "" if remote is None else f" for {remote}"


def _message_headers(request: web.Request) -> dict[str, str]:
    """The headers of a message that is the body of a request: those that say so, and its type."""
    prefix = limits.HEADERS_PREFIX.lower()
    found = {
        name[len(prefix) :].lower(): value
        for name, value in request.headers.items()
        if name.lower().startswith(prefix)
    }
    if "Content-Type" in request.headers:
        found.setdefault("content-type", request.headers["Content-Type"])
    return found


async def _unless_lost(
    answer: asyncio.Future[web.Response], lost: asyncio.Future[None]
) -> web.Response:
    """The answer; where the caller goes first, what it waits for is given up."""
    await asyncio.wait((answer, lost), return_when=asyncio.FIRST_COMPLETED)
    if not answer.done():
        answer.cancel()
        with contextlib.suppress(asyncio.CancelledError, FifoError, Problem):
            return await answer
        raise Problem(Code.SHUTTING_DOWN, "the connection has ended")
    return answer.result()
