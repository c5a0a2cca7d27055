"""Tickets: with one of them the http port of a node logs in at the leader for a caller whose
certificate it has seen, and whose key it cannot have.

Owns their form and their proof: the nodes' shared secret, which makes a program a member anyway; a
cluster of one node needs none. A ticket is for a subject of a certificate and ends within a minute;
who that is, the leader says, as for a certificate. Must not know users.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Final

from node.broker import limits

_BEGINS: Final = b"fifo-ticket."
_MAC_BYTES: Final = 32
_KEY_OF: Final = b"fifo http port: ticket of a certificate"


class Tickets:
    """Issues and verifies tickets, on one node. `wall_ms`: milliseconds since 1970."""

    def __init__(self, secret: bytes | None, cluster_id: bytes, wall_ms: Callable[[], int]) -> None:
        """Without a `secret` the node alone takes its own tickets."""
        self._key = hmac.digest(secret or os.urandom(32), _KEY_OF + cluster_id, hashlib.sha256)
        self._wall_ms = wall_ms

    def issue(self, subject: str) -> str:
        """A ticket for this subject, from now on."""
        said = f"{self._wall_ms() + limits.TICKET_MS}.{subject.encode().hex()}".encode()
        mac = hmac.digest(self._key, said, hashlib.sha256).hex().encode()
        return (_BEGINS + mac + b"." + said).decode()

    def subject_of(self, text: bytes) -> str | None:
        """The subject that a ticket is for; None where it is over, or none of these nodes'."""
        if not text.startswith(_BEGINS):
            return None
        mac, _, said = text.removeprefix(_BEGINS).partition(b".")
        wanted = hmac.digest(self._key, said, hashlib.sha256).hex().encode()
        if len(mac) != 2 * _MAC_BYTES or not hmac.compare_digest(mac, wanted):
            return None
        ends_ms, _, subject = said.partition(b".")  # ours, as they were issued
        left_ms = int(ends_ms) - self._wall_ms()
        # Clocks of two nodes may be apart: a ticket of a clock ahead lasts no longer than twice.
        if not -limits.TICKET_MS < left_ms <= 2 * limits.TICKET_MS:
            return None
        return bytes.fromhex(subject.decode()).decode()
