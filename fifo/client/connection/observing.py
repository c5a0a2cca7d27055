"""Requests to one node, leader or not, without a session: its status, and pinned views.

Owns the observer's connection. Must not know what the answers mean.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fifo.client.connection.dialing import connect, words
from fifo.client.connection.environment import Environment
from fifo.client.connection.in_process import environment_of
from fifo.client.connection.link import Link
from fifo.client.connection.options import Options
from fifo.client.errors import ConnectionLost, FifoError, ProtocolError, Timeout, from_code
from fifo.wire import VERSION_MAX, VERSION_MIN, Frame
from fifo.wire.messages import ROLE_OBSERVER, Error, Hello, Message, Ok, Status, Welcome


async def observe(
    address: str,
    timeout: float = 5.0,
    environment: Environment | None = None,
    options: Options | None = None,
) -> dict[str, Any]:
    """The status of the node at `host:port`; credentials and TLS are those of `options`.

    Raises ConnectionLost, Timeout, or what the node answers; OSError never leaves here.
    """
    environment = environment or environment_of([address])
    options = options or Options((address,))
    link = await NodeLink.open(address, timeout, environment, options)
    try:
        return await link.status(timeout)
    finally:
        link.close()


class NodeLink:
    """A connection to one node without a session: one request at a time, each answered."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._correlation = 0
        self._answer: asyncio.Future[Frame] | None = None
        self._lost: FifoError | None = None
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<observer of {self._link.address}>"

    @classmethod
    async def open(
        cls, address: str, timeout: float, environment: Environment, options: Options
    ) -> NodeLink:
        """Connect and say hello. Raises ConnectionLost, Timeout, or what the node answers."""
        try:
            async with asyncio.timeout(timeout):
                link = await connect(address, environment, timeout, options.ssl_context())
                try:
                    return await cls._welcomed(link, environment, options)
                except BaseException:
                    link.close()
                    raise
        except TimeoutError as error:
            if isinstance(error, FifoError):
                raise
            raise Timeout(f"{address}: no welcome within {timeout:g} s") from None
        except OSError as error:
            if isinstance(error, FifoError):
                raise
            raise ConnectionLost(f"{address}: {words(error)}") from error

    @classmethod
    async def _welcomed(cls, link: Link, environment: Environment, options: Options) -> NodeLink:
        mechanism, secret = await options.proof()
        hello = Hello(
            VERSION_MIN,
            VERSION_MAX,
            ROLE_OBSERVER,
            session=environment.entropy(16),
            incarnation=environment.entropy(16),
            client="fifo-observer",
            user=options.user,
            mechanism=mechanism,
        )
        answer = await link.open(hello, secret)
        if not isinstance(answer, Welcome):
            raise ProtocolError(f"{link.address} redirects observers")
        observer = cls(link)
        link.attach(observer, answer.heartbeat_ms / 1000)
        return observer

    async def ask(self, message: Message, timeout: float) -> Frame:
        """The answer to a request. Raises what the node answers as an error, ConnectionLost, and
        Timeout: then the connection is of no use any more."""
        async with self._turn:
            if self._lost is not None:
                raise self._lost
            self._correlation += 1
            self._answer = asyncio.get_running_loop().create_future()
            self._link.send(message, self._correlation)
            try:
                async with asyncio.timeout(timeout):
                    return await self._answer
            except TimeoutError as error:
                if isinstance(error, FifoError):
                    raise
                what = type(message).__name__
                raise Timeout(
                    f"{self._link.address}: no answer to {what} within {timeout:g} s"
                ) from None
            finally:
                self._answer = None

    async def status(self, timeout: float) -> dict[str, Any]:
        """The status of the node. Raises as `ask` does."""
        message = (await self.ask(Status(), timeout)).message
        if not isinstance(message, Ok) or not isinstance(message.result, dict):
            kind = type(message).__name__
            raise ProtocolError(f"{self._link.address}: expected Ok in reply to Status, got {kind}")
        return message.result

    def close(self) -> None:
        """Close the connection."""
        self._lost = self._lost or ConnectionLost(f"{self._link.address}: closed")
        self._link.close()

    # --- the link's calls -------------------------------------------------------------------------

    def frame_received(self, link: Link, frame: Frame) -> None:
        """An answer; one that is not waited for any more is dropped."""
        waiting, message = self._answer, frame.message
        if waiting is None or waiting.done() or frame.correlation != self._correlation:
            if isinstance(message, Error) and not frame.correlation:
                self.link_lost(link, from_code(message.code, message.text, message.detail))
        elif isinstance(message, Error):
            waiting.set_exception(from_code(message.code, message.text, message.detail))
        else:
            waiting.set_result(frame)

    def link_lost(self, link: Link, error: FifoError) -> None:
        """Gone."""
        self._lost = error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def link_writable(self, link: Link) -> None:
        """Nothing waits to be sent."""

    def owes_answers(self) -> bool:
        """Whether an answer is outstanding."""
        return self._answer is not None and not self._answer.done()
