"""Entries that are skipped: known to every member before it comes to them (raft.md 1.46).

Owns the word between members: a leader tells each member which entries it has skipped, before it
sends anything else. An operator's order lies in the journal (`node/journal/skips.py`). Must not
know what an entry is, nor when one is to be skipped.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from node.journal.skips import Skip, checksum_of
from node.raft.errors import describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.journal.io.jobs import Worker
    from node.journal.journal import Journal
    from node.peers.message import Message, PeerNode

logger = logging.getLogger(__name__)


class Skipping:
    """The skips that one member knows."""

    def __init__(
        self,
        journal: Journal,
        worker: Worker,
        *,
        send: Callable[[PeerNode, Message], bool],
        fail: Callable[[Exception], None],
    ) -> None:
        """`send` is false where a member does not know the message: one of 0.1.0 stops at such an
        entry, for good."""
        self._journal = journal
        self._worker = worker
        self._send = send
        self._fail = fail
        self.known = journal.skips
        """By index; empty almost always."""
        self.applied_from = 0
        """Entries behind this one are applied by this process, or were skipped by it."""

    def __repr__(self) -> str:
        return f"<Skipping {len(self.known)} entries>"

    def found(self, index: int, term: int, command: bytes) -> Skip | None:
        """The order to skip this very entry; None where there is none."""
        skip = self.known.get(index)
        if skip is None or skip.checksum == checksum_of(term, command):
            return skip
        logger.warning("event=skip_unused index=%d reason=it is another entry", index)
        return None

    def tell(self, node: PeerNode, term: int) -> None:
        """Tell a member of all of them, as the leader of `term`."""
        for index, checksum, by in self.known.values():
            message = {"type": "skipped", "term": term, "index": index}
            self._send(node, message | {"checksum": checksum, "by": by})

    def on_skipped(self, node: PeerNode, message: Message, applied_index: int) -> None:
        """A leader has skipped an entry. A state that has it already is no reason to skip it: that
        they differ is for their hashes to find."""
        skip = Skip(message["index"], message["checksum"], message["by"])
        if skip.index in self.known:
            return
        if self.applied_from < skip.index <= applied_index:
            logger.error(
                "event=skip_refused index=%d from=%s reason=it is applied here advice=compare the "
                "members: fifo verify",
                skip.index,
                node.id,
            )
            return
        logger.warning(
            "event=skip_known index=%d checksum=%08x from=%s", skip.index, skip.checksum, node.id
        )
        job = self._journal.skipping(skip)

        def noted(_: BaseException | None) -> None:
            if job.error is not None:
                self._fail(job.error)

        self._worker.run(job.run, noted)


def why_it_raised(index: int, term: int, command: bytes, error: Exception) -> str:
    """Words for a node that ends because an entry could not be applied."""
    said = f"raft: applying entry {index}: {describe(error)}"
    if is_own_cause(error):
        return f"{said}; the cause is this machine's: look at its memory and disk, start it again"
    return (
        f"{said}; where the same entry ends every node, stop them all and see: fifo entry show "
        f"{index} (checksum {checksum_of(term, command):08x})"
    )


def is_own_cause(error: BaseException) -> bool:
    """Whether it is this machine that failed, and not the entry: the others can apply it."""
    return isinstance(error, MemoryError | OSError)
