"""Entries of the replicated log: packed by the leader, unpacked by every node.

    u8 format | u8 zero | u16 machine version | u32 commands bytes | u64 stamp | u64 wall time
    commands: a msgpack array of plain lists (`to_list` of the machine)
    body area: the raw parts of publish frames, end to end, as the clients sent them

All numbers little-endian. Owns this layout and nothing else: it must not know what a command means
or how Raft replicates the bytes. `docs/entry.md` describes the same: change them together.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgpack

from fifo.machine.contract import VERSION
from fifo.wire import Buffer

FORMAT: Final = 1
MACHINE_VERSION: Final = VERSION

_HEADER: Final = struct.Struct("<BBHIQQ")
HEADER_BYTES: Final = _HEADER.size
_ARRAY: Final = struct.Struct(">BI")
_ARRAY_32: Final = 0xDD
"""msgpack's array with a 32-bit count: always this one, so that its size is known before."""

OVERHEAD_BYTES: Final = HEADER_BYTES + _ARRAY.size
"""Bytes of an entry besides packed commands and the body area."""

_packer = msgpack.Packer(use_bin_type=True)


class EntryUnreadable(ValueError):
    """An entry of the log that this version cannot read: the node must stop instead of guessing."""


class Entry(NamedTuple):
    """An unpacked entry. `stamp_ms` is cluster time, `wall_ms` is for people to read."""

    machine_version: int
    stamp_ms: int
    wall_ms: int
    commands: tuple[tuple[Any, ...], ...]
    area: memoryview


def pack_command(plain: Sequence[Any]) -> bytes:
    """Pack one command's plain list for an entry."""
    packed: bytes = _packer.pack(plain)
    return packed


def pack(
    packed: Sequence[bytes], area: Sequence[Buffer], *, version: int, stamp_ms: int, wall_ms: int
) -> list[Buffer]:
    """Return an entry as parts for one join: header, packed commands, then the area uncopied.

    `version`: the lowest machine version that a program must know to apply it.
    """
    commands = b"".join([_ARRAY.pack(_ARRAY_32, len(packed)), *packed])
    header = _HEADER.pack(FORMAT, 0, version, len(commands), stamp_ms, wall_ms)
    return [header + commands, *area]


def unpack(payload: memoryview) -> Entry:
    """Read an entry of the log. Raises EntryUnreadable."""
    version, commands_bytes, stamp_ms, wall_ms = _header(payload)
    end = HEADER_BYTES + commands_bytes
    try:
        commands = msgpack.unpackb(
            payload[HEADER_BYTES:end], raw=False, use_list=False, strict_map_key=False
        )
    except (ValueError, msgpack.UnpackException) as error:
        raise EntryUnreadable(f"entry: commands are not msgpack: {error}") from None
    return Entry(version, stamp_ms, wall_ms, commands, payload[end:])


def area_of(payload: memoryview) -> memoryview:
    """The body area of an entry, without reading its commands."""
    _, commands_bytes, _, _ = _header(payload)
    return payload[HEADER_BYTES + commands_bytes :]


def stamp_of(payload: memoryview) -> int:
    """The cluster time in the stamp of an entry."""
    return _header(payload)[2]


def wall_of(payload: memoryview) -> int:
    """The wall time of an entry, for people; 0 where its header cannot be read."""
    try:
        _header(payload)
    except EntryUnreadable:
        return 0
    wall_ms: int = _HEADER.unpack_from(payload)[5]
    return wall_ms


def _header(payload: memoryview) -> tuple[int, int, int, int]:
    if len(payload) < HEADER_BYTES:
        raise EntryUnreadable(f"entry: {len(payload)} bytes, at least {HEADER_BYTES} expected")
    form, _, version, commands_bytes, stamp_ms, wall_ms = _HEADER.unpack_from(payload)
    if form != FORMAT or version > MACHINE_VERSION:
        raise EntryUnreadable(
            f"entry: format {form} with machine version {version}; this program reads format"
            f" {FORMAT} up to version {MACHINE_VERSION}: use the newer program on every node"
        )
    if HEADER_BYTES + commands_bytes > len(payload):
        raise EntryUnreadable(
            f"entry: {len(payload)} bytes, its header announces {commands_bytes} bytes of commands"
        )
    return version, commands_bytes, stamp_ms, wall_ms
