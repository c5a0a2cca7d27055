"""Errors of backups, each one line with what to do about it.

Owns the types. Must not know how they are shown.
"""

from __future__ import annotations


class BackupError(Exception):
    """Root of the errors that backups raise on purpose."""


class BackupFailed(BackupError):
    """A backup could not be written; nothing of it is left."""


class BackupDamaged(BackupError):
    """A file is no whole backup. `offset` is the byte where the first thing that cannot be right
    begins."""

    def __init__(self, path: str, offset: int, problem: str) -> None:
        super().__init__(
            f"{path} is no whole backup: at byte {offset}: {problem}; use another copy of it"
        )
        self.path = path
        self.offset = offset
        self.problem = problem


class RestoreRefused(BackupError):
    """A restore that would do harm, or cannot be done; nothing has been changed."""


class RebuildRefused(BackupError):
    """A rebuild that would lose more than it must, or cannot be done; nothing has been changed."""


class SkipRefused(BackupError):
    """An entry that must not be skipped; nothing has been changed."""


class EntryRaises(BackupError):
    """An entry that cannot be applied here. `cause` is what its application raised."""

    def __init__(self, index: int, cause: Exception) -> None:
        super().__init__(f"entry {index} cannot be applied: {type(cause).__name__}: {cause}")
        self.index = index
        self.cause = cause
