"""Frames: cut out of a stream of bytes, and put together again. Sans-I/O.

    u32 header length | u32 raw length | header: msgpack [type, correlation, fields...] | raw

Both lengths little-endian. Owns the framing, its limits, and the line between what breaks the
stream (`RemoteProtocolError`: close it) and what is only a bad message (`BadMessage`: answer it and
go on). Must not know sockets, sessions, or what a message means.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgpack

from fifo.wire import limits
from fifo.wire.errors import Code, LocalProtocolError, RemoteProtocolError
from fifo.wire.fields import U63_MAX, FieldError
from fifo.wire.messages import REGISTRY, Message, from_fields

Buffer: TypeAlias = bytes | bytearray | memoryview

PREFIX: Final = struct.Struct("<II")
_EMPTY: Final = memoryview(b"")


@dataclass(frozen=True, slots=True)
class Frame:
    """One message, the number that ties an answer to its request, and the raw part."""

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
    """Bytes in, frames out; remembers only an unfinished frame.

    `frame_bytes_max` may be lowered for a peer that has not said hello.
    """

    def __init__(self, frame_bytes_max: int = limits.FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._rest = bytearray()
        self._needed = PREFIX.size

    @property
    def pending_bytes(self) -> int:
        """Bytes of an unfinished frame held here."""
        return len(self._rest)

    def receive_data(self, data: bytes) -> list[Frame | BadMessage]:
        """Take bytes as they arrive, in any cut; return the frames that they complete.

        Raises RemoteProtocolError where the stream cannot be trusted any more.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
            self._rest = bytearray()
        frames: list[Frame | BadMessage] = []
        view = memoryview(data)
        at, size = 0, len(data)
        while size - at >= PREFIX.size:
            end = at + self._frame_bytes(view, at)
            if end > size:
                break
            frames.append(self._frame(view, at, end))
            at = end
        if at < size:
            self._rest += view[at:]
            self._needed = PREFIX.size
            if size - at >= PREFIX.size:
                self._needed = self._frame_bytes(view, at)
        return frames

    def _frame_bytes(self, view: memoryview, at: int) -> int:
        header_bytes, raw_bytes = PREFIX.unpack_from(view, at)
        total = int(PREFIX.size + header_bytes + raw_bytes)
        if header_bytes > limits.HEADER_BYTES_MAX or total > self.frame_bytes_max:
            raise RemoteProtocolError(
                Code.TOO_LARGE,
                f"a frame of {total} bytes with a header of {header_bytes} exceeds the limit"
                f" of {self.frame_bytes_max} and {limits.HEADER_BYTES_MAX}",
            )
        if header_bytes == 0:
            raise RemoteProtocolError(Code.PROTOCOL, "a frame without a header")
        return total

    def _frame(self, view: memoryview, at: int, end: int) -> Frame | BadMessage:
        header_bytes, _ = PREFIX.unpack_from(view, at)
        split = at + PREFIX.size + header_bytes
        kind, correlation, values = _parse_header(view[at + PREFIX.size : split])
        cls = REGISTRY.get(kind)
        if cls is None:
            text = f"message type {kind} is not known to this version"
            return BadMessage(correlation, Code.UNSUPPORTED, text)
        try:
            message = from_fields(cls, values)
        except FieldError as error:
            return BadMessage(correlation, Code.INVALID_ARGUMENT, str(error))
        return Frame(message, correlation, view[split:end])


def _parse_header(header: memoryview) -> tuple[int, int, list[Any]]:
    """Type, correlation and fields; whatever is not that breaks the stream."""
    try:
        values = msgpack.unpackb(header, raw=False, strict_map_key=False)
    except (ValueError, msgpack.UnpackException, TypeError) as error:
        # TypeError: a map key that cannot be hashed.
        raise RemoteProtocolError(
            Code.PROTOCOL, f"a frame header is not msgpack: {type(error).__name__}"
        ) from None
    if type(values) is not list or len(values) < 2:
        raise RemoteProtocolError(Code.PROTOCOL, "a frame header is not [type, correlation, ...]")
    kind, correlation = values[0], values[1]
    if type(kind) is not int or type(correlation) is not int or not 0 <= correlation <= U63_MAX:
        raise RemoteProtocolError(Code.PROTOCOL, "type and correlation are not valid numbers")
    return kind, correlation, values[2:]


_packer = msgpack.Packer(use_bin_type=True)


def encode(message: Message, correlation: int = 0, raw: Sequence[Buffer] = ()) -> Iterable[Buffer]:
    """One frame as a list of buffers: prefix and header joined, then the raw parts uncopied.

    Raises LocalProtocolError for a frame that the peer would refuse.
    """
    values = [message.TYPE, correlation, *message.to_fields()]
    try:
        header = _packer.pack(values)
    except (TypeError, ValueError, OverflowError) as error:
        _packer.reset()
        raise LocalProtocolError(f"{type(message).__name__} cannot be packed: {error}") from error
    raw_bytes = sum([len(part) for part in raw])
    total = PREFIX.size + len(header) + raw_bytes
    if len(header) > limits.HEADER_BYTES_MAX or total > limits.FRAME_BYTES_MAX:
        raise LocalProtocolError(
            f"{type(message).__name__} of {total} bytes exceeds the frame limit"
        )
    return [PREFIX.pack(len(header), raw_bytes) + header, *raw]
