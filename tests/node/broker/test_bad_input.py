"""Bad input on the client port: a typed error in bounded time, and the node is unharmed."""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import msgpack
import pytest

from fifo.wire import columns, encode
from fifo.wire.limits import FRAME_BYTES_MAX
from fifo.wire.messages import (
    Alive,
    Cancel,
    Close,
    Confirms,
    Credit,
    Declare,
    Durable,
    Error,
    Get,
    Hello,
    Message,
    Move,
    NoticeAck,
    Ok,
    Peek,
    Ping,
    Pong,
    Publish,
    QueueAction,
    QueueQuery,
    Redrive,
    Renew,
    Renewed,
    Settle,
    Status,
    Subscribe,
    Update,
    Welcome,
)
from node.broker import limits
from node.server import Node
from tests.support.cluster import eventually, leadership_of, running
from tests.support.rawclient import RawClient, connected


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path, count=1) as cluster:
        yield await cluster.leader()


async def unharmed(node: Node) -> None:
    """A whole round trip still works for somebody else."""
    client = await connected(node.me.client)
    await client.declare("unharmed")
    number = 1
    item = await client.confirmed(client.publish("unharmed", 0, number, [b"still here"]))
    assert item[4] == 1
    await client.close()


async def said_before_closing(node: Node, data: bytes) -> list[Message]:
    client = await RawClient().connect(node.me.client)
    client.send_bytes(data)
    said = await client.closed()
    await client.close()
    return said


def frame_of(header: object, raw: bytes = b"") -> bytes:
    packed: bytes = msgpack.packb(header)
    return struct.pack("<II", len(packed), len(raw)) + packed + raw


HELLO = b"".join(encode(Hello(1, 1, 0, b"s" * 16, b"i" * 16)))

BREAKS_THE_STREAM = {
    "text of another protocol": b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
    "an oversized header length": struct.pack("<II", 1 << 31, 0),
    "an oversized raw length": struct.pack("<II", 10, 1 << 31),
    "a frame of full size before the welcome": struct.pack("<II", 100, FRAME_BYTES_MAX - 200),
    "a header that is not msgpack": struct.pack("<II", 4, 0) + b"\xc1\xc1\xc1\xc1",
    "a header that is no list": frame_of({"type": 1}),
    "a frame without a header": struct.pack("<II", 0, 0),
    "a request before the hello": b"".join(encode(Ping(), 1)),
    "an unknown type before the hello": frame_of([9999, 1]),
    "a hello with too few fields": frame_of([1, 0, 1, 1]),
    "a hello with a field of the wrong type": frame_of([1, 0, "one", 1, 0, b"s" * 16, b"i" * 16]),
    "a hello whose session is too short": frame_of([1, 0, 1, 1, 0, b"s", b"i" * 16]),
    "a hello twice": HELLO + HELLO,
    "a request right behind the hello": HELLO + b"".join(encode(Ping(), 1)),
    "a welcome": frame_of([2, 0, 1, "n1", b"", 1]),
}


@pytest.mark.parametrize("what", BREAKS_THE_STREAM)
async def test_a_broken_stream_is_answered_with_an_error_and_closed(node: Node, what: str) -> None:
    said = await said_before_closing(node, BREAKS_THE_STREAM[what])
    assert said, "an error was said before closing"
    assert isinstance(said[-1], Error)
    assert said[-1].code in {"protocol", "too_large", "invalid_argument", "unsupported"}
    await unharmed(node)


@pytest.mark.parametrize("seed", range(20))
async def test_random_bytes_harm_neither_the_node_nor_its_clients(node: Node, seed: int) -> None:
    client = await RawClient().connect(node.me.client)
    rng = random.Random(seed)
    if seed % 2:
        client.send_bytes(HELLO)
        await client.next(Welcome)
    for _ in range(20):
        client.send_bytes(rng.randbytes(rng.randrange(1, 5000)))
    said = await client.closed()
    await client.close()
    assert any(isinstance(one, Error) for one in said)
    await unharmed(node)


async def test_a_wrong_version_is_named(node: Node) -> None:
    data = b"".join(encode(Hello(7, 9, 0, b"s" * 16, b"i" * 16)))
    said = await said_before_closing(node, data)
    assert isinstance(said[-1], Error)
    assert said[-1].code == "unsupported_version"


async def test_credentials_are_refused_while_the_cluster_knows_no_users(node: Node) -> None:
    hello = Hello(1, 1, 0, b"s" * 16, b"i" * 16, user="alice", mechanism="scram")
    said = await said_before_closing(node, b"".join(encode(hello)))
    assert isinstance(said[-1], Error)
    assert said[-1].code == "authentication_failed"


async def test_a_half_frame_waits_and_is_then_understood(node: Node) -> None:
    client = await connected(node.me.client)
    data = b"".join(encode(Ping(), 77))
    for at in range(len(data)):
        client.send_bytes(data[at : at + 1])
        await asyncio.sleep(0)
    frame = await client.next_frame(Pong)
    assert frame.correlation == 77
    await client.close()


async def test_who_says_nothing_is_closed_in_time(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OPENING_SECONDS", 0.3)
    client = await RawClient().connect(node.me.client)
    half = await RawClient().connect(node.me.client)
    half.send_bytes(HELLO[:20])
    for one in (client, half):
        said = await one.closed()
        assert isinstance(said[-1], Error)
        assert said[-1].text == f"no hello within {limits.OPENING_SECONDS:g} s"
        await one.close()


async def test_the_oldest_of_too_many_silent_connections_makes_room(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNOPENED_MAX", 3)
    silent = [await RawClient().connect(node.me.client) for _ in range(4)]
    said = await silent[0].closed()
    assert isinstance(said[-1], Error)
    assert said[-1].code == "overloaded"
    await unharmed(node)
    for one in silent:
        await one.close()


def publication(bodies: list[bytes], **more: object) -> tuple[tuple[tuple[int, int], ...], bytes]:
    listed, raw = columns.pack_publication(columns.Publication(bodies, **more))  # type: ignore[arg-type]  # a test's own columns
    return listed, b"".join(raw)


LISTED, RAW = publication([b"a", b"bc"])

REFUSED: dict[str, tuple[Message, bytes, str]] = {
    "subscribe to no queue": (Subscribe("nope", "t", 1), b"", "queue_not_found"),
    "get from no queue": (Get("nope", 1), b"", "queue_not_found"),
    "publish to no queue": (Publish("nope", 0, 0, 1, 2, LISTED), RAW, "queue_not_found"),
    "purge no queue": (QueueAction("nope", "purge"), b"", "queue_not_found"),
    "update no queue": (Update("nope", {"lock_ms": 5000}), b"", "queue_not_found"),
    "look at no queue": (QueueQuery("nope", "show"), b"", "queue_not_found"),
    "peek into no queue": (Peek("nope", 1), b"", "queue_not_found"),
    "an unknown action": (QueueAction("q", "explode"), b"", "invalid_argument"),
    "an unknown query": (QueueQuery("q", "explode"), b"", "invalid_argument"),
    "a spec with an unknown key": (Declare("new", {"colour": "red"}), b"", "invalid_argument"),
    "a lock out of range": (Declare("new", {"lock_ms": 1}), b"", "invalid_argument"),
    "a spec of the wrong type": (Declare("new", {"lock_ms": "long"}), b"", "invalid_argument"),
    "another spec": (Declare("q", {"lock_ms": 7777}), b"", "queue_exists"),
    "a consumer's lock out of range": (Subscribe("q", "t", 1, 5), b"", "invalid_argument"),
    "a backoff that is none": (
        Subscribe("q", "t", 1, nack_backoff="sometimes"),
        b"",
        "invalid_argument",
    ),
    "a settlement for no consumer": (Settle(999, 3, ((1, 1),)), b"", "unknown_consumer"),
    "a credit for no consumer": (Credit(999, 5), b"", "unknown_consumer"),
    "a cancel for no consumer": (Cancel(999), b"", "unknown_consumer"),
    "a sign of life of no consumer": (Alive(999), b"", "unknown_consumer"),
    "too many bodies for the count": (Publish("q", 0, 0, 1, 1, LISTED), RAW, "invalid_argument"),
    "fewer bytes than the sizes say": (
        Publish("q", 0, 0, 1, 2, LISTED),
        RAW[:-1],
        "invalid_argument",
    ),
    "no sizes at all": (Publish("q", 0, 0, 1, 2, ()), RAW, "invalid_argument"),
    "a column of no known code": (
        Publish("q", 0, 0, 1, 2, (*LISTED, (0x77, 0))),
        RAW,
        "unsupported",
    ),
    "an unknown producer": (Publish("q", 12345, 0, 1, 2, LISTED), RAW, "unknown_producer"),
    "a redrive of no queue": (Redrive("r"), b"", "queue_not_found"),
    "a redrive to no queue": (Redrive("q", "r"), b"", "queue_not_found"),
    "a redrive to itself": (Redrive("q", "q"), b"", "invalid_argument"),
    "a redrive by an unknown filter": (
        Redrive("q", None, {"filter": {"colour": "red"}}),
        b"",
        "invalid_argument",
    ),
    "a redrive by a filter that is none": (
        Redrive("q", None, {"filter": [1]}),
        b"",
        "invalid_argument",
    ),
    "a dry run by an unknown filter": (
        Redrive("q", None, {"filter": {"colour": "red"}, "dry_run": True}),
        b"",
        "invalid_argument",
    ),
    "a dry run to no queue": (Redrive("q", "r", {"dry_run": True}), b"", "queue_not_found"),
    "a redrive with an unknown option": (Redrive("q", None, {"x": 1}), b"", "invalid_argument"),
    "a redrive with a rate of nothing": (
        Redrive("q", None, {"rate_per_s": 0}),
        b"",
        "invalid_argument",
    ),
    "the end of no redrive": (Redrive("q", None, {"cancel": True}), b"", "invalid_argument"),
    "a move to no queue": (Move("q", "r"), b"", "queue_not_found"),
    "a move to itself": (Move("q", "q"), b"", "invalid_argument"),
    "a durable consumer of no queue": (Durable("r", "d", "open"), b"", "queue_not_found"),
    "a durable consumer that was never opened": (
        Durable("q", "d", "reserve", 1, 0, 1),
        b"",
        "unknown_consumer",
    ),
    "a durable consumer's unknown verb": (Durable("q", "d", "dance"), b"", "invalid_argument"),
    "a durable consumer with unknown options": (
        Durable("q", "d", "open", 0, 0, 0, {"colour": "red"}),
        b"",
        "invalid_argument",
    ),
    "a message only nodes send": (Confirms(()), b"", "unsupported"),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_a_request_that_cannot_be_is_refused_and_the_stream_goes_on(
    node: Node, what: str
) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    message, raw, code = REFUSED[what]
    correlation = client.next_correlation()
    client.send(message, correlation, [raw] if raw else [])
    frame = await client.take(
        lambda frame: frame.correlation == correlation or isinstance(frame.message, Confirms)
    )
    if isinstance(frame.message, Confirms):
        assert frame.message.items[0][5][0] == code
    elif isinstance(frame.message, Error):
        assert frame.message.code == code, frame.message
    else:
        assert code == "unknown_consumer", frame.message
        assert all(result[2] == 4 for result in frame.message.results)  # type: ignore[attr-defined]  # a receipt
    assert isinstance(await client.ask(Status()), Ok)
    await client.close()


MALFORMED = {
    "an unknown type": [4000, 5],
    "a queue name that is too long": [40, 5, "q" * 256, {}],
    "an empty queue name": [40, 5, "", {}],
    "a prefetch of nothing": [20, 5, "q", "t", 0],
    "a prefetch too large": [20, 5, "q", "t", 70_000],
    "a count that is text": [16, 5, "q", 0, 0, 1, "many", []],
    "a negative number": [16, 5, "q", 0, -1, 1, 1, []],
    "a number of 2^64 - 1": [16, 5, "q", 0, 0, 2**64 - 1, 1, []],
    "ranges that overlap": [27, 5, 1, 0, [[1, 5], [4, 6]]],
    "a range backwards": [27, 5, 1, 0, [[5, 1]]],
    "a verb of no known code": [27, 5, 1, 9, [[1, 1]]],
    "a duration of a thousand years": [27, 5, 1, 1, [[1, 1]], 0, 10**14],
    "a stack too long": [27, 5, 1, 3, [[1, 1]], 0, None, "r", "d", "t", "x", "s" * 20_000],
    "a token of zero": [29, 5, [[1, [[0, 1]]]]],
}


@pytest.mark.parametrize("what", MALFORMED)
async def test_a_malformed_request_is_answered_and_the_stream_goes_on(
    node: Node, what: str
) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    client.send_bytes(frame_of(MALFORMED[what]))
    frame = await client.take(lambda frame: frame.correlation == 5)
    assert isinstance(frame.message, Error)
    assert frame.message.code in {"invalid_argument", "unsupported"}
    assert isinstance(await client.ask(Status()), Ok)
    await client.close()


async def test_a_renewal_of_a_lock_of_another_session_is_lost(node: Node) -> None:
    owner = await connected(node.me.client)
    await owner.declare("q")
    consumer = await owner.subscribe("q")
    await owner.confirmed(owner.publish("q", 0, 1, [b"x"]))
    await owner.delivery()
    thief = await connected(node.me.client)
    answer = await thief.ask(Renew(((consumer.consumer, ((1, 1),)),)))
    assert isinstance(answer, Renewed)
    assert answer.items[0][1:] == ((), ((1, 1),))
    await owner.close()
    await thief.close()


async def test_cancelling_a_consumer_of_another_session_changes_nothing(node: Node) -> None:
    owner = await connected(node.me.client)
    await owner.declare("q")
    consumer = await owner.subscribe("q")
    thief = await connected(node.me.client)
    answer = await thief.ask(Cancel(consumer.consumer))
    assert isinstance(answer, Error)
    assert answer.code == "unknown_consumer"
    await owner.confirmed(owner.publish("q", 0, 1, [b"x"]))
    assert (await owner.delivery())[1] == [b"x"]
    assert await owner.settle(consumer.consumer, 1, 1) == ((1, 1, 0, False),)
    await owner.close()
    await thief.close()


async def test_an_observer_may_only_ask_for_status(node: Node) -> None:
    client = await RawClient().connect(node.me.client)
    await client.welcome(role=2)
    status = await client.ask(Status())
    assert isinstance(status, Ok)
    assert status.result["role"] == "leader"
    answer = await client.ask(Declare("q", {}))
    assert isinstance(answer, Error)
    assert answer.code == "permission_denied"
    await client.close()


async def test_a_node_survives_a_bug_in_a_handler(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connected(node.me.client)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setitem(leadership_of(node).handlers, NoticeAck, broken)
    answer = await client.ask(NoticeAck(1))
    assert isinstance(answer, Error)
    assert answer.code == "internal"
    assert isinstance(await client.ask(Status()), Ok)
    await client.close()


async def test_a_peer_that_takes_no_answers_is_cut(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTPUT_BYTES_MAX", 100_000)
    client = await connected(node.me.client)
    await client.declare("large")
    await client.confirmed(client.publish("large", 0, 1, [b"x" * 500_000]))
    client._reader._transport.pause_reading()  # type: ignore[attr-defined]  # what a stuck peer does
    # Large answers, for the kernel takes megabytes of them before anything waits here.
    looks = b"".join(encode(Peek("large"), 1)) * 10

    def flooded() -> bool:
        if not client._writer.transport.is_closing():
            client.send_bytes(looks)
        return len(node.broker.connections) == 0

    await eventually(flooded)
    await client.close()
    await unharmed(node)


async def test_a_closed_session_refuses_later_requests(node: Node) -> None:
    client = await connected(node.me.client)
    client.send(Close(), 1)
    client.send(Declare("late", {}), 2)
    said = await client.closed()
    assert Ok() in said
    again = await RawClient(client.session, client.incarnation).connect(node.me.client)
    frame = await again.hello(resume=True)
    assert isinstance(frame.message, Error)
    assert frame.message.code == "session_ended"
    await again.close()
    await client.close()


async def test_bodies_of_every_size_round_trip(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    bodies = [b"", os.urandom(1), os.urandom(70_000), os.urandom(1 << 20)]
    for number, body in enumerate(bodies, start=1):
        item = await client.confirmed(client.publish("q", number - 1, number, [body]))
        assert item[4] == 1
    consumer = await client.subscribe("q")
    received: list[bytes] = []
    while len(received) < len(bodies):
        received += (await client.delivery())[1]
    assert received == bodies
    assert (await client.settle(consumer.consumer, 1, len(bodies)))[0][2] == 0
    await client.close()


async def test_a_body_over_the_limit_is_too_large(node: Node) -> None:
    client = await connected(node.me.client)
    await client.declare("q")
    listed, raw = publication([bytes((1 << 20) + 1)])
    answer = await client.ask(Publish("q", 0, 0, 1, 1, listed), [raw])
    assert isinstance(answer, Error)
    assert answer.code == "too_large"
    await client.close()
