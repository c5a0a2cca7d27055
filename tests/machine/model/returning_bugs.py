"""Bugs of messages that are returned together, for the hunt of `mutants`.

Owns those bugs, each as one place in the source of one function. Must not know what notices them.
"""

from __future__ import annotations

from fifo.machine import returns
from tests.mutants.switch import Switch, edited

BUGS: dict[str, Switch] = {
    "what is returned together never reaches its limit": edited(
        returns, "_returns_whole", "failures >= way.limit", "False"
    ),
    "what is returned together waits for no backoff": edited(
        returns, "_returns_whole", " or backoff.delay_ms(way.delay, failures - way.counts)", ""
    ),
    "what is returned together outlives its ttl": edited(
        returns, "_returns_whole", "queue.blocks[key].expires is not None", "False"
    ),
    "what is returned together is back for the first time": edited(
        returns, "_returns_whole", "known.has_any(range(held.position, end))", "False"
    ),
}
