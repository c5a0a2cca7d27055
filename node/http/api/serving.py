"""The API over HTTP: routes of the table as handlers of aiohttp.

Owns what is HTTP's own: who asks, which site a browser comes from, the JSON of bodies and answers,
`ETag` and `If-Match`. Must not know what a route does.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

from aiohttp import web

from fifo.client import Client, FifoError, Options
from fifo.wire import Code
from node.broker.connections.authentication import Denied, Verdict
from node.broker.permissions import Rights
from node.http import limits
from node.http.api import openapi, problems
from node.http.api.callers import Callers, Credentials
from node.http.api.params import gathered
from node.http.api.problems import Problem
from node.http.api.table import ROUTES, Route, Tagged

if TYPE_CHECKING:
    from node.server import Node

logger = logging.getLogger("fifo.http")

PREFIX: Final = openapi.PREFIX
_CHALLENGE: Final = {"WWW-Authenticate": 'Basic realm="fifo", charset="UTF-8"'}
_SAFE: Final = frozenset(("GET", "HEAD"))

Check = Callable[[web.Request], Awaitable[Verdict]]
Given = Callable[[web.Request], Credentials]


class Api:
    """The API of one node. `check` authenticates a request, `given` reads its credentials."""

    def __init__(self, node: Node, check: Check, given: Given) -> None:
        self._node = node
        self._check = check
        self._given = given
        self._callers = Callers(self.options)

    def add_to(self, app: web.Application) -> None:
        """Serve the routes, and the document that describes them."""
        app.router.add_get(f"{PREFIX}/openapi.json", self._document)
        for route in ROUTES:
            app.router.add_route(route.method, PREFIX + route.path, self._handler(route))

    async def close(self) -> None:
        """End the sessions on behalf of callers."""
        await self._callers.close()

    def client(self, credentials: Credentials) -> AbstractAsyncContextManager[Client]:
        """The pooled client of a caller. Raises Problem, FifoError."""
        return self._callers.client(credentials)

    def options(self, credentials: Credentials) -> Options:
        """The options of a connection in a caller's name."""
        tls = self._node.config.tls
        return Options(
            tuple(str(node.client) for node in self._node.config.nodes),
            user=credentials.user,
            password=credentials.password,
            token=credentials.token,
            tls=tls is not None and tls.client_cert is not None,
            timeout=limits.API_ANSWER_SECONDS,
            connect_timeout=limits.API_ANSWER_SECONDS,
            name=f"http-api@{self._node.me.name}",
        )

    async def _document(self, _request: web.Request) -> web.Response:
        return web.json_response(openapi.document())

    def _handler(self, route: Route) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                return await self._answer(route, request)
            except Problem as problem:
                return refused(problem)
            except FifoError as error:
                conditional = "If-Match" in request.headers
                return refused(problems.of_error(error, conditional=conditional))

        return handle

    async def _answer(self, route: Route, request: web.Request) -> web.Response:
        if request.method not in _SAFE:
            _refuse_other_sites(request)
        credentials, _ = await self.caller(request)
        body = await _body(request)
        given = gathered(route.params, request.match_info, request.query, body)
        if route.conditional and "If-Match" in request.headers:
            given["if_match"] = request.headers["If-Match"].strip().strip('"')
        async with self._callers.client(credentials) as client:
            result = await route.work(client, given)
        if isinstance(result, Tagged):
            return web.json_response(result.result, headers={"ETag": f'"{result.etag}"'})
        return web.json_response(result)

    async def caller(self, request: web.Request) -> tuple[Credentials, Rights | None]:
        """Check who asks here, so that a wrong password costs the cluster nothing; the client then
        proves it to the leader. No rights where there are no users: any caller may do all."""
        if not self._node.authentication.required:
            return Credentials(), None
        if "Authorization" not in request.headers:
            text = "this cluster has users: send a user and password (Basic) or a token (Bearer)"
            raise Problem(Code.AUTHENTICATION_FAILED, text)
        verdict = await self._check(request)
        if isinstance(verdict, Denied):
            raise Problem(verdict.code, verdict.text)
        return self._given(request), verdict


def refused(problem: Problem) -> web.Response:
    """The answer to a request that was refused."""
    headers = _CHALLENGE if problem.status == 401 else {}
    return web.json_response(
        problem.as_dict(),
        status=problem.status,
        content_type=problems.CONTENT_TYPE,
        headers=headers,
    )


def _refuse_other_sites(request: web.Request) -> None:
    """A page of another site must not act with what a browser of ours knows: browsers say where a
    request that changes something comes from. There is no way to open this."""
    origin = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    if (origin is not None and origin != f"{request.scheme}://{request.host}") or site not in (
        "same-origin",
        "none",
    ):
        text = f"a page of {origin or 'another site'} may not change anything here"
        raise Problem(Code.PERMISSION_DENIED, text)


async def _body(request: web.Request) -> bytes:
    if not request.can_read_body:
        return b""
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        text = f"the body of a request has at most {limits.API_BODY_BYTES_MAX} bytes"
        raise Problem(Code.TOO_LARGE, text) from None
    if body and request.content_type != "application/json":
        text = f"the body must be application/json, not {request.content_type}"
        raise Problem(Code.UNSUPPORTED, text, status=415)
    return body
