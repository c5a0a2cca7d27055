"""A life of a journal with snapshots, as steps that a test can stop anywhere, and what may remain.

Votes, truncations, snapshots, cleaning up in the smallest pieces, compaction, an installation
that replaces the log, and snapshots after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from node.journal.errors import JournalError, SnapshotFailed
from node.testing.disk import PowerCut, SimStorage
from tests.support.journals import command, fill, open_journal
from tests.support.snapshots import carry, kept_entry, live_entries, state_at, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from node.journal.journal import Entry, Journal
    from node.journal.snapshots.file import SnapshotMeta

SIZE = 60
"""Bytes of a command: four records and a segment of the small journals is full."""

LIVE = {8: (2, 3, 7), 16: (2, 7, 13), 30: (2, 13, 22, 29), 60: (2, 13, 29, 44, 58)}
LIVE |= {64: (2, 44, 58, 61), 70: (2, 58, 61, 69), 74: (2, 61, 73)}
"""Live entries of each snapshot of the script, by its index."""


@dataclass(frozen=True, slots=True)
class Moment:
    """All that must survive: every entry from 1 on, term, vote, and the newest snapshot's index."""

    entries: tuple[Entry, ...] = ()
    term: int = 0
    vote: str | None = None
    snapshot: int = 0

    def added(self, term: int) -> Moment:
        index = len(self.entries) + 1
        return replace(self, entries=(*self.entries, (command(index, SIZE), index, term)))

    def cut(self, first_removed: int) -> Moment:
        return replace(self, entries=self.entries[: first_removed - 1])


Step = tuple["Callable[[Journal], object]", "Callable[[Moment], Moment]"]


def leader() -> tuple[Journal, SnapshotMeta]:
    """The node that the script installs from, with the same first 30 entries."""
    journal = open_journal(SimStorage("leader"))
    fill(journal, 17, size=SIZE)
    fill(journal, 49, size=SIZE, term=3)
    journal.log.sync()
    return journal, take(journal, LIVE[60], index=60)


def script() -> Iterator[Step]:
    """(what to do, what it changes), one after the other."""
    yield from _entries(12, 1)
    yield from _snapshot(8)
    yield from _entries(8, 1)
    yield (lambda j: j.log.set_term(3, "beta"), lambda m: replace(m, term=3, vote="beta"))
    yield (lambda j: j.log.truncate(17 - j.log.first_index + 1), lambda m: m.cut(18))
    yield from _entries(15, 3)
    yield from _snapshot(16)
    yield from _snapshot(30)
    source, meta = leader()
    yield (partial(_install, source, meta), lambda m: _installed(m, source, 60))
    yield _clean()
    yield from _entries(12, 3)
    yield from _snapshot(64)
    yield from _snapshot(70)
    yield from _entries(6, 4)
    yield from _snapshot(74)


def _entries(count: int, term: int) -> Iterator[Step]:
    for number in range(1, count + 1):
        yield (lambda j: fill(j, 1, size=SIZE, term=term), lambda m: m.added(term))
        if number % 3 == 0 or number == count:
            yield (lambda j: j.log.sync(), lambda m: m)


def _snapshot(index: int) -> Iterator[Step]:
    yield (
        lambda j: take(j, LIVE[index], index=index),
        lambda m: replace(m, snapshot=index),
    )
    yield _clean()


def _clean() -> Step:
    return _clean_up, lambda m: m


def _clean_up(journal: Journal) -> None:
    journal.release()
    while journal.compact_step(1):
        pass


def _install(source: Journal, meta: SnapshotMeta, journal: Journal) -> None:
    assert carry(source, journal, meta) is False


def _installed(moment: Moment, source: Journal, index: int) -> Moment:
    entries = tuple((source.log.read(i), i, source.log.term_at(i)) for i in range(1, index + 1))
    return replace(moment, entries=entries, snapshot=index)


class Life:
    """The script on a disk, until it ends or something stops it.

    `moments` are what was after each step; what the one at `acknowledged` says is on the disk.
    A step that gives something up is tried once more, as a node would.
    """

    def __init__(self, storage: SimStorage) -> None:
        self.moments = [Moment()]
        self.acknowledged = 0
        self.given_up = 0
        self.stopped: Exception | None = None
        try:
            self._run(storage)
        except (PowerCut, JournalError) as problem:
            self.stopped = problem

    def _run(self, storage: SimStorage) -> None:
        journal = open_journal(storage)
        for action, change in script():
            syncs = storage.syncs
            # A step that is interrupted may be on the disk, or not.
            self.moments.append(change(self.moments[-1]))
            try:
                action(journal)
            except SnapshotFailed:
                self.given_up += 1
                action(journal)
            if not journal.log.dirty and storage.syncs > syncs:
                self.acknowledged = len(self.moments) - 1
        journal.close()

    @property
    def possible(self) -> list[Moment]:
        """Moments that a restart may find: nothing acknowledged is missing."""
        return self.moments[self.acknowledged :]


def check_holds(journal: Journal, moments: list[Moment]) -> Moment:
    """The journal shows one of `moments`; which one. Everything that it should have is read."""
    newest = journal.snapshot
    found = (
        journal.log.last_index,
        journal.log.last_term,
        journal.log.term,
        journal.log.voted_for,
        newest.index if newest is not None else 0,
    )
    for moment in moments:
        last = moment.entries[-1][1:] if moment.entries else (0, 0)
        if found == (*last, moment.term, moment.vote, moment.snapshot):
            break
    else:
        raise AssertionError(f"found {found}, none of {[_brief(m) for m in moments]}")
    whole = journal.log.first_whole_index
    there = [(journal.log.read(i), i, journal.log.term_at(i)) for i in range(whole, found[0] + 1)]
    assert there == list(moment.entries[whole - 1 :])
    if newest is not None:
        assert journal.log.first_index < newest.index
        assert whole <= newest.index + 1
        assert journal.log.commit_hint() >= newest.index
        assert journal.read_state(newest, 0, 1000) == state_at(newest.index)
        assert tuple(live_entries(journal, newest)) == LIVE[newest.index]
        for index in LIVE[newest.index]:
            assert kept_entry(journal, index) == moment.entries[index - 1]
            assert journal.log.read(index) == moment.entries[index - 1][0]
    return moment


def _brief(moment: Moment) -> tuple[int, int, str | None, int]:
    return len(moment.entries), moment.term, moment.vote, moment.snapshot
