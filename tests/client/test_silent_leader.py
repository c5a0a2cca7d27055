"""Proves that a leader that falls silent costs no lock: the next one is found beside it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

import fifo
from fifo.client import Environment, from_url, limits
from fifo.client.connection.dialing import Dialer, connect
from fifo.client.connection.link import Link
from fifo.client.connection.pair import Pair
from fifo.client.connection.patience import LOOKS, Patience
from fifo.client.connection.session import Identity, hello
from fifo.client.errors import FifoError
from fifo.wire import Code, Frame
from fifo.wire.messages import (
    ROLE_CONTROL,
    ROLE_DATA,
    Error,
    Hello,
    Message,
    Redirect,
    Renew,
    Renewed,
    Subscribe,
)
from tests.support.one_consumer import Orders, bodies, consuming, take
from tests.support.wire_peer import Line, Peer, renew_all, subscribe_as, until, welcome

IDENTITY = Identity(b"s" * 16, b"i" * 16, established=True)


@asynccontextmanager
async def two_nodes(lock_ms: int = 600) -> AsyncIterator[tuple[Peer, Peer, fifo.Client, Orders]]:
    """A client that holds a lock at the first of two nodes; the second one redirects to it."""
    async with Peer() as old, Peer() as new:
        nodes = (("n1", old.address), ("n2", new.address))
        old.opening = partial(welcome, nodes=nodes)
        new.opening = lambda line, hello: Redirect("n1", old.address)
        old.answers[Subscribe] = subscribe_as(11, lock_ms=lock_ms)
        async with consuming(old) as (client, messages):
            new.answers |= old.answers
            old.line().deliver(11, 1, bodies(1), remaining_ms=lock_ms)
            await take(messages, 1)
            await old.hear(Renew)
            yield old, new, client, messages


def leads_later(peer: Peer) -> None:
    """From here on the node leads term 2."""

    def opening(line: Line, hello: Hello) -> Message:
        return welcome(line, hello, term=2) if hello.after_term < 2 else Redirect(None, None)

    peer.opening = opening


def roles(peer: Peer) -> list[int]:
    """The open, welcomed connections to a node."""
    return sorted(line.role for line in peer.lines if line.hello is not None)


async def test_an_unanswered_renewal_moves_both_connections_to_the_leader_of_a_later_term() -> None:
    async with two_nodes() as (old, new, client, _):
        asked: list[Hello] = []

        def opening(line: Line, hello: Hello) -> Message:
            asked.append(hello)
            return Redirect("n1", old.address)

        new.opening = opening
        old.answers[Renew] = lambda line, frame: None
        await until(lambda: len(asked) > 1)
        assert client.address == old.address
        leads_later(new)
        await until(lambda: roles(new) == [ROLE_DATA, ROLE_CONTROL])
        await until(lambda: client.address == new.address)
        await until(lambda: not old.lines)
        await new.hear(Renew)


async def test_a_node_that_may_not_renew_is_left_like_a_silent_one() -> None:
    async with two_nodes() as (old, new, client, _):
        old.answers[Renew] = lambda line, frame: line.send(
            Error(Code.NOT_NOW, "no lease", retryable=True), frame.correlation
        )
        leads_later(new)
        await until(lambda: client.address == new.address)


@pytest.mark.slow
async def test_other_nodes_are_asked_for_a_later_term_only_while_renewals_have_no_answer() -> None:
    hellos: list[Hello] = []

    def opening(line: Line, hello: Hello) -> Message:
        hellos.append(hello)
        return Redirect(None, None)

    async with two_nodes(1_500) as (old, new, client, _):
        new.opening = opening
        for _ in range(3):
            await old.hear(Renew)
        assert not hellos
        old.answers[Renew] = lambda line, frame: None
        await until(lambda: hellos)
        assert (hellos[0].role, hellos[0].after_term) == (ROLE_CONTROL, 1)
        # It speaks again: nothing has moved.
        old.answers[Renew] = renew_all
        await old.hear(Renew)
        assert client.metrics.disconnects == 0
        assert roles(old) == [ROLE_DATA, ROLE_CONTROL]


class Reader:
    """Keeps what a link hands over."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def frame_received(self, link: Link, frame: Frame) -> None:
        self.frames.append(frame)

    def link_lost(self, link: Link, error: FifoError) -> None:
        """Nothing to do."""

    def link_writable(self, link: Link) -> None:
        """Nothing to do."""

    def owes_answers(self) -> bool:
        return False


async def opened(peer: Peer, role: int, reader: Reader) -> Link:
    link = await connect(peer.address, Environment(), 1.0)
    await link.open(hello(IDENTITY, from_url(peer.url), role))
    link.attach(reader, 5.0)
    return link


@pytest.mark.parametrize(("term", "read"), [(1, 1), (2, 0)])
async def test_nothing_of_an_earlier_term_is_read_once_a_later_leader_has_welcomed_us(
    term: int, read: int
) -> None:
    async with Peer() as old, Peer() as new:
        new.opening = partial(welcome, term=term)
        reader, pair = Reader(), Pair()
        control = await opened(old, ROLE_CONTROL, reader)
        assert pair.join(ROLE_CONTROL, control)
        data = await opened(new, ROLE_DATA, Reader())
        assert pair.join(ROLE_DATA, data)
        line = old.line(ROLE_CONTROL)
        line.send(Renewed(((11, (), ((1, 1),)),)), 1)
        line.close()
        await control.closed
        assert len(reader.frames) == read
        data.close()


async def test_a_leader_of_an_earlier_term_than_ours_is_refused_while_ours_is_connected() -> None:
    async with Peer() as old, Peer() as new:
        new.opening = partial(welcome, term=2)
        pair = Pair()
        late = await opened(old, ROLE_DATA, Reader())
        control = await opened(new, ROLE_CONTROL, Reader())
        assert pair.join(ROLE_CONTROL, control)
        assert not pair.join(ROLE_DATA, late)
        pair.leave(control)
        assert pair.join(ROLE_DATA, late)
        late.close()
        control.close()


def test_patience_ends_after_its_time_and_not_by_a_pause_of_our_own() -> None:
    patience = Patience()
    assert not patience.is_over(0.0, 1.0)
    patience.asked(0.0)
    patience.asked(0.5)
    # We were stopped for an hour: one look of several.
    assert not patience.is_over(3600.0, 1.0)
    for look in range(1, LOOKS - 1):
        assert not patience.is_over(3600.0 + look / LOOKS, 1.0)
    assert patience.is_over(3601.0, 1.0)
    patience.answered()
    assert not patience.is_over(3700.0, 1.0)


async def test_a_node_that_accepts_and_says_nothing_holds_up_no_round() -> None:
    asked: list[float] = []

    async with Peer() as silent, Peer() as late:

        def opening(line: Line, hello: Hello) -> Message:
            asked.append(asyncio.get_running_loop().time())
            return welcome(line, hello) if len(asked) == 5 else Redirect("n1", silent.address)

        silent.opening = lambda line, hello: None
        late.opening = opening
        options = from_url(f"fifo://{silent.address},{late.address}")
        dialer = Dialer(options, Environment())
        link, _ = await dialer.dial(lambda: hello(IDENTITY, options, ROLE_DATA))
        assert link.address == late.address
        assert asked[-1] - asked[0] < limits.OPENING_TIMEOUT_S
        link.close()
