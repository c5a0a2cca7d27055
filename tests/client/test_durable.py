"""Durable consumers of the client against a scripted node: lost answers, halves, other sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import fifo
from fifo.client.consuming.durable import STEP_MESSAGES
from fifo.wire import Code, Frame
from fifo.wire.messages import Durable, Error, Hello, Message, Ok, Receipt, Settle
from tests.support.one_consumer import bodies
from tests.support.wire_peer import Line, Peer, until, welcome

OPENED = {"consumer": 5, "generation": 2, "next_token": 4, "held": [1, 3], "lost": []}


def durable(verbs: dict[str, Callable[[Line, Frame, Durable], object]]) -> Callable[..., None]:
    """Answers an open as generation 2 of consumer 5, and other verbs as given."""

    def answer(line: Line, frame: Frame) -> None:
        message = frame.message
        assert isinstance(message, Durable)
        if message.verb == "open":
            line.send(Ok(OPENED), frame.correlation)
        elif message.verb in verbs:
            verbs[message.verb](line, frame, message)

    return answer


def sent(line: Line, frame: Frame, request: Durable) -> None:
    """Deliver what was fetched, then answer."""
    count = request.last - request.first + 1
    line.deliver(5, request.first, bodies(count))
    line.send(reserved(request.first, count), frame.correlation)


def reserved(first_token: int, count: int) -> Ok:
    """The answer to a reserve or fetch."""
    answer = {"consumer": 5, "first_token": first_token, "count": count}
    return Ok({**answer, "rest": 0, "left_bytes": 0, "lost": []})


async def test_the_first_verb_opens_it_and_every_verb_names_the_generation() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Durable] = durable({"fetch": sent})
        reader = client.durable("orders", "reader", lock=60, max_lock=120)
        assert [message.token for message in await reader.fetch(1, 3)] == [1, 2, 3]
        _, _, opening = await peer.hear(Durable)
        assert (opening.verb, opening.generation) == ("open", 0)
        assert opening.options == {"lock_ms": 60_000, "max_lock_ms": 120_000}
        _, _, fetching = await peer.hear(Durable)
        assert fetching == Durable("orders", "reader", "fetch", 2, 1, 3, consumer=5)
        assert (reader.generation, reader.next_token, reader.held) == (2, 4, ((1, 3),))


async def test_a_fetch_is_sent_again_after_a_lost_answer_and_gives_each_message_once() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Durable] = durable({})
        reader = client.durable("orders", "reader")
        await reader.open()
        await peer.hear(Durable)
        fetching = asyncio.create_task(reader.fetch(1, 3))
        line, _, _ = await peer.hear(Durable)
        line.deliver(5, 1, bodies(2))
        line.drop()
        line, frame, request = await peer.hear(Durable)
        sent(line, frame, request)
        assert [message.token for message in await fetching] == [1, 2, 3]


async def test_what_an_answer_counts_and_did_not_come_is_fetched() -> None:
    """A node of 0.1.0 answers so where its leadership ends while it reads the messages; one of them
    may have lost its lock when they are fetched."""
    fetched: list[tuple[int, int]] = []

    def silent(line: Line, frame: Frame, _: Durable) -> None:
        line.send(reserved(4, 3), frame.correlation)

    def later(line: Line, frame: Frame, request: Durable) -> None:
        fetched.append((request.first, request.last))
        if len(fetched) == 3:
            line.deliver(5, 4, bodies(1))
            line.deliver(5, 6, bodies(1))
        line.send(reserved(4, 2), frame.correlation)

    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Durable] = durable({"reserve": silent, "fetch": later})
        reader = client.durable("orders", "reader")
        assert [message.token for message in await reader.reserve(3)] == [4, 6]
        assert fetched == [(4, 6)] * 3
        peer.answers[Durable] = durable({"fetch": silent})
        with pytest.raises(fifo.ConnectionLost, match="tokens 4 to 6 came than are locked"):
            await reader.fetch(4, 6)


async def test_a_reserve_whose_answer_is_lost_is_unknown_and_not_sent_again() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Durable] = durable({})
        reader = client.durable("orders", "reader")
        await reader.open()
        await peer.hear(Durable)
        reserving = asyncio.create_task(reader.reserve(2))
        line, _, _ = await peer.hear(Durable)
        line.deliver(5, 4, bodies(2))
        line.drop()
        with pytest.raises(fifo.ConnectionLost) as lost:
            await reserving
        assert lost.value.unknown
        assert await reader.open() == ((1, 3),)
        _, _, request = await peer.hear(Durable)
        assert request.verb == "open"


@pytest.mark.parametrize("lost", [True, False])
async def test_a_verb_that_is_refused_when_it_is_sent_again_is_unknown(lost: bool) -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Durable] = durable({})
        reader = client.durable("orders", "reader")
        await reader.open()
        await peer.hear(Durable)
        acking = asyncio.create_task(reader.ack(2))
        line, frame, _ = await peer.hear(Durable)
        if lost:  # The node has settled, its answer is lost, and somebody else opens the name.
            line.drop()
            line, frame, _ = await peer.hear(Durable)
        line.send(Error(Code.SESSION_TAKEN, "generation 3 has it"), frame.correlation)
        with pytest.raises(fifo.SessionTaken) as taken:
            await acking
        assert taken.value.unknown is lost


async def test_late_messages_of_a_durable_consumer_are_not_given_back() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Durable] = durable({"fetch": sent})
        reader = client.durable("orders", "reader")
        await reader.open()
        peer.line().deliver(5, 1, bodies(3))
        old = peer.line().hello

        def opening(line: Line, hello: Hello) -> Message:
            if old is not None and hello.session == old.session:
                return Error(Code.SESSION_ENDED, "too long away")
            return welcome(line, hello)

        peer.opening = opening
        peer.line().drop()
        await until(lambda: client.metrics.connects == 2)
        peer.line().deliver(5, 1, bodies(3))
        assert len(await reader.fetch(2, 3)) == 2
        assert peer.count(Settle) == 0


async def test_a_fetch_that_is_too_long_is_asked_in_halves() -> None:
    asked: list[tuple[int, int]] = []

    def fetch(line: Line, frame: Frame, request: Durable) -> None:
        asked.append((request.first, request.last))
        if request.last - request.first >= STEP_MESSAGES:
            line.send(Error(Code.TOO_LARGE, "too many"), frame.correlation)
        else:
            line.deliver(5, request.first, [b"first of it"])
            line.send(reserved(1, 1), frame.correlation)

    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Durable] = durable({"fetch": fetch})
        found = await client.durable("orders", "reader").fetch(1, 20_000)
        assert [message.token for message in found] == [1, 10_001]
        assert asked == [(1, 20_000), (1, 10_000), (10_001, 20_000)]


async def test_an_ack_names_unsettled_tokens_and_confirms_their_receipt() -> None:
    asked: list[tuple[int, int]] = []

    def ack(line: Line, frame: Frame, request: Durable) -> None:
        asked.append((request.first, request.last))
        lost = ((1, 2, 2, False), (4, 4, 3, False)) if request.last else ()
        line.send(Receipt(5, lost), frame.correlation)

    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Durable] = durable({"ack": ack})
        lost, dead = await client.durable("orders", "reader").ack(9)
        assert lost == fifo.NotAcked(1, 2, fifo.Status.LOCK_LOST)
        assert dead == fifo.NotAcked(4, 4, fifo.Status.DEAD_LETTERED)
        assert asked == [(0, 9), (5, 0)]


async def test_a_cluster_that_has_forgotten_what_it_handed_out_is_reported() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        first_tokens = iter([4, 4])

        def reserve(line: Line, frame: Frame, request: Durable) -> None:
            line.send(reserved(next(first_tokens), 2), frame.correlation)

        peer.answers[Durable] = durable({"reserve": reserve})
        reader = client.durable("orders", "reader")
        assert await reader.hold(2) == (range(4, 6), 0)
        with pytest.raises(fifo.LockLost, match="token 5 was handed out, and the next is 4"):
            await reader.hold(2)
        # Opened again, it says so once more, for the numbers are those of the older state.
        with pytest.raises(fifo.LockLost, match="older state"):
            await reader.open()
        assert await reader.open() == ((1, 3),)
