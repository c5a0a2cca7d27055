"""Builders and views of journals for tests: small limits, the visible state, a busy script."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from node.journal.journal import Entry, Journal
from node.journal.limits import JournalLimits
from node.journal.records import SEGMENT_MAGIC, decode_header
from node.journal.segments import SegmentHeader
from node.testing.disk import SimStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from node.journal.io.storage import Storage

CLUSTER = bytes(range(16))
NODE = "alpha"

SMALL = JournalLimits(
    segment_bytes=512,
    preallocation_bytes=150,
    cache_bytes=0,
    replay_chunk_bytes=100,
    open_segments=2,
)
"""Everything happens early: segments of a few records, room for one or two groups, each read goes
to the disk."""

ONE_SEGMENT = JournalLimits(preallocation_bytes=1500, cache_bytes=0)

NO_ROOM = replace(ONE_SEGMENT, preallocation_bytes=0)
"""A single segment whose file always ends where the log does."""

State = tuple[tuple[Entry, ...], int, str | None]
"""All that must survive: entries, term, vote."""


def open_journal(
    storage: Storage,
    *,
    limits: JournalLimits = SMALL,
    cluster_id: bytes = CLUSTER,
    node: str = NODE,
    recover: str | None = None,
) -> Journal:
    """A journal with a clock that stands still, so that nothing depends on time."""
    return Journal.open(
        storage,
        cluster_id=cluster_id,
        node=node,
        limits=limits,
        clock=lambda: 0.0,
        recover=recover,
    )


def journal_with(
    count: int, *, limits: JournalLimits = SMALL, size: int = 20, synced: bool = True
) -> tuple[SimStorage, Journal]:
    """A journal with entries 1 to `count` on a simulated disk of its own."""
    storage = SimStorage()
    journal = open_journal(storage, limits=limits)
    fill(journal, count, size=size)
    if synced:
        journal.log.sync()
    return storage, journal


def decode_segment_header(content: bytes) -> tuple[SegmentHeader, int, int]:
    """The header at the beginning of a segment: (header, its bytes, checksum seed)."""
    header, size, seed = decode_header(content, SEGMENT_MAGIC)
    return SegmentHeader.of(header), size, seed


def state_of(journal: Journal) -> State:
    """Return the part of what must survive that a reader of the journal can see."""
    return tuple(journal.log[:]), journal.log.term, journal.log.voted_for


def fill(journal: Journal, count: int, *, size: int = 20, term: int = 1) -> None:
    """Adds `count` entries, all different."""
    for index in range(journal.log.last_index + 1, journal.log.last_index + 1 + count):
        journal.log.add(command(index, size), index, term)


def command(index: int, size: int = 20) -> bytes:
    """A command that names its index and has `size` bytes."""
    return (b"\x10%d " % index).ljust(size, b".")[:size]


def busy_script(journal: Journal) -> Iterator[Callable[[], None]]:
    """Steps over several small segments: entries, votes, truncations, hints, syncs.

    Each step adds at most one record to the log, a sync aside.
    """
    add, vote, cut = journal.log.add, journal.log.set_term, journal.log.truncate
    yield lambda: add(b"\x01", 1, 0)
    yield lambda: vote(1, None)
    yield lambda: vote(1, NODE)
    for index in range(2, 8):
        yield lambda index=index: add(command(index), index, 1)  # type: ignore[misc]
        if index % 3 == 0:
            yield journal.log.sync
    yield lambda: journal.log.note_commit(4)
    yield journal.log.sync
    yield lambda: vote(2, "beta")
    yield lambda: cut(5)
    yield lambda: add(command(6, 70), 6, 2)
    yield journal.log.sync
    yield journal.log.each_second
    yield lambda: add(command(7, 200), 7, 2)
    yield lambda: add(command(8, 1), 8, 2)
    yield journal.log.sync
    yield lambda: vote(3, None)
    yield lambda: cut(6)
    yield journal.log.sync
    for index in range(7, 16):
        yield lambda index=index: add(command(index, 90), index, 3)  # type: ignore[misc]
        yield journal.log.sync
