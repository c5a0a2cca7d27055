"""The other two ports: http, which any client may ask, and the peer port, for members only.

Owns raw attacks on both. Must not know the client port, nor how a member proves itself.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any, Final

import msgpack

from tests.neighbours.field import WATCHER, Field

PAGE: Final = (
    f"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WATCHER}-token\r\n\r\n".encode()
)
"""A request for the longest page, by a user who may see it."""


def http_oddities(field: Field) -> None:
    """Malformed requests of every kind, over new connections"""
    words = [
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/9.9.9\r\n\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /api/queues/%00%0a%1b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 4_000 + b"\r\n",
        b"GET /metrics HTTP/1.1\r\nAuthorization: Basic !!!\r\nHost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nUpgrade: websocket\r\nConnection: upgrade\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"\x00" * 100,
    ]
    field.again(field.dialing("http"), lambda: field.random.choice(words))


def http_pipelined(field: Field) -> None:
    """Metrics, two thousand requests in one go, and nothing read"""
    for _ in field.rounds(0.05):
        found = [field.dial(field.leaders("http")) for _ in range(8)]
        for one in found:
            if one is not None:
                field.send(one, PAGE * 2_000, 2_000)


def http_slow(field: Field) -> None:
    """Two thousand requests that are sent byte by byte"""
    port = field.leaders("http")
    found: list[socket.socket | None] = []
    while field.open and len(found) < 2_000:
        one = field.dial(port)
        if one is not None:
            field.send(one, PAGE[:1])
        found.append(one)
    for at in field.rounds(0.1):
        for place, one in enumerate(found):
            if one is not None and not field.send(one, PAGE[at % 20 :][:1]):
                field.drop(one)
                found[place] = field.dial(port)


def http_bodies(field: Field) -> None:
    """Requests whose bodies never end"""
    begun = b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n"
    for _ in field.rounds():
        found = [one for _ in range(8) if (one := field.dial(field.leaders("http")))]
        for one in found:
            field.send(one, begun)
        _until_cut(field, found, bytes(64 << 10))


def _until_cut(field: Field, sockets: Sequence[socket.socket], data: bytes) -> None:
    for one in sockets:
        one.settimeout(0.2)
        try:
            while field.open:
                one.sendall(data)
                field.cost.sent_bytes += len(data)
        except OSError:
            field.drop(one)


def metrics(field: Field) -> None:
    """Eight readers of metrics that ask again as soon as they have their page"""
    found = [one for _ in range(8) if (one := field.dial(field.leaders("http")))]
    field.pump(found, lambda: PAGE)


def peer_junk(field: Field) -> None:
    """Junk at the peer port, over new connections"""
    field.again(field.dialing("peer"), lambda: field.random.randbytes(300), kept=300)


def _peer_frame(*header: Any, raw: bytes = b"") -> bytes:
    packed: bytes = msgpack.packb(list(header))
    return struct.pack("<II", len(packed), len(raw)) + packed + raw


def peer_frames(field: Field) -> None:
    """Frames of peers without a handshake, and hellos of strangers, at the peer port"""
    words = [
        _peer_frame("append_entries", 1 << 40, 0, 0, 0, []),
        _peer_frame("request_vote", 1 << 40, 0, 0),
        _peer_frame("hello", 4, "n9", bytes(16), bytes(32)),
        _peer_frame("hello", 4, "n1", bytes(16), bytes(32)),
        _peer_frame(0, 4, "n2", bytes(16), bytes(32), bytes(16)),
        struct.pack("<II", (1 << 32) - 1, (1 << 32) - 1),
        b"\x91" * 2_000,
    ]
    field.again(field.dialing("peer"), lambda: field.random.choice(words))


def peer_half_open(field: Field) -> None:
    """Hundreds of half-open connections a second at each peer port"""
    ports = field.ports("peer")
    held: list[socket.socket] = []
    for at in field.rounds(0.001):
        one = field.dial(ports[at % len(ports)])
        if one is not None:
            held.append(one)
        if len(held) > 300:
            field.drop(held.pop(0))


ATTACKS = (
    http_oddities,
    http_pipelined,
    http_slow,
    http_bodies,
    metrics,
    peer_junk,
    peer_frames,
    peer_half_open,
)
