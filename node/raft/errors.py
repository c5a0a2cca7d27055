"""The errors of node/raft, which stand on the root that all rooms of `node` share.

Owns `RaftStopped` and how another's exception is quoted. Errors of one subject (a configuration, a
transfer) lie in the module of that subject. Must not know queues.
"""

from __future__ import annotations

from node.journal.errors import NodeError

RaftError = NodeError
"""Root of the errors that the owner of a node catches: anything that node/raft, its journal or its
peers raise on purpose. Errors of node/raft derive from it."""


class RaftStopped(RaftError):
    """The node has stopped for good: a broken invariant, a failed journal, an apply that raised.

    `reason` is one line for the log. The process has to exit; only a restart helps.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def describe(error: BaseException) -> str:
    """Quote another package's exception within a line of ours: its type and its text."""
    return f"{type(error).__name__}: {error}"
