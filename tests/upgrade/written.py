"""Files as a release writes them: run by that release's own modules, never by those of today.

`python -m tests.upgrade.maker 0.1.0` runs it with the wheels and the tests of that release. It
writes entries and what they did, frames of clients, messages of members, a snapshot, a journal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgpack

from fifo.machine import Machine
from fifo.machine.commands import to_list
from fifo.machine.contract import live_entries
from fifo.wire import encode as encode_client
from node.broker import entry
from node.peers import frames
from node.peers.handshake import DialerSide, Identity, ListenerSide
from tests.machine import pinned, story
from tests.machine.test_commands import SAMPLES
from tests.node.journal.test_journal_format import example_with_snapshot, files_of
from tests.wire.examples import EXAMPLES

ID = bytes(range(16))
VALUES: tuple[Any, ...] = (
    *(7, True, "n2", ID, bytes(range(32)), [3, 4]),
    *([["peer", 4, 5]], [["n1", ID, 2, ID, [ID]]], [["n1", ID]]),
)
"""Of these the first that fits is the value of a field of a member's message."""

WITH_ENTRIES = {
    "append_entries": [(b"\x10one", 8, 7), (b"\x01", 9, 7)],
    "snapshot_entries": [(b"\x10one", 3, 6), (b"\x10two", 9, 7)],
}


def packed_entry(packed: list[bytes], area: Any, stamp_ms: int, wall_ms: int) -> bytes:
    """An entry, as the release packs it: it had one version, and no argument for it."""
    stamps: dict[str, Any] = {"stamp_ms": stamp_ms, "wall_ms": wall_ms}
    return b"".join(map(bytes, entry.pack(packed, [bytes(area)], **stamps)))


def recorded(work: Any) -> dict[str, Any]:
    """The entries that `work` applies to the one machine that it makes, and the state after."""
    entries: list[list[Any]] = []
    machines: dict[int, Machine] = {}
    apply_batch = Machine.apply_batch

    def applied(self: Machine, meta: Any, batch: Any) -> Any:
        machines[id(self)] = self
        packed = [entry.pack_command(to_list(one)) for one in batch]
        entries.append([meta.index, packed_entry(packed, meta.area, meta.stamp_ms, meta.wall_ms)])
        return apply_batch(self, meta, batch)

    Machine.apply_batch = applied  # type: ignore[method-assign]
    try:
        work()
    finally:
        Machine.apply_batch = apply_batch  # type: ignore[method-assign]
    (machine,) = machines.values()
    return {
        "entries": entries,
        "hash": machine.running_hash,
        "digest": machine.digest(),
        "live": [list(some) for some in live_entries(machine.freeze())],
    }


def stories() -> bytes:
    """Entries of every golden story, and of the state of the pinned snapshot."""
    folder = Path(story.__file__).parent / "golden"
    found = {
        path.stem: recorded(lambda path=path: story.run(path.read_text()))
        for path in sorted(folder.glob("*.txt"))
    }
    return bytes(msgpack.packb({**found, "pinned": recorded(pinned.build)}))


def commands() -> bytes:
    """An entry with every command, whether a state could take it or not."""
    packed = [entry.pack_command(to_list(one)) for one in SAMPLES]
    return packed_entry(packed, b"area", 5, 6)


def message_of(name: str, fields: Any) -> dict[str, Any]:
    """A message of a member of this type."""
    message: dict[str, Any] = {"type": name}
    for field, fits in fields:
        message[field] = next(value for value in VALUES if fits(value))
    if name in WITH_ENTRIES:
        message["entries"] = WITH_ENTRIES[name]
    if name in ("snapshot_state", "entry_found", "note"):
        message["data"] = b"state"
    if name == "snapshot_offer":
        message["members"] = b""  # Not empty from version 2 on alone.
    return message


def members(names: Iterable[str] = frames.FORMATS) -> bytes:
    """A message of each of these types, and its bytes."""
    found = {}
    for name in names:
        message = message_of(name, frames.FORMATS[name][1])
        found[name] = [message, b"".join(map(bytes, frames.encode(message)))]
    return bytes(msgpack.packb(found))


def handshake(tells: bytes = b"") -> bytes:
    """The four frames of a handshake whose secrets are known; `tells`: the first bytes of both
    incarnations."""

    def identity(name: str, byte: bytes) -> Identity:
        incarnation = tells + byte * (16 - len(tells))
        return Identity(name=name, cluster_id=b"c" * 16, secret=b"secret", incarnation=incarnation)

    dialer = DialerSide(identity("n2", b"d"), lambda size: b"D" * size, "n1")
    listener = ListenerSide(identity("n1", b"l"), lambda size: b"L" * size, frozenset({"n2"}))
    hello = dialer.hello()
    challenge, _ = listener.received(hello)
    assert challenge is not None
    proof, _ = dialer.received(challenge)
    assert proof is not None
    welcome, proven = listener.received(proof)
    assert welcome is not None
    assert proven
    return bytes(msgpack.packb([hello, challenge, proof, welcome]))


def clients() -> bytes:
    """A frame of each message of the client protocol."""
    found = [b"".join(map(bytes, encode_client(one, 9, [b"raw"]))) for one in EXAMPLES]
    names = [type(one).__name__ for one in EXAMPLES]
    return bytes(msgpack.packb([list(one) for one in zip(names, found, strict=True)]))


def main(folder: Path) -> None:
    """Write all files."""
    made = {
        "stories": stories(),
        "commands": commands(),
        "members": members(),
        "handshake": handshake(),
        "clients": clients(),
        "snapshot": pinned.build().machine.snapshot(),
        **files_of(example_with_snapshot()),
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
