"""The acknowledgement of notices: one frame for all that came, for it covers all up to its number.

Owns which notices of a connection are to be acknowledged. Used on the loop of that connection. Must
not know what a notice says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fifo.client import limits
from fifo.client.connection.link import Link
from fifo.wire.messages import NoticeAck


class NoticeAcks:
    """Acknowledgements on one connection after the other."""

    def __init__(self, next_correlation: Callable[[], int]) -> None:
        self._next_correlation = next_correlation
        self._link: Link | None = None
        self._last = 0

    def received(self, link: Link, notice: int) -> None:
        """A notice with this number was handled; 0 is only news, and is not acknowledged."""
        if not notice:
            return
        if self._link is not link:
            self._link, self._last = link, 0
        if not self._last:
            loop = asyncio.get_running_loop()
            loop.call_later(limits.NOTICES_WAIT_S, self._acknowledge, link)
        self._last = max(self._last, notice)

    def _acknowledge(self, link: Link) -> None:
        if self._link is link and self._last:
            last, self._last = self._last, 0
            link.send(NoticeAck(last), self._next_correlation())
