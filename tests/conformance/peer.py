"""A connection made of bytes: socket, struct and msgpack, nothing of fifo.

Owns one TCP connection to a node, what came over it and was not asked for yet, and the deadline of
every wait. Must not know any rule.
"""

from __future__ import annotations

import hmac
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import msgpack

HELLO, WELCOME, CHALLENGE, AUTHENTICATE, REDIRECT, PING, PONG, ERROR, CLOSE, OK, RESUMED = range(
    1, 12
)
PUBLISH, CONFIRMS, OPEN_PRODUCER, PUBLISH_ACROSS = 16, 17, 18, 19
SUBSCRIBE, SUBSCRIBED, CREDIT, CANCEL, GET, GOT, DELIVER = range(20, 27)
SETTLE, RECEIPT, RENEW, RENEWED, ALIVE, NOTICE, NOTICE_ACK = range(27, 34)
DECLARE, UPDATE, QUEUE_ACTION, QUEUE_QUERY, PEEK, PEEKED = range(40, 46)
MOVE, STATUS = 47, 49
FIND, MESSAGE_ACTION = 53, 54
PIN, UNPIN, PIN_QUERY, PAGE, PAGED = range(60, 65)

ACK, NACK, RELEASE, TERMINATE = range(4)
DATA, CONTROL, OBSERVER = range(3)

HANDLE_KEY = 12
"""The place of that field in a Welcome."""

REPLY_S: Final = 10.0
"""A node that has not answered by then does not answer."""

_PREFIX: Final = struct.Struct("<II")
_UNASKED: Final = (CONFIRMS, DELIVER, NOTICE, RESUMED)


class Broken(Exception):
    """A rule of the protocol is broken; the text says how."""


class Closed(Broken):
    """The node closed the connection where it may not."""


@dataclass(frozen=True)
class Target:
    """A node and, where it knows users, who asks it."""

    host: str
    port: int
    user: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None
    token: str | None = None

    def connect(self) -> socket.socket:
        """Open a TCP connection, with TLS where the URL says so."""
        plain = socket.create_connection((self.host, self.port), REPLY_S)
        if self.tls is None:
            return plain
        try:
            return self.tls.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


@dataclass(frozen=True)
class Frame:
    """A frame as it came."""

    kind: int
    correlation: int
    fields: list[Any]
    raw: bytes


@dataclass(frozen=True)
class Delivered:
    """A message of a Deliver frame."""

    consumer: int
    token: int
    id: tuple[int, int, int]
    body: bytes
    key: bytes
    headers: bytes
    attempt: int
    failures: int
    repeat: bool
    dead_letter: dict[str, Any] | None
    label: str


def frame_bytes(kind: int, correlation: int, *fields: Any, raw: bytes = b"") -> bytes:
    """Encode a frame."""
    header = msgpack.packb([kind, correlation, *fields])
    prefix = _PREFIX.pack(len(header), len(raw))
    return b"".join([prefix, header, raw])


def cut_frame(data: bytearray) -> Frame | None:
    """Take the first frame out of the bytes that came; None where it is not whole."""
    if len(data) < _PREFIX.size:
        return None
    header_bytes, raw_bytes = _PREFIX.unpack_from(data)
    end = _PREFIX.size + header_bytes + raw_bytes
    if len(data) < end:
        return None
    header = bytes(data[_PREFIX.size : _PREFIX.size + header_bytes])
    raw = bytes(data[end - raw_bytes : end])
    del data[:end]
    kind, correlation, *fields = msgpack.unpackb(header, strict_map_key=True)
    return Frame(kind, correlation, fields, raw)


class Peer:
    """Connection of a session. Waits raise `Broken` at their deadline."""

    def __init__(
        self, target: Target, session: bytes | None = None, life: bytes | None = None
    ) -> None:
        self.target = target
        self.session = session or os.urandom(16)
        self.life = life or os.urandom(16)
        self.frames: list[Frame] = []
        self.arrived: list[int] = []
        self.messages: list[Delivered] = []
        self.welcome: list[Any] = []
        self.answers_pings = True
        self._correlation = 0
        self._data = bytearray()
        self._socket = target.connect()

    # --- frames -----------------------------------------------------------------------------------

    def send_bytes(self, data: bytes) -> None:
        """Write anything."""
        self._socket.sendall(data)

    def send(
        self, kind: int, *fields: Any, raw: bytes = b"", correlation: int | None = None
    ) -> int:
        """Send a request; return its correlation."""
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
        self.send_bytes(frame_bytes(kind, correlation, *fields, raw=raw))
        return correlation

    def take(
        self, wanted: Callable[[Frame], bool], what: str, within_s: float | None = None
    ) -> Frame:
        """Return the first frame that is wanted, which need not be the next."""
        deadline = time.monotonic() + (within_s or REPLY_S)
        while True:
            for at, frame in enumerate(self.frames):
                if wanted(frame):
                    return self.frames.pop(at)
            self._read(deadline, what)

    def _read(self, deadline: float, what: str) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Broken(f"no {what} came in time; kinds that came: {self.arrived}")
        self._socket.settimeout(left)
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            return
        except (ConnectionError, ssl.SSLEOFError):
            data = b""
        if not data:
            raise Closed(f"closed before {what} came; kinds that came: {self.arrived}")
        self._data += data
        while frame := cut_frame(self._data):
            self._arrived(frame)

    def _arrived(self, frame: Frame) -> None:
        self.arrived.append(frame.kind)
        if frame.kind == PING:
            if self.answers_pings:
                self.send(PONG, correlation=frame.correlation)
        elif frame.kind == DELIVER:
            self.messages += delivered(frame)
        else:
            self.frames.append(frame)

    def ask(self, kind: int, *fields: Any, raw: bytes = b"") -> Frame:
        """Send a request and return its answer."""
        correlation = self.send(kind, *fields, raw=raw)
        return self.answer(correlation)

    def answer(self, correlation: int) -> Frame:
        """Wait for the answer with this correlation."""
        return self.take(
            lambda frame: frame.correlation == correlation and frame.kind not in _UNASKED,
            f"answer to request {correlation}",
        )

    def closed(self, within_s: float | None = None) -> list[Frame]:
        """Wait until the node closes; return the frames that came before."""
        deadline = time.monotonic() + (within_s or REPLY_S)
        try:
            while True:
                self._read(deadline, "close")
        except Closed:
            return self.frames

    def close(self) -> None:
        """Cut the connection."""
        self._socket.close()

    @property
    def raw(self) -> socket.socket:
        """The socket, for those who write and read it as they please."""
        return self._socket

    # --- what many rules need ---------------------------------------------------------------------

    def hello(
        self,
        role: int = DATA,
        *,
        resume: bool = False,
        heartbeat_ms: int = 5000,
        versions: tuple[int, int] = (1, 1),
    ) -> Frame:
        """Say hello, and who it is where the node asks; return the last answer."""
        user, secret = self.target.user, self.target.token or self.target.password
        mechanism = None if secret is None else "token" if self.target.token else "password"
        low, high = versions
        who: list[Any] = ["conformance", [], user, mechanism, heartbeat_ms, resume]
        self.send(HELLO, low, high, role, self.session, self.life, *who, correlation=0)
        answer = self.take(lambda frame: frame.kind != PING, "answer to Hello")
        if answer.kind == CHALLENGE and secret is not None:
            self.send(AUTHENTICATE, mechanism, secret.encode(), correlation=0)
            answer = self.take(lambda frame: frame.kind != PING, "answer to Authenticate")
        return answer

    def open(self, role: int = DATA, *, resume: bool = False, heartbeat_ms: int = 5000) -> Peer:
        """Say hello and be welcomed."""
        answer = self.hello(role, resume=resume, heartbeat_ms=heartbeat_ms)
        if answer.kind != WELCOME:
            raise Broken(f"no Welcome but {answer.kind} {answer.fields}")
        self.welcome = answer.fields
        return self

    def ok(self, kind: int, *fields: Any) -> Any:
        """Send a request that has to be answered by Ok; return its result."""
        answer = self.ask(kind, *fields)
        expect(answer.kind == OK, f"answered by {answer.kind} {answer.fields}, not Ok")
        return answer.fields[0] if answer.fields else None

    def refused(self, kind: int, *fields: Any, raw: bytes = b"") -> list[Any]:
        """Send a request that has to be refused; return the fields of the Error."""
        answer = self.ask(kind, *fields, raw=raw)
        expect(answer.kind == ERROR, f"answered by {answer.kind} {answer.fields}, not Error")
        return answer.fields

    def publish(
        self, queue: str, bodies: Sequence[bytes], number: int, previous: int, **more: Any
    ) -> int:
        """Send a publish; `more`: producer, columns as a list of (tag, bytes). Its correlation."""
        columns = [(0, struct.pack(f"<{len(bodies)}I", *map(len, bodies)))]
        columns += more.get("columns", [])
        listed = [[tag, len(data)] for tag, data in columns]
        raw = b"".join([data for _, data in columns] + list(bodies))
        who = more.get("producer", 0)
        return self.send(PUBLISH, queue, who, previous, number, len(bodies), listed, raw=raw)

    def publish_across(self, places: Sequence[tuple[str, int, Sequence[bytes]]]) -> list[int]:
        """Publish (queue, previous, bodies) in one frame; the correlation of each."""
        counts = [len(bodies) for _, _, bodies in places]
        first = self._correlation + 1
        correlations = list(range(first, first + len(places)))
        all_bodies = [body for _, _, bodies in places for body in bodies]
        previous = [before for _, before, _ in places]
        columns = [
            (tag, struct.pack(f"<{len(values)}{kind}", *values))
            for tag, kind, values in (
                (11, "Q", correlations),
                (12, "I", counts),
                (13, "Q", previous),
                (14, "Q", [before + 1 for before in previous]),
                (0, "I", [len(body) for body in all_bodies]),
            )
        ]
        listed = [[tag, len(data)] for tag, data in columns]
        raw = b"".join([data for _, data in columns] + all_bodies)
        queues = [queue for queue, _, _ in places]
        sent = self.send(PUBLISH_ACROSS, 0, queues, len(all_bodies), listed, raw=raw)
        expect(sent == first, "the frame has the correlation of its first place")
        self._correlation = correlations[-1]
        return correlations

    def confirm(self, correlation: int) -> list[Any]:
        """Wait for the item of `Confirms` about a publish; duplicates, stored, error, repeats."""

        def mine(frame: Frame) -> bool:
            return frame.kind == CONFIRMS and any(one[0] == correlation for one in frame.fields[0])

        frame = self.take(mine, f"confirm of publish {correlation}")
        others = [one for one in frame.fields[0] if one[0] != correlation]
        if others:
            self.frames.append(Frame(CONFIRMS, 0, [others], b""))
        item = next(one for one in frame.fields[0] if one[0] == correlation)
        return [*item, None, []][:7] if len(item) < 6 else [*item, []][:7]

    def stored(
        self, queue: str, bodies: Sequence[bytes], number: int = 1, **more: Any
    ) -> list[Any]:
        """Publish and have all of it stored; `previous` is the number before."""
        item = self.confirm(self.publish(queue, bodies, number, number - 1, **more))
        expect(item[4] == len(bodies), f"not all was stored: {item}")
        return item

    def subscribe(self, queue: str, prefetch: int = 10, tag: str = "t", *more: Any) -> int:
        """Subscribe; return the consumer's number."""
        answer = self.ask(SUBSCRIBE, queue, tag, prefetch, *more)
        expect(answer.kind == SUBSCRIBED, f"answered by {answer.kind} {answer.fields}")
        return int(answer.fields[0])

    def receive(self, count: int = 1, within_s: float | None = None) -> list[Delivered]:
        """Wait for so many messages, and take them."""
        deadline = time.monotonic() + (within_s or REPLY_S)
        while len(self.messages) < count:
            self._read(deadline, f"{count} messages")
        taken, self.messages = self.messages[:count], self.messages[count:]
        return taken

    def settle(self, consumer: int, verb: int, first: int, last: int, *more: Any) -> list[int]:
        """Settle a range; return the status of each token."""
        answer = self.ask(SETTLE, consumer, verb, [[first, last]], *more)
        expect(answer.kind == RECEIPT, f"answered by {answer.kind} {answer.fields}")
        expect(answer.fields[0] == consumer, "the receipt names another consumer")
        return [line[2] for line in answer.fields[1] for _ in range(line[0], line[1] + 1)]

    def handle(self, consumer: int, token: int) -> bytes:
        """The handle of a delivery to this session, as section 6 has it."""
        numbers = struct.pack("<QQ", consumer, token)
        return hmac.digest(self.welcome[HANDLE_KEY], numbers, "sha256")[:16]

    def barrier(self) -> None:
        """Wait until what the node had to send before is here."""
        answer = self.ask(PING)
        expect(answer.kind == PONG, "a Ping is answered by Pong")


def expect(holds: object, text: str) -> None:
    """Raise `Broken` with this text where the condition does not hold."""
    if not holds:
        raise Broken(text)


def delivered(frame: Frame) -> list[Delivered]:
    """Decode the messages of a Deliver frame."""
    consumer, _, first_token, count, _, listed, runs, *more = frame.fields
    letters = dict(more[0]) if more else {}
    repeat = len(more) > 1 and more[1]
    label = more[2] if len(more) > 2 else ""
    columns, at = {}, 0
    for tag, size in listed:
        columns[tag] = frame.raw[at : at + size]
        at += size
    numbers = struct.Struct(f"<{count}I")

    def blobs(lengths: int, blob: int) -> list[bytes]:
        if lengths not in columns:
            return [b""] * count
        return cut(columns[blob], numbers.unpack(columns[lengths]))

    def values(tag: int, default: int) -> Sequence[int]:
        return numbers.unpack(columns[tag]) if tag in columns else [default] * count

    bodies = cut(frame.raw[at:], numbers.unpack(columns[0]))
    ids = [(run[1], run[2], run[3] + place) for run in runs for place in range(run[0])]
    expect(len(ids) == count, f"the runs count {len(ids)} messages, the frame {count}")
    keys, headers = blobs(1, 2), blobs(3, 4)
    attempts, failures = values(16, 1), values(17, 0)
    return [
        Delivered(
            consumer=consumer,
            token=first_token + at,
            id=ids[at],
            body=bodies[at],
            key=keys[at],
            headers=headers[at],
            attempt=attempts[at],
            failures=failures[at],
            repeat=repeat,
            dead_letter=letters.get(at),
            label=label,
        )
        for at in range(count)
    ]


def cut(blob: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Cut a blob into pieces of these lengths, which have to add up."""
    expect(sum(lengths) == len(blob), f"{len(blob)} bytes, lengths that add up to {sum(lengths)}")
    ends = accumulate(lengths)
    return [blob[end - size : end] for end, size in zip(ends, lengths, strict=True)]
