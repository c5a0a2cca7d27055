"""Conditions on messages that are looked for, first in memory, then in the log.

Owns what meets them. Must not know how messages are walked, or who looks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fifo.machine.contract import Run
from fifo.wire.operating import Find
from fifo.wire.pins import Page
from node.broker import deliveries


class Conditions(NamedTuple):
    """Conditions that a message (a run of one) meets, all that are given.

    `published_by_ms`: published then or before, in milliseconds since 1970; 0 is any time.
    """

    exception_type: str | None
    stack_line: str | None
    headers: Mapping[str, str]
    published_by_ms: int

    @property
    def given(self) -> bool:
        """Whether there is any."""
        return self != _NONE

    @property
    def read_the_log(self) -> bool:
        """Whether what some of them are about lies in entries of the log."""
        return bool(self.headers) or self.stack_line is not None

    def may_fit(self, run: Run) -> bool:
        """Whether messages published at once may be so, by what is in memory."""
        if self.published_by_ms and run.published_wall_ms > self.published_by_ms:
            return False
        if self.exception_type is None and self.stack_line is None:
            return True
        letter = run.dead_letter
        return letter is not None and self.exception_type in (
            None,
            letter.exception_type or "",
        )

    def fits(self, run: Run, read: deliveries.ReadArea) -> bool:
        """Whether one that may fit does. Raises NotCached where an entry has to be read first."""
        if self.headers and not deliveries.has_headers(run, self.headers, read):
            return False
        if self.stack_line is None:
            return True
        return (
            run.dead_letter is not None
            and deliveries.line_of(run.dead_letter, read) == self.stack_line
        )


_NONE = Conditions(None, None, {}, 0)


def of_find(message: Find) -> Conditions:
    """Those of a search."""
    headers = dict(message.headers)
    return Conditions(message.exception_type, message.stack_line, headers, message.published_by_ms)


def of_page(message: Page) -> Conditions:
    """Those of a page that the view itself does not look at."""
    return Conditions(None, message.stack_line, dict(message.headers), message.published_by_ms)
