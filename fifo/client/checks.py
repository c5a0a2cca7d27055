"""Checks of what a program passes, before anything is sent.

Owns the words in which a bad argument is refused. Must not know connections.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from fifo.client import limits
from fifo.client.errors import InvalidArgument, MessageTooLarge
from fifo.wire import limits as wire
from fifo.wire.columns import encode_headers
from fifo.words import names
from fifo.words.bounds import PRIORITY_MAX
from fifo.words.handles import HANDLE_BYTES

_SHOWN_BITS_MAX: Final = 128
"""A number in an error: about as wide as a line has room for."""


def name(value: object, what: str) -> str:
    """A queue's, tag's or producer's name: 1 to 255 bytes of UTF-8."""
    if type(value) is str and _is_name(value):
        return value
    value = _text(value, what, wire.QUEUE_NAME_BYTES_MAX)
    character = names.refused_character(value)
    if character is not None:
        raise InvalidArgument(f"{what}: contains the control character {character}; leave it out")
    return value


@lru_cache(maxsize=limits.NAMES_KNOWN_MAX)
def _is_name(value: str) -> bool:
    """Whether it is one; looked at once, for a program publishes to the same few."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return False
    return 1 <= size <= wire.QUEUE_NAME_BYTES_MAX and names.refused_character(value) is None


def secret(value: object, what: str) -> str:
    """A password or token: 1 to 4096 bytes of UTF-8, any characters; no error shows it."""
    return _text(value, what, wire.PROOF_BYTES_MAX)


def _text(value: object, what: str, bytes_max: int) -> str:
    """A text of at least one byte of UTF-8; no error shows it."""
    if not isinstance(value, str):
        raise InvalidArgument(f"{what}: must be text, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidArgument(f"{what}: cannot be written as UTF-8") from None
    if not 1 <= size <= bytes_max:
        raise InvalidArgument(f"{what}: must be 1 to {bytes_max} bytes, not {size}")
    return value


def handle(value: object) -> bytes:
    """A settlement handle, from the text that `message.handle` gives."""
    if not isinstance(value, str):
        raise InvalidArgument(f"handle: must be text, not {type(value).__name__}")
    if not re.fullmatch(f"[0-9a-f]{{{2 * HANDLE_BYTES}}}", value):
        raise InvalidArgument(
            f"handle: needs {2 * HANDLE_BYTES} hexadecimal digits, as `message.handle` gives,"
            f" not {len(value)} characters"
        )
    return bytes.fromhex(value)


def integer(value: object, what: str, low: int, high: int, *words: str) -> int:
    """An int from low to high; a bool is not one. `words` would have been good as well."""
    if isinstance(value, bool) or not isinstance(value, int):
        wanted = " or ".join([*words, "a whole number"])
        raise InvalidArgument(f"{what}: must be {wanted}, not {_shown(value)}")
    if not low <= value <= high:
        raise InvalidArgument(f"{what}: must be from {low} to {high}, not {_shown(value)}")
    return value


def text(value: object, what: str, bytes_max: int = wire.TEXT_BYTES_MAX) -> str | None:
    """Text for people, cut to what the protocol carries; None stays None."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidArgument(f"{what}: must be text, not {type(value).__name__}")
    encoded = value.encode(errors="replace")
    if len(encoded) <= bytes_max and value.isprintable():
        return value
    return encoded[:bytes_max].decode(errors="ignore")


def letter_text(value: object, what: str, *, keep_end: bool = False) -> str | None:
    """A text that a dead letter keeps; what is cut off stands as "...", at the end or before it."""
    if not isinstance(value, str):
        return text(value, what)
    encoded = value.encode(errors="replace")
    most = wire.LETTER_TEXT_BYTES_MAX
    if len(encoded) <= most:
        return encoded.decode()
    if keep_end:
        return "..." + encoded[3 - most :].decode(errors="ignore")
    return encoded[: most - 3].decode(errors="ignore") + "..."


def body(value: object) -> bytes:
    """A message body as bytes: what can change under our hands is copied."""
    if not isinstance(value, bytes):
        if not isinstance(value, bytearray | memoryview):
            raise InvalidArgument(f"body: must be bytes, not {type(value).__name__}")
        value = bytes(value)
    if len(value) > wire.BODY_BYTES_MAX:
        raise MessageTooLarge(
            f"body: {len(value)} bytes; a message has at most {wire.BODY_BYTES_MAX}"
        )
    return value


def key(value: object) -> bytes:
    """A key as it travels: bytes, empty for none."""
    if value is None:
        return b""
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError:
            raise InvalidArgument("key: cannot be written as UTF-8") from None
    if not isinstance(value, bytes):
        raise InvalidArgument(f"key: must be text or bytes, not {type(value).__name__}")
    if len(value) > wire.KEY_BYTES_MAX:
        raise MessageTooLarge(f"key: {len(value)} bytes; a key has at most {wire.KEY_BYTES_MAX}")
    return value


def headers(value: Mapping[str, str] | None) -> bytes:
    """Headers as they travel: encoded, empty for none."""
    if not value:
        return b""
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"headers: must be a mapping, not {type(value).__name__}")
    for one, other in value.items():
        if not isinstance(one, str) or not isinstance(other, str):
            raise InvalidArgument("headers: names and values must be text")
    try:
        return encode_headers(value)
    except ValueError as error:
        if "larger" in str(error):
            raise MessageTooLarge(f"headers: {error}") from None
        raise InvalidArgument(f"headers: {error}") from None


def dedup_id(value: object) -> bytes:
    """A dedup id as it travels: bytes, empty for none."""
    if value is None:
        return b""
    if isinstance(value, str):
        value = value.encode(errors="surrogatepass")
    if not isinstance(value, bytes):
        raise InvalidArgument(f"dedup_id: must be text or bytes, not {type(value).__name__}")
    if len(value) > wire.DEDUP_ID_BYTES_MAX:
        raise MessageTooLarge(
            f"dedup_id: {len(value)} bytes; one has at most {wire.DEDUP_ID_BYTES_MAX}"
        )
    return value


def priority(value: object) -> int:
    """A message's priority, 0 to 9."""
    return integer(value, "priority", 0, PRIORITY_MAX)


def flag(value: object, what: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{what}: must be true or false, not {_shown(value)}")
    return value


def one_of(value: Any, what: str, *allowed: str) -> str:
    """Check that `value` is one of the allowed words."""
    if value not in allowed:
        raise InvalidArgument(f"{what}: must be one of {', '.join(allowed)}, not {value!r}")
    return str(value)


def _shown(value: object) -> str:
    """A value as an error shows it: cut, for it may be long."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS_MAX:
        return f"a number of {value.bit_length()} bits"  # Python refuses to write very long ones
    return reprlib.repr(value)
