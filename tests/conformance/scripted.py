"""A node that follows a script, for clients in any language: sockets and msgpack, nothing of fifo.

Owns its listeners, what came over each connection, the answers of a node in which all goes well,
and the little state that they need: sessions, locked messages, stored publishes. A rule replaces
an answer, cuts connections, and waits for what the client has to do. Must not know any rule.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tests.conformance.peer import (
    CANCEL,
    CLOSE,
    CONFIRMS,
    CONTROL,
    CREDIT,
    DATA,
    DELIVER,
    HELLO,
    NOTICE_ACK,
    OK,
    PING,
    PONG,
    PUBLISH,
    RECEIPT,
    RENEW,
    RENEWED,
    RESUMED,
    SETTLE,
    SUBSCRIBE,
    SUBSCRIBED,
    WELCOME,
    Broken,
    Frame,
    cut,
    cut_frame,
    frame_bytes,
)

INPUT, OUTPUT = "conformance.in", "conformance.out"
CONSUMER, QUEUE_NUMBER, PRODUCER = 5, 3, 7
SIZES, NUMBERS = 0, 10
WITHIN_S = 10.0
"""Patience with a client, in seconds: it may have to start an interpreter."""

LOCK_MS: Final = 30_000
_READ_BYTES: Final = 1 << 18
_ROLE, _SESSION, _INCARNATION, _RESUME, _AFTER_TERM = 2, 3, 4, 10, 11
_WALL_MS: Final = 1_700_000_000_000


class Line:
    """A connection that the client has opened."""

    def __init__(self, connection: socket.socket, port: int) -> None:
        self.port = port
        self.open = True
        self.hello: list[Any] = []
        self.correlations: list[int] = []
        self._socket = connection
        self._data = bytearray()

    def __repr__(self) -> str:
        return f"<{'control' if self.hello and self.role == CONTROL else 'data'} connection>"

    @property
    def role(self) -> int:
        """0 data, 1 control."""
        return int(self._said(_ROLE, DATA))

    @property
    def life(self) -> tuple[bytes, bytes]:
        """Session and incarnation."""
        return self._said(_SESSION, b""), self._said(_INCARNATION, b"")

    @property
    def resumes(self) -> bool:
        """Whether it says that it holds something of its session."""
        return bool(self._said(_RESUME, False))

    @property
    def after_term(self) -> int:
        """The term whose successor it looks for; 0: any leader."""
        return int(self._said(_AFTER_TERM, 0))

    def _said(self, place: int, default: Any) -> Any:
        return self.hello[place] if len(self.hello) > place else default

    def fileno(self) -> int:
        """The descriptor, for a selector."""
        return self._socket.fileno()

    def send(self, kind: int, *fields: Any, raw: bytes = b"", correlation: int = 0) -> None:
        """Send a frame."""
        self.send_bytes(frame_bytes(kind, correlation, *fields, raw=raw))

    def send_bytes(self, data: bytes) -> None:
        """Write anything; what a client that left misses is no matter."""
        try:
            self._socket.sendall(data)
        except OSError:
            self.open = False

    def read(self) -> list[Frame]:
        """Return the frames that came; `open` is false after the last."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError:
            data = b""
        self.open = bool(data)
        self._data += data
        found = []
        while frame := cut_frame(self._data):
            found.append(frame)
        return found

    def cut(self) -> None:
        """Close it without a word."""
        self.open = False
        self._socket.close()


@dataclass(frozen=True)
class Heard:
    """A frame that came, and where."""

    line: Line
    frame: Frame


def publication(frame: Frame) -> list[tuple[int, bytes]]:
    """The numbers and bodies of a Publish frame."""
    number, count, listed = frame.fields[3:6]
    columns, at = {}, 0
    for tag, size in listed:
        columns[tag] = frame.raw[at : at + size]
        at += size
    numbers: Sequence[int] = range(number, number + count)
    if NUMBERS in columns:
        numbers = struct.unpack(f"<{count}Q", columns[NUMBERS])
    bodies = cut(frame.raw[at:], struct.unpack(f"<{count}I", columns[SIZES]))
    return list(zip(numbers, bodies, strict=True))


Answer: TypeAlias = Callable[[Line, Frame], None]


def silence(line: Line, frame: Frame) -> None:
    """Answer nothing."""


@dataclass
class Node:
    """A node in which all goes well, until a rule says otherwise."""

    lock_ms: int = LOCK_MS
    heartbeat_ms: int = 5_000
    term: int = 1
    heard: list[Heard] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    held: dict[int, bytes] = field(default_factory=dict)
    stored: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hello: Answer = self.welcome
        self.answers: dict[int, Answer] = {
            PING: lambda line, frame: line.send(PONG, correlation=frame.correlation),
            SUBSCRIBE: self.subscribed,
            PUBLISH: self.confirm,
            SETTLE: self.receipt,
            RENEW: self.renewed,
            CREDIT: lambda line, frame: self.ok(line, frame, {"left": frame.fields[1]}),
            **dict.fromkeys((CANCEL, CLOSE, NOTICE_ACK), self.ok),
        }
        self.next_token = 1
        self._last_number = 0
        self._sessions: set[bytes] = set()
        self._tag: str | None = None
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self.port = self.listen()

    def listen(self) -> int:
        """Open one more address of this node; its port."""
        listener = socket.create_server(("127.0.0.1", 0))
        self._listeners.append(listener)
        port = int(listener.getsockname()[1])
        self._selector.register(listener, selectors.EVENT_READ, port)
        return port

    @property
    def url(self) -> str:
        """URL of the first address."""
        return f"fifo://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Close everything."""
        for line in self.lines:
            line.cut()
        for listener in self._listeners:
            listener.close()
        self._selector.close()

    # --- waiting ----------------------------------------------------------------------------------

    def poll(self, seconds: float) -> None:
        """Take what comes, waiting at most these seconds for the first of it."""
        for key, _ in self._selector.select(max(0.0, seconds)):
            if isinstance(key.fileobj, Line):
                self._read(key.fileobj)
            else:
                connection, _ = next(one for one in self._listeners if one is key.fileobj).accept()
                line = Line(connection, key.data)
                self.lines.append(line)
                self._selector.register(line, selectors.EVENT_READ)

    def _read(self, line: Line) -> None:
        for frame in line.read():
            self._take(line, frame)
        if not line.open:
            self.drop(line)

    def _take(self, line: Line, frame: Frame) -> None:
        if frame.kind == HELLO:
            line.hello = frame.fields
            self.heard.append(Heard(line, frame))
            self.hello(line, frame)
            return
        self.heard.append(Heard(line, frame))
        if frame.kind != PONG:
            line.correlations.append(frame.correlation)
        answer = self.answers.get(frame.kind)
        if answer is not None:
            answer(line, frame)

    def drop(self, line: Line) -> None:
        """Cut a connection."""
        if line in self.lines:
            self.lines.remove(line)
            self._selector.unregister(line)
        line.cut()

    def drop_all(self) -> None:
        """Cut every connection, as a node does that dies."""
        for line in list(self.lines):
            self.drop(line)

    def until(self, holds: Callable[[], object], what: str, within_s: float | None = None) -> None:
        """Wait for a condition. Raises Broken at the deadline."""
        within_s = within_s or WITHIN_S
        deadline = time.monotonic() + within_s
        while not holds():
            left = deadline - time.monotonic()
            if left <= 0:
                kinds = [one.frame.kind for one in self.heard[-20:]]
                raise Broken(f"{what} within {within_s:g} s: no; the last kinds that came: {kinds}")
            self.poll(min(left, 0.05))

    def hear(
        self,
        kind: int,
        what: str,
        wanted: Callable[[Heard], bool] = lambda _: True,
        within_s: float | None = None,
    ) -> Heard:
        """Wait for a frame of this kind that no rule has taken yet, and take it."""

        def mine() -> Heard | None:
            return next((one for one in self.heard if one.frame.kind == kind and wanted(one)), None)

        self.until(mine, what, within_s)
        found = mine()
        assert found is not None
        self.heard.remove(found)
        return found

    def line(self, role: int = DATA) -> Line:
        """Wait for an open, welcomed connection of this role."""

        def mine() -> Line | None:
            fitting = (one for one in self.lines if one.hello and one.role == role)
            return next(fitting, None)

        self.until(mine, "a connection")
        found = mine()
        assert found is not None
        return found

    # --- what a node does -------------------------------------------------------------------------

    def welcome(self, line: Line, _: Frame) -> None:
        """Attach the session; repeat what it holds, where it is known."""
        session = line.life[0]
        known = session in self._sessions
        self._sessions.add(session)
        listed = [[CONSUMER, self._tag, INPUT, self.lock_ms]] if known and self._tag else []
        nodes = [["scripted", f"127.0.0.1:{line.port}"]]
        state = [self.term, int(known), 1, self.heartbeat_ms, [], nodes, listed]
        line.send(WELCOME, 1, "scripted", bytes(16), *state, [], QUEUE_NUMBER + 1, bytes(16))
        if known and line.role == DATA:
            for token, body in self.held.items():
                self._send(line, token, body, repeat=True)
            line.send(RESUMED)

    def end_sessions(self) -> None:
        """Forget every session, with what it held."""
        self._sessions.clear()
        self.held.clear()
        self._tag = None

    def ok(self, line: Line, frame: Frame, result: Any = None) -> None:
        """Answer by Ok."""
        line.send(OK, result, correlation=frame.correlation)

    def subscribed(self, line: Line, frame: Frame) -> None:
        """Make it the consumer."""
        self._tag = frame.fields[1]
        limits = (self.lock_ms, 1_800_000, frame.fields[2])
        line.send(SUBSCRIBED, CONSUMER, *limits, correlation=frame.correlation)

    def confirm(self, line: Line, frame: Frame) -> None:
        """Store what is new of a publish."""
        published = publication(frame)
        new = [body for number, body in published if number > self._last_number]
        self.stored += new
        self._last_number = max(self._last_number, published[-1][0])
        old = len(published) - len(new)
        line.send(CONFIRMS, [[frame.correlation, QUEUE_NUMBER, PRODUCER, old, len(new)]])

    def receipt(self, line: Line, frame: Frame) -> None:
        """Settle what is held."""
        for first, last in frame.fields[2]:
            for token in range(first, last + 1):
                self.held.pop(token, None)
        results = [[first, last, 0] for first, last in frame.fields[2]]
        line.send(RECEIPT, frame.fields[0], results, correlation=frame.correlation)

    def renewed(self, line: Line, frame: Frame) -> None:
        """Renew everything."""
        items = [
            [number, [[first, last, self.lock_ms] for first, last in tokens], []]
            for number, tokens in frame.fields[0]
        ]
        line.send(RENEWED, items, correlation=frame.correlation)

    # --- deliveries -------------------------------------------------------------------------------

    def deliver(self, body: str) -> int:
        """Hand a message out on the data connection; its token."""
        token, self.next_token = self.next_token, self.next_token + 1
        self.held[token] = body.encode()
        self.line().send_bytes(self.delivery(token, body.encode()))
        return token

    def _send(self, line: Line, token: int, body: bytes, *, repeat: bool) -> None:
        line.send_bytes(self.delivery(token, body, repeat=repeat))

    def delivery(self, token: int, body: bytes, *more: Any, repeat: bool = False) -> bytes:
        """A Deliver frame; `more` are fields of a later version."""
        run = [1, QUEUE_NUMBER, PRODUCER, token, _WALL_MS]
        fields = [CONSUMER, INPUT, token, 1, self.lock_ms, [[0, 4]], [run], [], repeat, "", *more]
        return frame_bytes(DELIVER, 0, *fields, raw=struct.pack("<I", len(body)) + body)
