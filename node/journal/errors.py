"""The errors of the journal, and the root of every error that the rooms of `node` raise on purpose.

Owns the exception types and the texts that they share. Must not know queues, sockets, files or
Raft; node/peers and node/raft derive their own errors from `NodeError`, so that the owner of a
node catches that one type (node/raft exports it as `RaftError`). A new type belongs in
`docs/storage.md` when an operator can meet it.

Every message is one line that says what is wrong, where, and what to do about it, because it is
what the operator sees when the node stops.
"""

from __future__ import annotations

from typing import Final

REMEDY: Final = (
    "check the disk, then start this node once with `fifo serve --recover`, which sets these files "
    "aside and gets everything back from the other nodes, which keep serving; do not empty the "
    "folder or restore an older copy: a node that forgets its votes can lose acknowledged "
    'messages (docs/storage.md, "Damage")'
)
"""The remedy for a damaged journal."""


class NodeError(Exception):
    """Root of the errors that the journal, the peers and the Raft node raise on purpose."""


class JournalError(NodeError):
    """Root of the journal's errors."""


class JournalRefused(JournalError):
    """A call that would break an invariant of the log, such as a gap or a second vote in one term.

    Nothing has changed. The caller is wrong about the log and has to stop: going on is not safe.
    """


class SnapshotFailed(JournalError):
    """A snapshot, an installation or a compaction was given up; the message says which and why.

    Not final: nothing of it is left, the journal is what it was, and it may be tried again.
    """


class JournalDamaged(JournalError):
    """The journal on disk is not what was written, and it is not a torn tail either.

    `file` is the file's name within the journal folder, `offset` the byte where the first thing
    that cannot be right begins, `remedy` what the operator can do. Nothing has been changed on
    disk when this is raised.
    """

    def __init__(self, file: str, offset: int, problem: str, remedy: str) -> None:
        super().__init__(f"journal damaged: {file} at byte {offset}: {problem}; {remedy}")
        self.file = file
        self.offset = offset
        self.problem = problem
        self.remedy = remedy


class JournalWhole(JournalError):
    """A journal that was to be given up can be read from its beginning to its end."""


class JournalForeign(JournalError):
    """The folder holds the journal of another cluster or node, or something else altogether."""


class JournalLocked(JournalError):
    """Another process uses this journal folder; the message names the folder and the process."""


class JournalFull(JournalError):
    """No room on the disk to open the journal, or an entry larger than a record may be."""


class JournalUnusable(JournalError):
    """The folder cannot be used: not a folder, not writable, not readable, no such device."""


class JournalFailed(JournalError):
    """A write or sync failed while running. Final: the node must stop and never acknowledge again.

    The file may hold more or less than was acknowledged-to-be; opened again once the cause is
    gone, the journal holds everything that was acknowledged.
    """
