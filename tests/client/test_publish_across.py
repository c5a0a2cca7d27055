"""Publishing to several queues in one turn of the loop: few frames, and each queue its own fate."""

from __future__ import annotations

import asyncio
import time
from itertools import accumulate, pairwise
from typing import Any

import pytest

import fifo
from fifo.client import Environment, limits
from fifo.wire import Code, Frame, columns
from fifo.wire import limits as wire
from fifo.wire.messages import Confirms, Error, Publish, PublishAcross
from tests.support.wire_peer import Line, Peer, confirm_all, welcome

_PUBLISHES = (Publish, PublishAcross)


def _places(frame: Frame) -> list[tuple[str, int, int, int, int, list[bytes]]]:
    """(queue, correlation, previous, number, below, bodies) of each place."""
    message = frame.message
    assert isinstance(message, PublishAcross)
    count = len(message.queues)
    layout = columns.lay_out(message.columns, frame.raw, message.count, columns.ACROSS_TAGS, count)
    of = columns.queue_columns(layout, count)
    bodies = layout.bodies()
    cuts = pairwise([0, *accumulate(of.counts)])
    return [
        (queue, *numbers, bodies[low:high])
        for queue, *numbers, (low, high) in zip(
            message.queues, of.correlations, of.previous, of.numbers, of.below, cuts, strict=True
        )
    ]


def _store_across(line: Line, frame: Frame) -> None:
    items = [(place[1], 3, 7, 0, len(place[5])) for place in _places(frame)]
    line.send(Confirms(tuple(items)))


async def _publish(client: fifo.Client, *queues: str, **more: Any) -> list[Any]:
    return await asyncio.gather(
        *[client.publish(queue, queue.encode(), **more) for queue in queues],
        return_exceptions=True,
    )


async def test_publishes_of_one_turn_to_several_queues_share_a_frame() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[PublishAcross] = _store_across
        found = await _publish(client, "a", "b", "a", "c")
        assert [one.id for one in found] == ["3.7.1", "3.7.1", "3.7.2", "3.7.1"]
        _, frame, _ = await peer.hear(PublishAcross)
        places = _places(frame)
        assert [(place[0], *place[2:]) for place in places] == [
            ("a", 0, 1, 0, [b"a", b"a"]),
            ("b", 0, 1, 0, [b"b"]),
            ("c", 0, 1, 0, [b"c"]),
        ]
        assert frame.correlation == places[0][1]
        await _publish(client, "c", "b")
        _, frame, _ = await peer.hear(PublishAcross)
        assert [place[2:4] for place in _places(frame)] == [(1, 2), (1, 2)]


async def test_a_publish_to_one_queue_is_no_frame_of_several() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[Publish] = confirm_all
        await _publish(client, "a", "a")
        await peer.hear(Publish)
        assert not peer.count(PublishAcross)


async def test_frames_of_several_queues_keep_to_their_bounds() -> None:
    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[PublishAcross] = _store_across
        peer.answers[Publish] = confirm_all
        await _publish(client, *[f"q{n}" for n in range(wire.PUBLISH_QUEUES_MAX + 2)])
        counts = [len(_places((await peer.hear(PublishAcross))[1])) for _ in range(2)]
        assert counts == [wire.PUBLISH_QUEUES_MAX, 2]
        many = [f"m{n % 30}" for n in range(30 * 20)]
        assert all(isinstance(one, fifo.Confirm) for one in await _publish(client, *many))
        counts = [(await peer.hear(PublishAcross))[2].count for _ in range(2)]
        assert counts == [wire.PUBLISH_ACROSS_MESSAGES_MAX, 100]
        await _publish(client, *["big"] * (limits.TOGETHER_MESSAGES + 1), "small")
        assert (await peer.hear(Publish))[2].queue == "big"
        await _publish(client, "a", "b", "c", headers={"h": "x" * 60_000})
        await _publish(client, "a", "b", "c", "d", "e", "f", headers={"h": "x" * 60_000})
        heard = [await peer.hear(PublishAcross) for _ in range(3)]
        assert [len(_places(frame)) for _, frame, _ in heard] == [3, 4, 2]


async def test_what_one_queue_refuses_fails_its_own_callers_alone() -> None:
    def answer(line: Line, frame: Frame) -> None:
        full = (Code.QUEUE_FULL, "it is full", False, None)
        missing = (Code.QUEUE_NOT_FOUND, "there is no such queue", False, None)
        a, b, c = [place[1] for place in _places(frame)]
        line.send(Confirms(((b, 0, 0, 0, 0, missing), (a, 3, 7, 0, 0, full), (c, 3, 7, 0, 1))))

    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[PublishAcross] = answer
        full, missing, stored = await _publish(client, "a", "b", "c")
        assert isinstance(full, fifo.QueueFull)
        assert isinstance(missing, fifo.QueueNotFound)
        assert stored == fifo.Confirm("3.7.1", duplicate=False)


async def test_an_error_for_the_frame_is_one_for_each_of_its_queues() -> None:
    def answer(line: Line, frame: Frame) -> None:
        line.send(Error(Code.INTERNAL, "a bug", retryable=False), frame.correlation)

    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[PublishAcross] = answer
        for error in await _publish(client, "a", "b", "c"):
            assert isinstance(error, fifo.FifoError)
            assert error.code == Code.INTERNAL


async def test_after_a_lost_connection_each_place_goes_again_with_its_numbers() -> None:
    """In whatever frames; and it says which queue it may be stored in."""
    peer = Peer()
    peer.opening = lambda line, hello: welcome(line, hello, queue_below=8)
    async with peer, fifo.connect(peer.url) as client:
        peer.answers[PublishAcross] = lambda line, frame: line.drop()
        waiting = asyncio.ensure_future(_publish(client, "a", "b"))
        _, first, _ = await peer.hear(PublishAcross)
        peer.answers[PublishAcross] = _store_across
        _, again, _ = await peer.hear(PublishAcross)
        assert [place[:4] for place in _places(again)] == [place[:4] for place in _places(first)]
        assert {place[4] for place in _places(again)} == {8}
        assert [one.id for one in await waiting] == ["3.7.1", "3.7.1"]


@pytest.mark.parametrize("code", [Code.OVERLOADED, Code.NOT_NOW])
async def test_what_is_refused_for_the_moment_is_sent_again(code: Code) -> None:
    refused: list[int] = []

    def answer(line: Line, frame: Frame) -> None:
        items: list[tuple[Any, ...]] = []
        for place in _places(frame):
            if place[0] == "b" and not refused:
                refused.append(place[1])
                items.append((place[1], 0, 0, 0, 0, (code, "later", True, None)))
            else:
                items.append((place[1], 3, 7, 0, len(place[5])))
        line.send(Confirms(tuple(items)))

    async with Peer() as peer, fifo.connect(peer.url) as client:
        peer.answers[PublishAcross] = answer
        peer.answers[Publish] = confirm_all
        found = await _publish(client, "a", "b", "c")
        assert [one.id for one in found] == ["3.7.1"] * 3
        _, frame, message = await peer.hear(Publish)
        assert isinstance(message, Publish)
        assert (message.queue, message.number, frame.correlation) == ("b", 1, refused[0])


async def test_what_is_published_in_one_turn_is_within_the_window() -> None:
    """To however many queues: what waits for the end of the turn counts as well."""
    size = 100_000
    async with Peer() as peer, fifo.connect(peer.url, window_bytes=wire.MIB) as client:
        queues = [f"q{number}" for number in range(60)]
        publishing = [client.publish(queue, b"x" * size, timeout=0.3) for queue in queues]
        ended = await asyncio.gather(*publishing, return_exceptions=True)
        assert {type(one) for one in ended} == {fifo.Timeout}
        frames = [frame for _, frame in peer.heard if isinstance(frame.message, _PUBLISHES)]
        assert sum(len(frame.raw) // size for frame in frames) == wire.MIB // size + 1


async def test_a_client_that_slept_does_not_know_what_its_ended_session_has_stored() -> None:
    slept_s = 0.0
    environment = Environment(wall=lambda: time.time() + slept_s)
    async with Peer() as peer, fifo.connect(peer.url, environment=environment) as client:
        peer.answers[PublishAcross] = _store_across
        await _publish(client, "a", "b")  # One look at the clocks for both.
        later = asyncio.create_task(client.publish("a", b"later"))
        line, _, _ = await peer.hear(Publish)
        slept_s = 3_600.0
        peer.opening = lambda line, hello: (
            Error(Code.SESSION_ENDED, "it was away") if hello.resume else welcome(line, hello)
        )
        line.drop()
        with pytest.raises(fifo.SessionEnded) as caught:
            await later
        assert caught.value.unknown
