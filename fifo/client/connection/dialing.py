"""Finding the leader: every known node, redirects followed, the first welcome wins.

In quick turn at first, and all at once where the leader was lost: who has lost it too, and elects
the next one, lets the hello wait for that.

Owns which nodes are known and what happened when they were tried. One per connection role, each on
its own loop. Must not know what is done with the connection.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
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


class _Search:
    """A search for a leader: attempts that run, and nodes to be tried in this round."""

    def __init__(self, beside: str | None, *, at_once: bool) -> None:
        self.beside = beside
        self.at_once = at_once
        self.running: dict[asyncio.Task[tuple[Link, Welcome | Redirect]], str] = {}
        self.waiting: deque[str] = deque()
        self.retry_s: float | None = None
        self.found: tuple[Link, Welcome] | None = None
        self._seen: set[str | None] = set()
        self._named_another: set[str] = set()
        """Nodes that were redirected from in this round: one may lead since."""
        self._asked_again: set[str] = set()
        """Those of them that were asked once more for that."""

    def begin(self, addresses: Iterable[str]) -> None:
        """Begin a round: a leader that was named since the last one is tried first."""
        out = {self.beside, *self.running.values()}
        self.waiting = deque(
            one for one in dict.fromkeys([*self.waiting, *addresses]) if one not in out
        )
        self._seen = {*out, *self.waiting}
        self._named_another, self._asked_again = set(), set()
        self.retry_s = None

    def redirected(self, answer: Redirect, by: str) -> None:
        """The leader that a redirect names is next."""
        if answer.retry_ms:
            retry_s = answer.retry_ms / 1000
            self.retry_s = retry_s if self.retry_s is None else min(self.retry_s, retry_s)
        self._named_another.add(by)
        address = answer.address
        if not address:
            return
        if address in self.waiting:
            self.waiting.remove(address)
            self.waiting.appendleft(address)
        elif address not in self._seen:
            self._seen.add(address)
            self.waiting.appendleft(address)
        elif address in self._named_another - self._asked_again:
            self._asked_again.add(address)
            self.waiting.appendleft(address)


class Dialer:
    """Knows nodes, and finds the one that leads."""

    def __init__(self, options: Options, environment: Environment) -> None:
        self._options = options
        self._environment = environment
        self._context = options.ssl_context()
        self._known: list[str] = list(options.addresses)
        self.hint: str | None = None
        self.tried: dict[str, str] = {}
        self._leader: tuple[str, str] | None = None
        """Name and address of the leader that a node has named last."""
        self._silent: set[str] = set()
        """Nodes that were not reached when they were tried last, since this search began."""

    def learn_all(self, nodes: Iterable[tuple[str, str]]) -> None:
        """Take the nodes that a leader lists for all there are, beside those of the options: the
        leader knows the members as they are now."""
        self._known = list(self._options.addresses)
        self.learn(nodes)

    def learn(self, nodes: Iterable[tuple[str, str]]) -> None:
        """Take in the addresses that a redirect lists, which may be old."""
        for _, address in nodes:
            if address and address not in self._known and len(self._known) < 2 * limits.HOSTS_MAX:
                self._known.append(address)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All nodes that are known."""
        return tuple(self._known)

    def explain(self) -> str:
        """Describe the attempts and their outcomes."""
        if not self.tried:
            return "tried " + ", ".join(self._known)
        return "tried " + ", ".join(f"{one} ({what})" for one, what in self.tried.items())

    def _unreached(self) -> str:
        """The name of the leader, if it cannot be reached from here; "" where it can be, or where
        that was not tried. Other nodes hear it, and may take over for it (protocol.md, 2)."""
        name, address = self._leader or ("", "")
        return name if address in self._silent else ""

    def knows_another(self, address: str) -> bool:
        """Whether a node is known besides the one at `address`."""
        return any(one != address for one in self._known)

    async def dial(
        self, hello: Callable[[], Hello], *, beside: str | None = None, lost: bool = False
    ) -> tuple[Link, Welcome]:
        """Go round until a leader welcomes us. Raises only the FATAL errors; cancel it to stop.

        `beside`: the node to which we are connected. It is left out, and all others are asked at
        once. `lost`: the connection to a leader was lost; all nodes are asked at once.
        """
        began = self._environment.monotonic()
        rounds = 0
        self._silent.clear()
        search = _Search(beside, at_once=lost or beside is not None)
        try:
            if lost:
                await asyncio.sleep(limits.REDIAL_JITTER_S * self._environment.chance())
            while True:
                await self._round(search, hello)
                if search.found is None:
                    pause = self._options.reconnect.delay_s(rounds)
                    if self._environment.monotonic() - began < limits.REDIAL_PATIENCE_S:
                        pause = min(pause, limits.REDIAL_PATIENT_MAX_S)
                    if self._unreached():
                        pause = min(pause, limits.REDIAL_UNREACHED_S)
                    if lost and rounds < limits.REDIAL_EARLY_ROUNDS:
                        pause = min(pause, limits.REDIAL_EARLY_S)
                    pause *= 0.5 + self._environment.chance()
                    if search.retry_s is not None:
                        # The node knows better how long it takes, but not the other nodes.
                        pause = max(pause, min(search.retry_s, limits.REDIAL_MAX_S))
                    rounds += 1
                    await self._pause(search, pause)
                if search.found is not None:
                    self.hint = search.found[0].address
                    return search.found
        finally:
            _let_go(search.running)

    async def _round(self, search: _Search, hello: Callable[[], Hello]) -> None:
        """Try every known node once, overlapping, except those that still owe us an answer.

        A node that accepts and says nothing holds up neither the others nor the next round.
        """
        search.begin(self._order())
        try:
            proof = await self._options.proof()
        except ConnectionLost as error:
            self.tried = {one: words(error) for one in self._known}
            return
        quiet = False
        while search.found is None and (search.waiting or (search.running and not quiet)):
            if search.waiting:
                address = search.waiting.popleft()
                attempt = self._attempt(address, hello(), proof)
                search.running[asyncio.ensure_future(attempt)] = address
            if search.waiting and search.at_once:
                continue
            quiet = not await self._answers(search, limits.STAGGER_S)

    async def _pause(self, search: _Search, seconds: float) -> None:
        """Begin no attempt for `seconds`, but take a welcome that comes meanwhile."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while search.found is None and (left := end - loop.time()) > 0:
            await self._answers(search, left)

    async def _answers(self, search: _Search, seconds: float) -> bool:
        """Wait for an attempt to end, and take its outcome in; False if none has."""
        if not search.running:
            await asyncio.sleep(seconds)
            return False
        done, _ = await asyncio.wait(
            search.running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        # In the order of dialing: a set has another one in every process.
        for task in [one for one in search.running if one in done]:
            if search.found is not None:
                break
            address = search.running.pop(task)
            link, answer = self._outcome(task, address)
            if isinstance(answer, Welcome) and link is not None:
                self.learn_all(answer.nodes)
                search.found = link, answer
            elif isinstance(answer, Redirect):
                self.learn(answer.nodes)
                search.redirected(answer, address)
        return bool(done)

    def _order(self) -> list[str]:
        if self.hint is None:
            return list(self._known)
        return [self.hint, *[one for one in self._known if one != self.hint]]

    def _outcome(
        self, task: asyncio.Task[tuple[Link, Welcome | Redirect]], address: str
    ) -> tuple[Link | None, Welcome | Redirect | None]:
        error = task.exception()
        if error is None:
            link, answer = task.result()
            self._silent.discard(address)
            if isinstance(answer, Redirect):
                link.close()
                if answer.leader and answer.address:
                    self._leader = answer.leader, answer.address
                self.tried[address] = f"not the leader; that is {answer.address or 'not known'}"
            return link, answer
        if isinstance(error, FATAL):
            raise error
        if isinstance(error, ConnectionLost | Timeout | OSError):
            self._silent.add(address)
        if isinstance(error, FifoError | OSError):
            self.tried[address] = words(error).removeprefix(f"{address}: ")
            return None, None
        raise error

    async def _attempt(
        self, address: str, hello: Hello, proof: tuple[str | None, bytes]
    ) -> tuple[Link, Welcome | Redirect]:
        mechanism, secret = proof
        hello = replace(hello, mechanism=mechanism, unreached=self._unreached())
        timeout = limits.TCP_TIMEOUT_S if self._context is None else limits.TLS_TIMEOUT_S
        link = await connect(address, self._environment, timeout, self._context)
        link.learn = self.learn_all
        try:
            async with asyncio.timeout(limits.OPENING_TIMEOUT_S):
                return link, await link.open(hello, secret)
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
            await environment.dial(lambda: link, host, port, context)
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
    if isinstance(error, socket.gaierror):
        return f"the host is not found: {error.strerror}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verification failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS on this port ({error.reason}); did you mean fifo://?"
    return (str(error) or type(error).__name__)[:200]


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
