"""The status of one node, leader or not, without a session.

Owns the observer's connection. Must not know what the answer means.
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
from fifo.wire.messages import ROLE_OBSERVER, Error, Hello, Ok, Status, Welcome


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
    try:
        async with asyncio.timeout(timeout):
            link = await connect(address, environment, timeout, options.ssl_context())
            try:
                return await _ask(link, environment, options)
            finally:
                link.close()
    except TimeoutError as error:
        if isinstance(error, FifoError):
            raise
        raise Timeout(f"{address}: no status within {timeout:g} s") from None
    except OSError as error:
        if isinstance(error, FifoError):
            raise
        raise ConnectionLost(f"{address}: {words(error)}") from error


async def _ask(link: Link, environment: Environment, options: Options) -> dict[str, Any]:
    hello = Hello(
        VERSION_MIN,
        VERSION_MAX,
        ROLE_OBSERVER,
        session=environment.entropy(16),
        incarnation=environment.entropy(16),
        client="fifo-observer",
        user=options.user,
        mechanism=options.mechanism,
    )
    answer = await link.open(hello, options.secret)
    if not isinstance(answer, Welcome):
        raise ProtocolError(f"{link.address} redirects observers")
    observer = _Observer()
    link.attach(observer, answer.heartbeat_ms / 1000)
    link.send(Status(), 1)
    return await observer.answer


class _Observer:
    """Waits for the one answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[dict[str, Any]]
        self.answer = asyncio.get_running_loop().create_future()

    def frame_received(self, link: Link, frame: Frame) -> None:
        """The status, or an error."""
        message = frame.message
        if self.answer.done():
            return
        if isinstance(message, Ok) and isinstance(message.result, dict):
            self.answer.set_result(message.result)
        elif isinstance(message, Error):
            self.answer.set_exception(from_code(message.code, message.text, message.detail))
        else:
            self.answer.set_exception(
                ProtocolError(
                    f"{link.address}: expected Ok in reply to Status, got {type(message).__name__}"
                )
            )

    def link_lost(self, link: Link, error: FifoError) -> None:
        """Gone before it answered."""
        if not self.answer.done():
            self.answer.set_exception(error)

    def link_writable(self, link: Link) -> None:
        """Nothing waits to be sent."""

    def owes_answers(self) -> bool:
        """Whether the status is outstanding."""
        return not self.answer.done()
