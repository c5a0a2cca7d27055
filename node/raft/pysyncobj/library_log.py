"""The journal under the method names of the library's own `Journal`.

Owns the translation of names, and the refusal of the two calls that would lose entries. Must not
know elections or peers: term, vote, entries and the commit index pass through unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, overload

import pysyncobj.journal

from node.raft.errors import RaftStopped

if TYPE_CHECKING:
    from node.journal.journal import Journal
    from node.journal.records import Entry


class LibraryLog(pysyncobj.journal.Journal):  # type: ignore[misc]  # pysyncobj ships no types
    """Adapter that the library takes for its journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __len__(self) -> int:
        return len(self._journal)

    @overload
    def __getitem__(self, item: int) -> Entry: ...

    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...

    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        """Return entries by place in the log, not by index."""
        return self._journal[item]

    def add(self, command: bytes, index: int, term: int) -> None:
        """Append the no-op of a new leader."""
        self._journal.add(command, index, term)

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Persist term and vote."""
        self._journal.set_term(term, votedForNodeId)

    def getCurrentTerm(self) -> int:
        """Return the persisted term."""
        return self._journal.term

    def getVotedForNodeId(self) -> str | None:
        """Return the vote of the persisted term."""
        return self._journal.voted_for

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Note how far the log is committed."""
        self._journal.note_commit(raftCommitIndex)

    def getRaftCommitIndex(self) -> int:
        """Return the newest commit index noted."""
        return self._journal.commit_hint()

    def onOneSecondTimer(self) -> None:
        """Have the journal buffer its commit hint."""
        self._journal.each_second()

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Keep the first `entryFrom` entries only."""
        self._journal.truncate(entryFrom)

    def clear(self) -> NoReturn:
        """Refuse: entries that no snapshot holds would be lost (b02, b03)."""
        raise RaftStopped("raft: refusing to clear the log: no snapshot holds its entries")

    def deleteEntriesTo(self, entryTo: int) -> NoReturn:
        """Refuse: the head of the log is released by a snapshot only."""
        raise RaftStopped(f"raft: refusing to drop {entryTo} entries at the head of the log")

    def _destroy(self) -> None:
        self._journal.close()
