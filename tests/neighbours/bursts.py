"""Well-formed requests in large numbers: what a node answers at once, and what it has to keep.

Owns attacks whose every frame is correct. Must not know malformed bytes.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from tests.conformance.peer import (
    ACK,
    ALIVE,
    CANCEL,
    CREDIT,
    GET,
    NACK,
    PING,
    PUBLISH,
    QUEUE_QUERY,
    RELEASE,
    RENEW,
    SETTLE,
    TERMINATE,
    Peer,
    frame_bytes,
)
from tests.neighbours.field import Field

QUEUE: Final = "tenant.queue"
"""Declared for the tenant by the judge."""

BURST_FRAMES: Final = 20_000
LONE_TOKENS: Final = 1_000
UNKNOWN_KIND: Final = 200
KEY_BYTES: Final = 1_024
HEADER_BYTES: Final = 60_000
TEN_YEARS_MS: Final = 10 * 365 * 86_400_000
HANDLES: Final = 50
"""Handles of a settlement: the first tokens of a consumer, the one that is held among them."""

_NO_TEXTS: Final = (0, None, None, None, None, None, None, False)
"""Between the tokens and the handles of a Settle."""


def _many(count: int, kind: int, *fields: Any, raw: bytes = b"") -> bytes:
    """A burst of requests with correlations of their own."""
    return b"".join(frame_bytes(kind, at + 1, *fields, raw=raw) for at in range(count))


def _published(queue: str, body: bytes) -> tuple[list[Any], bytes]:
    """The fields of an unnumbered publish of one message, and its raw part."""
    sizes = struct.pack("<I", len(body))
    return [queue, 0, 0, 1, 1, [[0, len(sizes)]]], sizes + body


def _lone() -> list[list[int]]:
    return [[token, token] for token in range(1, 2 * LONE_TOKENS, 2)]


def _consumer(peer: Peer, prefetch: int = 10) -> int:
    return peer.subscribe(QUEUE, prefetch)


def pings(field: Field) -> None:
    """A connection writes pings, megabytes in one go"""
    field.burst([field.welcome()], _many(BURST_FRAMES, PING), BURST_FRAMES)


def unknown_types(field: Field) -> None:
    """A connection writes frames of a type that no node knows"""
    field.burst([field.welcome()], _many(BURST_FRAMES, UNKNOWN_KIND), BURST_FRAMES)


def refused_publishes(field: Field) -> None:
    """A connection publishes to a queue that it may not name"""
    fields, raw = _published("secret", b"x")
    data = _many(BURST_FRAMES, PUBLISH, *fields, raw=raw)
    field.burst([field.welcome()], data, BURST_FRAMES)


def publishes(field: Field) -> None:
    """A connection publishes small messages, which are taken, as fast as it can"""
    peer = field.welcome()
    first = 0
    size = 1_000

    def made() -> bytes:
        nonlocal first
        frames = []
        for number in range(first + 1, first + size + 1):
            sizes = struct.pack("<I", 1)
            fields = [QUEUE, 0, number - 1, number, 1, [[0, 4]]]
            frames.append(frame_bytes(PUBLISH, number, *fields, raw=sizes + b"x"))
        first += size
        return b"".join(frames)

    field.pump([peer.raw], made, size)


def large_publishes(field: Field) -> None:
    """Four connections publish bodies of 512 KiB, 64 MiB in all"""
    body = bytes(512 << 10)
    sizes = struct.pack("<I", len(body))
    peers = field.welcomes(4)
    for number in range(1, 33):
        for peer in peers:
            fields = [QUEUE, 0, number - 1, number, 1, [[0, 4]]]
            if field.open:
                peer.send(PUBLISH, *fields, raw=sizes + body)
                field.cost.frames += 1
                field.cost.sent_bytes += len(body)
    field.rest()


def extreme_messages(field: Field) -> None:
    """Messages that are taken, with keys of 1 KiB, headers of 60 KB, NULs, and delays of years"""
    peer = field.welcome()
    name, value = b"\x00", b"\x00" * HEADER_BYTES
    header = struct.pack("<H", len(name)) + name + struct.pack("<I", len(value)) + value
    columns = {
        0: struct.pack("<I", 1),
        1: struct.pack("<I", KEY_BYTES),
        2: bytes(KEY_BYTES),
        3: struct.pack("<I", len(header)),
        4: header,
        6: struct.pack("<Q", TEN_YEARS_MS),
    }
    listed = [[tag, len(data)] for tag, data in columns.items()]
    raw = b"".join(columns.values()) + b"\x00"
    last = 0

    def made() -> bytes:
        nonlocal last
        last += 1
        return frame_bytes(PUBLISH, last, QUEUE, 0, last - 1, last, 1, listed, raw=raw)

    stored = peer.confirm(peer.send(PUBLISH, QUEUE, 0, last, last + 1, 1, listed, raw=raw))
    if stored[4] != 1:
        raise SystemExit(f"it was not taken: {stored}")
    last = 1
    field.pump([peer.raw], made)


def lone_settlements(field: Field) -> None:
    """Settlements of 1,000 lone tokens each, pipelined"""
    peer = field.welcome()
    data = _many(100, SETTLE, _consumer(peer), ACK, _lone())
    field.burst([peer], data, 100)


def lone_renewals(field: Field) -> None:
    """Renewals of 1,000 lone tokens each, pipelined"""
    peer = field.welcome()
    data = _many(100, RENEW, [[_consumer(peer), _lone()]])
    field.burst([peer], data, 100)


def large_renewals(field: Field) -> None:
    """Renewals of half a megabyte, pipelined"""
    peer = field.welcome()
    item = [_consumer(peer), _lone()]
    data = _many(4, RENEW, [item] * 80)
    field.burst([peer], data, 4)


def lists(field: Field) -> None:
    """Eight connections list all queues, fifty requests in flight each"""
    field.burst(field.welcomes(8), _many(50, QUEUE_QUERY, None, "list", 1000), 50)


def one_list_burst(field: Field) -> None:
    """A connection asks for the list of queues, thousands of times in one go"""
    field.burst([field.welcome()], _many(5_000, QUEUE_QUERY, None, "list", 1000), 5_000)


def status_bursts(field: Field) -> None:
    """Observers ask for what they may not see, pipelined"""
    data = _many(5_000, QUEUE_QUERY, QUEUE, "locks", 1000)
    field.burst(field.welcomes(4), data, 5_000)


def gets(field: Field) -> None:
    """Gets that wait for a message of an empty queue, thousands at a time"""
    data = _many(2_000, GET, "tenant.empty", 1, 60_000)
    field.burst(field.welcomes(4), data, 2_000)


def alive(field: Field) -> None:
    """A consumer says without end that it lives"""
    peer = field.welcome()
    field.burst([peer], _many(BURST_FRAMES, ALIVE, _consumer(peer)), BURST_FRAMES)


def huge_credit(field: Field) -> None:
    """Two hundred consumers with the largest prefetch, and the largest credit, over and over"""
    peer = field.welcome()
    data = []
    for place in range(200):
        consumer = peer.subscribe(QUEUE, 65_535, f"t{place}", None, None, 0, True, True)
        data.append(frame_bytes(CREDIT, place + 1, consumer, (1 << 32) - 1))
    field.burst([peer], b"".join(data), len(data))


def other_tokens(field: Field) -> None:
    """Settlements, renewals, credit and cancels of consumers and tokens of others, guessed"""
    peer = field.welcome()
    data = []
    for consumer in range(1, 200):
        data.append(frame_bytes(SETTLE, consumer, consumer, ACK, [[1, 50]]))
        data.append(frame_bytes(RENEW, 1_000 + consumer, [[consumer, [[1, 50]]]]))
        data.append(frame_bytes(ALIVE, 2_000 + consumer, consumer))
        data.append(frame_bytes(CREDIT, 3_000 + consumer, consumer, 10))
        data.append(frame_bytes(CANCEL, 4_000 + consumer, consumer))
    field.burst([peer], b"".join(data), len(data))


def foreign_handles(field: Field) -> None:
    """Another session of the honest user settles tokens of others, with guessed handles and none"""
    peer = field.welcome("honest")
    newest = _consumer(peer, prefetch=1)
    tokens = [[1, HANDLES]]
    data = []
    for consumer in range(max(1, newest - 50), newest):
        guessed = [field.random.randbytes(16) for _ in range(HANDLES)]
        data += [
            frame_bytes(SETTLE, 1, consumer, verb, tokens, *_NO_TEXTS, guessed)
            for verb in (ACK, NACK, RELEASE, TERMINATE)
        ]
        data.append(frame_bytes(SETTLE, 1, consumer, ACK, tokens))
        data.append(frame_bytes(CREDIT, 1, consumer, 10))
        data.append(frame_bytes(CANCEL, 1, consumer))
        data.append(frame_bytes(ALIVE, 1, consumer))
    field.burst([peer], b"".join(data), len(data))


ATTACKS = (
    pings,
    unknown_types,
    refused_publishes,
    publishes,
    large_publishes,
    extreme_messages,
    lone_settlements,
    lone_renewals,
    large_renewals,
    lists,
    one_list_burst,
    status_bursts,
    gets,
    alive,
    huge_credit,
    other_tokens,
    foreign_handles,
)
