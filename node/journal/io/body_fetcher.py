"""Entries that are not in memory, read beside the loop for those who wait for them.

Owns who waits, and one flight after the other (`fetch.py`), each with whatever gathered while the
one before was in the air. What a flight brought is in the cache while those who waited for it are
told, whatever the cache's bound; who does not use it then asks again. Knows nothing of what is done
with an entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from node.journal import limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from node.journal.io.body_fetch import BodyFetch
    from node.journal.io.worker import Worker
    from node.journal.journal import Journal


class NotCached(Exception):
    """An entry is there, but not in memory: whoever needs it has to ask for it."""


class FetchWaiter(Protocol):
    """Somebody who needs entries."""

    def needs(self) -> Iterable[Sequence[int]]:
        """Indexes of entries in the order in which they are needed, in groups each of which is of
        use only as a whole. Asked when the reading begins; it may be cut off behind a group."""

    def came(self) -> None:
        """Entries were read and are at hand until this returns: at least the first group, but for
        what is gone or has moved meanwhile."""


class ReadAhead:
    """Nobody yet: an entry that is likely to be needed soon."""

    def __init__(self, index: int) -> None:
        self._index = index

    def needs(self) -> Iterable[Sequence[int]]:
        """See `FetchWaiter`."""
        return [[self._index]]

    def came(self) -> None:
        """It is in the cache for whoever comes."""


class BodyFetcher:
    """Those who wait for entries, and the one flight that may be under way."""

    def __init__(
        self, journal: Journal, offload: Worker, failed: Callable[[Exception], None]
    ) -> None:
        """`failed` is told what ends the node: a disk that does not read what was written."""
        self._journal = journal
        self._offload = offload
        self._failed = failed
        self._waiting: dict[FetchWaiter, None] = {}
        self._aboard: dict[FetchWaiter, None] = {}
        self._flight: BodyFetch | None = None
        self._sending = False
        self._ahead = range(0)

    def __repr__(self) -> str:
        return f"<BodyFetcher {len(self._waiting)} wait, {len(self._aboard)} aboard>"

    def ask(self, asker: FetchWaiter) -> None:
        """Have `asker` told once what it needs was read; once, however often this is asked."""
        if asker not in self._aboard:
            self._waiting[asker] = None
            self._go_on()

    def used(self, index: int) -> None:
        """An entry is used. Where it was read ahead, the next ones are from now on, so that who
        reads the log in order need not stand again."""
        if index in self._ahead:
            following = self._ahead.stop
            self._ahead = range(0)
            self.ask(ReadAhead(following))

    def drop(self, asker: FetchWaiter) -> None:
        """It needs nothing any more, and is not told."""
        self._waiting.pop(asker, None)
        self._aboard.pop(asker, None)

    def _go_on(self) -> None:
        if self._sending:
            return  # A flight has landed within `run`: the loop below sees it.
        self._sending = True
        try:
            while self._flight is None and self._waiting:
                self._take_off()
        except Exception as error:
            self._failed(error)
        finally:
            self._sending = False

    def _take_off(self) -> None:
        fetch = self._flight = self._journal.begin_fetch()
        while self._waiting and fetch.size < limits.FETCH_BYTES:
            asker = next(iter(self._waiting))
            del self._waiting[asker]
            self._aboard[asker] = None
            fetch.add(asker.needs())
        self._offload.run(fetch.run, lambda _: self._landed(fetch))

    def _landed(self, fetch: BodyFetch) -> None:
        try:
            with self._journal.fetched(fetch):
                while self._aboard:
                    asker = next(iter(self._aboard))
                    del self._aboard[asker]
                    asker.came()
        except Exception as error:
            self._failed(error)
            return
        self._flight = None
        self._ahead = fetch.ahead
        self._go_on()
