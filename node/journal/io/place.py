"""Where a file is: the machine, and what of the file a copy of it does not have.

Owns how the system is asked. A file that is copied, by whatever program, gets another inode and
another time of birth; one that is renamed, or whose disk moves to another mount point, keeps both.
Must not know whose file it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

MACHINE_FILES: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")
"""Files that name this machine, where it has one."""

_AT_EMPTY_PATH: Final = 0x1000
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_BIRTH: Final = struct.Struct("=qI")
_MASK_OFFSET: Final = 0
_BIRTH_OFFSET: Final = 80


class Place(NamedTuple):
    """A file's machine, inode and time of birth; empty where the system does not say."""

    machine: str
    inode: str
    birth: str

    def fits(self, other: Place) -> bool:
        """Whether both can be of one file: what either of them lacks proves nothing."""
        pairs = zip(self, other, strict=True)
        return all(own == its or not (own and its) for own, its in pairs)


def of_file(descriptor: int) -> Place:
    """Find out where an open file is."""
    return Place(machine_id(), str(os.fstat(descriptor).st_ino), _birth(descriptor))


def machine_id() -> str:
    """Name this machine; empty where it has no name (as in most containers)."""
    for path in MACHINE_FILES:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return Path(path).read_text("ascii").strip()
    return ""


def _birth(descriptor: int) -> str:
    """The time of birth of a file in nanoseconds; empty where the system keeps none."""
    found = getattr(os.fstat(descriptor), "st_birthtime", None)
    if found is not None:
        return str(int(found * 1_000_000_000))
    call = _statx()
    if call is None:
        return ""
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if call(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer) != 0:
        return ""
    (mask,) = struct.unpack_from("=I", buffer, _MASK_OFFSET)
    if not mask & _STATX_BTIME:
        return ""
    seconds, nanoseconds = _BIRTH.unpack_from(buffer, _BIRTH_OFFSET)
    return str(seconds * 1_000_000_000 + nanoseconds)


@cache
def _statx() -> Any:
    """The call of the C library that Python has no name for; None where there is none."""
    try:
        return ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return None
