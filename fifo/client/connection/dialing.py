"""Finding the leader: every known node in quick turn, redirects followed, the first welcome wins.

Owns which nodes are known and what happened when they were tried. One per connection role, each on
its own loop. Must not know what is done with the connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from fifo.client import limits
from fifo.client.connection.environment import Environment
from fifo.client.connection.link import Link
from fifo.client.connection.options import Options, split_address
from fifo.client.errors import (
    AuthenticationFailed,
    ConnectionLost,
    FifoError,
    InvalidArgument,
    PermissionDenied,
    SessionEnded,
    SessionTaken,
    Timeout,
    Unsupported,
)
from fifo.wire.messages import Hello, Redirect, Welcome

FATAL: Final = (AuthenticationFailed, PermissionDenied, SessionEnded, SessionTaken, Unsupported)
"""Answers of a leader that another node would give as well."""


class Dialer:
    """Knows nodes, and finds the one that leads."""

    def __init__(self, options: Options, environment: Environment) -> None:
        self._options = options
        self._environment = environment
        self._context = options.ssl_context()
        self._known: list[str] = list(options.addresses)
        self.hint: str | None = None
        self.tried: dict[str, str] = {}

    def learn(self, nodes: Iterable[tuple[str, str]]) -> None:
        """Take in the addresses that a welcome or a redirect lists."""
        for _, address in nodes:
            if address and address not in self._known and len(self._known) < 2 * limits.HOSTS_MAX:
                self._known.append(address)

    def explain(self) -> str:
        """Describe the attempts and their outcomes."""
        if not self.tried:
            return "tried " + ", ".join(self._known)
        return "tried " + ", ".join(f"{one} ({what})" for one, what in self.tried.items())

    async def dial(self, hello: Callable[[], Hello]) -> tuple[Link, Welcome]:
        """Go round until a leader welcomes us. Raises only the FATAL errors; cancel it to stop."""
        began = self._environment.monotonic()
        rounds = 0
        while True:
            found, retry_s = await self._round(hello)
            if found is not None:
                self.hint = found[0].address
                return found
            pause = self._options.reconnect.delay_s(rounds)
            if self._environment.monotonic() - began < limits.REDIAL_PATIENCE_S:
                pause = min(pause, limits.REDIAL_PATIENT_MAX_S)
            pause *= 0.5 + self._environment.chance()
            if retry_s is not None:
                # The node knows better how long it takes, but it does not know the other nodes.
                pause = max(pause, min(retry_s, limits.REDIAL_MAX_S))
            rounds += 1
            await asyncio.sleep(pause)

    async def _round(
        self, hello: Callable[[], Hello]
    ) -> tuple[tuple[Link, Welcome] | None, float | None]:
        """Try every known node once, overlapping; (link and welcome, shortest retry in seconds)."""
        waiting = deque(self._order())
        seen = set(waiting)
        running: dict[asyncio.Task[tuple[Link, Welcome | Redirect]], str] = {}
        retry_s: float | None = None
        try:
            while waiting or running:
                if waiting:
                    address = waiting.popleft()
                    task = asyncio.ensure_future(self._attempt(address, hello()))
                    running[task] = address
                done, _ = await asyncio.wait(
                    running,
                    timeout=limits.STAGGER_S if waiting else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                # In the order of dialing: a set has another one in every process.
                for task in [one for one in running if one in done]:
                    address = running.pop(task)
                    link, answer = self._outcome(task, address)
                    if isinstance(answer, Welcome) and link is not None:
                        self.learn(answer.nodes)
                        return (link, answer), None
                    if isinstance(answer, Redirect):
                        retry_s = _shorter(retry_s, answer.retry_ms)
                        self._follow(answer, seen, waiting)
        finally:
            _let_go(running)
        return None, retry_s

    def _order(self) -> list[str]:
        if self.hint is None:
            return list(self._known)
        return [self.hint, *[one for one in self._known if one != self.hint]]

    def _follow(self, answer: Redirect, seen: set[str], waiting: deque[str]) -> None:
        """The leader that a redirect names is next; what it lists comes later."""
        self.learn(answer.nodes)
        address = answer.address
        if not address:
            return
        if address in waiting:
            waiting.remove(address)
            waiting.appendleft(address)
        elif address not in seen:
            seen.add(address)
            waiting.appendleft(address)

    def _outcome(
        self, task: asyncio.Task[tuple[Link, Welcome | Redirect]], address: str
    ) -> tuple[Link | None, Welcome | Redirect | None]:
        error = task.exception()
        if error is None:
            link, answer = task.result()
            if isinstance(answer, Redirect):
                link.close()
                self.tried[address] = f"not the leader; that is {answer.address or 'not known'}"
            return link, answer
        if isinstance(error, FATAL):
            raise error
        if isinstance(error, FifoError | OSError):
            self.tried[address] = words(error).removeprefix(f"{address}: ")
            return None, None
        raise error

    async def _attempt(self, address: str, hello: Hello) -> tuple[Link, Welcome | Redirect]:
        timeout = limits.TCP_TIMEOUT_S if self._context is None else limits.TLS_TIMEOUT_S
        link = await connect(address, self._environment, timeout, self._context)
        try:
            async with asyncio.timeout(limits.OPENING_TIMEOUT_S):
                return link, await link.open(hello, self._options.secret)
        except TimeoutError:
            link.close()
            raise Timeout(f"no welcome within {limits.OPENING_TIMEOUT_S:g} s") from None
        except BaseException:
            link.close()
            raise


async def connect(
    address: str,
    environment: Environment,
    timeout: float,
    context: ssl.SSLContext | None = None,
) -> Link:
    """Open the TCP connection, encrypted with a context; raises Timeout or OSError.

    The certificate has to be one for the host of this address.
    """
    loop = asyncio.get_running_loop()
    try:
        host, port = split_address(address)
    except InvalidArgument as error:
        raise ConnectionLost(f"a node named the address {address[:60]!r}") from error
    link = Link(address, environment, loop)
    try:
        async with asyncio.timeout(timeout):
            await loop.create_connection(lambda: link, host, port, ssl=context)
    except TimeoutError:
        link.close()
        raise Timeout(f"no connection within {timeout:g} s") from None
    except BaseException:
        # asyncio closes it too, but over TLS it would first wait for the node to say goodbye.
        link.close()
        raise
    return link


def words(error: Exception) -> str:
    """Why a node could not be reached, short enough for a list of nodes."""
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not good: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS there: {error.reason}; is it fifo:// and not fifos://?"
    return (str(error) or type(error).__name__)[:200]


def _shorter(retry_s: float | None, retry_ms: int) -> float | None:
    if not retry_ms:
        return retry_s
    return retry_ms / 1000 if retry_s is None else min(retry_s, retry_ms / 1000)


def _let_go(running: Iterable[asyncio.Task[tuple[Link, Welcome | Redirect]]]) -> None:
    """End the attempts that lost the race; one that was just welcomed is closed.

    Nothing is awaited: a cancellation that came meanwhile would leave the winner's connection, or
    one of these, to no one.
    """
    for task in running:
        task.add_done_callback(_close_unused)
        task.cancel()


def _close_unused(task: asyncio.Task[tuple[Link, Welcome | Redirect]]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result()[0].close()
