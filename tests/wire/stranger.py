"""A client written from `docs/protocol.md` alone: socket, struct and msgpack, nothing of fifo.

Proves that the page suffices, and fails when the code drifts away from it. Blocking, one
connection, no reconnection: the client of a newcomer's first afternoon.
"""

import os
import socket
import struct
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgpack

HELLO, WELCOME, REDIRECT, PING, PONG, ERROR, CLOSE = 1, 2, 5, 6, 7, 8, 9
PUBLISH, CONFIRMS, SUBSCRIBE, DELIVER, SETTLE, DECLARE = 16, 17, 20, 26, 27, 40
ACK, NACK, RELEASE, TERMINATE = 0, 1, 2, 3
SIZES, KEY_LENGTHS, KEYS, ATTEMPTS = 0, 1, 2, 16


class Refused(Exception):
    """The node answered with an error: (code, text, retryable, detail)."""


@dataclass
class Received:
    """A delivered message."""

    consumer: int
    token: int
    id: str
    body: bytes
    key: bytes
    attempt: int


class Stranger:
    """A session on a single connection to the leader. Times in seconds."""

    def __init__(self, connection: socket.socket, resumed: "Stranger | None" = None) -> None:
        """Open a session, or resume that of `resumed`."""
        self.socket = connection
        self.session: tuple[bytes, bytes] = os.urandom(16), os.urandom(16)
        if resumed:
            self.session = resumed.session
        self.correlation = 0
        self.numbers: dict[str, int] = {}
        self.deliveries: list[Received] = []
        optional: list[Any] = ["stranger", [], None, None, 5_000, resumed is not None]
        self.send(HELLO, 1, 1, 0, *self.session, *optional)
        kind, _, self.welcome, _ = self.read()
        if kind != WELCOME:
            raise Refused(kind, *self.welcome)

    def send(self, kind: int, *fields: Any, raw: bytes = b"", correlation: int = 0) -> None:
        header = msgpack.packb([kind, correlation, *fields])
        self.socket.sendall(struct.pack("<II", len(header), len(raw)) + header + raw)

    def read(self) -> tuple[int, int, list[Any], bytes]:
        header_bytes, raw_bytes = struct.unpack("<II", self.read_exactly(8))
        kind, correlation, *fields = msgpack.unpackb(self.read_exactly(header_bytes))
        return kind, correlation, fields, self.read_exactly(raw_bytes)

    def read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(size - len(data))
            if not chunk:
                raise ConnectionError("closed by the node")
            data += chunk
        return bytes(data)

    def request(self, kind: int, *fields: Any, raw: bytes = b"") -> list[list[Any]]:
        """Send a request and read until its answer; keep the deliveries that arrive before it."""
        self.correlation += 1
        self.send(kind, *fields, raw=raw, correlation=self.correlation)
        while True:
            kind_of_answer, correlation, answer, raw_of_answer = self.read()
            if kind_of_answer == CONFIRMS:
                items: list[list[Any]] = [x for x in answer[0] if x[0] == self.correlation]
                if items:
                    return items
            elif kind_of_answer in (ERROR, REDIRECT) and correlation in (0, self.correlation):
                raise Refused(kind_of_answer, *answer)
            elif not self.keep(kind_of_answer, correlation, answer, raw_of_answer):
                return [answer]

    def keep(self, kind: int, correlation: int, fields: list[Any], raw: bytes) -> bool:
        """Handle an unsolicited frame; return False for an answer."""
        if kind == PING:
            self.send(PONG, correlation=correlation)
        elif kind == DELIVER:
            self.deliveries += received(fields, raw)
        return correlation == 0 or kind in (PING, PONG)

    def declare(self, queue: str, **spec: Any) -> bool:
        created: bool = self.request(DECLARE, queue, spec)[0][0]["created"]
        return created

    def publish(self, queue: str, bodies: list[bytes], keys: list[bytes]) -> list[str]:
        """Publish, wait for the confirms, and return the ids."""
        previous = self.numbers.get(queue, 0)
        lengths = f"<{len(bodies)}I"
        columns = [
            (SIZES, struct.pack(lengths, *map(len, bodies))),
            (KEY_LENGTHS, struct.pack(lengths, *map(len, keys))),
            (KEYS, b"".join(keys)),
        ]
        raw = b"".join([column for _, column in columns] + bodies)
        listed = [[tag, len(column)] for tag, column in columns]
        number = previous + 1
        ((_, queue_number, producer, duplicates, stored, *more),) = self.request(
            PUBLISH, queue, 0, previous, number, len(bodies), listed, raw=raw
        )
        if more and more[0]:
            raise Refused(*more[0])
        assert duplicates + stored == len(bodies)
        self.numbers[queue] = previous + len(bodies)
        ids = [f"{queue_number}.{producer}.{number + at}" for at in range(len(bodies))]
        for place, count, earlier, of_it in more[1] if len(more) > 1 else ():
            for at in range(count):
                ids[place + at] = f"{queue_number}.{earlier}.{of_it + at}"
        return ids

    def subscribe(self, queue: str, prefetch: int) -> int:
        consumer: int = self.request(SUBSCRIBE, queue, "stranger", prefetch)[0][0]
        return consumer

    def receive(self) -> Received:
        """Return the next message; wait for it up to the socket's timeout."""
        while not self.deliveries:
            self.keep(*self.read())
        return self.deliveries.pop(0)

    def settle(self, message: Received, verb: int, **options: Any) -> list[Any]:
        """Settle a message; return the first result of its receipt: first, last, status, late."""
        names = ("resolved_below", "delay_ms", "reason", "description")
        values = [options.get(name, 0 if name == "resolved_below" else None) for name in names]
        tokens = [[message.token, message.token]]
        result: list[Any] = self.request(SETTLE, message.consumer, verb, tokens, *values)[0][1][0]
        return result

    def close(self) -> None:
        """End the session, then the connection."""
        self.request(CLOSE)
        self.socket.close()


def received(fields: list[Any], raw: bytes) -> list[Received]:
    """Decode the messages of a Deliver frame."""
    consumer, _, first_token, count, _, listed, runs = fields[:7]
    columns, at = {}, 0
    for tag, size in listed:
        columns[tag] = raw[at : at + size]
        at += size
    u32 = f"<{count}I"
    bodies = cut(raw[at:], struct.unpack(u32, columns[SIZES]))
    keys = [b""] * count
    if KEYS in columns:
        keys = cut(columns[KEYS], struct.unpack(u32, columns[KEY_LENGTHS]))
    attempts = struct.unpack(u32, columns[ATTEMPTS]) if ATTEMPTS in columns else (1,) * count
    ids = [f"{run[1]}.{run[2]}.{run[3] + place}" for run in runs for place in range(run[0])]
    each = zip(ids, bodies, keys, attempts, strict=True)
    return [Received(consumer, first_token + n, *one) for n, one in enumerate(each)]


def cut(blob: bytes, lengths: tuple[int, ...]) -> list[bytes]:
    ends = list(accumulate(lengths))
    return [blob[end - size : end] for end, size in zip(ends, lengths, strict=True)]


def connect(
    addresses: list[str], timeout_s: float = 10.0, resumed: Stranger | None = None
) -> Stranger:
    """Find the leader among these nodes, `host:port` each, following redirects."""
    untried = list(addresses)
    while untried:
        host, port = untried.pop(0).rsplit(":", 1)
        try:
            connection = socket.create_connection((host, int(port)), timeout_s)
        except OSError:
            continue
        try:
            return Stranger(connection, resumed)
        except Refused as refused:
            connection.close()
            kind, _, address, *_ = refused.args
            if kind != REDIRECT:
                raise
            if address and address not in untried:
                untried.insert(0, address)
    raise ConnectionError("no leader among " + ", ".join(addresses))
