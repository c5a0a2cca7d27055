"""Bodies of messages, in both worlds: their own name, and content that can be checked.

Owns the bodies, and the form of a queue's spec in a history.
"""

from __future__ import annotations

import zlib
from dataclasses import fields
from typing import Any

import fifo


def body_of(name: str) -> bytes:
    """The body of a message by its name: some short, some long, all different."""
    number = zlib.crc32(name.encode())
    size = (0, 10, 100, 900, 5_000, 20_000)[number % 6]
    return name.encode() + b" " + (b"%x" % number * (size // 6 + 1))[:size]


def name_of(body: bytes) -> str:
    """The name in a body."""
    return body.split(b" ", 1)[0].decode(errors="replace")


def given(spec: fifo.QueueSpec) -> dict[str, Any]:
    """The fields of a spec that were given."""
    found = {one.name: getattr(spec, one.name) for one in fields(spec) if one.name != "name"}
    return {name: value for name, value in found.items() if value is not None}
