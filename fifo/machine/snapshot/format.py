"""The state as canonical bytes and back: versioned, and equal states write equal bytes.

Owns the ways in: whole (for tests, digests and small states) or in steps (for a node that serves
meanwhile). The form is that of `snapshot_layout.py`, the walk that of `snapshot_stream.py`.
"""

from collections.abc import Generator, Iterator
from hashlib import blake2b

from fifo.machine.snapshot import snapshot_stream
from fifo.machine.snapshot.snapshot_layout import FORMAT, OLDEST
from fifo.machine.snapshot.snapshot_stream import MAGIC, SnapshotError
from fifo.machine.state.records import Frozen, State

__all__ = [
    "FORMAT",
    "MAGIC",
    "OLDEST",
    "SnapshotError",
    "chunks",
    "decode",
    "digest",
    "encode",
    "restoring",
]


def chunks(view: State | Frozen) -> Iterator[bytes]:
    """The canonical bytes in pieces, each a bounded step; pieces may be empty.

    Of a state only while nothing is applied to it; of a frozen view whatever happens meanwhile.
    """
    return snapshot_stream.write(snapshot_stream.Still(view) if isinstance(view, State) else view)


def encode(view: State | Frozen) -> bytes:
    """The canonical bytes of a state, or of a frozen view of one."""
    return b"".join(chunks(view))


def digest(view: State | Frozen) -> bytes:
    """A hash of the canonical bytes."""
    found = blake2b(digest_size=32)
    for chunk in chunks(view):
        found.update(chunk)
    return found.digest()


def restoring(data: Iterator[bytes]) -> Generator[None, None, State]:
    """Read a state from pieces of its bytes, cut anywhere. Each `next` is a bounded step; the
    state is what the generator returns. Raises `SnapshotError`."""
    return snapshot_stream.read(data)


def decode(data: bytes) -> State:
    """The state that `data` is the snapshot of. Raises `SnapshotError`."""
    steps = restoring(iter((data,)))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            state: State = end.value
            return state
