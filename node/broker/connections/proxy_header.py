"""The PROXY protocol, versions 1 and 2: who is behind a balancer that connects for others.

Owns the form of the header and how much of a connection is read for it, which is not one byte more:
what follows is TLS or the client's first frame. Must not know which addresses are balancers'.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
"""The first twelve bytes of version 2."""

LINE_BYTES_MAX: Final = 107
"""The longest line of version 1, its end included."""

BODY_BYTES_MAX: Final = 2_048
"""Addresses and extensions of version 2; balancers send some hundred bytes."""

_BEGIN: Final = b"PROXY "
_SIZES: Final = {0x11: (4, "!4s4sHH"), 0x21: (16, "!16s16sHH")}
"""By family and transport of version 2: TCP over IPv4, over IPv6."""

Read: TypeAlias = Callable[[int], Awaitable[bytes]]
"""Exactly so many bytes."""


class HeaderInvalid(ValueError):
    """A connection of a balancer that does not begin with a header."""


class Source(NamedTuple):
    """The client's address and port, as the balancer saw them."""

    host: str
    port: int


async def read_source(read: Read) -> Source | None:
    """The client behind the balancer; None where it speaks for itself (LOCAL, UNKNOWN).

    Raises HeaderInvalid, and what `read` raises.
    """
    begin = await read(len(SIGNATURE))
    if begin == SIGNATURE:
        return await _version_2(read)
    if begin.startswith(_BEGIN):
        return _version_1(await _line(begin, read))
    raise HeaderInvalid("no PROXY header: configure the balancer to send one, version 1 or 2")


async def _line(begin: bytes, read: Read) -> bytes:
    line = bytearray(begin)
    while not line.endswith(b"\r\n"):
        if len(line) >= LINE_BYTES_MAX:
            raise HeaderInvalid(f"a PROXY line of more than {LINE_BYTES_MAX} bytes")
        line += await read(1)
    return bytes(line[:-2])


def _version_1(line: bytes) -> Source | None:
    words = line.split(b" ")
    if words[1] == b"UNKNOWN":
        return None
    if len(words) != 6 or words[1] not in (b"TCP4", b"TCP6"):
        raise HeaderInvalid("a PROXY line that is not TCP4, TCP6 or UNKNOWN with two addresses")
    try:
        address = ipaddress.ip_address(words[2].decode("ascii"))
    except ValueError:
        raise HeaderInvalid("a PROXY line whose source is no address") from None
    if address.version != (4 if words[1] == b"TCP4" else 6):
        raise HeaderInvalid("a PROXY line whose source is of another family")
    port = words[4]
    if not port.isdigit() or len(port) > 5 or not 0 <= int(port) <= 65_535:
        raise HeaderInvalid("a PROXY line whose port is no number")
    return Source(str(address), int(port))


async def _version_2(read: Read) -> Source | None:
    command, family, size = struct.unpack("!BBH", await read(4))
    if command >> 4 != 2 or command & 0xF > 1:
        raise HeaderInvalid(f"a PROXY header of version and command {command:#04x}")
    if size > BODY_BYTES_MAX:
        raise HeaderInvalid(f"a PROXY header of {size} bytes, at most {BODY_BYTES_MAX}")
    body = await read(size) if size else b""
    if command & 0xF == 0:
        return None  # LOCAL: the balancer looks whether the node is there.
    known = _SIZES.get(family)
    if known is None:
        return None  # A family without addresses that mean anything here.
    width, form = known
    if len(body) < 2 * width + 4:
        raise HeaderInvalid("a PROXY header that is cut")
    source, _, port, _ = struct.unpack_from(form, body)
    return Source(str(ipaddress.ip_address(source)), port)
