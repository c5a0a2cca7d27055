"""Snapshots and cleaning up against a plain list, over random operations and power losses."""

from __future__ import annotations

import random
from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from node.journal.journal import Journal
from node.journal.limits import JournalLimits
from node.testing.disk import SimStorage
from tests.support.journals import command, open_journal
from tests.support.snapshots import kept_entry, live_entries, state_at

if TYPE_CHECKING:
    from node.journal.journal import Entry
    from node.journal.snapshots.store import SnapshotWriter

pytestmark = pytest.mark.slow


SIZES = st.sampled_from([1, 30, 60, 200, 700])


class SnapshotModel(RuleBasedStateMachine):
    """`entries` is the whole log from 1 on; `live` what the newest snapshot needs, `index` where
    it is, 0 for none; `settled` is how much of the log a power loss may not take, `committed` how
    much of it no truncation may."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = SimStorage()
        self.entries: list[Entry] = []
        self.settled = 0
        self.committed = 1
        self.index = 0
        self.live: set[int] = set()
        self.writer: SnapshotWriter | None = None
        self.writing: tuple[int, set[int]] = (0, set())
        self.limits = JournalLimits()
        self.journal: Journal

    @initialize(
        segment_bytes=st.sampled_from([512, 900, 4096]),
        cache_bytes=st.sampled_from([0, 1 << 20]),
    )
    def begin(self, segment_bytes: int, cache_bytes: int) -> None:
        self.limits = JournalLimits(
            segment_bytes=segment_bytes, cache_bytes=cache_bytes, open_segments=2
        )
        self.journal = open_journal(self.storage, limits=self.limits)

    # --- the log ---

    @rule(count=st.integers(1, 6), size=SIZES, later=st.booleans(), sync=st.booleans())
    def add(self, count: int, size: int, later: bool, sync: bool) -> None:
        term = (self.entries[-1][2] if self.entries else 0) + later
        for _ in range(count):
            index = len(self.entries) + 1
            entry = (command(index, size + term), index, term)
            self.journal.log.add(*entry)
            self.entries.append(entry)
        if sync:
            self.sync()

    def sync(self) -> None:
        self.journal.log.sync()
        self.settled = len(self.entries)

    @precondition(lambda self: len(self.entries) > self.committed)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(self.committed, len(self.entries) - 1), label="kept")
        self.journal.log.truncate(kept + 1 - self.journal.log.first_index)
        del self.entries[kept:]
        # Another suffix could come back instead: let nothing depend on it.
        self.sync()

    # --- snapshots ---

    @precondition(lambda self: self.writer is None and len(self.entries) > max(self.index, 1))
    @rule(data=st.data())
    def begin_snapshot(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(max(self.index + 1, 2), len(self.entries)), label="index")
        usable = sorted(self.live | set(range(self.index + 1, index + 1)))
        share = data.draw(st.sampled_from([0.05, 0.3, 1.0]), label="share")
        chosen = random.Random(data.draw(st.integers(0, 1 << 30), label="seed"))
        live = {entry for entry in usable if chosen.random() < share}
        self.writer = self.journal.begin_snapshot(
            index, self.entries[index - 1][2], array("Q", sorted(live))
        )
        self.writer.write(state_at(index, 40))
        self.writing = (index, live)
        self.committed = max(self.committed, index)
        self.settled = max(self.settled, self.journal.log.synced_index)

    @precondition(lambda self: self.writer is not None)
    @rule()
    def finish_snapshot(self) -> None:
        assert self.writer is not None
        self.writer.write(state_at(self.writing[0])[40:])
        self.writer.finish()
        self.index, self.live = self.writing
        self.ended()

    @precondition(lambda self: self.writer is not None)
    @rule()
    def abort_snapshot(self) -> None:
        assert self.writer is not None
        self.writer.abort()
        self.ended()

    def ended(self) -> None:
        self.writer, self.writing = None, (0, set())

    @rule()
    def release(self) -> None:
        self.journal.release()

    @rule(budget_bytes=st.sampled_from([1, 3000, 1 << 20]), times=st.integers(1, 20))
    def clean_up(self, budget_bytes: int, times: int) -> None:
        for _ in range(times):
            if not self.journal.compact_step(budget_bytes):
                break

    # --- what happens to it ---

    @rule(how=st.sampled_from(["restart", "kill", "power"]), seed=st.integers(0, 1 << 30))
    def begin_again(self, how: str, seed: int) -> None:
        if how == "restart":
            self.journal.close()
        elif how == "kill":
            self.storage.crash()
        else:
            self.storage.power_loss(random.Random(seed))
        self.ended()
        self.journal = open_journal(self.storage, limits=self.limits)
        assert self.settled <= self.journal.log.last_index <= len(self.entries)
        assert not self.journal.warnings
        del self.entries[self.journal.log.last_index :]
        self.settled = len(self.entries)

    # --- what must hold after each step ---

    @invariant()
    def shows_what_the_list_shows(self) -> None:
        if not hasattr(self, "journal"):
            return
        journal, entries = self.journal, self.entries
        whole = journal.log.first_whole_index
        assert journal.log.last_index == len(entries)
        assert journal.log.entries(whole, 1 << 30) == entries[whole - 1 :]
        newest = journal.snapshot
        assert (newest.index if newest is not None else 0) == self.index
        if newest is None:
            return
        assert whole <= self.index
        assert journal.read_state(newest, 0, 1 << 20) == state_at(self.index)
        assert set(live_entries(journal, newest)) == self.live
        for index in self.live:
            assert kept_entry(journal, index) == entries[index - 1]


SnapshotModel.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestSnapshotModel = SnapshotModel.TestCase
