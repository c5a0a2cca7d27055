"""Snapshots for tests of the journal: made, read back, carried to another journal."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from node.journal.io.jobs import OffLoop
    from node.journal.journal import Entry, Journal
    from node.journal.snapshots.file import SnapshotMeta

T = TypeVar("T")


def state_at(index: int, size: int = 60) -> bytes:
    """A state that names the entry it was made at."""
    return (b"state of %d;" % index * size)[:size]


def take(
    journal: Journal, live: Iterable[int], *, index: int | None = None, size: int = 60
) -> SnapshotMeta:
    """A snapshot of everything up to `index`, or the newest entry, written in two pieces."""
    last = journal.log.last_index if index is None else index
    writer = journal.begin_snapshot(last, journal.log.term_at(last), array("Q", sorted(live)))
    state = state_at(last, size)
    writer.write(state[: size // 2])
    writer.write(state[size // 2 :])
    return writer.finish()


def clean_up(journal: Journal, budget_bytes: int = 1) -> int:
    """Lets go of everything that is not needed; how many steps that took."""
    journal.release()
    steps = 1
    while journal.compact_step(budget_bytes):
        steps += 1
    return steps


def at_once(steps: OffLoop[T]) -> T:
    """Run what a node runs off its event loop on this thread; its result."""
    while True:
        try:
            next(steps).run()
        except StopIteration as end:
            found: T = end.value
            return found


def live_entries(journal: Journal, meta: SnapshotMeta, first: int = 0) -> Iterator[int]:
    """The indexes of the entries that a snapshot needs, but for the `first` ones."""
    while first < meta.live_count:
        indexes = at_once(journal.reading_live_indexes(meta, first))
        yield from indexes
        first += len(indexes)


def kept_entry(journal: Journal, index: int) -> Entry:
    """Return an entry as a peer is sent it."""
    found = at_once(journal.reading_entries([index]))
    if not found:
        raise journal.cannot_repair(journal.damages.entries[index])
    return found[0]


def carry(source: Journal, target: Journal, meta: SnapshotMeta) -> bool:
    """Installs a snapshot of one journal in another, as a node would, in small pieces."""
    writer = target.begin_install(meta)
    for offset in range(0, meta.state_bytes, 25):
        writer.add_state(source.read_state(meta, offset, 25))
    for index in live_entries(source, meta):
        writer.add_entry(*kept_entry(source, index))
    return at_once(writer.finishing())


def flipped(content: bytes, at: int) -> bytes:
    """The same bytes with one bit flipped."""
    return content[:at] + bytes((content[at] ^ 1,)) + content[at + 1 :]
