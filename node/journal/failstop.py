"""The end of a journal's work at the first failure that is final.

Owns whether a journal can still be used, and the words of why not. A failed write or sync is final:
the kernel may have dropped the pages that it could not write, so a second sync that succeeds would
prove nothing. So is a read that returns something else than was written. Must not know records.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NoReturn

from node.journal.errors import JournalDamaged, JournalFailed
from node.journal.io.storage import FULL_ERRNOS

if TYPE_CHECKING:
    from collections.abc import Iterator


class FailStop:
    """Whether the journal in `folder` can be used; shared by all of its parts."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.failure: str | None = None
        """The reason why the journal's work has ended; None while it has not."""
        self.closed = False
        self.works = True
        """Neither failed nor closed: what is asked for each entry."""

    def __repr__(self) -> str:
        return f"<FailStop {'failed' if self.failure else 'closed' if self.closed else 'open'}>"

    def check(self) -> None:
        """Raise `JournalFailed` where the journal cannot be used any more."""
        if self.failure is not None:
            raise JournalFailed(self.failure)
        if self.closed:
            raise JournalFailed(f"the journal in {self._folder} is closed")

    def fail(self, problem: OSError) -> NoReturn:
        """End the journal's work for good, and raise `JournalFailed`."""
        reason = problem.strerror or str(problem)
        what = "no room left on the disk" if problem.errno in FULL_ERRNOS else "the disk failed"
        failure = (
            f"the journal in {self._folder} has stopped: {what} ({reason}); "
            "nothing that was acknowledged is lost; start the node again when the cause is gone"
        )
        self.stop(failure)
        raise JournalFailed(failure) from problem

    def stop(self, reason: str) -> None:
        """End the journal's work for good, for this reason."""
        self.failure, self.works = reason, False

    def close(self) -> None:
        """End the journal's work, for it is over."""
        self.closed, self.works = True, False

    @contextlib.contextmanager
    def final(self) -> Iterator[None]:
        """Take an OSError, as of a write or a sync, for final."""
        try:
            yield
        except OSError as problem:
            self.fail(problem)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Take for final that something was not read, or not as it was written."""
        self.check()
        try:
            with self.final():
                yield
        except JournalDamaged as damage:
            self.stop(str(damage))
            raise
