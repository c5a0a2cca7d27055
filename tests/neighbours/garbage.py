"""Bytes that are no frame, frames that are no request, and frames that never end.

Owns attacks on decoding. Must not know sessions beyond one that carries the bytes.
"""

from __future__ import annotations

import itertools
import socket
import struct
from typing import Any, Final

import msgpack

from tests.conformance.peer import (
    ACK,
    CREDIT,
    DECLARE,
    GET,
    HELLO,
    OPEN_PRODUCER,
    PUBLISH,
    QUEUE_QUERY,
    RENEW,
    SETTLE,
    SUBSCRIBE,
    Peer,
    frame_bytes,
)
from tests.neighbours.field import Field

EVIL: Final[tuple[Any, ...]] = (
    None,
    -1,
    0,
    (1 << 63) - 1,
    (1 << 64) - 1,
    1.5,
    True,
    "",
    "\x00",
    "\x1b[2J",
    "x" * 300,
    b"",
    b"\xff\xfe",
    [],
    [[]],
    [[0, 0]],
    [[5, 1]],
    {},
    {"a": 1},
)
"""Values for every field."""

SOUND: Final[tuple[tuple[int, tuple[Any, ...]], ...]] = (
    (PUBLISH, ("tenant.queue", 0, 0, 1, 1, [[0, 4]])),
    (SUBSCRIBE, ("tenant.queue", "t", 10)),
    (CREDIT, (1, 10)),
    (GET, ("tenant.queue", 1, 0)),
    (SETTLE, (1, ACK, [[1, 1]])),
    (RENEW, ([[1, [[1, 1]]]],)),
    (DECLARE, ("tenant.queue", {"lock_ms": 1000})),
    (QUEUE_QUERY, ("tenant.queue", "show", 10)),
    (OPEN_PRODUCER, ("p",)),
)
"""A request of each kind that carries more than a number."""


def _raw(header: Any, raw: bytes = b"") -> bytes:
    packed: bytes = msgpack.packb(header)
    return struct.pack("<II", len(packed), len(raw)) + packed + raw


def random_bytes(field: Field) -> None:
    """Random bytes over new connections"""
    field.again(field.dialing("client"), lambda: field.random.randbytes(4_096), kept=400)


def flipped_bits(field: Field) -> None:
    """Sound frames with flipped bits, in sessions"""

    def made() -> bytes:
        kind, fields = field.random.choice(SOUND)
        data = bytearray(frame_bytes(kind, 1, *fields, raw=bytes(4)) * 5)
        for _ in range(3):
            data[field.random.randrange(len(data))] ^= 1 << field.random.randrange(8)
        return bytes(data)

    field.again(field.session, made)


def evil_values(field: Field) -> None:
    """Frames whose fields have every wrong value and type"""
    frames = [
        frame_bytes(kind, 1, *fields[:at], value, *fields[at + 1 :], raw=b"")
        for kind, fields in SOUND
        for at in range(len(fields))
        for value in EVIL
    ]
    field.burst([field.welcome()], b"".join(frames), len(frames))


def poisoned_names(field: Field) -> None:
    """Declares of queues whose names would move a terminal's cursor or fill a page"""
    names = ["tenant\n\x1b[31m", "tenant\x00", "tenant\x1b]0;x\x07", "tenant" + "x" * 500, "\u202e"]
    frames = [frame_bytes(DECLARE, 1, name, {}) for name in names] * 200
    field.burst([field.welcome()], b"".join(frames), len(frames))


def truncated(field: Field) -> None:
    """Frames that are cut off, and the connection with them"""

    def made() -> bytes:
        kind, fields = field.random.choice(SOUND)
        data = frame_bytes(kind, 1, *fields, raw=bytes(4))
        return data[: field.random.randrange(1, len(data))]

    field.again(field.session, made)


def impossible_lengths(field: Field) -> None:
    """Frames that claim gigabytes, before and after the welcome"""
    claims = [(1 << 32) - 1, 1 << 31, (1 << 24) + 1, 1 << 20]

    def made() -> bytes:
        return struct.pack("<II", field.random.choice(claims), field.random.choice(claims))

    dials = itertools.cycle([field.dialing("client"), field.session])
    field.again(lambda: next(dials)(), made)


def nested(field: Field) -> None:
    """Containers half a million deep, a million of them, and claims of four billion items"""
    pieces = [
        b"\x91" * 500_000,
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdc\xff\xff" + b"\xc0" * 65_535,
        b"\x94\x28\x01\xa1x\xde\xff\xff" + b"\xa1a\xc0" * 65_535,
        b"\x94\x28\x01\xa1x\x81\xa2\xff\xfe\xc0",
        msgpack.packb([DECLARE, 1, "tenant.x", {"a": [None] * 200_000}]),
        msgpack.packb([PUBLISH, 1, msgpack.ExtType(5, b"x" * 100)]),
    ]

    def made() -> bytes:
        header: bytes = field.random.choice(pieces)
        return struct.pack("<II", len(header), 0) + header

    field.again(field.session, made)


def lying_columns(field: Field) -> None:
    """Publishes whose columns do not add up"""
    lies = [
        ([[0, 4]], struct.pack("<I", 1 << 31) + b"x"),
        ([[0, 4], [0, 4]], bytes(8)),
        ([[0, (1 << 32) - 1]], b"x"),
        ([[0, -1]], b"x"),
        ([[255, 4], [0, 4]], bytes(9)),
        ([[0, 2]], b"xx"),
        ([[1, 4], [0, 4]], bytes(8)),
        ([[0, 4], [10, 8]], struct.pack("<IQ", 1, (1 << 63) - 1) + b"x"),
        ([[0, 4], [1, 4], [2, 1]], struct.pack("<II", 1, 9) + b"xx"),
    ]
    frames = [
        frame_bytes(PUBLISH, 1, "tenant.queue", 0, 0, 1, count, listed, raw=raw)
        for listed, raw in lies
        for count in (1, 2, 10_000)
    ]
    field.burst([field.welcome()], b"".join(frames * 50), 50 * len(frames))


def slow_hellos(field: Field) -> None:
    """Four hundred connections that say hello byte by byte"""
    hello = frame_bytes(HELLO, 0, 1, 1, 0, bytes(16), bytes(16))
    found: list[socket.socket | None] = []
    while field.open and len(found) < 400:
        one = field.dial(field.leaders("client"))
        if one is not None:
            field.send(one, hello[:1])  # A slow node may leave time for nothing more.
        found.append(one)
    for at in field.rounds(0.2):
        byte = hello[(at + 1) % len(hello) :][:1]
        for place, one in enumerate(found):
            if one is not None and not field.send(one, byte):
                field.drop(one)
                found[place] = field.dial(field.leaders("client"))


def begun_frames(field: Field) -> None:
    """A hundred sessions that each begin a frame of 1 MB and never end it"""
    body = bytes(1_000_000)
    fields = ["tenant.queue", 0, 0, 1, 1, [[0, 4]]]
    data = frame_bytes(PUBLISH, 1, *fields, raw=struct.pack("<I", len(body)) + body)[:-1]
    for peer in field.welcomes(100):
        peer.send_bytes(data)
        field.cost.frames += 1
        field.cost.sent_bytes += len(data)
    field.rest()


def tls_hellos(field: Field) -> None:
    """TLS, HTTP, AMQP and Redis clients at the client port"""
    words = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        b"*1\r\n$4\r\nPING\r\n",
    ]
    field.again(field.dialing("client"), lambda: field.random.choice(words))


def wrong_sessions(field: Field) -> None:
    """Frames before the hello, hellos after it, and hellos of everything"""

    def made() -> bytes:
        kind, fields = field.random.choice(SOUND)
        return frame_bytes(kind, 1, *fields) + frame_bytes(HELLO, 0, 1, 1, 9, b"", b"")

    field.again(field.dialing("client"), made)


def never_reads(field: Field) -> None:
    """Twenty sessions that ask for megabytes and read nothing"""
    data = b"".join(frame_bytes(QUEUE_QUERY, at + 1, None, "list", 1000) for at in range(1_000))
    peers: list[Peer] = field.welcomes(20)
    field.burst(peers, data, 1_000, reads=False)


ATTACKS = (
    random_bytes,
    flipped_bits,
    evil_values,
    poisoned_names,
    truncated,
    impossible_lengths,
    nested,
    lying_columns,
    slow_hellos,
    begun_frames,
    tls_hellos,
    wrong_sessions,
    never_reads,
)
