"""The example in hex at the end of `docs/protocol.md`, made by the code.

`python -m tests.wire.hex_example` prints it; a test compares it with the page and with `encode`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

import msgpack

from fifo.wire.columns import Publication, pack_publication, pack_u32
from fifo.wire.frames import PREFIX
from fifo.wire.messages import Confirms, Deliver, Hello, Message, Publish, Receipt, Settle

BODY: Final = b"hi"
_COLUMNS, _PARTS = pack_publication(Publication([BODY], keys=[b"k1"]))
_SIZE, _KEY_LENGTH = pack_u32([2]), pack_u32([2])
RAW: Final = (
    (_SIZE, "column 0, sizes: 2"),
    (_KEY_LENGTH, "column 1, key lengths: 2"),
    (b"k1", "column 2, keys"),
    (BODY, "bodies"),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One frame of the example: who sends it, and its raw part in commented pieces."""

    sender: str
    message: Message
    correlation: int
    raw: Sequence[tuple[bytes, str]] = ()


STEPS: Final = (
    Step("client", Hello(1, 1, 0, bytes(range(16)), bytes(range(16, 32)), "stranger"), 0),
    Step("client", Publish("orders", 0, 0, 1, 1, _COLUMNS), 1, RAW),
    Step("node", Confirms(((1, 7, 12, 0, 1),)), 0),
    Step(
        "node",
        Deliver(5, "orders", 1, 1, 30_000, _COLUMNS, ((1, 7, 12, 1, 1_767_225_600_000),)),
        0,
        RAW,
    ),
    Step("client", Settle(5, 0, ((1, 1),)), 2),
    Step("node", Receipt(5, ((1, 1, 0, False),)), 2),
)


def pieces(step: Step) -> Iterator[tuple[bytes, str]]:
    """The bytes of a step's frame, piece by piece, each with what it is."""
    message, values = step.message, step.message.to_fields()
    header = msgpack.packb([message.TYPE, step.correlation, *values])
    raw_bytes = sum(len(part) for part, _ in step.raw)
    prefix = PREFIX.pack(len(header), raw_bytes)
    yield prefix[:4], f"header: {len(header)} bytes"
    yield prefix[4:], f"raw: {raw_bytes} bytes"
    packed_type = msgpack.packb(message.TYPE)
    packed_correlation = msgpack.packb(step.correlation)
    array = header[: header.index(packed_type + packed_correlation)]
    yield array, f"an array of {2 + len(values)}"
    yield packed_type, f"type {message.TYPE}"
    yield packed_correlation, f"correlation {step.correlation}"
    for field, value in zip(fields(message), values, strict=False):
        yield msgpack.packb(value), f"{field.name} = {shown(value)}"
    yield from step.raw


def shown(value: object) -> str:
    """A value as the page writes it."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, tuple):
        return "[" + ", ".join(shown(item) for item in value) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower()


def listing() -> str:
    """All steps as the page prints them."""
    blocks = []
    for step in STEPS:
        lines = [f"{type(step.message).__name__}, sent by the {step.sender}:", ""]
        for part, meaning in pieces(step):
            rows = [part[at : at + 16].hex(" ") for at in range(0, len(part), 16)]
            lines += [f"    {row}" for row in rows[:-1]]
            lines.append(f"    {rows[-1]:<50}{meaning}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    print(listing(), end="")
