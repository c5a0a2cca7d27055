"""Frames: cut out of a stream of bytes, and put together again. Sans-I/O.

    u32 header length | u32 raw length | header: msgpack [type, correlation, fields...] | raw

Both lengths little-endian. Owns the framing, its limits, and the line between what breaks the
stream (`RemoteProtocolError`: close it) and what is only a bad message (`BadMessage`: answer it and
go on). Must not know sockets, sessions, or what a message means.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import msgpack

from fifo.wire import limits, operating, pins
from fifo.wire.errors import Code, LocalProtocolError, RemoteProtocolError
from fifo.wire.fields import U63_MAX, FieldError
from fifo.wire.messages import REGISTRY, Message, from_fields

_ENTERED: Final = (operating.__name__, pins.__name__)
"""The modules that enter messages of their own into the registry, when they are imported."""

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes; a memoryview must be one of single bytes, for its length is taken as a number of bytes."""

PREFIX: Final = struct.Struct("<II")
_EMPTY: Final = memoryview(b"")


class Frame(NamedTuple):
    """A message, the number that ties an answer to its request, and the raw part."""

    message: Message
    correlation: int = 0
    raw: memoryview = _EMPTY


@dataclass(frozen=True, slots=True)
class BadMessage:
    """A well-framed message that cannot be used: answer `code` and `text`, and go on."""

    correlation: int
    code: Code
    text: str


class Decoder:
    """Bytes in, frames out, one at a time; remembers what is not decoded yet.

    `frame_bytes_max` may be lowered for a peer that has not said hello. `requests`: the peer is a
    client, whose headers are bounded more tightly.
    """

    def __init__(
        self, frame_bytes_max: int = limits.FRAME_BYTES_MAX, *, requests: bool = False
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._header_bytes_max = (
            limits.REQUEST_HEADER_BYTES_MAX if requests else limits.HEADER_BYTES_MAX
        )
        self._containers_max = (
            limits.REQUEST_CONTAINERS_MAX if requests else limits.HEADER_CONTAINERS_MAX
        )
        self._data = b""
        self._at = 0
        """Where the next frame begins in `_data`: what lies there is not decoded yet."""
        self._rest = bytearray()
        """An unfinished frame: while there is one, `_data` is empty."""
        self._needed = PREFIX.size
        self.empty = True
        """Whether nothing is held here."""

    @property
    def pending_bytes(self) -> int:
        """Bytes held here: frames that are not decoded yet, and an unfinished one."""
        return len(self._data) - self._at + len(self._rest)

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrive, in any cut."""
        self.empty = False
        if self._rest:
            self._rest += data
            if len(self._rest) >= self._needed:
                self._data, self._at = bytes(self._rest), 0
                self._rest = bytearray()
        elif self._at < len(self._data):
            self._data, self._at = self._data[self._at :] + data, 0
        else:
            self._data, self._at = data, 0

    def next_frame(self) -> Frame | BadMessage | None:
        """Decode the next frame; None where its end has not arrived yet.

        Raises RemoteProtocolError where the stream cannot be trusted any more.
        """
        data, at = self._data, self._at
        left = len(data) - at
        self._needed = PREFIX.size
        if left >= PREFIX.size:
            header_bytes, raw_bytes = PREFIX.unpack_from(data, at)
            split = at + PREFIX.size + header_bytes
            end = split + raw_bytes
            if not 0 < header_bytes <= self._header_bytes_max or end - at > self.frame_bytes_max:
                self._refuse_prefix(header_bytes, raw_bytes)
            if end == len(data):
                self._data, self._at, self.empty = b"", 0, True
                return _frame(data, at + PREFIX.size, split, end, self._containers_max)
            if end < len(data):
                self._at = end
                return _frame(data, at + PREFIX.size, split, end, self._containers_max)
            self._needed = end - at
        if left:
            self._rest += memoryview(data)[at:]
        self._data, self._at = b"", 0
        self.empty = not self._rest
        return None

    def receive_data(self, data: bytes) -> list[Frame | BadMessage]:
        """Take bytes as they arrive, in any cut; return the frames that they complete.

        Raises RemoteProtocolError where the stream cannot be trusted any more; frames that came in
        the same bytes are then not handed out, for no peer is left to answer.
        """
        self.feed(data)
        frames: list[Frame | BadMessage] = []
        while not self.empty and (frame := self.next_frame()) is not None:
            frames.append(frame)
        return frames

    def _refuse_prefix(self, header_bytes: int, raw_bytes: int) -> NoReturn:
        total = PREFIX.size + header_bytes + raw_bytes
        if header_bytes > self._header_bytes_max or total > self.frame_bytes_max:
            raise RemoteProtocolError(
                Code.TOO_LARGE,
                _other_protocol(PREFIX.pack(header_bytes, raw_bytes))
                or f"a frame of {total} bytes with a header of {header_bytes} bytes; at most"
                f" {self.frame_bytes_max} and {self._header_bytes_max} are accepted",
            )
        raise RemoteProtocolError(Code.PROTOCOL, "a frame without a header")


_OTHER_PROTOCOLS: Final = (
    (b"HTTP/", "an HTTP answer: this is an http port; give the address of a node's client port"),
    (b"GET ", "an HTTP request: this is the client port; send it to the node's http port"),
    (b"POST ", "an HTTP request: this is the client port; send it to the node's http port"),
    (b"HEAD ", "an HTTP request: this is the client port; send it to the node's http port"),
    (b"AMQP", "an AMQP greeting: this port speaks the protocol of fifo only"),
    (b"\x16\x03", "a TLS greeting: this port is not encrypted; connect with fifo://, not fifos://"),
    (b"\x15\x03", "a TLS alert: this port is encrypted; connect with fifos://, not fifo://"),
)
"""First bytes of what is found at a wrong port, and what to do about it."""


def _other_protocol(first: bytes) -> str | None:
    """Name another protocol by its first bytes; None where they are of none that is known."""
    return next((said for start, said in _OTHER_PROTOCOLS if first.startswith(start)), None)


def _frame(
    data: bytes, start: int, split: int, end: int, containers_max: int
) -> Frame | BadMessage:
    """The frame whose header lies in start..split and whose raw part lies in split..end."""
    kind, correlation, *values = _parse_header(data[start:split], containers_max)
    cls = REGISTRY.get(kind)
    if cls is None:
        text = f"message type {kind} is not known to this version"
        return BadMessage(correlation, Code.UNSUPPORTED, text)
    try:
        message = from_fields(cls, values)
    except FieldError as error:
        return BadMessage(correlation, Code.INVALID_ARGUMENT, str(error))
    return Frame(message, correlation, memoryview(data)[split:end] if end > split else _EMPTY)


def _parse_header(header: bytes, containers_max: int) -> list[Any]:
    """Type, correlation and fields; whatever is not that breaks the stream. Other than text keys
    are refused by `plain`, and the stream goes on."""
    try:
        if len(header) > _TRUSTED_HEADER_BYTES:
            values = _unpack_bounded(header, containers_max)
        else:
            values = msgpack.unpackb(
                header,
                strict_map_key=False,
                object_pairs_hook=_map,
                ext_hook=_refuse_extension,
            )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        # TypeError: a map key that cannot be hashed.
        raise RemoteProtocolError(
            Code.PROTOCOL, f"a frame header is not msgpack: {type(error).__name__}"
        ) from None
    if type(values) is not list or len(values) < 2:
        raise RemoteProtocolError(Code.PROTOCOL, "a frame header is not [type, correlation, ...]")
    kind, correlation = values[0], values[1]
    if type(kind) is not int or type(correlation) is not int or not 0 <= correlation <= U63_MAX:
        raise RemoteProtocolError(Code.PROTOCOL, "type and correlation are not valid numbers")
    return values


def _unpack_bounded(header: bytes, containers_max: int) -> Any:
    _check_claims(header)
    bounded = _Bounded(containers_max)
    return msgpack.unpackb(
        header,
        strict_map_key=False,
        object_pairs_hook=bounded.to_map,
        list_hook=bounded.to_list,
        ext_hook=_refuse_extension,
    )


_TRUSTED_HEADER_BYTES: Final = 1 * limits.KIB
"""Up to here what a header claims to hold, at every depth that msgpack allows, is under 4 MiB."""


def _check_claims(header: bytes) -> None:
    """Walk the header without building anything: is all there that it claims to hold?

    msgpack builds an array at the length that it claims, and only then looks whether the items are
    there: 1 MiB of nested claims would cost 8 GiB of address space and a tenth of a second.
    """
    walker = msgpack.Unpacker(read_size=len(header), max_buffer_size=len(header))
    walker.feed(header)
    walker.skip()


def _map(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise ValueError("a map has a key twice")
    return built


class _Bounded:
    """Builds the lists and maps of one header, up to a bound.

    1 MiB holds a million empty ones: a second of the node's time, and 64 MiB of its memory.
    """

    def __init__(self, containers_max: int) -> None:
        self._left = self._max = containers_max

    def to_map(self, pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        self.to_list(pairs)
        return _map(pairs)

    def to_list(self, values: list[Any]) -> list[Any]:
        self._left -= 1
        if self._left < 0:
            raise ValueError(f"more than {self._max} arrays and maps")
        return values


def _refuse_extension(code: int, content: bytes) -> Any:
    raise ValueError(f"extension type {code} of {len(content)} bytes is not part of the protocol")


def encode(
    message: Message,
    correlation: int = 0,
    raw: Sequence[Buffer] = (),
    *,
    header_bytes_max: int = limits.HEADER_BYTES_MAX,
) -> list[Buffer]:
    """A frame as a list of buffers: prefix and header joined, then the raw parts uncopied.

    Raises LocalProtocolError for what no frame can hold; it does not check fields again.
    """
    try:
        # Not a shared Packer: the client encodes on two threads.
        header = msgpack.packb([message.TYPE, correlation, *message.to_fields()])
    except (TypeError, ValueError, OverflowError) as error:
        raise LocalProtocolError(f"{type(message).__name__} cannot be packed: {error}") from error
    raw_bytes = sum(map(len, raw))
    total = PREFIX.size + len(header) + raw_bytes
    if len(header) > header_bytes_max or total > limits.FRAME_BYTES_MAX:
        raise LocalProtocolError(
            f"{type(message).__name__} of {total} bytes, {len(header)} of them its header,"
            " exceeds the frame limit"
        )
    return [PREFIX.pack(len(header), raw_bytes) + header, *raw]
