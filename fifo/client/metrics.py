"""The counters of one client object since it was made.

Owns the names. Counting is plain addition on the user's loop, except `renewals` and `locks_lost`,
which belong to the control thread.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Metrics:
    """Counters of a client; read them at any time, from any thread."""

    published: int = 0
    confirmed: int = 0
    duplicates: int = 0
    delivered: int = 0
    repeats_dropped: int = 0
    acked: int = 0
    nacked: int = 0
    released: int = 0
    terminated: int = 0
    settlements_failed: int = 0
    settlements_retried: int = 0
    settlements_succeeded_after_retry: int = 0
    settlements_exhausted: int = 0
    renewals: int = 0
    locks_lost: int = 0
    connects: int = 0
    disconnects: int = 0
    sessions_ended: int = 0

    def as_dict(self) -> dict[str, int]:
        """All counters by name."""
        return asdict(self)
