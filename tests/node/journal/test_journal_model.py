"""The journal against a plain list, over random operations, restarts and power losses."""

from __future__ import annotations

import random

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

from node.journal.journal import Entry, Journal
from node.journal.limits import JournalLimits
from node.testing.disk import SimStorage
from tests.support.journals import State, open_journal, state_of

pytestmark = pytest.mark.slow


class JournalModel(RuleBasedStateMachine):
    """`entries`, `term` and `vote` are what the journal shows; `possible` is every state that a
    power loss may leave: the newest synced one and those after it."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = SimStorage()
        self.entries: list[Entry] = []
        self.term = 0
        self.vote: str | None = None
        self.commit = 0
        self.synced_index = 0
        self.possible: list[State] = [((), 0, None)]
        self.serial = 0
        self.limits = JournalLimits()
        self.journal: Journal

    @initialize(
        segment_bytes=st.sampled_from([512, 900, 4096]),
        cache_bytes=st.sampled_from([0, 400, 1 << 20]),
        chunk_bytes=st.sampled_from([1, 50, 4096]),
    )
    def begin(self, segment_bytes: int, cache_bytes: int, chunk_bytes: int) -> None:
        self.limits = JournalLimits(
            segment_bytes=segment_bytes,
            cache_bytes=cache_bytes,
            replay_chunk_bytes=chunk_bytes,
            open_segments=2,
        )
        self.journal = open_journal(self.storage, limits=self.limits)

    def state(self) -> State:
        return tuple(self.entries), self.term, self.vote

    def changed(self) -> None:
        self.possible.append(self.state())

    def synced(self) -> None:
        self.possible = [self.state()]
        self.synced_index = len(self.entries)

    # --- what a node does ---

    @rule(size=st.sampled_from([0, 1, 5, 60, 300, 1500]), later=st.booleans())
    def add(self, size: int, later: bool) -> None:
        last_term = self.entries[-1][2] if self.entries else 0
        term = max(last_term, self.term) if later else last_term
        self.serial += 1
        command = (b"%d;" % self.serial * size)[:size]
        index = len(self.entries) + 1
        self.journal.log.add(command, index, term)
        self.entries.append((command, index, term))
        self.changed()

    @precondition(lambda self: len(self.entries) > max(self.commit, 1))
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(max(self.commit, 1), len(self.entries) - 1), label="kept")
        self.journal.log.truncate(kept)
        del self.entries[kept:]
        self.synced_index = min(self.synced_index, kept)
        self.changed()

    @rule(step=st.integers(1, 3), vote=st.sampled_from([None, "alpha", "beta"]))
    def next_term(self, step: int, vote: str | None) -> None:
        self.journal.log.set_term(self.term + step, vote)
        self.term, self.vote = self.term + step, vote
        self.synced()

    @precondition(lambda self: self.vote is None)
    @rule(vote=st.sampled_from(["alpha", "beta"]))
    def vote_in_this_term(self, vote: str) -> None:
        self.journal.log.set_term(self.term, vote)
        self.vote = vote
        self.synced()

    @rule(index=st.integers(0, 60))
    def commit_up_to(self, index: int) -> None:
        self.journal.log.note_commit(index)
        self.commit = max(self.commit, min(index, len(self.entries)))

    @rule()
    def sync(self) -> None:
        self.journal.log.sync()
        self.synced()

    @rule()
    def one_second_passes(self) -> None:
        self.journal.log.each_second()

    # --- what happens to it ---

    @rule()
    def restart(self) -> None:
        self.journal.close()
        commit = self.journal.log.commit_hint()
        self.reopen()
        assert self.journal.log.commit_hint() == commit
        assert self.journal.cut_bytes == 0

    @rule()
    def kill(self) -> None:
        self.storage.crash()
        self.reopen()

    @rule(seed=st.integers(0, 1 << 32))
    def power_loss(self, seed: int) -> None:
        self.storage.power_loss(random.Random(seed))
        self.reopen()

    def reopen(self) -> None:
        self.journal = open_journal(self.storage, limits=self.limits)
        found = state_of(self.journal)
        assert found in self.possible
        entries, self.term, self.vote = found
        self.entries = list(entries)
        # The hint is no promise, but it never goes beyond what was committed.
        self.commit = min(self.commit, len(self.entries))
        assert self.journal.log.commit_hint() <= max(self.commit, 1)
        self.journal.log.note_commit(self.commit)
        self.synced()

    # --- what must hold after each step ---

    @invariant()
    def shows_what_the_list_shows(self) -> None:
        if not hasattr(self, "journal"):
            return
        journal, entries = self.journal, self.entries
        assert len(journal.log) == len(entries)
        assert (journal.log.term, journal.log.voted_for) == (self.term, self.vote)
        assert journal.log.last_index == len(entries)
        assert journal.log.synced_index == self.synced_index
        assert journal.log.last_term == (entries[-1][2] if entries else 0)
        assert journal.log.commit_hint() == min(max(self.commit, 1), len(entries))
        if entries:
            assert journal.log[-1] == entries[-1]
            assert journal.log[0] == entries[0]

    @precondition(lambda self: self.entries)
    @rule(data=st.data(), max_bytes=st.integers(0, 2000), count=st.none() | st.integers(0, 9))
    def read_a_range(self, data: st.DataObject, max_bytes: int, count: int | None) -> None:
        first = data.draw(st.integers(1, len(self.entries)), label="first")
        found = self.journal.log.entries(first, max_bytes, count)
        assert found == self.entries[first - 1 : first - 1 + len(found)]
        total = sum(len(entry[0]) for entry in found)
        assert len(found) <= 1 or total <= max_bytes
        following = self.entries[first - 1 + len(found) : first + len(found)]
        if following and len(found) != count:
            assert found
            assert total + len(following[0][0]) > max_bytes

    @rule()
    def read_everything(self) -> None:
        assert self.journal.log[:] == self.entries


JournalModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestJournalModel = JournalModel.TestCase
