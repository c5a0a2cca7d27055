"""Which connections are ours: the data and the control connection of one leader, the latest known.

Owns one rule: of two connections only those of the later term count. Both threads use it. Must not
know how a connection is found, or what is done with it.
"""

from __future__ import annotations

import threading

from fifo.client.connection.link import Link


class Pair:
    """The open connection of each role. A term has one leader, so equal terms are the same node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[int, Link] = {}

    def __repr__(self) -> str:
        return f"<pair {self._links}>"

    def join(self, role: int, link: Link) -> bool:
        """Take a welcomed connection; False if the other one is of a later term.

        One of an earlier term is retired: nothing of it is read from here on, and its owner, once
        notified, closes it and follows.
        """
        with self._lock:
            for other in self._links.values():
                if other.term > link.term:
                    return False
            self._links[role] = link
            for other in self._links.values():
                other.retired = other.term < link.term
            return True

    def leave(self, link: Link) -> None:
        """Forget a connection that is closed."""
        with self._lock:
            self._links = {role: one for role, one in self._links.items() if one is not link}
