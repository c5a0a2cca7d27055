"""Plain values to canonical bytes and back: one value has one form, whatever made it.

Owns the encoding of snapshots and digests; knows nothing of what the values mean. Supported: None,
bool, int, bytes, text, lists (tuples become lists). Lengths and ints are LEB128 varints, signed
ints zigzag. Decoding refuses everything that encoding would not have written.
"""

from typing import Any

_NONE, _FALSE, _TRUE, _INT, _BYTES, _TEXT, _LIST = range(7)


class CodecError(ValueError):
    """Bytes that no encoding wrote."""


class CutOff(CodecError):
    """Bytes that end within a value: with more of them it may be one."""


def encode(value: Any) -> bytes:
    """The canonical bytes of a plain value."""
    out = bytearray()
    write(out, value)
    return bytes(out)


def write_list(out: bytearray, count: int) -> None:
    """Begin a list: the `count` values that follow are its items."""
    out.append(_LIST)
    _write_varint(out, count)


def write(out: bytearray, value: Any) -> None:
    """Append the canonical bytes of a plain value. Raises TypeError for any other."""
    kind = type(value)
    if kind is int:
        out.append(_INT)
        _write_varint(out, (value << 1) if value >= 0 else ((-value) << 1) - 1)
    elif kind is list or kind is tuple:
        out.append(_LIST)
        _write_varint(out, len(value))
        for item in value:
            write(out, item)
    elif kind is bytes:
        out.append(_BYTES)
        _write_varint(out, len(value))
        out += value
    elif kind is str:
        coded = value.encode()
        out.append(_TEXT)
        _write_varint(out, len(coded))
        out += coded
    elif value is None:
        out.append(_NONE)
    elif kind is bool:
        out.append(_TRUE if value else _FALSE)
    elif isinstance(value, int):
        write(out, int(value))
    elif isinstance(value, tuple):
        write(out, list(value))
    else:
        raise TypeError(f"{kind.__name__} has no canonical form")


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def decode(data: bytes) -> Any:
    """The value that `data` is the form of. Raises `CodecError`."""
    try:
        value, at = read(data, 0)
    except CutOff:
        raise CodecError("cut off or damaged") from None
    if at != len(data):
        raise CodecError("surplus bytes")
    return value


def read(data: bytes, at: int) -> tuple[Any, int]:
    """The value that begins at `at`, and where it ends. Raises `CutOff` or `CodecError`."""
    try:
        return _read(data, at)
    except IndexError:
        raise CutOff("cut off") from None
    except (UnicodeDecodeError, RecursionError):
        raise CodecError("damaged") from None


def read_list(data: bytes, at: int) -> tuple[int, int]:
    """The length of the list that begins at `at`, and where its first value begins."""
    try:
        if data[at] != _LIST:
            raise CodecError("expected a list")
        return _read_varint(data, at + 1)
    except IndexError:
        raise CutOff("cut off") from None


def _read(data: bytes, at: int) -> tuple[Any, int]:
    kind = data[at]
    at += 1
    if kind == _NONE:
        return None, at
    if kind in (_FALSE, _TRUE):
        return kind == _TRUE, at
    number, at = _read_varint(data, at)
    if kind == _INT:
        return (-((number + 1) >> 1) if number & 1 else number >> 1), at
    if kind == _LIST:
        items = []
        for _ in range(number):
            item, at = _read(data, at)
            items.append(item)
        return items, at
    end = at + number
    if end > len(data):
        raise CutOff("cut off")
    if kind == _BYTES:
        return data[at:end], end
    if kind == _TEXT:
        return data[at:end].decode(), end
    raise CodecError("unknown kind of value")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
