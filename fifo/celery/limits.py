"""The bounds of the kombu transport, each with its unit and its reason."""

from typing import Final

PREFETCH_UNLIMITED: Final = 1_000
"""Messages that a consumer holds where the app asks for no limit (`prefetch_count` 0): what one
step of a node hands out, and more than a worker finishes while the next ones travel."""

QUEUES_KNOWN_S: Final = 2.0
"""Seconds for which the queues of a fanout or topic exchange are kept: a worker sends some events a
second, and each look makes the leader compare the names of all queues."""

TRANSIENT_EXPIRES_S: Final = 60.0
"""Seconds after which a queue of one process (exclusive, auto-delete) goes when its process is
gone: long enough for a change of leader and a restart of the network."""

UNWAITED_MAX: Final = 10_000
"""Transient messages (events, replies of remote control) under way at once; more are dropped, as a
broker drops what is not persistent, rather than filling a worker's memory while no leader is in
reach."""

CONNECT_S: Final = 2.0
"""Seconds for one try to find a leader: longer than an election; then kombu tries its other URLs,
within its own time-out of 5 s."""

CLOSE_S: Final = 5.0
"""Seconds for the last settlements when a connection closes, and for the end of its thread."""

DEAD_TTL_S: Final = 7 * 86_400.0
"""Seconds that a rejected task is kept where the app has named no dead-letter queue: long enough to
be found and sent back, and nothing that grows for ever."""

RELEASED_AVOIDS_S: Final = 1.1
"""Seconds for which a message is not handed to the session that gave it back (semantics.md 7.3),
and a little for the way: a `basic_get` after a requeue waits for it that long."""
