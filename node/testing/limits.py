"""Bounds of a cluster in a process.

Owns constants only, each with its unit in its name and its reason below it.
"""

from __future__ import annotations

from typing import Final

LATENCY_SECONDS: Final = 0.0002
"""Mean time of a segment on its way, as in one rack."""

CAPACITY_BYTES: Final = 262_144
"""Bytes in flight of one connection, as Linux has them."""

LOOK_SECONDS: Final = 0.0002
"""Where a test has sockets of its own, nothing happens when none becomes ready in this time, real
seconds: the loopback takes less."""

JUMP_SECONDS: Final = 0.02
"""Longest jump beside such sockets: time passes a hundred times as fast, and a delay of the machine
by one look is then a fifth of a heartbeat and no more."""

SETTLE_SECONDS: Final = 0.3
"""An expiry is at most 250 ms late, and its entry has to be committed: `advance` waits for it."""

ELECTION_SECONDS: Final = 30.0
"""Time in which a cluster has to find its first leader: thirty of the longest elections."""

ELECTION_LOOK_SECONDS: Final = 0.02
"""Interval of looks for the first leader."""

PEEK_MESSAGES_MAX: Final = 1_000
"""Maximum number of messages that a view of a queue holds."""

CALLER_SECONDS: Final = 0.02
"""Real time for which the loop waits for a thread that has got its answer: it calls again sooner,
or does what takes long, and then the nodes and the other threads go on."""
